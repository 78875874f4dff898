"""Models and weights from folders, GitHub and the network, as `torch.hub`, with checked hashes and a cache.

A repository has a file `hubconf.py` whose functions are its models. The cache is `$LUCID_HOME/hub`, by default
`$XDG_CACHE_HOME/lucid/hub` or `~/.cache/lucid/hub`. What is fetched is written beside its place, checked, and renamed.
"""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import uuid
import zipfile
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlparse
from urllib.request import Request, urlopen

from lucid import errors
from lucid._warnings import warn

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
READ_DATA_CHUNK = 128 * 1024
MODULE_HUBCONF = "hubconf.py"
VAR_DEPENDENCY = "dependencies"
ENV_LUCID_HOME = "LUCID_HOME"
_ARCHIVE = "https://github.com/{owner}/{repo}/zipball/{ref}"

_dir: str | None = None


def _get_torch_home() -> str:
    """The folder of Lucid's caches."""
    cache = os.getenv("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.getenv(ENV_LUCID_HOME, os.path.join(cache, "lucid")))


def get_dir() -> str:
    """Returns the folder of repositories and, in `checkpoints`, of weights.

    Example:
        >>> lucid.hub.set_dir("/tmp/models")
        >>> lucid.hub.get_dir()
        '/tmp/models'
        >>> lucid.hub.set_dir(None)
    """
    return _dir if _dir is not None else os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str] | None) -> None:
    """Sets the folder that `get_dir` returns; `None` for the default.

    Args:
        d (str | os.PathLike[str], optional): the folder; None for the default.

    Example:
        >>> before = lucid.hub.get_dir()
        >>> lucid.hub.set_dir(before)
        >>> lucid.hub.get_dir() == before
        True
    """
    global _dir
    _dir = None if d is None else os.path.expanduser(os.fspath(d))


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Fetches a file.

    Args:
        url (str): of the schemes `http`, `https` and `file`.
        dst (str): the path to write to; replaced in one step once all is there.
        hash_prefix (str, optional): the first hexadecimal digits of the SHA-256 of its bytes. Default: None, not
            checked.
        progress (bool, optional): whether to show a bar on stderr (with `tqdm`, where it is installed). Default: True.

    Raises:
        RuntimeError: the hash differs; nothing is written.
        URLError: it cannot be fetched.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     source = pathlib.Path(folder, "weights.bin")
        ...     _ = source.write_bytes(b"1234")
        ...     lucid.hub.download_url_to_file(source.as_uri(), f"{folder}/copy.bin", progress=False)
        ...     pathlib.Path(folder, "copy.bin").read_bytes()
        b'1234'
    """
    dst = os.path.expanduser(dst)
    sha, written = hashlib.sha256(), 0
    part = f"{dst}.{uuid.uuid4().hex}.partial"
    try:
        with urlopen(Request(url, headers={"User-Agent": "lucid.hub"})) as source, open(part, "xb") as file:
            size = source.headers.get("Content-Length")
            with _bar(int(size) if size else None, progress) as advance:
                while chunk := source.read(READ_DATA_CHUNK):
                    file.write(chunk)
                    sha.update(chunk)
                    written += len(chunk)
                    advance(len(chunk))
        if size is not None and written != int(size):
            raise errors.RuntimeError(f"{url}: {written} bytes came of {size}; try again")
        if hash_prefix is not None and not sha.hexdigest().startswith(hash_prefix):
            raise errors.RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{sha.hexdigest()}")')
        os.replace(part, dst)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)


@contextlib.contextmanager
def _bar(total: int | None, progress: bool) -> Iterator[Callable[[int], Any]]:
    try:
        from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        progress = False
    if not progress:
        yield lambda n: None
        return
    with tqdm(total=total, unit="B", unit_scale=True, unit_divisor=1024) as bar:
        yield bar.update


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = True,
) -> Any:
    """Loads what `lucid.save` or `torch.save` wrote from a URL; fetched once, then taken from the cache.

    Args:
        url (str): of the file; a ZIP file with one file in it is unpacked.
        model_dir (str, optional): the folder of the cache. Default: `checkpoints` in `get_dir()`.
        map_location (device, str, dict or callable, optional): where tensors go, as `lucid.load` takes it.
        progress (bool, optional): whether to show a bar on stderr. Default: True.
        check_hash (bool, optional): whether the file's name ends in `-` and at least eight digits of its SHA-256, which
            are checked. Default: False.
        file_name (str, optional): the name in the cache. Default: the URL's last part.
        weights_only (bool, optional): whether only tensors and plain values are read. Default: True; False in PyTorch.

    Returns:
        object: what the file holds, such as a state dict.

    Raises:
        RuntimeError: the hash differs, or `check_hash` and the name has none.
        URLError: it cannot be fetched.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     lucid.save({"weight": lucid.ones(2)}, f"{folder}/net.pt")
        ...     url = pathlib.Path(folder, "net.pt").as_uri()
        ...     lucid.hub.load_state_dict_from_url(url, f"{folder}/cache", progress=False)
        {'weight': tensor([1., 1.])}
    """
    import lucid

    folder = os.path.join(get_dir(), "checkpoints") if model_dir is None else model_dir
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        sys.stderr.write(f'Downloading: "{url}" to {path}\n')
        found = HASH_REGEX.search(name) if check_hash else None
        if check_hash and found is None:
            raise errors.RuntimeError(f"load_state_dict_from_url(): the name {name!r} has no hash to check")
        download_url_to_file(url, path, found.group(1) if found else None, progress)
    if name.endswith(".zip") and _is_archive_of_one(path):
        with zipfile.ZipFile(path) as archive:
            (inner,) = (i for i in archive.infolist() if not i.is_dir())
            extracted = os.path.join(folder, os.path.basename(inner.filename))
            with archive.open(inner) as source, open(extracted, "wb") as file:
                shutil.copyfileobj(source, file)
            path = extracted
    return lucid.load(path, map_location=map_location, weights_only=weights_only)


def _is_archive_of_one(path: str) -> bool:
    """Whether a file is a ZIP file around another; files of `lucid.save` are ZIP files of many."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return len([i for i in archive.infolist() if not i.is_dir()]) == 1


