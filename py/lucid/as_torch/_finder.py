"""What answers for `torch`: the finder of its modules and of its metadata, and the module `torch` itself."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.metadata
import os
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import lucid
from lucid._absent import MODULES
from lucid.as_torch._functions import meshgrid
from lucid.as_torch._meta import device_type
from lucid.as_torch._thin import THIN, complete, fill, make, top
from lucid.torch_version import TorchVersion

#: The version of PyTorch whose names and meaning Lucid has, with Lucid's own behind the plus sign.
VERSION = TorchVersion(f"2.15.0+lucid.{lucid.__version__}")
#: Environment variable for processes that `multiprocessing` starts: what their main module is.
MAIN = "LUCID_AS_TORCH_MAIN"


def _own_name(name: str) -> str:
    """The module of Lucid for a module of PyTorch."""
    return "lucid" + name.removeprefix("torch")


class _Stand(types.ModuleType):
    """A module with the names of another: reading, writing and listing go there, but for what it has of its own."""

    def __init__(self, name: str, behind: types.ModuleType, **own: Any) -> None:
        super().__init__(name, behind.__doc__)
        self.__dict__.update({"_thin": {}, **own, "_behind": behind})

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self.__dict__["_behind"], name)
        except AttributeError:
            # A thin module stands in for one that is not there, once it is imported.
            there = sys.modules.get(f"{self.__name__}.{name}") or self.__dict__["_thin"].get(name)
            if there is None:
                raise
            return there

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            self.__dict__[name] = value
        elif getattr(value, "__name__", None) != f"{self.__name__}.{name}":
            setattr(self.__dict__["_behind"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.__dict__["_behind"], name)

    def __dir__(self) -> list[str]:
        return dir(self.__dict__["_behind"])


def _torch() -> types.ModuleType:
    import lucid.version

    made = _Stand("torch", lucid, __version__=VERSION, __file__=lucid.__file__, __path__=[], _thin=top())
    version = _Stand("torch.version", lucid.version, __version__=str(VERSION), __file__=lucid.version.__file__)
    made.__dict__.update(version=version, torch=made, device=device_type(), meshgrid=meshgrid)
    return made


class _Loader:
    """Gives the module of Lucid under its second name."""

    def __init__(self, module: types.ModuleType) -> None:
        self.module = module
        self.spec = module.__spec__

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return self.module

    def exec_module(self, module: types.ModuleType) -> None:
        # The import system has written the second name's spec into it; relative imports go by the first.
        if not isinstance(module, _Stand):
            module.__spec__ = self.spec
        _keep_functions(module)


def _keep_functions(package: types.ModuleType) -> None:
    """Registers the files of a package under whose names it shows something else, such as `nn.utils.weight_norm`.

    An import of what is not registered would put the file in the function's place. Of a module without files, such as
    `torch._C`, all that is below it is registered, since nothing else finds it.
    """
    own = package.__name__
    for name, file in list(sys.modules.items()):
        parent, _, child = name.rpartition(".")
        if parent != own or not own.startswith("lucid."):
            continue
        if vars(package).get(child, file) is not file or not hasattr(package, "__path__"):
            sys.modules.setdefault("torch" + name.removeprefix("lucid"), file)


class TorchFinder:
    """The finder of `torch` and its modules, and of its metadata."""

    def __init__(self) -> None:
        self.torch = _torch()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Finds `torch` and what is below it; other names are left to the other finders.

        Raises:
            ModuleNotFoundError: Lucid has no such module. The message tells the reason where it is known.
        """
        if fullname == "torch":
            found = self.torch
        elif fullname == "torch.version":
            found = self.torch.version
        elif fullname.startswith("torch."):
            found = self._module(fullname)
        else:
            return None
        package = hasattr(found, "__path__")
        loader: Any = _Loader(found)
        spec = importlib.machinery.ModuleSpec(fullname, loader, origin=found.__dict__.get("__file__"))
        if package:
            spec.submodule_search_locations = list(found.__path__)
        return spec

    def _module(self, fullname: str) -> types.ModuleType:
        name = _own_name(fullname)
        try:
            found = importlib.import_module(name)
            fill(found, name.partition(".")[2])
            return found
        except ModuleNotFoundError as e:
            if e.name is None or not (name + ".").startswith(e.name + "."):
                raise
            missing = e.name
        inner = name.partition(".")[2]
        if inner in THIN:
            return make(inner)
        inner = missing.partition(".")[2]
        reason = MODULES.get(inner) or f"Lucid has no module {missing}"
        raise ModuleNotFoundError(f"No module named {fullname!r}: {reason}", name=fullname) from None

    def find_distributions(self, context: Any = None) -> Iterator[importlib.metadata.Distribution]:
        """The metadata of `torch`, for `importlib.metadata`."""
        name = getattr(context, "name", None)
        if name is None or name.replace("_", "-").lower() == "torch":
            yield _Distribution()

    def invalidate_caches(self) -> None:
        """Nothing is cached."""


class _Distribution(importlib.metadata.Distribution):
    """The metadata of `torch`: a name, a version and the module that it has."""

    _FILES: dict[str, str] = {  # noqa: RUF012
        "METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {VERSION}\nSummary: Lucid under PyTorch's names\n",
        "top_level.txt": "torch\n",
        "INSTALLER": "lucid.as_torch\n",
    }

    def read_text(self, filename: str) -> str | None:
        return self._FILES.get(filename)

    def locate_file(self, path: str | os.PathLike[str]) -> Any:
        return Path(str(lucid.__file__)).parent / path

    @property
    def files(self) -> None:
        return None


def _watch_processes() -> None:
    """Makes processes that `multiprocessing` starts run their main module under the same switch."""
    from multiprocessing import spawn

    former = spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        data: dict[str, Any] = former(name)
        main = ""
        for key in ("init_main_from_path", "init_main_from_name"):
            if key in data:
                main = f"{key}={data.pop(key)}"
        os.environ[MAIN] = main
        data["init_main_from_name"] = "lucid.as_torch._child"
        return data

    spawn.get_preparation_data = get_preparation_data
    # Those of the start methods have it by name.
    for method in ("popen_spawn_posix", "popen_spawn_win32", "popen_forkserver"):
        there = sys.modules.get(f"multiprocessing.{method}")
        if there is not None and hasattr(there, "get_preparation_data"):
            there.get_preparation_data = get_preparation_data  # type: ignore[attr-defined]


def _refuse(names: Iterable[str]) -> None:
    raise ImportError(
        f"lucid.as_torch: PyTorch is imported already ({', '.join(sorted(names)[:3])}); import lucid.as_torch before "
        "anything that imports torch, or start the program with `python -m lucid.as_torch`"
    )


def install() -> None:
    """Puts the finder first. A second call changes nothing.

    Raises:
        ImportError: PyTorch was imported before.
    """
    if any(isinstance(finder, TorchFinder) for finder in sys.meta_path):
        return
    there = [n for n in ("torch", "torch._C", "torch.nn") if n in sys.modules]
    if there:
        _refuse(there)
    sys.meta_path.insert(0, TorchFinder())
    importlib.invalidate_caches()
    complete()
    _watch_processes()
