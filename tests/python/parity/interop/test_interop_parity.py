"""Memory shared with PyTorch by DLPack, and the conversions that PyTorch has too."""

from __future__ import annotations

import array
import copy
import gc
import pickle
import warnings
import weakref
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.samples import lucid_dtypes

DTYPES = lucid_dtypes()
VIEWS = {
    "whole": lambda t: t,
    "transposed": lambda t: t.T,
    "sliced": lambda t: t[1:, ::2],
    "0-d": lambda t: t[1, 1],
    "empty": lambda t: t[:0],
    "expanded": lambda t: t[:1].expand(3, 4),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("view", VIEWS)
def test_dlpack_with_pytorch(dtype: str, view: str) -> None:
    values = np.arange(12).reshape(3, 4) % 5
    theirs = VIEWS[view](torch.tensor(values).to(getattr(torch, dtype)))
    ours = VIEWS[view](lucid.tensor(values).to(getattr(lucid, dtype)))
    seen, shown = lucid.from_dlpack(theirs), torch.from_dlpack(ours)
    for a, b in ((seen, theirs), (shown, ours)):
        assert str(a.dtype).split(".")[-1] == str(b.dtype).split(".")[-1] == dtype
        assert (tuple(a.shape), a.stride(), a.tolist()) == (tuple(b.shape), b.stride(), b.tolist())
        assert a.data_ptr() == b.data_ptr()
    if view in ("empty", "expanded"):
        return
    for a, b in ((seen, theirs), (shown, ours), (theirs, seen), (ours, shown)):
        a.fill_(0)
        assert not b.any()
        a.fill_(1)
        assert b.all()


def test_lifetimes_across_pytorch() -> None:
    theirs = torch.arange(1000.0)
    gone = weakref.ref(theirs.untyped_storage())
    ours = lucid.from_dlpack(theirs)[5:8]
    again = torch.from_dlpack(ours)
    del theirs, ours
    gc.collect()
    assert again.tolist() == [5, 6, 7]
    del again, gone
    for _ in range(50):
        lucid.from_dlpack(torch.ones(1 << 16))
        torch.from_dlpack(lucid.ones(1 << 16))
    capsule = torch.utils.dlpack.to_dlpack(torch.ones(3))
    assert lucid.from_dlpack(capsule).tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError):
        torch.from_dlpack(capsule)
    assert torch.from_dlpack(lucid.to_dlpack(lucid.ones(3))).tolist() == [1, 1, 1]


