"""`x[…]` and `x[…] = …`, against NumPy's meaning of the same keys, on both devices."""

from __future__ import annotations

from typing import Any

import lucid
import numpy as np
import pytest

DEVICES = ("cpu", "gpu")
mask2 = np.array([[True, False, True, False], [False] * 4, [True] * 4])
maskrow = np.array([True, False, True])

# Keys for an array of shape (3, 4, 5). What NumPy and PyTorch place differently is listed apart.
KEYS: list[Any] = [
    0,
    -1,
    slice(None),
    slice(1, None),
    slice(None, -1),
    slice(None, None, 2),
    slice(2, 1),
    slice(-100, 100),
    slice(1, 10**30),
    ...,
    None,
    (0, 1),
    (0, 1, 2),
    (0, ...),
    (..., 0),
    (..., -1, slice(1, 4)),
    (slice(None), 2),
    (slice(1, 3), slice(None, None, 3), slice(4, None)),
    (slice(None, None, 2), None, 1),
    (None, ..., None),
    (slice(None), None, slice(None), slice(0, 5, 2)),
    (0, slice(None), slice(1, None, 2)),
    (np.array([0, 2]),),
    (np.array([2, 0, 0, -1]),),
    ([0, 2],),
    (np.array([[0, 1], [2, 0]]),),
    (slice(None), np.array([3, 0])),
    (..., np.array([3, 0])),
    (np.array([0, 2]), np.array([1, 3])),
    (np.array([[0], [2]]), np.array([1, 3])),
    (slice(None), np.array([0, 1]), np.array([1, 4])),
    (np.array([0, 1]), slice(None), np.array([1, 4])),
    (np.array([0, 1]), slice(1, 3), np.array([1, 4])),
    (slice(1, 3), np.array([0, 1])),
    (None, np.array([0, 1])),
    mask2,
    maskrow,
    (maskrow, 0),
    (slice(None), np.array([True, False, False, True])),
    (slice(None), np.array([True, False, False, True]), slice(1, 3)),
    np.zeros((3, 4, 5), dtype=bool),
    (np.zeros(3, dtype=bool),),
    True,
    False,
    (np.array([], dtype=np.int64),),
    [],
    np.int64(1),
]


def ours(key: Any, device: str) -> Any:
    if isinstance(key, tuple):
        return tuple(ours(k, device) for k in key)
    return lucid.tensor(key, device=device) if isinstance(key, np.ndarray) else key


def name(key: Any) -> str:
    return repr(key).replace("\n", "")[:60]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("key", KEYS, ids=name)
def test_reading(key: Any, device: str) -> None:
    a = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    got = lucid.tensor(a, device=device)[ours(key, device)]
    want = a[key]
    assert tuple(got.shape) == want.shape
    assert got.tolist() == want.tolist()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("key", KEYS, ids=name)
@pytest.mark.parametrize("value", ["number", "tensor", "row"])
def test_writing(key: Any, value: str, device: str) -> None:
    a = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    t = lucid.tensor(a, device=device)
    shape = a[key].shape
    if value == "number":
        t[ours(key, device)] = -1
        a[key] = -1
    else:
        if value == "row":
            shape = shape[-1:]
        v = -np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
        t[ours(key, device)] = lucid.tensor(v, device=device)
        # Where an index names an element twice, which of the values stays is open: only these need a look.
        a[key] = v
        if isinstance(key, tuple) and any(
            isinstance(k, np.ndarray) and k.dtype != bool and len(np.unique(k % 3)) < k.size for k in key
        ):
            touched = np.zeros((3, 4, 5), dtype=bool)
            touched[key] = True
            assert np.array_equal(np.array(t.tolist())[~touched], a[~touched])
            return
    assert t.tolist() == a.tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_pytorchs_place_for_separated_indices(device: str) -> None:
    t = lucid.arange(60, device=device).reshape(3, 4, 5)
    i = lucid.tensor([0, 1], device=device)
    # An integer is no advanced index for PyTorch, so the tensors are neighbours; NumPy puts them in front.
    assert t[:, 0, i].shape == (3, 2)
    assert t[i, 0, i].shape == (2,)
    assert t[i, :, 0].shape == (2, 4)


