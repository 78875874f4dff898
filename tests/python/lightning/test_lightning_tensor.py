"""Tensors and views: metadata, contracts, memory, bad input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import lucid.lightning as lc
import numpy as np
import pytest
from lucid import errors

KINDS = [(lc.Tensor, np.float32), (lc.Tensor64, np.float64)]


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
def test_metadata_and_conversions(kind: Any, dtype: Any) -> None:
    array = np.arange(6, dtype=dtype).reshape(2, 3)
    t = kind.from_numpy(array)
    assert (t.shape, t.strides, t.rank, t.numel) == ((2, 3), (3, 1), 2, 6)
    assert (t.is_contiguous, t.layout, t.dtype) == (True, "contiguous", np.dtype(dtype).name)
    assert (t.offset_elements, t.device, t.storage_numel) == (0, "cpu", 6)
    assert t.contract()["shape"] == (2, 3) and t.validate_contract() and t.validate_contract_for_storage()
    assert t.to_list() == array.tolist() and kind.from_list(array.ravel().tolist(), (2, 3)).to_list() == t.to_list()
    out = t.to_numpy()
    assert out.dtype == dtype
    out[...] = 9
    array[...] = 8
    assert t.to_list() == [[0, 1, 2], [3, 4, 5]], "copies"
    assert t.add(t).to_list() == [[0, 2, 4], [6, 8, 10]]
    assert t.reshape([3, -1]).shape == (3, 2) and kind.zeros([2, 2]).to_list() == [[0, 0], [0, 0]]
    assert kind.from_numpy_array(out).to_numpy().tolist() == out.tolist()
    assert kind.zeros([0, 3]).numel == 0 and kind(2.5).shape == ()


def test_tensors_on_the_gpu() -> None:
    t = lc.Tensor([[1.0, 2.0]], device="gpu")
    assert t.device == lucid.device("gpu").type and t.add(t).to_list() == [[2.0, 4.0]]
    assert t.slice([0, 1], [1, 2]).to_host_view_numpy().tolist() == [[2.0]]
    with pytest.raises(errors.DeviceMismatch):
        t.add(lc.Tensor([[1.0, 2.0]]))
    with pytest.raises(errors.LucidError):
        lc.Tensor64([1.0], device="gpu")


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
def test_views_share_memory(kind: Any, dtype: Any) -> None:
    t = kind.from_numpy(np.arange(12, dtype=dtype).reshape(3, 4))
    v = t.slice([1, 0], [3, 4], [1, 2])
    assert (v.shape, v.strides, v.offset_elements, v.layout) == ((2, 2), (4, 2), 4, "strided")
    assert v.slice_copy() == [[4, 6], [8, 10]] and v.validate_view_contract()
    host = v.to_host_view_numpy()
    host[0, 0] = 100
    assert t.to_list()[1][0] == 100, "the tensor's own memory"
    assert np.asarray(v.to_host_view()).tolist() == [[100, 6], [8, 10]]
    copied = v.slice_copy_numpy()
    copied[...] = 0
    assert t.to_list()[1][0] == 100 and copied.flags.c_contiguous
    assert v.read_strided([3], [1], 2) == [2, 3, 100]
    assert t.view([2, 6]).shape == (2, 6) and lc.TensorView(v).slice([0, 1], [1, 2]).slice_copy() == [[6]]
    assert t.view().reshape([12]).is_contiguous


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda t: lc.Tensor("abc"), errors.TypeError),
        (lambda t: lc.Tensor([[1.0], [1.0, 2.0]]), errors.LucidError),
        (lambda t: lc.Tensor(np.ones(2)), errors.DtypeMismatch),
        (lambda t: lc.Tensor64(np.ones(2, np.float32)), errors.DtypeMismatch),
        (lambda t: lc.Tensor(np.ones(2, ">f4")), errors.DtypeMismatch),
        (lambda t: lc.Tensor.from_numpy([1.0]), errors.TypeError),
        (lambda t: lc.Tensor.zeros([-1]), errors.ValueError),
        (lambda t: lc.Tensor.zeros([1 << 40, 1 << 40]), errors.ValueError),
        (lambda t: lc.Tensor.zeros([1 << 59]), errors.RuntimeError),
        (lambda t: lc.Tensor.zeros([1.5]), errors.TypeError),
        (lambda t: t.add(lc.Tensor64([1.0])), errors.TypeError),
        (lambda t: t.add(lc.Tensor([1.0])), errors.ShapeMismatch),
        (lambda t: t.reshape([5]), errors.ShapeMismatch),
        (lambda t: t.reshape([-1, -1]), errors.ShapeMismatch),
        (lambda t: t.slice([0], [1]), errors.ShapeMismatch),
        (lambda t: t.slice([0, 0], [4, 1]), errors.IndexError),
        (lambda t: t.slice([-1, 0], [1, 1]), errors.IndexError),
        (lambda t: t.slice([0, 0], [1, 1], [1, 0]), errors.IndexError),
        (lambda t: t.slice([0, 0], [3, 3]).reshape([9]), errors.ShapeMismatch),
        (lambda t: t.view().read_strided([3], [4], 4), errors.ValueError),
        (lambda t: t.view().read_strided([2], [-1], 4), errors.ValueError),
        (lambda t: t.view().read_strided([2], [1, 1]), errors.ValueError),
        (lambda t: t.view().read_strided([1 << 60], [1]), errors.ValueError),
        (lambda t: t.validate_contract_for_storage(11), errors.ValueError),
        (lambda t: lc.TensorView([1.0]), errors.TypeError),
    ],
)
def test_what_is_refused(call: Callable[[Any], Any], error: type[Exception]) -> None:
    t = lc.Tensor(np.zeros((3, 4), np.float32))
    with pytest.raises(error) as raised:
        call(t)
    assert isinstance(raised.value, errors.LucidError)
