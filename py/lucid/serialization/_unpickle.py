"""An unpickler that runs nothing but what is on a list.

It interprets the opcodes itself: a global that is not on the list is an error, only listed functions are called, and
what it allocates is bounded by the size of the pickle and its file, what the functions allocate (`Budget`) too.
Protocols 0 to 5, without out-of-band buffers, extensions and
`INST`.
"""

from __future__ import annotations

import contextlib
import pickle
import re
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from lucid._C import LucidError
from lucid.serialization._errors import UnpicklingError

# Python 2's names of what lists hold.
_OLD_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}
# PyTorch's dtypes that there are none of here.
_DTYPE = r"u?int\d+|b?complex32|bits\w+|q?u?int\d+x?\w*|float[48]_\w+"
# How much of a key may have to be walked for its hash: nested tuples can be deep, and shared ones exponentially many.
_KEY_NODES = 10_000
_KEY_DEPTH = 100
# How many different keys may have one hash: a dict compares a new one with all of them.
_ALIKE = 64
# What functions may make: so many bytes, and so many more for each one of the pickle and of the file.
_ALLOWANCE = 1 << 26
_PER_PICKLED = 32
_PER_BYTE = 4
# What an object takes, or an item of one, with its part of a table.
_PER_ITEM = 128

_user_globals: dict[str, Any] = {}

F = TypeVar("F", bound=Callable[..., Any])


def _named(item: Any) -> tuple[str, Any]:
    if isinstance(item, tuple):
        if len(item) != 2:
            raise ValueError(
                f"Expected tuple of length 2 (global, str of callable full path), but got length {len(item)}"
            )
        if not isinstance(item[1], str):
            raise TypeError(f"Expected second item in tuple to be str of callable full path, but got: {type(item[1])}")
        return item[1], item[0]
    return f"{item.__module__}.{item.__qualname__}", item


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Lets `load` use these functions and classes, or `(object, "full.path")` pairs, with `weights_only=True`.

    Listing a callable means that a file may call it with any arguments.

    Args:
        safe_globals (list[Any]): functions and classes, or pairs of one and its full path.

    Example:
        >>> import fractions
        >>> lucid.serialization.add_safe_globals([fractions.Fraction])
    """
    _user_globals.update(_named(item) for item in safe_globals)


def get_safe_globals() -> list[Any]:
    """What `add_safe_globals` has listed."""
    return [
        item if f"{item.__module__}.{item.__qualname__}" == name else (item, name)
        for name, item in _user_globals.items()
    ]


def clear_safe_globals() -> None:
    """Empties the list."""
    _user_globals.clear()


@contextlib.contextmanager
def safe_globals(safe_globals: list[Any]) -> Iterator[None]:
    """`add_safe_globals` inside of a `with` block.

    Args:
        safe_globals (list[Any]): functions and classes, or pairs of one and its full path.

    Returns:
        context manager: the block.

    Example:
        >>> import fractions
        >>> with lucid.serialization.safe_globals([fractions.Fraction]):
        ...     pass
    """
    before = dict(_user_globals)
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _user_globals.clear()
        _user_globals.update(before)


class _Mark:
    def __repr__(self) -> str:
        return "MARK"


_MARK = _Mark()


class Budget:
    """What a file may still make: what functions copy of memoised objects is many times as large as the pickle else.

    Args:
        pickle: Bytes of the pickle.
        file: Bytes of the file that it is part of.
    """

    def __init__(self, pickle: int, file: int) -> None:
        self.left = _ALLOWANCE + _PER_PICKLED * pickle + _PER_BYTE * file
        self._keys: dict[int, list[Any]] = {}

    def charge(self, cost: int) -> None:
        """Takes bytes off what is left; an UnpicklingError where they are more."""
        self.left -= cost
        if self.left < 0:
            raise UnpicklingError("the pickle makes objects that are far larger than itself")

    def call(self, args: tuple[Any, ...]) -> None:
        """Charges a call for its result, which may hold a copy of each argument."""
        cost = _PER_ITEM
        for arg in args:
            kind = type(arg)
            if kind in (bytes, bytearray, str):
                cost += len(arg)
            elif kind in (list, tuple, dict, set, frozenset, OrderedDict, Counter):
                cost += _PER_ITEM * len(arg)
        self.charge(cost)

    def key(self, key: Any) -> Any:
        """The key of a dict or set, which is hashed: refused where that could take for ever or overflow the stack, or
        where its hash is that of many others, each of which it would be compared with."""
        kind = type(key)
        if kind is str or kind is bytes:
            # Their hashes cannot be foreseen.
            return key
        seen = 1
        if kind in (tuple, frozenset):
            todo = [(key, 0)]
            while todo:
                part, depth = todo.pop()
                seen += len(part)
                if seen > _KEY_NODES or depth > _KEY_DEPTH:
                    raise UnpicklingError("a key of nested tuples is too large")
                todo.extend((p, depth + 1) for p in part if type(p) in (tuple, frozenset))
        alike = self._keys.setdefault(hash(key), [])
        self.charge(seen * (1 + len(alike)))
        if key not in alike:
            if len(alike) >= _ALIKE:
                raise UnpicklingError(f"more than {_ALIKE} keys of the pickle have one hash")
            alike.append(key)
        return key


def counted(function: F) -> F:
    """Marks a function that is given the `budget`, for what its arguments' lengths do not tell."""
    function.__counted__ = True  # type: ignore[attr-defined]
    return function


