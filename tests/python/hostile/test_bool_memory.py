"""Boolean tensors on memory that others write to: any byte but 0 is true, and no kernel goes wrong over it.

Bytes other than 0 and 1 come through NumPy views, DLPack, shared memory and mapped files. What a kernel makes of them
must be what it makes of the same memory with 1 in their place, before as after the memory is exposed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lucid
import pytest

np = pytest.importorskip("numpy")

BYTES = [0, 1, 2, 0, 255, 128, 0, 3] * 9


def by_numpy_of_tensor() -> Any:
    x = lucid.zeros(len(BYTES), dtype=lucid.bool)
    x.numpy().view(np.uint8)[:] = BYTES
    return x


def by_tensor_of_numpy() -> Any:
    array = np.zeros(len(BYTES), dtype=bool)
    x = lucid.from_numpy(array)
    array.view(np.uint8)[:] = BYTES
    return x


def by_dlpack() -> Any:
    x = lucid.zeros(len(BYTES), dtype=lucid.bool)
    np.from_dlpack(x).view(np.uint8)[:] = BYTES
    return x


def by_shared_memory() -> Any:
    x = lucid.zeros(len(BYTES), dtype=lucid.bool).share_memory_()
    x.numpy().view(np.uint8)[:] = BYTES
    return x


def by_address() -> Any:
    import ctypes

    x = lucid.zeros(len(BYTES), dtype=lucid.bool)
    (ctypes.c_uint8 * len(BYTES)).from_address(x.data_ptr())[:] = BYTES
    return x


def by_view_of_numbers() -> Any:
    x = lucid.zeros(len(BYTES), dtype=lucid.uint8)
    y = x.view(lucid.bool)
    x.numpy()[:] = BYTES
    return y


WAYS: list[Callable[[], Any]] = [
    by_numpy_of_tensor,
    by_tensor_of_numpy,
    by_dlpack,
    by_shared_memory,
    by_address,
    by_view_of_numbers,
]

N = len(BYTES)
OPS: dict[str, Callable[[Any], Any]] = {
    "nonzero": lambda m: m.nonzero(),
    "count_nonzero": lambda m: m.count_nonzero(),
    "mask": lambda m: lucid.arange(N)[m],
    "mask of rows": lambda m: lucid.arange(2 * N).reshape(N, 2)[m],
    "masked_select": lambda m: lucid.arange(N).masked_select(m),
    "masked_fill": lambda m: lucid.arange(N).masked_fill(m, 7),
    "masked_scatter": lambda m: lucid.zeros(N).masked_scatter(m, lucid.arange(float(N))),
    "write by a mask": lambda m: lucid.arange(N).index_put((m,), lucid.tensor(5)),
    "where": lambda m: lucid.where(m, 1.0, 2.0),
    "sum": lambda m: m.sum(),
    "all": lambda m: m.reshape(9, 8).all(1),
    "any": lambda m: m.reshape(9, 8).any(1),
    "prod": lambda m: m.prod(),
    "max": lambda m: m.reshape(9, 8).amax(0),
    "argmax": lambda m: m.to(lucid.int32).argmax(),
    "sort": lambda m: m.sort(stable=True),
    "unique": lambda m: m.unique(return_counts=True),
    "cumsum": lambda m: m.cumsum(0),
    "not": lambda m: ~m,
    "xor": lambda m: m ^ m.flip(0),
    "and": lambda m: m & True,
    "add": lambda m: m + m,
    "add a number": lambda m: m + 1,
    "mul": lambda m: m * m,
    "equal": lambda m: m == True,  # noqa: E712
    "cast to float": lambda m: m.float(),
    "cast to bytes": lambda m: m.to(lucid.uint8),
    "copy": lambda m: m.clone().view(lucid.uint8),
    "copy of a view": lambda m: m[1::2].contiguous().view(lucid.uint8),
    "to the GPU device": lambda m: m.to("gpu").sum(),
    "on the GPU device": lambda m: lucid.arange(N, device="gpu")[m.to("gpu")],
    "list": lambda m: m.tolist(),
    "item": lambda m: m[4].item(),
    "text": lambda m: repr(m),
    "gather": lambda m: m.gather(0, lucid.arange(N - 1, -1, -1)),
    "scatter": lambda m: m.scatter(0, lucid.tensor([0, 1]), lucid.tensor([True, False])),
    "scatter_reduce": lambda m: m.scatter_reduce(0, lucid.arange(N), m, "sum"),
    "index": lambda m: m[lucid.tensor([2, 4, -1])],
    "cat": lambda m: lucid.cat([m, m]).view(lucid.uint8),
    "attention": lambda m: lucid.nn.functional.scaled_dot_product_attention(
        lucid.ones(1, 1, 9, 4),
        lucid.arange(32.0).reshape(1, 1, 8, 4),
        lucid.ones(1, 1, 8, 4),
        attn_mask=m.reshape(9, 8),
    ),
}


def listed(value: Any) -> Any:
    if isinstance(value, tuple):
        return [listed(v) for v in value]
    return value.cpu().tolist() if isinstance(value, lucid.Tensor) else value


@pytest.mark.parametrize("name", OPS)
def test_other_bytes_are_true(name: str) -> None:
    plain = lucid.tensor([bool(b) for b in BYTES])
    want = listed(OPS[name](plain))
    for way in WAYS:
        got = listed(OPS[name](way()))
        assert got == want or str(got) == str(want), way.__name__


def test_in_place_writes_leave_0_and_1_where_they_are_read() -> None:
    plain = lucid.tensor([bool(b) for b in BYTES])
    for way in WAYS:
        x = way()
        x.logical_not_()
        assert x.tolist() == (~plain).tolist(), way.__name__
        x = way()
        x.index_put_((lucid.tensor([2, 2]),), lucid.tensor([True, True]), accumulate=True)
        assert x.tolist() == plain.tolist(), way.__name__


def test_a_mapped_file_that_changes(tmp_path: Path) -> None:
    path = tmp_path / "mask.safetensors"
    lucid.save_safetensors({"mask": lucid.tensor([bool(b) for b in BYTES])}, path)
    mask = lucid.load_safetensors(path, mmap=True)["mask"] if _maps() else lucid.load_safetensors(path)["mask"]
    assert mask.tolist() == [bool(b) for b in BYTES]
    with path.open("r+b") as f:
        f.seek(-N, 2)
        f.write(bytes([2, 0, 255] * (N // 3)))
    found = mask.nonzero().flatten().tolist()
    assert found == [i for i, m in enumerate(mask.tolist()) if m]
    assert all(0 <= i < N for i in found)


def _maps() -> bool:
    import inspect

    return "mmap" in inspect.signature(lucid.load_safetensors).parameters


@pytest.mark.parametrize("op", ["nonzero", "mask", "masked_select", "sum", "where"])
def test_masks_that_change_meanwhile(op: str) -> None:
    n = 200_000
    array = np.zeros(n, dtype=bool)
    mask, x = lucid.from_numpy(array), lucid.arange(n)
    done = threading.Event()

    def write() -> None:
        raw, i = array.view(np.uint8), 0
        while not done.is_set():
            raw[:] = (0, 2, 1, 255)[i % 4]
            i += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(60):
            try:
                match op:
                    case "nonzero":
                        y = mask.nonzero()
                        assert y.numel() == 0 or 0 <= int(y.min()) <= int(y.max()) < n
                    case "mask" | "masked_select":
                        y = x[mask] if op == "mask" else x.masked_select(mask)
                        assert y.numel() == 0 or 0 <= int(y.min()) <= int(y.max()) < n
                    case "sum":
                        assert 0 <= int(mask.sum()) <= n
                    case "where":
                        y = lucid.where(mask, 1, 2)
                        assert 1 <= int(y.min()) <= int(y.max()) <= 2
            except lucid.LucidError as e:
                assert type(e).__name__ != "InternalError", e
    finally:
        done.set()
        writer.join()
