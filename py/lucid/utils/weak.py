"""Weak references to tensors, and dictionaries whose keys are objects as such, as `torch.utils.weak`.

A tensor compares elementwise, so that it cannot be a key of `weakref.WeakKeyDictionary`. The dictionaries here find a
key by identity, and drop an entry when its key is gone.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any

from lucid import Tensor

__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary"]

WeakRef = weakref.ref


class _Keyed(weakref.ref[Any]):
    """A weak reference that is a key: it keeps its hash when the object is gone, and then equals itself alone."""

    __slots__ = ("_id",)
    _id: int

    @staticmethod
    def _key(thing: Any) -> int:
        return id(thing)

    def __init__(self, key: Any, callback: Callable[[Any], Any] | None = None) -> None:
        super().__init__(key, callback)  # type: ignore[call-arg]
        self._id = self._key(key)

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, weakref.ref):
            return self is other
        mine, theirs = self(), other()
        # Another object may have come to a place where one was before: both must live.
        return mine is not None and theirs is not None and self._key(mine) == self._key(theirs)


class WeakIdRef(_Keyed):
    """A weak reference that hashes and compares by the object's identity.

    Args:
        key (object): what it refers to.
        callback (callable, optional): called with the reference when the object is gone.

    Example:
        >>> x = lucid.ones(2)
        >>> ref = lucid.utils.weak.WeakIdRef(x)
        >>> ref() is x, ref == lucid.utils.weak.WeakIdRef(x)
        (True, True)
    """

    __slots__ = ()


class _WeakHashRef(_Keyed):
    """A weak reference that hashes and compares by the object's own hash."""

    __slots__ = ()

    @staticmethod
    def _key(thing: Any) -> int:
        return hash(thing)


class WeakIdKeyDictionary(MutableMapping[Any, Any]):
    """A dictionary with weak keys that are told apart by identity.

    Args:
        dict (mapping or iterable of pairs, optional): the first entries.
        ref_type (type, default: WeakIdRef): the class of the references that are kept.

    Example:
        >>> x = lucid.ones(2)
        >>> names = lucid.utils.weak.WeakIdKeyDictionary({x: "x"})
        >>> names[x], lucid.ones(2) in names
        ('x', False)
        >>> del x
        >>> len(names)
        0
    """

    def __init__(self, dict: Any = None, ref_type: Any = WeakIdRef) -> None:
        self.data: dict[Any, Any] = {}
        self.ref_type = ref_type
        weak = weakref.ref(self)

        def remove(ref: Any) -> None:
            own = weak()
            if own is not None:
                own.data.pop(ref, None)

        self._remove = remove
        self.update({} if dict is None else dict)

    def _pairs(self) -> list[tuple[Any, Any]]:
        """The entries whose keys live, which they do while the list does."""
        pairs = [(ref(), value) for ref, value in list(self.data.items())]
        return [(key, value) for key, value in pairs if key is not None]

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self.ref_type(key, self._remove)] = value

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __contains__(self, key: object) -> bool:
        try:
            return self.ref_type(key) in self.data
        except TypeError:
            return False  # There are no weak references to numbers and the like.

    def __len__(self) -> int:
        return len(self._pairs())

    def __iter__(self) -> Iterator[Any]:
        return iter([key for key, _ in self._pairs()])

    def items(self) -> Any:
        """The entries whose keys live.

        Returns:
            iterator of tuples: keys and values.

        Example:
            >>> list(lucid.utils.weak.WeakIdKeyDictionary().items())
            []
        """
        return iter(self._pairs())

    def keys(self) -> Any:
        """The keys that live.

        Returns:
            iterator of objects: the keys.

        Example:
            >>> list(lucid.utils.weak.WeakIdKeyDictionary().keys())
            []
        """
        return iter(self)

    def values(self) -> Any:
        """The values of keys that live.

        Returns:
            iterator of objects: the values.

        Example:
            >>> list(lucid.utils.weak.WeakIdKeyDictionary().values())
            []
        """
        return iter([value for _, value in self._pairs()])

    def keyrefs(self) -> list[Any]:
        """The weak references to the keys, some of which may be gone.

        Returns:
            list of WeakIdRef: the references.

        Example:
            >>> lucid.utils.weak.WeakIdKeyDictionary().keyrefs()
            []
        """
        return list(self.data)

    def popitem(self) -> tuple[Any, Any]:
        """Takes the last entry whose key lives.

        Returns:
            tuple: the key and the value.

        Raises:
            KeyError: there is none.

        Example:
            >>> x = lucid.ones(2)
            >>> lucid.utils.weak.WeakIdKeyDictionary({x: 1}).popitem()[1]
            1
        """
        while True:
            ref, value = self.data.popitem()
            key = ref()
            if key is not None:
                return key, value

    def copy(self) -> WeakIdKeyDictionary:
        """A dictionary of the same entries.

        Returns:
            WeakIdKeyDictionary: the copy.

        Example:
            >>> len(lucid.utils.weak.WeakIdKeyDictionary().copy())
            0
        """
        made = WeakIdKeyDictionary(ref_type=self.ref_type)
        for key, value in self._pairs():
            made[key] = value
        return made

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> WeakIdKeyDictionary:
        made = type(self)(ref_type=self.ref_type)
        for key, value in self._pairs():
            made[key] = copy.deepcopy(value, memo)
        return made

    def update(self, other: Any = (), /, **kwargs: Any) -> None:
        """Takes over the entries of a mapping or of pairs.

        Args:
            other (mapping or iterable of pairs, optional): the entries.
            **kwargs (object): refused: strings have no weak references.

        Raises:
            TypeError: a key has no weak references.

        Example:
            >>> x, names = lucid.ones(2), lucid.utils.weak.WeakIdKeyDictionary()
            >>> names.update([(x, "x")])
            >>> names[x]
            'x'
        """
        pairs: Iterable[tuple[Any, Any]] = other.items() if hasattr(other, "items") else other
        for key, value in pairs:
            self[key] = value
        for name, value in kwargs.items():
            self[name] = value

    def __ior__(self, other: Any) -> WeakIdKeyDictionary:
        self.update(other)
        return self

    def __or__(self, other: Any) -> Any:
        if not isinstance(other, Mapping):
            return NotImplemented
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: Any) -> Any:
        if not isinstance(other, Mapping):
            return NotImplemented
        made = type(self)(ref_type=self.ref_type)
        made.update(other)
        made.update(self)
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return {id(k): v for k, v in self.items()} == {id(k): v for k, v in other.items()}

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}>"


WeakTensorKeyDictionary = WeakIdKeyDictionary


class TensorWeakRef:
    """A weak reference to a tensor.

    Args:
        tensor (Tensor): what it refers to, of any shape.

    Raises:
        AssertionError: it is no tensor.

    Example:
        >>> x = lucid.ones(2)
        >>> ref = lucid.utils.weak.TensorWeakRef(x)
        >>> ref() is x
        True
    """

    def __init__(self, tensor: Tensor) -> None:
        if not isinstance(tensor, Tensor):
            raise AssertionError(f"TensorWeakRef: expected a Tensor, got {type(tensor).__name__}")
        self.ref = weakref.ref(tensor)

    def __call__(self) -> Tensor | None:
        return self.ref()