class Unpickler:
    """Reads one pickle of `data`.

    Args:
        data: Bytes with the pickle in them.
        allowed: What globals stand for, by full name. Functions and classes among the values may be called.
        persistent: What a persistent id stands for.
        builders: What `BUILD` does to an instance of a class, besides those that users have listed.
        size: Bytes of the file that the pickle is part of; those of the pickle alone by default.
    """

    def __init__(
        self,
        data: bytes,
        allowed: Mapping[str, Any],
        persistent: Callable[[Any], Any],
        builders: Mapping[type, Callable[[Any, Any], None]],
        size: int = 0,
    ) -> None:
        self.data = data
        self.budget = Budget(len(data), max(size, len(data)))
        self.at = 0
        self.allowed = allowed
        self.callable = {id(v) for v in allowed.values() if callable(v)}
        self.persistent = persistent
        self.builders = builders
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def load(self, start: int = 0) -> Any:
        """The object of the pickle at `start`; `at` is its end then. Raises UnpicklingError."""
        self.at = start
        self.stack = []
        self.memo = {}
        try:
            return self._run()
        except LucidError:
            # Of ours, with a message of its own.
            raise
        except (IndexError, KeyError, TypeError, ValueError, struct.error, UnicodeError, OverflowError) as e:
            # What a malformed pickle does to the code below; errors of allowed functions are told as well.
            raise UnpicklingError(f"the pickle is malformed at byte {self.at}: {type(e).__name__}: {e}") from e
        except RecursionError:
            raise UnpicklingError("the pickle is nested too deeply") from None

    def _run(self) -> Any:
        code = _CODE
        while True:
            byte = self.data[self.at]
            self.at += 1
            if byte == 0x2E:  # STOP
                if len(self.stack) != 1:
                    raise UnpicklingError("the pickle ends with more or less than one object")
                return self.stack.pop()
            step = code.get(byte)
            if step is None:
                raise UnpicklingError(f"Unsupported operand {byte} at byte {self.at - 1} of the pickle")
            step(self)

    # ---- reading -----------------------------------------------------------------------------------------------------

    def take(self, n: int) -> bytes:
        end = self.at + n
        if n < 0 or end > len(self.data):
            raise UnpicklingError(f"the pickle is truncated: {n} bytes are needed at byte {self.at}")
        part = self.data[self.at : end]
        self.at = end
        return bytes(part)

    def line(self) -> bytes:
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise UnpicklingError("the pickle is truncated within a line")
        part = self.data[self.at : end]
        self.at = end + 1
        return bytes(part)

    def number(self, form: str) -> int:
        value: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return value

    def above_mark(self) -> list[Any]:
        for i in range(len(self.stack) - 1, -1, -1):
            if self.stack[i] is _MARK:
                items = self.stack[i + 1 :]
                del self.stack[i:]
                return items
        raise UnpicklingError("the pickle has no mark where one is needed")

    # ---- the risky ones ----------------------------------------------------------------------------------------------

    def find(self, module: str, name: str) -> None:
        full = f"{_OLD_MODULES.get(module, module)}.{name}"
        if full in self.allowed:
            self.stack.append(self.allowed[full])
        elif full in _user_globals:
            self.stack.append(_user_globals[full])
        elif module == "torch" and re.fullmatch(_DTYPE, name):
            raise UnpicklingError(
                f"the file has tensors of dtype {name}, which Lucid does not have; convert them in PyTorch first, "
                "such as by x.float() or x.to(torch.int64)"
            )
        else:
            short = full.removeprefix("builtins.")
            raise UnpicklingError(
                f"Unsupported global: GLOBAL {short} was not an allowed global by default. Please use "
                f"`lucid.serialization.add_safe_globals([{short}])` or the "
                f"`lucid.serialization.safe_globals([{short}])` "
                "context manager to allowlist this global if you trust this class/function, or weights_only=False "
                "if you "
                "trust the whole file."
            )

    def _is_listed(self, function: Any) -> bool:
        return any(function is f for f in _user_globals.values())

    def reduce(self) -> None:
        args = self.stack.pop()
        function = self.stack[-1]
        if not (id(function) in self.callable or self._is_listed(function)):
            raise UnpicklingError(f"Trying to call reduce for unrecognized function {function!r}")
        if type(args) is not tuple:
            raise UnpicklingError("the pickle calls a function with something else than a tuple of arguments")
        self.stack[-1] = self.called(function, args)

    def called(self, function: Any, args: tuple[Any, ...]) -> Any:
        """The result of a listed function."""
        self.budget.call(args)
        if id(function) in self.callable and hasattr(function, "__counted__"):
            return function(*args, budget=self.budget)
        return function(*args)

    def new(self, kwargs: dict[str, Any] | None = None) -> None:
        args = self.stack.pop()
        cls = self.stack.pop()
        if type(args) is not tuple:
            raise UnpicklingError("the pickle makes an object with something else than a tuple of arguments")
        if isinstance(cls, type) and self._is_listed(cls):
            self.stack.append(cls.__new__(cls, *args, **(kwargs or {})))
        elif id(cls) in self.callable and not kwargs:
            self.stack.append(self.called(cls, args))
        else:
            raise UnpicklingError(
                f"Can only create new object for classes allowlisted via `add_safe_globals` but got {cls!r}"
            )

    def build(self) -> None:
        state = self.stack.pop()
        made = self.stack[-1]
        self.budget.call(state if type(state) is tuple else (state,))
        builder = self.builders.get(type(made))
        if builder is not None:
            builder(made, state)
        elif self._is_listed(type(made)):
            _set_state(made, state)
        else:
            raise UnpicklingError(
                f"Can only build Tensor, Parameter, OrderedDict or types allowlisted via `add_safe_globals`, but got "
                f"{type(made)}"
            )

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) not in (dict, OrderedDict, Counter) or len(items) % 2:
            raise UnpicklingError(f"Can only set items of dicts, but got {type(target)}")
        for i in range(0, len(items), 2):
            target[self.budget.key(items[i])] = items[i + 1]

    def extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not list:
            raise UnpicklingError(f"Can only append to lists, but got {type(target)}")
        target.extend(items)

    def add_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not set:
            raise UnpicklingError(f"Can only add to sets, but got {type(target)}")
        target.update(self.budget.key(i) for i in items)

    def get(self, number: int) -> None:
        if number not in self.memo:
            raise UnpicklingError(f"the pickle refers to memo {number}, which it has not filled")
        self.stack.append(self.memo[number])

    def put(self, number: int) -> None:
        if not 0 <= number < 1 << 32:
            raise UnpicklingError(f"the pickle fills memo {number}")
        self.memo[number] = self.stack[-1]


