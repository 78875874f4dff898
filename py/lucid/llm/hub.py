"""Models by their id on a hub: found in the local cache, whose layout is Hugging Face's, or fetched into it.

Nothing is fetched unless `download` is called. Each file is checked against the digest that the hub lists for it, and
what an interrupted download has is gone on with.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lucid import errors

_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_REVISION = re.compile(r"[A-Za-z0-9][\w.-]*")
_DIGEST = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_WANTED = re.compile(r"(config|generation_config|tokenizer|tokenizer_config|special_tokens_map|adapter_config"
                     r"|model\.safetensors\.index)\.json|chat_template\.jinja|[\w.-]+\.safetensors")  # fmt: skip
_PIECE = 1 << 20
_SECONDS = 30
_LARGEST_LIST = 1 << 26


def cache_folder() -> Path:
    """Where the hub's cache is: `HF_HUB_CACHE`, `HF_HOME`/hub, or ~/.cache/huggingface/hub."""
    if os.environ.get("HF_HUB_CACHE"):
        return Path(os.environ["HF_HUB_CACHE"]).expanduser()
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface"
    return Path(home).expanduser() / "hub"


def _checked(name: str, revision: str) -> tuple[str, str]:
    if not _ID.fullmatch(name) or ".." in name or not _REVISION.fullmatch(revision):
        raise errors.ValueError(
            f"hub: {name!r} at {revision!r} is no id of a model, such as OWNER/NAME, and a revision"
        )
    return name, revision


def _folder(name: str) -> Path:
    return cache_folder() / ("models--" + name.replace("/", "--"))


def find(name: str, revision: str = "main") -> Path | None:
    """The folder of a model in the cache, or its GGUF file where it is one; None where it is not there."""
    name, revision = _checked(name, revision)
    folder = _folder(name)
    try:
        commit = (folder / "refs" / revision).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        commit = revision
    if not _REVISION.fullmatch(commit):
        return None
    snapshot = folder / "snapshots" / commit
    if not snapshot.is_dir():
        return None
    if not (snapshot / "config.json").exists():
        files = sorted(snapshot.glob("*.gguf"))
        if len(files) == 1:
            return files[0]
    return snapshot


def resolve(path: str | os.PathLike[str]) -> Path:
    """A path as it is where it exists; else that of the model in the cache whose id it is, perhaps with `@REVISION`.

    Raises FileNotFoundError, saying how the model is fetched, where there is neither.
    """
    place = Path(path)
    text = os.fspath(path)
    if place.exists() or not isinstance(text, str):
        return place
    name, _, revision = text.partition("@")
    if not _ID.fullmatch(name) or "/" not in name or ".." in name:
        return place
    found = find(name, revision or "main")
    if found is None:
        raise errors.FileNotFoundError(
            f"{text}: there is no such file or folder, and no such model in {cache_folder()}; "
            f"python -m lucid.llm download --model {name} fetches it"
        )
    return found


def _open(url: str, start: int = 0) -> Any:
    headers = {"User-Agent": "lucid", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_SECONDS)
    except urllib.error.HTTPError as e:
        if e.code == 416 and start:
            return None
        raise errors.FileError(f"{url}: status {e.code} {e.reason}") from None
    except (OSError, ValueError) as e:
        raise errors.FileError(f"{url}: {e}") from None


def _listing(endpoint: str, name: str, revision: str) -> tuple[str, list[dict[str, Any]]]:
    """The commit of a revision, and its files."""
    url = f"{endpoint}/api/models/{name}/revision/{urllib.parse.quote(revision, safe='')}?blobs=true"
    with _open(url) as response:
        data = response.read(_LARGEST_LIST)
    try:
        given = json.loads(data)
        commit, files = given["sha"], given["siblings"]
        good = isinstance(commit, str) and _DIGEST.fullmatch(commit) and isinstance(files, list)
        good = good and all(isinstance(f, dict) and isinstance(f["rfilename"], str) for f in files)
    except (KeyError, TypeError, ValueError, RecursionError):
        good = False
    if not good:
        raise errors.FileError(f"{url}: is no list of a model's files")
    return commit, files