@pytest.mark.parametrize("device", DEVICES)
def test_basic_keys_are_views(device: str) -> None:
    t = lucid.zeros(3, 4, device=device)
    for view in (t[0], t[:, 1], t[::2], t[..., None], t[1:, ::3], t[None]):
        assert view._shares_storage(t)
        view.fill_(1)
        assert t.sum().item() == view.numel()
        t.zero_()
    assert not t[[0, 1]]._shares_storage(t)
    t[1:][0][2:] = 5
    assert t[1].tolist() == [0, 0, 5, 5]
    t[::2].add_(1)
    assert t.sum().item() == 18


@pytest.mark.parametrize("device", DEVICES)
def test_zero_dimensional_integer_tensors_select(device: str) -> None:
    t = lucid.arange(6, device=device).reshape(2, 3)
    i = lucid.tensor(1, device=device)
    assert t[i].tolist() == [3, 4, 5]
    assert t[i]._shares_storage(t)
    assert t[:, i].tolist() == [1, 4]
    assert t[lucid.tensor(True, device=device)].shape == (1, 2, 3)


@pytest.mark.parametrize("device", DEVICES)
def test_assignment_casts_and_drops_leading_ones(device: str) -> None:
    t = lucid.zeros(3, dtype=lucid.int64, device=device)
    t[0] = 2.7
    t[1:] = lucid.tensor([[1.5, 2.5]], device=device)
    assert t.tolist() == [2, 1, 2]
    t[lucid.tensor([True, False, True], device=device)] = 9.9
    assert t.tolist() == [9, 1, 9]
    t[lucid.tensor([0], device=device)] = lucid.tensor([[4]], device=device)
    assert t.tolist() == [4, 1, 9]


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_pass_through_keys(device: str) -> None:
    for key in (
        0,
        slice(None, None, 2),
        (slice(None), 1),
        [0, 0, 2],
        None,
        lucid.tensor([True, False, True], device=device),
    ):
        t = lucid.ones(3, 2, device=device, requires_grad=True)
        (t[key] * 3).sum().backward()
        a = np.zeros((3, 2))
        np.add.at(a, key if not isinstance(key, lucid.Tensor) else np.array([True, False, True]), 3)
        assert t.grad is not None
        assert t.grad.tolist() == a.tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_pass_through_assignment(device: str) -> None:
    x = lucid.ones(4, device=device, requires_grad=True)
    v = lucid.tensor(2.0, device=device, requires_grad=True)
    y = x * 1
    y[1:3] = v
    y[0] = 5
    (y * lucid.tensor([1.0, 2.0, 3.0, 4.0], device=device)).sum().backward()
    assert x.grad is not None and v.grad is not None
    assert x.grad.tolist() == [0, 0, 0, 4]
    assert v.grad.item() == 5


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (5, IndexError),
        (-4, IndexError),
        (10**30, ValueError),
        ((0, 0, 0, 0), IndexError),
        ((..., ..., 0), IndexError),
        ("a", TypeError),
        (1.5, IndexError),
        (slice(None, None, -1), ValueError),
        (slice(None, None, 0), ValueError),
        (slice("a", None), TypeError),
        ([0, 7], IndexError),
        ([7.5], IndexError),
        ([0.5j], TypeError),
        ([True, False], IndexError),
        (([0, 1], [0, 1, 2]), IndexError),
    ],
)
@pytest.mark.parametrize("device", DEVICES)
def test_keys_that_do_not_fit(key: Any, kind: Any, device: str) -> None:
    t = lucid.zeros(3, 4, 5, device=device)
    with pytest.raises(kind):
        t[key].eval()
    with pytest.raises(kind):
        t[key] = 1
        t.eval()


def test_values_that_do_not_fit() -> None:
    t = lucid.zeros(3, 4)
    with pytest.raises(TypeError, match="list"):
        t[0] = [1, 2, 3, 4]  # type: ignore[call-overload]
    with pytest.raises(RuntimeError):
        t[0] = lucid.ones(3)
    with pytest.raises(RuntimeError):
        t[[0, 1]] = lucid.ones(3)
    with pytest.raises(IndexError):
        lucid.tensor(1)[0]
    with pytest.raises(TypeError):
        del t[0]