def _set_state(made: Any, state: Any) -> None:
    setter = getattr(made, "__setstate__", None)
    if setter is not None:
        setter(state)
        return
    slots = None
    if type(state) is tuple and len(state) == 2:
        state, slots = state
    if state:
        made.__dict__.update(state)
    for name, value in (slots or {}).items():
        setattr(made, name, value)


def _proto(u: Unpickler) -> None:
    version = u.take(1)[0]
    if version > pickle.HIGHEST_PROTOCOL:
        raise UnpicklingError(f"unsupported pickle protocol: {version}")


def _text_int(u: Unpickler) -> Any:
    text = u.line()
    if text in (b"00", b"01"):
        return text == b"01"
    return int(text)


def _text_long(u: Unpickler) -> int:
    return int(u.line().removesuffix(b"L"))


def _long(u: Unpickler, form: str) -> int:
    n = u.number(form)
    return int.from_bytes(u.take(n), "little", signed=True)


def _replace_top(u: Unpickler, n: int) -> None:
    if len(u.stack) < n or any(s is _MARK for s in u.stack[-n:]):
        raise UnpicklingError("the pickle has too little on its stack")
    u.stack[-n:] = [tuple(u.stack[-n:])]


def _frame(u: Unpickler) -> None:
    u.take(8)


