"""Values that processes share: `TCPStore` and its kin, over the job's control channel.

A server listens at loopback unless told otherwise, and talks only to who presents its token: the environment variable
`LUCID_DISTRIBUTED_TOKEN`, which the launcher sets. Without it processes of one user on one machine share a file.
"""

from __future__ import annotations

import datetime
import os
import secrets
import tempfile
import threading
import time
from pathlib import Path

from lucid import _C, errors

__all__ = ["FileStore", "HashStore", "PrefixStore", "Store", "TCPStore"]

DEFAULT_TIMEOUT = datetime.timedelta(minutes=30)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def _is_loopback(host: str) -> bool:
    return host in _LOOPBACK or host.startswith("127.")


def job_token(host: str) -> str:
    """The token of the job whose store is at `host`: from the environment, or for loopback from a file of the user's.

    Raises:
        ValueError: for another machine where the environment variable `LUCID_DISTRIBUTED_TOKEN` is not set.
    """
    given = os.environ.get("LUCID_DISTRIBUTED_TOKEN")
    if given:
        return given
    if not _is_loopback(host):
        raise errors.ValueError(
            f"init_process_group: the store at '{host}' can be reached by other machines; set "
            "LUCID_DISTRIBUTED_TOKEN to "
            "one secret text for every process of the job, or start them with python -m lucid.distributed.run"
        )
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    path = folder / f"lucid-{os.getuid()}-token"
    for _ in range(100):
        try:
            if path.stat().st_uid != os.getuid() or path.stat().st_mode & 0o077:
                raise errors.RuntimeError(f"{path} is readable by others, or not yours; remove it")
            text = path.read_text()
            if len(text) == 64:
                return text
        except FileNotFoundError:
            pass
        # Appears whole: linked to its name once it is written.
        fresh = folder / f".lucid-{os.getpid()}-{secrets.token_hex(8)}"
        fresh.touch(mode=0o600)
        fresh.write_text(secrets.token_hex(32))
        try:
            os.link(fresh, path)
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    raise errors.RuntimeError(f"{path} cannot be read")


def seconds(timeout: datetime.timedelta | float | None, default: float = DEFAULT_TIMEOUT.total_seconds()) -> float:
    """A timeout in seconds."""
    if timeout is None:
        return default
    if isinstance(timeout, datetime.timedelta):
        return timeout.total_seconds()
    return float(timeout)


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


class Store:
    """Values by name that processes share.

    Keys are text, values bytes. `get` waits until the key is set.
    """

    def __init__(self) -> None:
        self._timeout = DEFAULT_TIMEOUT.total_seconds()

    @property
    def timeout(self) -> datetime.timedelta:
        """How long `get` and `wait` wait."""
        return datetime.timedelta(seconds=self._timeout)

    def set_timeout(self, timeout: datetime.timedelta | float) -> None:
        """Sets how long `get` and `wait` wait."""
        self._timeout = seconds(timeout)

    def _call(self, verb: str, fields: list[bytes], timeout: float | None = None) -> bytes:
        raise errors.NotImplementedError(f"{type(self).__name__} does not know {verb}")

    def set(self, key: str, value: str | bytes) -> None:
        """Sets a key's value."""
        self._call("set", [_bytes(key), _bytes(value)])

    def get(self, key: str) -> bytes:
        """A key's value; waits for it.

        Raises:
            DistBackendError: when it is not set in time.
        """
        return self._call("get", [_bytes(key)])

    def add(self, key: str, amount: int) -> int:
        """Adds to a key's number, which is 0 at first, and returns the sum."""
        return int(self._call("add", [_bytes(key), int(amount).to_bytes(8, "little", signed=True)]))

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """Sets a key whose value is the expected one, or that is not set where that is empty. Returns the value
        then."""
        return self._call("compare_set", [_bytes(key), _bytes(expected_value), _bytes(desired_value)])

    def delete_key(self, key: str) -> bool:
        """Removes a key; was it there?"""
        return self._call("delete", [_bytes(key)]) == b"1"

    def check(self, keys: list[str]) -> bool:
        """Are all of these keys set?"""
        return self._call("check_keys", [_bytes(k) for k in keys]) == b"1"

    def num_keys(self) -> int:
        """How many keys there are."""
        return int(self._call("count", []))

    def wait(self, keys: list[str], timeout: datetime.timedelta | float | None = None) -> None:
        """Waits until all of these keys are set.

        Raises:
            DistBackendError: when they are not in time.
        """
        limit = seconds(timeout, self._timeout)
        until = time.monotonic() + limit
        for key in keys:
            self._call("get", [_bytes(key)], max(until - time.monotonic(), 0.001))