def _digest(entry: dict[str, Any]) -> tuple[str, int]:
    """The digest by which a file is kept and checked, and its size."""
    lfs = entry.get("lfs")
    digest, size = (
        (lfs.get("sha256"), lfs.get("size")) if isinstance(lfs, dict) else (entry.get("blobId"), entry.get("size"))
    )
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest) or type(size) is not int or size < 0:
        raise errors.FileError(f"hub: {entry['rfilename']} has no digest and size that can be checked")
    return digest, size


def _matches(path: Path, digest: str, size: int) -> bool:
    """Has a file this content? Digests are SHA-256, or git's SHA-1 of a blob."""
    if path.stat().st_size != size:
        return False
    made = hashlib.sha256() if len(digest) == 64 else hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            made.update(piece)
    return made.hexdigest() == digest


def _fetch(url: str, to: Path, digest: str, size: int, say: Callable[[str], None]) -> None:
    """Fetches one file, from where an earlier attempt ended."""
    part = to.with_name(to.name + ".incomplete")
    start = part.stat().st_size if part.exists() else 0
    if start > size:
        part.unlink()
        start = 0
    if start < size or not part.exists():
        if start:
            say(f"  going on at {start} of {size} bytes")
        response = _open(url, start)
        if response is not None:
            with response:
                # A server that takes no ranges begins at the beginning.
                begun = response.status == 206
                with part.open("ab" if begun else "wb") as file:
                    left = size - (start if begun else 0)
                    try:
                        while piece := response.read(min(_PIECE, left + 1)):
                            left -= len(piece)
                            if left < 0:
                                break
                            file.write(piece)
                    except OSError as e:
                        raise errors.FileError(f"{url}: {e}; the same command goes on with it") from None
    have = part.stat().st_size if part.exists() else 0
    if have < size:
        raise errors.FileError(f"{url}: ended after {have} of {size} bytes; the same command goes on with it")
    if not _matches(part, digest, size):
        part.unlink()
        raise errors.FileError(f"{url}: its content is not that of the digest {digest}; it was removed")
    part.replace(to)


def download(
    name: str,
    revision: str = "main",
    endpoint: str | None = None,
    files: Sequence[str] | None = None,
    say: Callable[[str], None] = print,
) -> Path:
    """Fetches a model's configuration, tokenizer and safetensors into the cache.

    Args:
        name: Its id, `OWNER/NAME`.
        revision: A branch, tag or commit. Default: `"main"`.
        endpoint: Where the hub is; `HF_ENDPOINT`, or the public one.
        files: Only these, such as one GGUF file.
        say: Called with what is fetched, before it is.

    Returns:
        The folder, or the GGUF file.

    Raises FileError where something cannot be fetched, or is not what the hub's digests say; what was fetched of it
    stays, and the next call goes on with it.
    """
    name, revision = _checked(name, revision)
    endpoint = (endpoint or os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    if not endpoint.startswith(("https://", "http://")):
        raise errors.ValueError(f"hub: the endpoint must be an address of HTTP, got {endpoint!r}")
    commit, listed = _listing(endpoint, name, revision)
    by_name = {e["rfilename"]: e for e in listed}
    missing = [f for f in files or () if f not in by_name]
    chosen = list(files) if files else [f for f in by_name if _WANTED.fullmatch(f)]
    if missing or not chosen:
        raise errors.FileNotFoundError(f"hub: {name} has no {', '.join(missing) or 'safetensors; name files'}")
    for file in chosen:
        parts = file.split("/")
        if any(p in ("", ".", "..") for p in parts) or "\\" in file or ":" in file or "\0" in file:
            raise errors.FileError(f"hub: {name} lists {file!r}, which is no path of a file in a folder")
    folder = _folder(name)
    snapshot, blobs = folder / "snapshots" / commit, folder / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    total = sum(_digest(by_name[f])[1] for f in chosen)
    say(f"{name} at {commit[:12]}: {len(chosen)} files, {total / 1e6:.1f} MB, from {endpoint}")
    for file in chosen:
        digest, size = _digest(by_name[file])
        blob, link = blobs / digest, snapshot / file
        if not blob.exists():
            say(f"{file}, {size} bytes")
            _fetch(f"{endpoint}/{name}/resolve/{commit}/{urllib.parse.quote(file)}", blob, digest, size, say)
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.is_symlink() or link.exists():
            link.unlink()
        link.symlink_to(os.path.relpath(blob, link.parent))
    (folder / "refs").mkdir(exist_ok=True)
    (folder / "refs" / revision).write_text(commit)
    made = find(name, revision)
    assert made is not None
    return made