def _pop_mark(u: Unpickler) -> None:
    u.above_mark()


def _pop(u: Unpickler) -> None:
    u.stack.pop()


def _dict_above(u: Unpickler) -> dict[Any, Any]:
    items = u.above_mark()
    u.stack.append({})
    u.set_items(items)
    made: dict[Any, Any] = u.stack.pop()
    return made


def _global(u: Unpickler) -> None:
    module = u.line().decode()
    u.find(module, u.line().decode())


def _stack_global(u: Unpickler) -> None:
    name, module = u.stack.pop(), u.stack.pop()
    if type(name) is not str or type(module) is not str:
        raise UnpicklingError("the pickle names a global by something else than strings")
    u.find(module, name)


def _new_with_keywords(u: Unpickler) -> None:
    kwargs = u.stack.pop()
    if type(kwargs) is not dict:
        raise UnpicklingError("the pickle makes an object with something else than a dict of keywords")
    u.new(kwargs)


def _append_one(u: Unpickler) -> None:
    item = u.stack.pop()
    u.extend([item])


def _set_one(u: Unpickler) -> None:
    value, key = u.stack.pop(), u.stack.pop()
    u.set_items([key, value])


def _persistent(u: Unpickler) -> None:
    u.stack.append(u.persistent(u.stack.pop()))


def _pushing(make: Callable[[Unpickler], Any]) -> Callable[[Unpickler], None]:
    return lambda u: u.stack.append(make(u))