def test_the_gpu_device_to_pytorch() -> None:
    x = lucid.arange(6.0, device="gpu").reshape(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.from_dlpack((x * 2).T).tolist() == [[0, 6], [2, 8], [4, 10]]


def kind(f: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            t = f()
        except Exception as e:
            for k in (BufferError, IndexError, OverflowError, ValueError, TypeError, RuntimeError):
                if isinstance(e, k):
                    return k.__name__
            raise
    if not hasattr(t, "dtype"):
        return t
    return str(t.dtype).split(".")[-1], tuple(t.shape), t.tolist() if hasattr(t, "tolist") else t


CASES = {
    "np mul": lambda m: np.ones(3) * m.arange(3.0),
    "mul np": lambda m: m.arange(3.0) * np.ones(3),
    "np sub": lambda m: np.ones(3) - m.arange(3.0),
    "np float mul": lambda m: np.float32(2) * m.arange(3.0),
    "np float64 mul": lambda m: np.float64(2) * m.arange(3.0),
    "mul np float": lambda m: m.arange(3.0) * np.float64(2),
    "np int mul": lambda m: np.int64(2) * m.arange(3.0),
    "np.add": lambda m: np.add(m.arange(3.0), np.ones(3)),
    "np.less": lambda m: np.less(m.arange(3.0), np.ones(3)),
    "np.sin": lambda m: np.sin(m.arange(3.0)),
    "matmul np": lambda m: m.arange(3.0) @ np.ones((3, 3)),
    "np matmul": lambda m: np.ones((3, 3)) @ m.arange(3.0),
    "eq np": lambda m: m.arange(3.0) == np.ones(3),
    "np eq": lambda m: np.ones(3) == m.arange(3.0),
    "eq np of another shape": lambda m: m.arange(3.0) == np.ones(4),
    "ne np": lambda m: m.arange(3.0) != np.ones(3),
    "asarray of a buffer": lambda m: m.asarray(array.array("i", [1, 2])),
    "asarray of a buffer as another dtype": lambda m: m.asarray(bytearray(b"abcd"), dtype=m.int16, copy=False),
    "asarray of a buffer of a half": lambda m: m.asarray(array.array("i", [1]), dtype=m.int64),
    "add function": lambda m: m.add(m.arange(3.0), np.ones(3)),
    "ragged": lambda m: m.tensor([[1, 2], [3]]),
    "list in list": lambda m: m.tensor([1, [2]]),
    "array.array": lambda m: m.tensor(array.array("i", [1, 2])),
    "memoryview": lambda m: m.tensor(memoryview(b"ab")),
    "range": lambda m: m.tensor(range(3)),
    "uint8 300": lambda m: m.tensor(300, dtype=m.uint8),
    "uint8 -1": lambda m: m.tensor([-1], dtype=m.uint8),
    "int8 200": lambda m: m.tensor([200], dtype=m.int8),
    "float to int": lambda m: m.tensor(1.7, dtype=m.int32),
    "nan to int": lambda m: m.tensor(float("nan"), dtype=m.int32),
    "np floats": lambda m: m.tensor([np.float64(1), 2]),
    "np arrays": lambda m: m.tensor([np.ones(2), np.ones(2)]),
    "np bool": lambda m: m.tensor([np.bool_(True)]),
    "np half and float": lambda m: m.tensor([np.float16(1), 2.0]),
    "tensors": lambda m: m.tensor([m.tensor(1), m.tensor(2.0)]),
    "complex": lambda m: m.tensor([1, 2j]),
    "str array": lambda m: m.tensor(np.array(["a"])),
    "object array": lambda m: m.tensor(np.array([None])),
    "from_numpy list": lambda m: m.from_numpy([1]),
    "from_numpy reversed": lambda m: m.from_numpy(np.ones(2)[::-1]),
    "from_numpy big endian": lambda m: m.from_numpy(np.ones(2, ">f4")),
    "from_numpy fields": lambda m: m.from_numpy(np.zeros(4, dtype=[("a", "f4"), ("b", "i1")])["a"]),
    "from_numpy broadcast": lambda m: m.from_numpy(np.broadcast_to(np.ones(1), (3,))),
    "frombuffer": lambda m: m.frombuffer(b"abcd", dtype=m.int16),
    "frombuffer empty": lambda m: m.frombuffer(b"", dtype=m.int16),
    "frombuffer count 0": lambda m: m.frombuffer(b"ab", dtype=m.int16, count=0),
    "frombuffer offset": lambda m: m.frombuffer(b"abcdef", dtype=m.int16, offset=2, count=1),
    "frombuffer list": lambda m: m.frombuffer([1], dtype=m.int16),
    "asarray bytes": lambda m: m.asarray(b"abcd"),
    "asarray array": lambda m: m.asarray(array.array("i", [1, 2])),
    "asarray list without copy": lambda m: m.asarray([1, 2], copy=False),
    "asarray dtype without copy": lambda m: m.asarray(m.arange(3.0), dtype=m.int32, copy=False),
    "asarray int with gradient": lambda m: m.asarray([1], requires_grad=True),
    "numpy with gradient": lambda m: m.ones(1, requires_grad=True).numpy(),
    "numpy of bfloat16": lambda m: m.ones(1, dtype=m.bfloat16).numpy(),
    "numpy forced": lambda m: m.ones(1, requires_grad=True).numpy(force=True),
    "asarray with gradient": lambda m: np.asarray(m.ones(1, requires_grad=True)),
    "np dtype": lambda m: np.asarray(m.arange(3.0), dtype=np.int32),
    "capsule with gradient": lambda m: m.ones(1, requires_grad=True).__dlpack__(),
    "storage": lambda m: m.arange(6.0)[2:4].untyped_storage().nbytes(),
    "deepcopy of a result": lambda m: copy.deepcopy(m.ones(1, requires_grad=True) * 2),
    "pickle": lambda m: pickle.loads(pickle.dumps(m.arange(6.0).reshape(2, 3).T)),
    "copy": lambda m: copy.copy(m.arange(3.0)),
}


def test_arrays_of_tensors_that_require_gradients_where_none_are_recorded() -> None:
    for m in (lucid, torch):
        x = m.ones(2, requires_grad=True)
        for block in (m.no_grad(), m.inference_mode()):
            with block:
                arrays = (x.numpy(), np.asarray(x), x.view(-1).cpu().numpy())
                assert [a.tolist() for a in arrays] == [[1.0, 1.0]] * 3
        with m.no_grad(), m.enable_grad(), pytest.raises(RuntimeError, match="Can't call numpy"):
            x.numpy()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore")
def test_conversions(case: str) -> None:
    assert kind(lambda: CASES[case](lucid)) == kind(lambda: CASES[case](torch))


def test_tensors_that_show_a_file(tmp_path: Any) -> None:
    for m in (lucid, torch):
        name = str(tmp_path / m.__name__)
        with pytest.raises(RuntimeError):
            m.from_file(name, size=3)
        shared = m.from_file(name, shared=True, size=3)
        assert shared.tolist() == [0.0, 0.0, 0.0] and shared.dtype == m.float32
        shared.fill_(2)
        alone = m.from_file(name, size=2)
        assert alone.tolist() == [2.0, 2.0]
        alone.fill_(7)
        assert m.from_file(name, False, 3).tolist() == [2.0, 2.0, 2.0] == shared.tolist()
        assert m.from_file(name, True, 5, dtype=m.int32).tolist() == [1073741824] * 3 + [0, 0]
        assert m.from_file(name).shape == (0,)
        assert m.UntypedStorage.from_file(name, False, 8).nbytes() == 8
        for wrong in (lambda m=m, n=name: m.from_file(n, size=100), lambda m=m, n=name: m.from_file(n, size=-1)):
            with pytest.raises(RuntimeError):
                wrong()
        with pytest.raises(TypeError):
            m.from_file(3, size=2)


@pytest.mark.filterwarnings("ignore")
def test_asarray_keeps_a_history_unless_told() -> None:
    for m in (lucid, torch):
        x = m.ones(2, requires_grad=True)
        y = x * 2
        assert m.asarray(y).grad_fn is not None and m.asarray(y, requires_grad=True).grad_fn is not None
        assert not m.asarray(y, requires_grad=False).requires_grad
        assert m.asarray(x) is x