class TCPStore(Store):
    """A key-value store that one process serves over TCP.

    Differences from PyTorch: the server refuses a client that does not present the job's token.

    Args:
        host_name (str): the host that the server listens on, or is found at.
        port (int, optional): its port; a server takes a free one for 0, and has it as `port`. Default: 0.
        world_size (int, optional): how many processes use the store; not checked.
        is_master (bool, optional): whether this process is the server, too. Default: False.
        timeout (datetime.timedelta or float, optional): how long connecting, `get` and `wait` may take. Default: 300 s.
        wait_for_workers (bool, optional): clients wait for the server in any case.
        token (str, optional): the secret that clients present. Default: LUCID_DISTRIBUTED_TOKEN, or, on this machine
            alone, a file that only this user can read.

    Raises:
        DistBackendError: the server cannot listen, or does not answer within the timeout.

    Example:
        >>> from lucid.distributed import TCPStore
        >>> store = TCPStore("127.0.0.1", is_master=True)
        >>> store.set("epoch", "3")
        >>> store.get("epoch")
        b'3'
        >>> store.add("workers", 1), store.add("workers", 1)
        (1, 2)
    """

    def __init__(
        self,
        host_name: str,
        port: int = 0,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: datetime.timedelta | float = DEFAULT_TIMEOUT,
        wait_for_workers: bool = True,
        token: str | None = None,
    ) -> None:
        super().__init__()
        self._timeout = seconds(timeout)
        token = job_token(host_name) if token is None else token
        self._server = _C._StoreServer(host_name, port, token) if is_master else None
        self.host, self.port = host_name, self._server.port if self._server else port
        self._client = _C._StoreClient(self.host, self.port, token, self._timeout)

    def _call(self, verb: str, fields: list[bytes], timeout: float | None = None) -> bytes:
        return self._client.call(verb, fields, self._timeout if timeout is None else timeout)


class _JobStore(Store):
    """The store of the job that this process is in."""

    def __init__(self, client: _C._StoreClient, timeout: float) -> None:
        super().__init__()
        self._client, self._timeout = client, timeout

    def _call(self, verb: str, fields: list[bytes], timeout: float | None = None) -> bytes:
        return self._client.call(verb, fields, self._timeout if timeout is None else timeout)


class PrefixStore(Store):
    """A part of another store: each key gets a prefix, so that several users do not meet in one key.

    Args:
        prefix (str): put before each key, with a slash.
        store (Store): where the values are.

    Example:
        >>> from lucid.distributed import PrefixStore, TCPStore
        >>> whole = TCPStore("127.0.0.1", is_master=True)
        >>> part = PrefixStore("data", whole)
        >>> part.set("epoch", "3")
        >>> whole.get("data/epoch")
        b'3'
    """

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__()
        self.prefix, self.underlying_store = prefix, store
        self._timeout = store._timeout

    def _call(self, verb: str, fields: list[bytes], timeout: float | None = None) -> bytes:
        own = self.prefix.encode() + b"/"
        keys = len(fields) if verb == "check_keys" else min(len(fields), 1)
        named = [own + f if i < keys else f for i, f in enumerate(fields)]
        return self.underlying_store._call(verb, named, self._timeout if timeout is None else timeout)


class HashStore(Store):
    """A store of one process, for its threads."""

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[bytes, bytes] = {}
        self._news = threading.Condition()

    def _call(self, verb: str, fields: list[bytes], timeout: float | None = None) -> bytes:
        with self._news:
            values = self._values
            if verb == "get":
                limit = self._timeout if timeout is None else timeout
                if not self._news.wait_for(lambda: fields[0] in values, limit):
                    raise errors.DistBackendError(f"get('{fields[0].decode()}'): not set in {limit:.1f} s")
                return values[fields[0]]
            answer = _answer(values, verb, fields)
            self._news.notify_all()
            return answer


def _answer(values: dict[bytes, bytes], verb: str, fields: list[bytes]) -> bytes:
    """What a store answers that has its values in a dictionary."""
    if verb == "set":
        values[fields[0]] = fields[1]
    elif verb == "add":
        total = int(values.get(fields[0], b"0")) + int.from_bytes(fields[1], "little", signed=True)
        values[fields[0]] = str(total).encode()
        return values[fields[0]]
    elif verb == "compare_set":
        key, expected, wanted = fields
        if values.get(key, b"") == expected:
            values[key] = wanted
        return values.get(key, expected)
    elif verb == "delete":
        return b"0" if values.pop(fields[0], None) is None else b"1"
    elif verb == "check_keys":
        return b"1" if all(k in values for k in fields) else b"0"
    elif verb == "count":
        return str(len(values)).encode()
    return b""


class FileStore(Store):
    """A key-value store in a file that all processes can see; a lock on the file orders their writes.

    Args:
        file_name (str): the file's path; the file is made where there is none, readable by this user alone.
        world_size (int, optional): how many processes use the store; not checked. Default: -1, not known.

    Raises:
        OSError: the file cannot be made.

    Example:
        >>> import tempfile
        >>> from lucid.distributed import FileStore
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = FileStore(f"{folder}/store", 1)
        ...     store.set("epoch", "3")
        ...     store.get("epoch")
        b'3'
    """

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        super().__init__()
        self.path = str(file_name)
        Path(self.path).touch(mode=0o600)

    def _call(self, verb: str, fields: list[bytes], timeout: float | None = None) -> bytes:
        import fcntl
        import json

        until = time.monotonic() + (self._timeout if timeout is None else timeout)
        while True:
            with open(self.path, "r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                text = file.read()
                values = {bytes.fromhex(k): bytes.fromhex(v) for k, v in json.loads(text or b"{}").items()}
                if verb == "get":
                    if fields[0] in values:
                        return values[fields[0]]
                else:
                    answer = _answer(values, verb, fields)
                    file.seek(0)
                    file.truncate()
                    file.write(json.dumps({k.hex(): v.hex() for k, v in values.items()}).encode())
                    return answer
            if time.monotonic() >= until:
                raise errors.DistBackendError(f"get('{fields[0].decode()}'): not set in time in {self.path}")
            time.sleep(0.02)
