"""Makes `import torch`, and all below it, mean Lucid in this process, for packages that cannot be edited.

    import lucid.as_torch          # before anything imports torch
    import timm

or, for a script that is not to be edited either, `python -m lucid.as_torch script.py arguments…` (also `-m module` and
`-c code`).

From then on `import torch.nn.functional as F` gives the module `lucid.nn.functional` itself, whether PyTorch is
installed or not. `torch` is a module of its own with Lucid's names, so that `torch.__version__` can be the version of
PyTorch whose interface Lucid has (`VERSION`), while `lucid.__version__` stays.

- `importlib.metadata.version("torch")` and `importlib.util.find_spec("torch")` answer.
- Pickles that name PyTorch's functions load.
- Processes that `multiprocessing` starts have the same switch.
- Libraries that were compiled for PyTorch are not loaded: torchvision's ops are `lucid.ops.torchvision`.
- Modules and names that Lucid lacks, and that packages import anyhow, say why when they are used.

Raises:
    ImportError: PyTorch was imported before, so that its modules are in use.
"""

from __future__ import annotations

from lucid.as_torch._finder import VERSION as VERSION
from lucid.as_torch._finder import install as _install

__all__ = ["VERSION"]

_install()
