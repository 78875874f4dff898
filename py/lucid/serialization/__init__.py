"""Saving and loading: PyTorch's checkpoints, safetensors, and sharded checkpoints with an index.

`docs/serialization.md` describes the formats. Files are replaced in one step, and reading them runs none of their code.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from lucid._absent import teller
from lucid._C import device
from lucid.serialization._errors import InvalidFileError as InvalidFileError
from lucid.serialization._errors import UnpicklingError as UnpicklingError
from lucid.serialization._load import _LEGACY_PROTOCOL, _MAGIC
from lucid.serialization._load import load as load
from lucid.serialization._migrations import register_op_migration as register_op_migration
from lucid.serialization._migrations import unregister_op_migration as unregister_op_migration
from lucid.serialization._options import get_default_mmap_options as get_default_mmap_options
from lucid.serialization._options import set_default_mmap_options as set_default_mmap_options
from lucid.serialization._options import skip_data as skip_data
from lucid.serialization._safetensors import load_safetensors as load_safetensors
from lucid.serialization._safetensors import safe_open as safe_open
from lucid.serialization._safetensors import save_safetensors as save_safetensors
from lucid.serialization._save import PROTOCOL
from lucid.serialization._save import save as save
from lucid.serialization._sharded import load_sharded as load_sharded
from lucid.serialization._sharded import save_sharded as save_sharded
from lucid.serialization._unpickle import add_safe_globals as add_safe_globals
from lucid.serialization._unpickle import clear_safe_globals as clear_safe_globals
from lucid.serialization._unpickle import get_safe_globals as get_safe_globals
from lucid.serialization._unpickle import safe_globals as safe_globals

#: PyTorch's numbers of its formats: the protocol of pickled checkpoints, and what files from before 1.6 begin with.
DEFAULT_PROTOCOL = PROTOCOL
MAGIC_NUMBER = _MAGIC
PROTOCOL_VERSION = _LEGACY_PROTOCOL
STORAGE_KEY_SEPARATOR = ","
LONG_SIZE, INT_SIZE, SHORT_SIZE = (struct.Struct(f"={code}").size for code in "lih")

#: What tells `load` where a tensor goes: a device, a function of a storage and its place, or a mapping of places.
MAP_LOCATION: TypeAlias = Callable[[Any, str], Any] | device | str | dict[str, str] | None

if not TYPE_CHECKING:
    __getattr__ = teller(__name__)
