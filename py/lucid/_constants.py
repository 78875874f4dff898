"""Numbers that PyTorch's namespace has too."""

from __future__ import annotations

import math

e = math.e
inf = math.inf
nan = math.nan
pi = math.pi
newaxis = None
