"""What stands between the brackets, side by side with PyTorch: values, views, strides, warnings, errors; and what else
takes its operands like that."""

from __future__ import annotations

import array
import collections
import warnings
from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch

DEVICES = ["cpu", "gpu"]


class Sequence:
    """What is indexed by position, and no list."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, i: int) -> Any:
        return self.parts[i]


class Number:
    def __index__(self) -> int:
        return 1


KEYS: list[Any] = [
    *[np.int64(1), np.uint8(1), np.int8(-1), (np.int64(1), 0), (0, np.uint8(1)), Number(), (Number(), 0)],
    *[np.bool_(True), (None, np.bool_(True)), np.float64(1), np.array(1), np.array(True), np.array(False)],
    *[(np.array(1), np.array(0)), (np.array(1), [0, 1]), (np.array(1),), np.array([[0, 1], [1, 2]])],
    *[np.array([0, 1], t) for t in (np.int8, np.int16, np.int32, np.uint16, np.uint32, np.uint64, np.float32)],
    *[np.array([1, 0, 1], np.uint8), (slice(None), np.array([0.7, 1])), np.zeros((2, 0)), np.zeros((0, 2))],
    *[np.array([[True, False, True, False]] * 3), [np.array([0, 1]), np.array([1, 2])], [np.array(1), np.array(0)]],
    *[range(2), (range(2),), (range(2), range(2)), (range(0, 3, 2), slice(1, 3)), Sequence(0, 1), Sequence([0], [1])],
    *[collections.deque([0]), array.array("l", [0, 1]), array.array("d", [0, 1])],
    *[
        [1.5],
        [1.5, True],
        (slice(None), [1.5]),
        [2 + 1j],
        [1e30],
        [float("nan")],
        [2**70],
        [],
        [[]],
        [[], []],
        ((), ()),
    ],
    *[[[0, 2]], [[0, 2], [1, 1]], [[[[0]]]], [(0, 1), (1, 2)], [None], [0, None], [slice(0, 1), 1], [..., 0], [0, [1]]],
    *[[True, 1], [0, True], [[True, False, True]], [[0]] * 31, [[0]] * 32, [0] * 32, [[0, 1], [1]], ["a"], [[None]]],
    *["a", b"a", {}, {1}, {1: 2}.keys(), iter([0]), 1.0, 1j, (1.0,), ("a",), object(), (True, False), (None, True)],
]
VALUES: list[tuple[Any, Callable[[Any, Any], Any]]] = [
    ([0], lambda m, t: t(3)),
    ([0], lambda m, t: t([3])),
    ([0], lambda m, t: t([3.0], m.float16)),
    ([], lambda m, t: t(2)),
    ((0, [1, 2]), lambda m, t: t([2, 3], m.int32)),
    (np.array([[True, False, True, False]] * 3), lambda m, t: t([3])),
    (np.array([[True, False, True, False]] * 3), lambda m, t: t(3.0, m.float16)),
    (np.array([[True, False, True, False]] * 3), lambda m, t: t(2j)),
    (np.array([[True, False, True, False]] * 3), lambda m, t: t([1, 2, 3, 4, 5, 6])),
    ((slice(None), np.array([True, False, True, False])), lambda m, t: t([[3]])),
    (([True, False, True], [0, 0]), lambda m, t: t(3)),
    (([True, False, True], 0), lambda m, t: t(3)),
    (True, lambda m, t: t([1, 2, 3, 4])),
    (True, lambda m, t: t(1)),
    (False, lambda m, t: t([1, 2, 3, 4, 5])),
    ((True, 0), lambda m, t: t(3)),
    (0, lambda m, t: t(3)),
    (0, lambda m, t: t([1, 2, 3, 4], m.float16)),
    (range(2), lambda m, t: 7),
    ((range(2), range(2)), lambda m, t: 7.5),
    (np.int8(1), lambda m, t: 5),
    (np.array(1), lambda m, t: 5),
    (np.array([[0, 1], [1, 2]]), lambda m, t: 5),
    *[
        (0, lambda m, t, v=v: v)
        for v in (np.float32(2), np.float64(2), np.float16(2), np.int32(2), np.bool_(1), np.complex64(1))
    ],
    *[(0, lambda m, t, v=v: v) for v in (np.array(2), np.ones(4), [1], (1,), "a", None, Number(), Sequence(1))],
    *[(np.array([True, False, True]), lambda m, t, v=v: v) for v in (np.float32(2), np.array(2), [1], 1j, 2**70)],
]


def outcome(make: Callable[[], Any]) -> Any:
    """The value, or what kind of error it is; and how many warnings for the user came on the way."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            made = make()
        except Exception as e:
            kinds = (IndexError, TypeError, ValueError, RuntimeError)
            made = [kind.__name__ for kind in kinds if isinstance(e, kind)]
    return made, [w.category.__name__ for w in seen if w.category is UserWarning]


def described(x: Any) -> Any:
    return [tuple(x.shape), x.stride(), x.storage_offset(), x._is_view(), x.tolist()]


