"""The ops of torchvision's compiled libraries, as compositions of Lucid's ops: `lucid.ops.torchvision` and
`lucid.ops.image`.

torchvision's wheel has them compiled for PyTorch. `lucid.ops.load_library` registers these in their place, and
torchvision's own Python, which is unmodified, calls them. Importing this package registers them too.
"""

from __future__ import annotations

from lucid._vision import _register as _register
