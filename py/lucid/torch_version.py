"""Versions that compare as versions, under the names of `torch.torch_version`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from lucid._C import __version__ as __version__

__all__ = ["TorchVersion"]

_PARTS = re.compile(r"\s*v?(\d+(?:\.\d+)*)(?:[-_.]?(a|alpha|b|beta|c|rc|pre|preview|dev|post)[-_.]?(\d*))?", re.I)
_PHASES = {"dev": 0, "a": 1, "alpha": 1, "b": 2, "beta": 2, "c": 3, "rc": 3, "pre": 3, "preview": 3, "post": 5}
_FINAL = 4


def _key(version: Any) -> tuple[tuple[int, ...], int, int, str]:
    """What versions are ordered by: the numbers without trailing zeros, the phase, its number, the local part.

    Raises:
        ValueError: the text is no version.
    """
    if isinstance(version, Iterable) and not isinstance(version, str):
        version = ".".join(str(v) for v in version)
    text, _, local = str(version).partition("+")
    found = _PARTS.match(text)
    if found is None:
        raise ValueError(f"Invalid version: {version!r}")
    numbers = [int(n) for n in found[1].split(".")]
    while len(numbers) > 1 and not numbers[-1]:
        numbers.pop()
    return tuple(numbers), _PHASES[found[2].lower()] if found[2] else _FINAL, int(found[3] or 0), local


class TorchVersion(str):
    """A version as text that is ordered as a version, beside strings, tuples of numbers and `packaging`'s versions.

    Example:
        >>> from lucid.torch_version import TorchVersion
        >>> TorchVersion("2.15.0") > "2.9.1", TorchVersion("1.0a1") < (1, 0)
        (True, True)
    """

    __slots__ = ()

    def _compared(self, other: Any, by: Callable[[Any, Any], bool], plain: Callable[[str, Any], Any]) -> Any:
        try:
            theirs = _key(other)
        except ValueError:
            return plain(self, other)
        return by(_key(self), theirs)

    def __lt__(self, other: Any) -> bool:
        return bool(self._compared(other, lambda a, b: a < b, str.__lt__))

    def __le__(self, other: Any) -> bool:
        return bool(self._compared(other, lambda a, b: a <= b, str.__le__))

    def __gt__(self, other: Any) -> bool:
        return bool(self._compared(other, lambda a, b: a > b, str.__gt__))

    def __ge__(self, other: Any) -> bool:
        return bool(self._compared(other, lambda a, b: a >= b, str.__ge__))

    def __eq__(self, other: object) -> bool:
        return bool(self._compared(other, lambda a, b: a == b, str.__eq__))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__