def agree(ours: Any, theirs: Any) -> bool:
    # Our errors may be of several kinds.
    if ours[0] and theirs[0] and isinstance(theirs[0][0], str):
        return theirs[0][0] in ours[0] and ours[1] == theirs[1]
    return bool(ours == theirs)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("key", KEYS, ids=lambda k: type(k).__name__)
def test_what_a_key_takes(key: Any, device: str) -> None:
    # An iterator or a view of a dict is refused before it is read.
    ours, theirs = (
        outcome(lambda m=m, on=on: described(m.arange(12.0, device=on).reshape(3, 4)[key]))
        for m, on in ((lucid, device), (torch, "cpu"))
    )
    assert agree(ours, theirs), (ours, theirs)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", range(len(VALUES)))
def test_what_is_assigned(case: int, device: str) -> None:
    key, value = VALUES[case]

    def written(m: Any, on: str) -> Any:
        x = m.arange(12.0, device=on).reshape(3, 4)
        x[key] = value(m, lambda data, dtype=None: m.tensor(data, dtype=dtype, device=on))
        return x.tolist()

    ours, theirs = (outcome(lambda m=m, on=on: written(m, on)) for m, on in ((lucid, device), (torch, "cpu")))
    assert agree(ours, theirs), (key, ours, theirs)


@pytest.mark.parametrize("device", DEVICES)
def test_a_numpy_integer_shows_the_tensor(device: str) -> None:
    x = lucid.zeros(3, 4, device=device)
    x[np.int64(1)][np.uint8(2)].fill_(5.0)
    x[np.array(0), 1].fill_(7.0)
    assert x[1, 2].item() == 5.0 and x[0, 1].item() == 7.0 and x.sum().item() == 12.0


class Other:
    def __radd__(self, left: Any) -> str:
        return "added"

    def __rfloordiv__(self, left: Any) -> str:
        return "divided"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sign", ["+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>"])
def test_in_place_beside_what_is_no_tensor(sign: str, device: str) -> None:
    """The operator in place is not there, and Python goes on with the other one."""

    def rest(m: Any, on: str, right: Any, *left: Any) -> Any:
        names: dict[str, Any] = {"x": m.tensor(list(left), device=on), "right": right}
        names["kept"] = names["x"]
        exec(f"x {sign}= right", names)
        x = names["x"]
        return [type(x).__name__, x is names["kept"], x if isinstance(x, str) else (str(x.dtype)[-7:], x.tolist())]

    # An array comes to the host's tensors alone.
    rights = [Other(), [1, 2], "a", None, 2, True]
    for right in [*rights, np.array([1, 2]), np.array([1.5, 2.0])] if device == "cpu" else rights:
        for left in ((1, 2), (1.0, 2.0)):
            if right is True and sign == "-":
                continue  # Refused by both, as a subtraction of truths.
            ours, theirs = (
                outcome(lambda m=m, on=on, right=right, left=left: rest(m, on, right, *left))
                for m, on in ((lucid, device), (torch, "cpu"))
            )
            assert agree(ours, theirs), (right, ours, theirs)


def test_sizes() -> None:
    def made(m: Any) -> list[Any]:
        s = m.Size([2, 3])
        return [
            outcome(lambda f=f: (type(f(s)).__name__, f(s)))
            for f in (
                lambda s: s * 2,
                lambda s: 2 * s,
                lambda s: s[:1],
                lambda s: s.__add__((1,)),
                lambda s: m.Size((2, m.tensor(3))),
                lambda s: m.Size([np.int64(2), True]),
                lambda s: m.Size(range(3)),
                lambda s: m.Size(),
                lambda s: m.Size([2.5]),
                lambda s: m.Size("ab"),
                lambda s: m.Size(3),
                lambda s: m.Size([m.tensor([1, 2])]),
                lambda s: m.Size([None]),
                lambda s: s * "a",
                lambda s: s * s,
            )
        ]

    for ours, theirs in zip(made(lucid), made(torch), strict=True):
        assert agree(ours, theirs), (ours, theirs)


def test_sizes_and_data_of_the_older_constructors() -> None:
    def made(m: Any) -> list[Any]:
        return [
            outcome(lambda data=data, name=name: tuple(getattr(m, name)(data).shape))
            for data in (2.5, None, 1j, np.int64(2), np.float64(2), 3, [1, 2], (), np.ones(2, np.float32), range(3))
            for name in ("Tensor", "FloatTensor")
            if not (name == "FloatTensor" and isinstance(data, np.ndarray))
        ]

    for ours, theirs in zip(made(lucid), made(torch), strict=True):
        assert agree(ours, theirs), (ours, theirs)


@pytest.mark.parametrize("device", DEVICES)
def test_the_gradient_that_will_not_come(device: str) -> None:
    """Reading `grad` of what is no leaf warns, unless it is kept."""
    for m, on in ((lucid, device), (torch, "cpu")):
        x = m.ones(2, device=on, requires_grad=True)
        y, kept = x * 2, x * 2
        kept.retain_grad()
        with pytest.warns(UserWarning, match="not a leaf Tensor is being accessed"):
            assert y.grad is None
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert kept.grad is None and x.grad is None and y.detach().grad is None
            kept.sum().backward()
            assert kept.grad.tolist() == [1.0, 1.0]