# By opcode; named as in the standard library's `pickletools`.
_CODE: dict[int, Callable[[Unpickler], None]] = {
    pickle.PROTO[0]: _proto,
    pickle.FRAME[0]: _frame,
    pickle.MARK[0]: lambda u: u.stack.append(_MARK),
    pickle.POP[0]: _pop,
    pickle.POP_MARK[0]: _pop_mark,
    pickle.DUP[0]: lambda u: u.stack.append(u.stack[-1]),
    pickle.NONE[0]: lambda u: u.stack.append(None),
    pickle.NEWTRUE[0]: lambda u: u.stack.append(True),
    pickle.NEWFALSE[0]: lambda u: u.stack.append(False),
    pickle.INT[0]: _pushing(_text_int),
    pickle.LONG[0]: _pushing(_text_long),
    pickle.BININT[0]: _pushing(lambda u: u.number("<i")),
    pickle.BININT1[0]: _pushing(lambda u: u.take(1)[0]),
    pickle.BININT2[0]: _pushing(lambda u: u.number("<H")),
    pickle.LONG1[0]: _pushing(lambda u: _long(u, "<B")),
    pickle.LONG4[0]: _pushing(lambda u: _long(u, "<i")),
    pickle.FLOAT[0]: _pushing(lambda u: float(u.line())),
    pickle.BINFLOAT[0]: _pushing(lambda u: struct.unpack(">d", u.take(8))[0]),
    pickle.BINSTRING[0]: _pushing(lambda u: u.take(u.number("<i")).decode()),
    pickle.SHORT_BINSTRING[0]: _pushing(lambda u: u.take(u.number("<B")).decode()),
    pickle.UNICODE[0]: _pushing(lambda u: u.line().decode("raw-unicode-escape")),
    pickle.BINUNICODE[0]: _pushing(lambda u: str(u.take(u.number("<I")), "utf-8", "surrogatepass")),
    pickle.SHORT_BINUNICODE[0]: _pushing(lambda u: str(u.take(u.number("<B")), "utf-8", "surrogatepass")),
    pickle.BINUNICODE8[0]: _pushing(lambda u: str(u.take(u.number("<Q")), "utf-8", "surrogatepass")),
    pickle.BINBYTES[0]: _pushing(lambda u: u.take(u.number("<I"))),
    pickle.SHORT_BINBYTES[0]: _pushing(lambda u: u.take(u.number("<B"))),
    pickle.BINBYTES8[0]: _pushing(lambda u: u.take(u.number("<Q"))),
    pickle.BYTEARRAY8[0]: _pushing(lambda u: bytearray(u.take(u.number("<Q")))),
    pickle.EMPTY_LIST[0]: lambda u: u.stack.append([]),
    pickle.EMPTY_TUPLE[0]: lambda u: u.stack.append(()),
    pickle.EMPTY_DICT[0]: lambda u: u.stack.append({}),
    pickle.EMPTY_SET[0]: lambda u: u.stack.append(set()),
    pickle.LIST[0]: _pushing(lambda u: u.above_mark()),
    pickle.TUPLE[0]: _pushing(lambda u: tuple(u.above_mark())),
    pickle.TUPLE1[0]: lambda u: _replace_top(u, 1),
    pickle.TUPLE2[0]: lambda u: _replace_top(u, 2),
    pickle.TUPLE3[0]: lambda u: _replace_top(u, 3),
    pickle.DICT[0]: _pushing(_dict_above),
    pickle.FROZENSET[0]: _pushing(lambda u: frozenset(u.budget.key(i) for i in u.above_mark())),
    pickle.APPEND[0]: _append_one,
    pickle.APPENDS[0]: lambda u: u.extend(u.above_mark()),
    pickle.SETITEM[0]: _set_one,
    pickle.SETITEMS[0]: lambda u: u.set_items(u.above_mark()),
    pickle.ADDITEMS[0]: lambda u: u.add_items(u.above_mark()),
    pickle.GET[0]: lambda u: u.get(int(u.line())),
    pickle.BINGET[0]: lambda u: u.get(u.take(1)[0]),
    pickle.LONG_BINGET[0]: lambda u: u.get(u.number("<I")),
    pickle.PUT[0]: lambda u: u.put(int(u.line())),
    pickle.BINPUT[0]: lambda u: u.put(u.take(1)[0]),
    pickle.LONG_BINPUT[0]: lambda u: u.put(u.number("<I")),
    pickle.MEMOIZE[0]: lambda u: u.put(len(u.memo)),
    pickle.GLOBAL[0]: _global,
    pickle.STACK_GLOBAL[0]: _stack_global,
    pickle.REDUCE[0]: lambda u: u.reduce(),
    pickle.NEWOBJ[0]: lambda u: u.new(),
    pickle.NEWOBJ_EX[0]: _new_with_keywords,
    pickle.BUILD[0]: lambda u: u.build(),
    pickle.BINPERSID[0]: _persistent,
}
