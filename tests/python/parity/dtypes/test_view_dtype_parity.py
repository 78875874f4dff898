"""`Tensor.view(dtype)` against PyTorch: sizes, strides, offsets, bytes, writes through either, errors, the tape."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python import limitations
from tests.python.samples import lucid_dtypes

DEVICES = ("cpu", "gpu")
DTYPES = lucid_dtypes()

SHOWN: dict[str, Callable[[Any], Any]] = {
    "whole": lambda x: x,
    "columns": lambda x: x[:, 4:],
    "odd columns": lambda x: x[:, 1:],
    "transposed": lambda x: x.t(),
    "rows": lambda x: x[::2],
    "every second": lambda x: x[:, ::2],
    "one row": lambda x: x[1],
    "one column": lambda x: x[:, :1],
    "one element": lambda x: x[0, 0],
    "no rows": lambda x: x[:0],
    "no columns": lambda x: x[:, :0],
    "turned": lambda x: x.reshape(2, 2, 16).transpose(0, 1),
    "expanded": lambda x: x.expand(2, 4, 16),
    "windows": lambda x: x.unfold(1, 8, 4),
}
WRITABLE = [name for name in SHOWN if name not in ("expanded", "windows", "no rows", "no columns")]


def pair(dtype: str, device: str, truths: bool = False) -> tuple[Any, Any]:
    theirs = (torch.arange(64) % 2 if truths else torch.arange(64)).reshape(4, 16)
    ours = lucid.tensor(theirs.tolist(), device=device).to(getattr(lucid, dtype))
    return ours, theirs.to(getattr(torch, dtype))


def bits(x: Any, L: Any) -> bytes:
    return bytes(x.flatten().contiguous().view(L.uint8).tolist()) if x.numel() else b""


def attempt(run: Callable[[], Any]) -> tuple[Any, type | None, str]:
    try:
        return run(), None, ""
    except (RuntimeError, TypeError) as error:
        return None, RuntimeError if isinstance(error, RuntimeError) else TypeError, str(error)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_as_every_other(dtype: str, device: str) -> None:
    seen = 0
    for to in DTYPES:
        if device == "gpu" and {"float64", "complex128"} & {dtype, to}:
            continue
        for name, show in SHOWN.items():
            truths = to == "bool" and dtype in ("uint8", "int8")
            if to == "bool" and not truths and dtype != "bool":
                continue  # Bytes that are neither 0 nor 1: below.
            x, y = pair(dtype, device, truths)
            where = f"{dtype} as {to}, {name}"
            theirs, refused, why = attempt(lambda y=y, show=show, to=to: show(y).view(getattr(torch, to)))
            ours, kind, said = attempt(lambda x=x, show=show, to=to: show(x).view(getattr(lucid, to)))
            assert kind == refused, where
            if refused is not None:
                # The same words, but for the dtypes' names.
                assert why.split(" to view")[0] in said, where
                continue
            assert (tuple(ours.shape), ours.stride(), ours.storage_offset()) == (
                tuple(theirs.shape),
                theirs.stride(),
                theirs.storage_offset(),
            ), where
            assert bits(ours, lucid) == bits(theirs, torch), where
            if name not in WRITABLE or (dtype == "bool" and to not in ("bool", "uint8", "int8")):
                continue  # What is seen as truth values takes no other bytes: below.
            seen += 1
            for written in (ours, theirs):
                written.fill_(1)
            assert bits(x, lucid) == bits(y, torch), f"{where}: written through the view"
            for base in (x, y):
                base.fill_(1).t()[1].fill_(0)
            assert bits(ours, lucid) == bits(theirs, torch), f"{where}: written below the view"
    assert seen or (device == "gpu" and dtype in ("float64", "complex128"))


@pytest.mark.parametrize("device", DEVICES)
def test_the_tape_knows_nothing_of_it(device: str) -> None:
    def run(L: Any, device: str) -> Any:
        x = L.ones(2, 4, device=device, requires_grad=True)
        leaf = x.view(L.int32)
        same = x.view(L.float32)
        y = x * 2
        version = y._version
        part = y.view(L.int32)
        part.zero_()
        seen = [(t.requires_grad, t.grad_fn, t.is_leaf, t._is_view()) for t in (leaf, same, part)]
        y.sum().backward()
        z = x.exp()
        z.view(L.int32).zero_()
        try:
            z.sum().backward()
            caught = ""
        except RuntimeError as error:
            caught = "modified by an inplace operation" if "inplace" in str(error) else str(error)
        # A leaf may be written to through bits.
        leaf.zero_()
        return seen, y._version - version, y.tolist(), x.grad.tolist(), caught, x.tolist(), x.is_leaf

    assert run(lucid, device) == run(torch, "cpu")


@pytest.mark.parametrize("device", DEVICES)
def test_calls_and_errors(device: str) -> None:
    def calls(L: Any, device: str) -> list[Callable[[], Any]]:
        x = L.arange(12, device=device).to(L.float32).reshape(3, 4)
        return [
            lambda: x.view(L.int32).tolist(),
            lambda: x.view(dtype=L.int16).tolist(),
            lambda: x.view(size=(4, 3)).tolist(),
            lambda: x.view(4, 3).tolist(),
            lambda: x.view((2, -1)).tolist(),
            lambda: L.tensor(1.0, device=device).view(L.int32).tolist(),
            lambda: L.tensor(1.0, device=device).view(L.int16),
            lambda: x.view(),
            lambda: x.view("i"),
            lambda: x.view(L.int32, 3),
            lambda: x.view(L.int32, dtype=L.int32),
            lambda: x.view(dtype=3),
            lambda: x.t().view(L.int16),
            lambda: x.view(-1).view(L.int16).view(L.uint8).view(L.float32).tolist(),
        ]

    for ours, theirs in zip(calls(lucid, device), calls(torch, "cpu"), strict=True):
        got, wanted = attempt(ours), attempt(theirs)
        assert got[:2] == wanted[:2]


def test_there_is_no_float64_on_the_gpu() -> None:
    x = lucid.zeros(4, device="gpu")
    with pytest.raises(RuntimeError, match="float64"):
        x.view(lucid.float64)


@pytest.mark.parametrize("device", DEVICES)
def test_truth_values(device: str) -> None:
    x = lucid.tensor([True, False, True], device=device)
    b = x.view(lucid.uint8)
    assert b.tolist() == [1, 0, 1]
    b[1] = 1
    assert x.tolist() == [True, True, True]
    # Bytes are 0 or 1 as long as they are seen as truth values.
    b[2] = 7
    assert x.tolist() == [True, True, True]
    assert (x ^ x).any().item() is False
    odd = lucid.tensor([0, 1, 2], dtype=lucid.uint8, device=device)
    if limitations.known("view_dtype", device, "bool"):
        with pytest.raises(RuntimeError, match="0 and 1"):
            odd.view(lucid.bool)
    else:
        assert odd.view(lucid.bool).tolist() == torch.tensor([0, 1, 2], dtype=torch.uint8).view(torch.bool).tolist()


def test_memory_is_shared() -> None:
    x = lucid.arange(4.0)
    y = x.view(lucid.int16)
    assert y.data_ptr() == x.data_ptr() and y[2:].data_ptr() == x[1:].data_ptr()
    assert y._shares_storage(x) and y.untyped_storage().nbytes() == x.untyped_storage().nbytes() == 16
    a = y.numpy()
    a[:] = 0
    assert x.tolist() == [0.0] * 4
    bytes_ = lucid.from_numpy(np.arange(16, dtype=np.uint8))
    assert bytes_.view(lucid.int32).tolist() == np.arange(16, dtype=np.uint8).view(np.int32).tolist()
    odd = lucid.from_numpy(np.zeros(17, np.uint8)[1:])
    try:
        odd.view(lucid.int64)
    except RuntimeError as error:  # An address that is no multiple of 8.
        assert "not aligned" in str(error)
    assert odd.clone().view(lucid.int64).tolist() == [0, 0]
    for again in (copy.deepcopy([x, y]), pickle.loads(pickle.dumps([x, y]))):
        assert again[1].dtype == lucid.int16 and again[1].tolist() == y.tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_deep_chains_of_views(device: str) -> None:
    def run(L: Any, device: str) -> Any:
        x = L.arange(48, device=device).to(L.int32)
        y = x.view(L.int16).reshape(8, 12)
        for _ in range(12):
            y = y.t()[1:].t()[:, :-1] if y.shape[1] > 4 else y[1:].t().t()
        z = y[:2, :2]
        z.add_(100)
        strided = x.view(L.uint8).as_strided((3, 4), (16, 4), 1)
        strided.fill_(9)
        wide = x[:8].view(L.int64).as_strided((2, 2), (2, 1), 1)
        wide.mul_(2)
        return x.tolist(), y.tolist(), z.tolist(), wide.tolist(), strided.tolist()

    assert run(lucid, device) == run(torch, "cpu")


@pytest.mark.parametrize("device", DEVICES)
def test_under_vmap(device: str) -> None:
    def run(L: Any, device: str) -> Any:
        x = L.arange(24, device=device).to(L.float32).reshape(2, 3, 4)
        shown = L.func.vmap(lambda s: s.view(L.int32))(x)
        halves = L.func.vmap(lambda s: s.view(L.int16))(x)
        return shown.tolist(), halves.tolist(), halves.shape == (2, 3, 8)

    assert run(lucid, device) == run(torch, "cpu")
