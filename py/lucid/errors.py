"""The exceptions. Each derives from `LucidError` and from the builtin that PyTorch raises in the same place."""

from __future__ import annotations

from lucid._C import BackendError as BackendError
from lucid._C import BackendLimit as BackendLimit
from lucid._C import DeviceMismatch as DeviceMismatch
from lucid._C import DistBackendError as DistBackendError
from lucid._C import DtypeMismatch as DtypeMismatch
from lucid._C import FileError as FileError
from lucid._C import FileNotFoundError as FileNotFoundError
from lucid._C import GpuNotAvailable as GpuNotAvailable
from lucid._C import IndexError as IndexError
from lucid._C import InternalError as InternalError
from lucid._C import LinAlgError as LinAlgError
from lucid._C import LucidError as LucidError
from lucid._C import NotImplementedError as NotImplementedError
from lucid._C import OutOfMemory as OutOfMemory
from lucid._C import OverflowError as OverflowError
from lucid._C import RuntimeError as RuntimeError
from lucid._C import ShapeMismatch as ShapeMismatch
from lucid._C import TypeError as TypeError
from lucid._C import UnsupportedDtype as UnsupportedDtype
from lucid._C import ValueError as ValueError
from lucid._C import VersionMismatch as VersionMismatch