def _parse(github: str) -> tuple[str, str, str]:
    """Owner, repository and reference of `owner/repo[:ref]`."""
    found = re.fullmatch(r"([\w.-]+)/([\w.-]+)(?::([\w./-]+))?", github)
    if found is None or ".." in github:
        raise errors.ValueError(f"hub: expected a repository as 'owner/repo[:ref]', got {github!r}")
    return found.group(1), found.group(2), found.group(3) or "HEAD"


def _trusted(owner_repo: str, trust_repo: Any) -> None:
    """Asks before code of a repository runs for the first time, as `trust_repo` says."""
    if trust_repo is True:
        return
    path = os.path.join(get_dir(), "trusted_list")
    known = set()
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            known = set(file.read().split())
    if owner_repo in known:
        return
    if trust_repo is None:
        warn(f"hub: {owner_repo} is not trusted yet; its code runs. Give trust_repo=True, or 'check' to be asked.")
        return
    if trust_repo not in (False, "check"):
        raise errors.ValueError(f"hub: trust_repo is True, False, None or 'check', got {trust_repo!r}")
    answer = input(f"The code of {owner_repo} is not known. Trust it and run it? (y/N) ")
    if answer.strip().lower() not in ("y", "yes"):
        raise errors.RuntimeError(f"hub: {owner_repo} is not trusted")
    os.makedirs(get_dir(), exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{owner_repo}\n")


def _fetch(github: str, force_reload: bool, trust_repo: Any, verbose: bool, skip_validation: bool) -> str:
    """The folder of a repository in the cache, fetched if it is not there."""
    owner, repo, ref = _parse(github)
    os.makedirs(get_dir(), exist_ok=True)
    folder = os.path.join(get_dir(), "_".join(x.replace("/", "_") for x in (owner, repo, ref)))
    _trusted(f"{owner}_{repo}", trust_repo)
    if os.path.isdir(folder) and not force_reload:
        if verbose:
            sys.stderr.write(f"Using cache found in {folder}\n")
        return folder
    with tempfile.TemporaryDirectory(dir=get_dir()) as temporary:
        archive = os.path.join(temporary, "archive.zip")
        url = _ARCHIVE.format(owner=owner, repo=repo, ref=ref)
        if verbose:
            sys.stderr.write(f'Downloading: "{url}" to {folder}\n')
        download_url_to_file(url, archive, progress=False)
        try:
            with zipfile.ZipFile(archive) as file:
                # Members cannot leave the folder: extractall drops absolute paths and "..".
                file.extractall(os.path.join(temporary, "unpacked"))
        except zipfile.BadZipFile as e:
            raise errors.RuntimeError(f"hub: {url} gave no ZIP file: {e}") from e
        found = os.listdir(os.path.join(temporary, "unpacked"))
        if len(found) != 1:
            raise errors.RuntimeError(f"hub: {url} has {len(found)} folders, expected one")
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(os.path.join(temporary, "unpacked", found[0]), folder)
    return folder


def _place(repo_or_dir: str, source: str, force_reload: bool, trust_repo: Any, verbose: bool, skip: bool) -> str:
    source = source.lower()
    if source not in ("github", "local"):
        raise errors.ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "local":
        return os.path.expanduser(repo_or_dir)
    return _fetch(repo_or_dir, force_reload, trust_repo, verbose, skip)


def _configuration(folder: str) -> Any:
    """The module `hubconf.py` of a folder; the folder is on `sys.path` while it is imported."""
    path = os.path.join(folder, MODULE_HUBCONF)
    if not os.path.isfile(path):
        raise errors.FileNotFoundError(f"hub: there is no {MODULE_HUBCONF} in {folder}")
    sys.path.insert(0, folder)
    try:
        spec = importlib.util.spec_from_file_location("hubconf", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    needed = getattr(module, VAR_DEPENDENCY, None) or ()
    missing = [name for name in needed if name not in sys.modules and importlib.util.find_spec(name) is None]
    if missing:
        raise errors.RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    return module


def _entry(module: Any, name: Any) -> Callable[..., Any]:
    if not isinstance(name, str):
        raise errors.ValueError("Invalid input: model should be a string of function name")
    found = getattr(module, name, None)
    if not callable(found):
        raise errors.RuntimeError(f"Cannot find callable {name} in hubconf")
    return found  # type: ignore[no-any-return]


def list(
    github: str,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: Any = None,
    verbose: bool = True,
    *,
    source: str = "github",
) -> builtins.list[str]:
    r"""Lists the models of a repository.

    Args:
        github (str): `owner/repo[:ref]` of GitHub; with `source="local"` a folder.
        force_reload (bool, optional): whether to fetch the repository again. Default: False.
        skip_validation (bool, optional): without effect: GitHub itself says whether the reference is there.
        trust_repo (bool or str, optional): True, False (asks), None (warns) or `"check"` (asks about what is not
            trusted yet). Default: None.
        verbose (bool, optional): whether to say on stderr what is fetched. Default: True.
        source (str, optional): `"github"` (the default) or `"local"`.

    Returns:
        list of str: the names of the functions of `hubconf.py`.

    Raises:
        FileNotFoundError: there is no `hubconf.py`.
        RuntimeError: a dependency is missing, or the repository is not trusted.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     text = "import lucid\n\ndef net(out):\n    return lucid.nn.Linear(4, out)\n"
        ...     _ = pathlib.Path(folder, "hubconf.py").write_text(text)
        ...     lucid.hub.list(folder, source="local")
        ['net']
    """
    folder = _place(github, source, force_reload, trust_repo, verbose, skip_validation)
    module = _configuration(folder)
    return [n for n in dir(module) if callable(getattr(module, n)) and not n.startswith("_")]


def help(
    github: str,
    model: str,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: Any = None,
    *,
    source: str = "github",
) -> str | None:
    r"""Gives the docstring of a model of a repository.

    Args:
        github (str): `owner/repo[:ref]` of GitHub; with `source="local"` a folder.
        model (str): the name of a function of `hubconf.py`.
        force_reload (bool, optional): whether to fetch the repository again. Default: False.
        skip_validation (bool, optional): without effect: GitHub itself says whether the reference is there.
        trust_repo (bool or str, optional): as of `list`. Default: None, it warns.
        source (str, optional): `"github"` (the default) or `"local"`.

    Returns:
        str or None: the docstring; None where the function has none.

    Raises:
        FileNotFoundError: there is no `hubconf.py`.
        RuntimeError: there is no such model, a dependency is missing, or the repository is not trusted.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "hubconf.py").write_text('def net():\n    "One layer."\n')
        ...     lucid.hub.help(folder, "net", source="local")
        'One layer.'
    """
    folder = _place(github, source, force_reload, trust_repo, True, skip_validation)
    return _entry(_configuration(folder), model).__doc__


def load(
    repo_or_dir: str,
    model: str,
    *args: Any,
    source: str = "github",
    trust_repo: Any = None,
    force_reload: bool = False,
    verbose: bool = True,
    skip_validation: bool = False,
    **kwargs: Any,
) -> Any:
    r"""Builds a model of a repository. Its code runs: load only what you trust.

    Differences from PyTorch: the repository's code imports `lucid`; one that imports `torch` gets PyTorch.

    Args:
        repo_or_dir (str): `owner/repo[:ref]` of GitHub; with `source="local"` a folder.
        model (str): the name of a function of `hubconf.py`.
        args (object): positional arguments of that function.
        source (str, optional): `"github"` (the default) or `"local"`.
        trust_repo (bool or str, optional): True, False (asks), None (warns) or `"check"` (asks about what is not
            trusted yet). Default: None.
        force_reload (bool, optional): whether to fetch the repository again. Default: False.
        verbose (bool, optional): whether to say on stderr what is fetched. Default: True.
        skip_validation (bool, optional): without effect: GitHub itself says whether the reference is there.
        kwargs (object): named arguments of that function.

    Returns:
        object: what the function returns, such as a module.

    Raises:
        FileNotFoundError: there is no `hubconf.py`.
        RuntimeError: there is no such model, a dependency is missing, or the repository is not trusted.
        ValueError: `source` or the name of the repository cannot be read.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     text = "import lucid\n\ndef net(out):\n    return lucid.nn.Linear(4, out)\n"
        ...     _ = pathlib.Path(folder, "hubconf.py").write_text(text)
        ...     lucid.hub.load(folder, "net", 2, source="local")
        Linear(in_features=4, out_features=2, bias=True)
    """
    folder = _place(repo_or_dir, source, force_reload, trust_repo, verbose, skip_validation)
    return _entry(_configuration(folder), model)(*args, **kwargs)


def __getattr__(name: str) -> Any:
    if name == "tqdm":
        try:
            from tqdm import tqdm
        except ImportError:
            raise AttributeError("lucid.hub.tqdm: the package tqdm is not installed", name="tqdm") from None
        return tqdm
    raise AttributeError(f"module 'lucid.hub' has no attribute {name!r}", name=name)
