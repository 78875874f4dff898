"""Memory shared with NumPy, buffers, DLPack and other processes: who sees whose writes, and who keeps what alive."""

from __future__ import annotations

import array
import copy
import functools
import gc
import multiprocessing
import os
import pickle
import sys
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import lucid
import lucid.multiprocessing
import numpy as np
import pytest
from lucid.utils import dlpack

from tests.python.samples import lucid_dtypes

DTYPES = [d for d in lucid_dtypes() if d != "bfloat16"]  # NumPy has no bfloat16.


@pytest.fixture
def each_time() -> Iterator[None]:
    """What is warned of once in a process is warned of each time."""
    lucid.set_warn_always(True)
    yield
    lucid.set_warn_always(False)


def numbers(dtype: str) -> np.ndarray:
    return np.arange(24).reshape(4, 6).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("view", ["whole", "transposed", "sliced", "0-d", "empty", "broadcast"])
def test_numpy_shares_memory_both_ways(dtype: str, view: str) -> None:
    base = numbers(dtype)
    a: Any = {
        "whole": base,
        "transposed": base.T,
        "sliced": base[1:4:2, 2::3],
        "0-d": base[1, 1:2].reshape(()),
        "empty": base[:0],
        "broadcast": np.broadcast_to(base[0], (3, 6)),
    }[view]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        t = lucid.from_numpy(a)
    back = t.numpy()
    assert (t.dtype, tuple(t.shape)) == (getattr(lucid, dtype), a.shape)
    np.testing.assert_array_equal(back, a)
    if not a.size:
        return
    assert t.stride() == tuple(s // a.itemsize for s in a.strides)
    assert back.strides == a.strides
    assert back.__array_interface__["data"][0] == a.__array_interface__["data"][0] == t.data_ptr()
    if view == "broadcast":
        return
    a[...] = 0
    assert not t.any()
    t.fill_(1)
    assert a.astype(bool).all() and back.astype(bool).all()
    back[...] = 0
    assert not t.any() and not a.any()


def test_an_array_keeps_the_tensor_and_a_tensor_the_array() -> None:
    a = np.arange(1000.0)
    gone = weakref.ref(a)
    t = lucid.from_numpy(a)[10:20]
    del a
    gc.collect()
    assert gone() is not None and t.tolist() == list(range(10, 20))
    shown = t.numpy()
    del t
    gc.collect()
    assert gone() is not None and shown.tolist() == list(range(10, 20))
    del shown
    gc.collect()
    assert gone() is None
    x = lucid.arange(5)
    shown = x.numpy()
    x.data = lucid.zeros(5, dtype=lucid.int64)
    del x
    gc.collect()
    assert shown.tolist() == [0, 1, 2, 3, 4]


def test_arrays_that_cannot_be_shown() -> None:
    with pytest.raises(ValueError, match="negative"):
        lucid.from_numpy(np.arange(3.0)[::-1])
    with pytest.raises(ValueError, match="byte order"):
        lucid.from_numpy(np.ones(2, ">f4"))
    with pytest.raises(ValueError, match="strides not a multiple"):
        lucid.from_numpy(np.zeros(4, dtype=[("a", "f4"), ("b", "i1")])["a"])
    with pytest.raises(ValueError, match="aligned"):
        lucid.from_numpy(np.frombuffer(bytearray(9), np.uint8)[1:].view(np.float64))
    for wrong in (np.array(["a"]), np.array([None]), np.ones(1, "M8[s]"), np.ones(1, np.complex256)):
        with pytest.raises(TypeError, match="supported types"):
            lucid.from_numpy(wrong)
    for other in ([1], np.float32(1), None):
        with pytest.raises(TypeError, match=r"expected np\.ndarray"):
            lucid.from_numpy(other)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", ["array", "buffer", "dlpack"])
def test_read_only_memory_is_shown_and_not_written(make: str, each_time: None) -> None:
    if make == "array":
        a = np.arange(4.0)
        a.flags.writeable = False
        with pytest.warns(UserWarning, match="not writable"):
            t = lucid.from_numpy(a)
    elif make == "buffer":
        with pytest.warns(UserWarning, match="not writable"):
            t = lucid.frombuffer(np.arange(4.0).tobytes(), dtype=lucid.float64)
    else:
        a = np.arange(4.0)
        a.flags.writeable = False
        t = lucid.from_dlpack(a)
    assert t.tolist() == [0, 1, 2, 3] and (t + 1).tolist() == [1, 2, 3, 4]
    assert not t.numpy().flags.writeable
    for write in (lambda: t.add_(1), lambda: t.fill_(0), lambda: t.__setitem__(0, 1.0), lambda: t[1:].zero_()):
        with pytest.raises(RuntimeError, match="not writable"):
            write()
    p = lucid.nn.Parameter(t)
    p.grad = lucid.ones(4, dtype=lucid.float64)
    with pytest.raises(RuntimeError, match="not writable"):
        lucid.optim.SGD([p], lr=1.0).step()
    assert t.tolist() == [0, 1, 2, 3]
    t.clone().add_(1)


def test_overlapping_memory_of_two_tensors() -> None:
    a = np.arange(6.0)
    x, y = lucid.from_numpy(a[:5]), lucid.from_numpy(a[1:])
    y.copy_(x)
    assert a.tolist() == [0, 0, 1, 2, 3, 4]
    p = lucid.nn.Parameter(lucid.from_numpy(a))
    p.grad = lucid.from_numpy(a)
    lucid.optim.SGD([p], lr=1.0).step()
    assert a.tolist() == [0] * 6


def test_numpy_refuses_as_pytorch_but_copies_from_the_gpu() -> None:
    with pytest.raises(RuntimeError, match="requires grad"):
        lucid.ones(1, requires_grad=True).numpy()
    with pytest.raises(TypeError, match="BFloat16"):
        lucid.ones(1, dtype=lucid.bfloat16).numpy()
    on_gpu = lucid.ones(20000, device="gpu")
    on_gpu.numpy()[0] = 5
    assert on_gpu[0].item() == 1
    x = lucid.ones(2, requires_grad=True)
    x.numpy(force=True)[0] = 5
    assert x.tolist() == [5, 1]
    assert lucid.ones(2, device="gpu").numpy(force=True).tolist() == [1, 1]


def test_array_protocol() -> None:
    x = lucid.arange(3.0)
    assert np.shares_memory(np.asarray(x), x.numpy())
    assert not np.shares_memory(np.array(x), x.numpy())
    assert np.shares_memory(np.array(x, copy=False), x.numpy())
    assert np.asarray(x, dtype=np.int32).dtype == np.int32
    with pytest.raises(ValueError):
        np.array(x, dtype=np.int32, copy=False)
    total = np.add(x, np.ones(3))
    assert isinstance(total, lucid.Tensor) and total.dtype is lucid.float64 and total.tolist() == [1, 2, 3]
    assert np.less(x, np.ones(3)).dtype is lucid.uint8


class Exotic:
    """Data that offers one protocol alone."""

    def __init__(self, **offers: Any) -> None:
        for name, value in offers.items():
            setattr(self, name, value)


class Interface(Exotic):
    pass


class Dlpack:
    def __init__(self, a: np.ndarray) -> None:
        self.a = a

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.a.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class Array:
    def __init__(self, a: np.ndarray) -> None:
        self.a = a

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.a


@pytest.mark.parametrize("kind", ["ndarray", "array", "interface", "dlpack", "bytearray", "memoryview", "array.array"])
def test_tensor_copies_and_as_tensor_shares(kind: str) -> None:
    a = np.arange(4, dtype=np.int32)
    data: Any = {
        "ndarray": a,
        "array": Array(a),
        "interface": Interface(__array_interface__=a.__array_interface__, keep=a),
        "dlpack": Dlpack(a),
        "bytearray": bytearray([0, 1, 2, 3]),
        "memoryview": memoryview(a),
        "array.array": array.array("i", [0, 1, 2, 3]),
    }[kind]
    copied, shared, alias = lucid.tensor(data), lucid.as_tensor(data), lucid.asarray(data)
    assert copied.tolist() == shared.tolist()
    if kind in ("bytearray", "memoryview", "array.array"):
        # PyTorch reads them as sequences of Python's numbers, but for asarray.
        assert copied.dtype is shared.dtype is lucid.int64
        assert alias.dtype is (lucid.uint8 if kind == "bytearray" else lucid.int32)
        assert kind == "bytearray" or alias.tolist() == copied.tolist()
    else:
        assert copied.dtype is shared.dtype is alias.dtype is lucid.int32
        shared[0] = 7
        assert copied[0] == 0 and alias[0] == 7
        assert shared.data_ptr() == alias.data_ptr()
    alias[0] = 5
    assert lucid.asarray(data)[0] == 5 and copied[0] == 0
    assert copied.data_ptr() != alias.data_ptr()
    assert lucid.asarray(data, copy=True).data_ptr() != alias.data_ptr()
    if kind in ("bytearray", "memoryview", "array.array"):
        # The bytes are read as the dtype.
        assert lucid.asarray(data, copy=False, dtype=lucid.int16).data_ptr() == alias.data_ptr()
    else:
        with pytest.raises(ValueError, match="alias"):
            lucid.asarray(data, copy=False, dtype=lucid.float64)
    with pytest.raises(ValueError, match="alias"):
        lucid.asarray(data, copy=False, device="gpu")


def test_bytes_and_scalars(each_time: None) -> None:
    with pytest.raises(TypeError, match="invalid data type"):
        lucid.as_tensor(b"ab")
    with pytest.warns(UserWarning, match="not writable"):
        assert lucid.asarray(b"ab").tolist() == [97, 98]
    assert lucid.tensor(bytearray(b"ab")).tolist() == [97, 98]
    assert lucid.asarray(3).dtype is lucid.int64
    assert lucid.asarray(np.float64(3)).dtype is lucid.float64
    assert lucid.asarray([1.0], requires_grad=True).requires_grad
    with pytest.raises(ValueError, match="alias arbitrary sequence"):
        lucid.asarray([1], copy=False)


def test_dtypes_among_nested_data() -> None:
    assert lucid.tensor([np.float64(1), 2]).dtype is lucid.float64
    assert lucid.tensor([np.float16(1), np.float16(2)]).dtype is lucid.float16
    assert lucid.tensor([np.float16(1), 2.0]).dtype is lucid.float32
    assert lucid.tensor([np.int32(1), True]).dtype is lucid.int32
    assert lucid.tensor([lucid.tensor(1), lucid.tensor(2.0, dtype=lucid.float64)]).dtype is lucid.float64
    assert lucid.tensor([1, 2j]).dtype is lucid.complex64
    assert lucid.tensor([[], []]).dtype is lucid.float32
    with pytest.raises(ValueError, match=r"length 2 at dim 1 \(got 1\)"):
        lucid.tensor([[1, 2], [3]])
    for nothing in (None, [None]):
        with pytest.raises(RuntimeError, match="infer dtype"):
            lucid.tensor(nothing)
    for wrong in ({1}, {1: 2}, object(), (i for i in range(3))):
        with pytest.raises(RuntimeError, match="infer dtype"):
            lucid.tensor(wrong)
    for text in ("a", b"ab"):
        with pytest.raises(TypeError, match="invalid data type"):
            lucid.tensor(text)
    with pytest.raises(ValueError, match="too many dimensions"):
        lucid.tensor(["a"])


@pytest.mark.filterwarnings("ignore:The given buffer")
def test_frombuffer_reads_as_pytorch() -> None:
    b = bytearray(b"abcd")
    t = lucid.frombuffer(b, dtype=lucid.int16)
    b[0] = 0
    assert t.tolist() == [25088, 25699]
    with pytest.raises(BufferError):
        b.append(1)
    del t
    gc.collect()
    b.append(1)
    assert lucid.frombuffer(b"abcd", dtype=lucid.uint8, offset=1, count=2).tolist() == [98, 99]
    assert lucid.frombuffer(b"abcde", dtype=lucid.int16, offset=1).tolist() == [25442, 25956]
    assert lucid.frombuffer(bytearray(b"\0\1\2"), dtype=lucid.bool).tolist() == [False, True, True]
    for arguments in ({"offset": 4}, {"offset": -1}, {"offset": 1}, {"count": 3}, {"count": 0}):
        with pytest.raises(ValueError):
            lucid.frombuffer(b"abcd", dtype=lucid.int16, **arguments)
    for wrong in (b"", [1], 3):
        with pytest.raises(ValueError):
            lucid.frombuffer(wrong, dtype=lucid.int16)


# ---- DLPack ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
@pytest.mark.parametrize("versioned", [False, True])
def test_dlpack_round_trip_is_zero_copy(dtype: str, versioned: bool) -> None:
    base = lucid.tensor(np.arange(24).reshape(4, 6)).to(getattr(lucid, dtype))
    version = {"max_version": (1, 0)} if versioned else {}
    for t in (base, base.T, base[1:, ::2], base[1, 1], base[:0], base.expand(2, 4, 6)):
        capsule = t.__dlpack__(**version)
        back = lucid.from_dlpack(capsule)
        assert (back.dtype, back.shape, back.stride()) == (t.dtype, t.shape, t.stride())
        assert back.tolist() == t.tolist() and back.data_ptr() == t.data_ptr()
        with pytest.raises(RuntimeError, match="once"):
            lucid.from_dlpack(capsule)
    lucid.from_dlpack(base).zero_()
    assert not base.any()


def test_deleters_run_once_in_any_order() -> None:
    for order in ("producer first", "consumer first", "capsule only"):
        a = np.arange(100.0)
        gone = weakref.ref(a)
        t = lucid.from_dlpack(a)
        capsule = t.__dlpack__(max_version=(1, 0))
        kept = None if order == "capsule only" else np.from_dlpack(_Holder(capsule))
        if order == "consumer first":
            del kept, capsule
            gc.collect()
            assert gone() is not None
            del a, t
        else:
            del a, t
            gc.collect()
            assert gone() is not None
            if kept is not None:
                assert kept[5] == 5
            del kept, capsule
        gc.collect()
        lucid.zeros(1).item()
        assert gone() is None, order
    before = sys.getrefcount(np.float64)
    for _ in range(100):
        lucid.from_dlpack(np.arange(3.0)).__dlpack__()
    gc.collect()
    assert sys.getrefcount(np.float64) - before < 50


class _Holder:
    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def test_dlpack_with_numpy() -> None:
    a = np.arange(6.0).reshape(2, 3)
    t = lucid.from_dlpack(a.T)
    t[0, 0] = 9
    assert a[0, 0] == 9 and t.stride() == (1, 3)
    b = np.from_dlpack(t)
    t[1, 1] = 8
    assert b[1, 1] == 8
    with pytest.raises(BufferError, match="negative"):
        lucid.from_dlpack(np.arange(3.0)[::-1])
    with pytest.raises((BufferError, TypeError)):
        lucid.from_dlpack(np.array(["a"]))
    for wrong in (None, 3, "x", [1]):
        with pytest.raises(TypeError):
            lucid.from_dlpack(wrong)


def test_dlpack_arguments() -> None:
    x = lucid.arange(3.0)
    assert x.__dlpack_device__() == (dlpack.DLDeviceType.kDLCPU, 0)
    with pytest.raises(BufferError, match="gradient"):
        lucid.ones(1, requires_grad=True).__dlpack__()
    with pytest.raises(RuntimeError, match="gradient"):
        dlpack.to_dlpack(lucid.ones(1, requires_grad=True))
    with pytest.raises(BufferError, match="device"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(TypeError, match="stream"):
        x.__dlpack__(stream="1")
    assert lucid.from_dlpack(x, copy=True).data_ptr() != x.data_ptr()
    assert lucid.from_dlpack(x, copy=False).data_ptr() == x.data_ptr()
    assert lucid.from_dlpack(x, device="gpu").device == lucid.device("gpu")
    with pytest.raises(ValueError, match="without copying"):
        lucid.from_dlpack(x, device="gpu", copy=False)
    with pytest.raises(AssertionError):
        lucid.from_dlpack(x.__dlpack__(), copy=True)


def test_dlpack_of_the_gpu_device_is_read_only() -> None:
    x = lucid.arange(6.0, device="gpu").reshape(2, 3)
    y = (x + 1).T
    shown = np.from_dlpack(y)
    assert shown.tolist() == [[1, 4], [2, 5], [3, 6]] and not shown.flags.writeable
    assert shown.__array_interface__["data"][0] == y.data_ptr()
    y.zero_()
    assert shown.tolist() == [[1, 4], [2, 5], [3, 6]]
    old = lucid.from_dlpack(x.__dlpack__())
    old.zero_()
    assert x.sum().item() == 15
    with pytest.raises(BufferError):
        x.__dlpack__(copy=False)


# ---- storages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_addresses_and_storages(device: str) -> None:
    x = lucid.arange(12.0, device=device).reshape(3, 4)
    assert x.T.data_ptr() == x.data_ptr() == x.view(-1).data_ptr() == x.detach().data_ptr()
    assert x[1, 2:].data_ptr() == x.data_ptr() + 6 * 4
    # Copies on the GPU device share MLX's array until one of them is written to.
    assert x.clone().add_(1).data_ptr() != x.data_ptr()
    assert lucid.empty(0, device=device).data_ptr() == 0
    s = x[1:].untyped_storage()
    assert (s.nbytes(), s.size(), len(s), s.device) == (48, 48, 48, x.device)
    assert s.data_ptr() == x.data_ptr() and s == x.untyped_storage() != x.clone().untyped_storage()
    assert bytes(s.tolist()) == np.arange(12, dtype=np.float32).tobytes()
    assert s.resize_(12).nbytes() == x.untyped_storage().nbytes() == 12
    assert not s.is_shared()


# ---- other processes -------------------------------------------------------------------------------------------------


@functools.cache
def _token() -> str:
    """What the names of this process's segments begin with."""
    x = lucid.ones(1).share_memory_()
    handle = x._lend()
    lucid._C._from_shared(*handle, x.dtype)
    token: str = handle[0].split("-")[1]
    return token


def _segments() -> set[str]:
    if sys.platform != "linux":
        return set()
    return {f for f in os.listdir("/dev/shm") if f.startswith(f"lucid-{_token()}-")}


def test_share_memory_moves_the_storage_for_all_views() -> None:
    x = lucid.arange(6.0)
    v, shown = x[2:], x.numpy()
    assert not x.is_shared()
    assert x.share_memory_() is x and v.is_shared() and x.untyped_storage().is_shared()
    v[0] = 9
    assert x.tolist() == [0, 1, 9, 3, 4, 5]
    assert shown.tolist() == [0, 1, 2, 3, 4, 5]
    y = lucid._C._from_shared(*v._lend(), v.dtype)
    y += 1
    assert x.tolist() == [0, 1, 10, 4, 5, 6]
    before = len(_segments())
    del x, v, shown
    gc.collect()
    assert y.tolist() == [10, 4, 5, 6]
    assert len(_segments()) == before
    del y
    gc.collect()
    assert len(_segments()) == max(0, before - 1)
    assert not lucid.ones(2, device="gpu").share_memory_().is_shared()
    with pytest.raises(RuntimeError, match="name"):
        lucid._C._from_shared("/etc/passwd", 1, 0, [1], [1], lucid.uint8)


def _child(inbox: Any, outbox: Any) -> None:
    x, p = inbox.get()
    x.add_(1)
    outbox.put((x.is_shared(), p.requires_grad, type(p).__name__, p.is_shared()))
    outbox.put(lucid.full((3,), 7.0))
    inbox.get()


def test_a_spawned_process_sees_the_same_memory() -> None:
    lucid.multiprocessing.init_reductions()
    context = multiprocessing.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    x, p = lucid.zeros(1000), lucid.nn.Parameter(lucid.ones(3))
    worker = context.Process(target=_child, args=(inbox, outbox))
    worker.start()
    inbox.put((x, p))
    assert outbox.get(timeout=60) == (True, True, "Parameter", True)
    assert x.is_shared() and x.sum().item() == 1000
    made = outbox.get(timeout=60)
    assert made.tolist() == [7, 7, 7]
    inbox.put(None)
    worker.join(60)
    assert worker.exitcode == 0 and made.tolist() == [7, 7, 7]
    del x, p, made
    gc.collect()
    assert not _segments()


# ---- pickles and copies ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("how", ["pickle", "deepcopy"])
def test_copies_keep_layout_and_sharing(device: str, how: str) -> None:
    redo = copy.deepcopy if how == "deepcopy" else lambda o: pickle.loads(pickle.dumps(o))
    x = lucid.arange(12.0, device=device).reshape(3, 4)
    things = [x, x.T, x[1], x[:, 1:3], lucid.tensor([], device=device), x.expand(2, 3, 4), x.clone()]
    made = redo(things)
    for a, b in zip(things, made, strict=True):
        assert (a.shape, a.stride(), a.storage_offset(), a.dtype, a.device) == (
            b.shape,
            b.stride(),
            b.storage_offset(),
            b.dtype,
            b.device,
        )
        assert a.tolist() == b.tolist() and not a._shares_storage(b)
    made[0][1, 1] = 100
    assert made[1][1, 1] == made[2][1] == made[3][1, 0] == 100 and made[6][1, 1] == 5 and x[1, 1] == 5
    leaf = lucid.ones(2, device=device, requires_grad=True)
    leaf.grad = lucid.full((2,), 3.0, device=device)
    leaf.note = ["kept"]
    again = redo(leaf)
    assert again.requires_grad and again.is_leaf and again.note == ["kept"]
    if how == "deepcopy":
        assert again.grad.tolist() == [3, 3] and not again.grad._shares_storage(leaf.grad)
        with pytest.raises(RuntimeError, match="graph leaves"):
            copy.deepcopy(leaf * 2)
    for dtype in lucid.bfloat16, lucid.bool, lucid.complex64:
        t = lucid.ones(3, device=device).to(dtype)
        assert redo(t).dtype is dtype and redo(t).tolist() == t.tolist()
    shallow = copy.copy(x)
    assert shallow.tolist() == x.tolist()


def test_multiprocessing_stands_for_pythons() -> None:
    from multiprocessing import Process

    assert lucid.multiprocessing.Process is Process
    assert lucid.multiprocessing.get_sharing_strategy() in lucid.multiprocessing.get_all_sharing_strategies()
    lucid.multiprocessing.set_sharing_strategy("file_system")
    with pytest.raises(ValueError, match="set_sharing_strategy"):
        lucid.multiprocessing.set_sharing_strategy("by post")
