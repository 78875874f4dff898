"""Parts of data loading by the files that PyTorch has them in, as `torch.utils.data._utils`."""

from __future__ import annotations

from lucid.utils.data._utils import collate as collate
from lucid.utils.data._utils import fetch as fetch
from lucid.utils.data._utils import pin_memory as pin_memory
from lucid.utils.data._utils import worker as worker

#: Seconds after which a wait looks whether the other process lives.
MP_STATUS_CHECK_INTERVAL = 5.0
