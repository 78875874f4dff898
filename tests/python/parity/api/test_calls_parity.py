"""Calls as a user writes them, side by side with PyTorch: values, dtypes and shapes, or the kind of error.

A call is Python over `f` (the framework) and `F`; lines before its last are statements.
"""

from __future__ import annotations

import array
import collections
import fractions
import math
import warnings
from collections.abc import Iterator
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE

CALLS: dict[str, str] = {
    "numbers that an element cannot hold": """
        f.full((2,), -1, dtype=f.uint8)
        f.full((2,), -256, dtype=f.uint8)
        f.full((2,), -1.0, dtype=f.uint8)
        f.full((2,), 127.5, dtype=f.int8)
        f.full((2,), 128, dtype=f.int8)
        f.full((2,), 1e40)
        f.full((2,), 70000, dtype=f.float16)
        f.full((1,), 70000, dtype=f.float16)
        f.full((2,), 1e40j, dtype=f.complex64)
        f.full_like(f.ones(2, dtype=f.uint8), -1)
        f.scalar_tensor(1e40)
        f.ones(2).new_full((1,), 1e40)
        f.ones(2, dtype=f.uint8).fill_(-1)
        f.ones(2, dtype=f.float16).fill_(1e9)
        f.ones(2).masked_fill(f.tensor([True, False]), 1e40)
        f.ones(2, dtype=f.float16).masked_fill(f.tensor([True, False]), -1e9)
        f.ones(2, dtype=f.float16).masked_fill(f.tensor([True, False]), -math.inf)
        f.ones(2, dtype=f.uint8).masked_fill(f.tensor([True, False]), -1)
        f.ones(2, dtype=f.uint8).masked_fill(f.tensor([True, False]), 300)
        f.ones(2, dtype=f.float16).scatter(0, f.tensor([0]), 1e9)
        f.ones(2, dtype=f.uint8).scatter(0, f.tensor([0]), 300)
        f.ones(2, dtype=f.float16).index_fill(0, f.tensor([0]), 1e9)
        f.ones(2, dtype=f.uint8).index_fill(0, f.tensor([0]), 300)
        f.ones(2, dtype=f.float16).clamp(max=1e9)
        f.ones(2).clamp(-1e40, 1e40)
        f.ones(2).lerp(f.ones(2), 1e40)
        F.pad(f.ones(2, dtype=f.float16), (1, 1), value=1e9)
        f.linspace(0, 1e40, 3)
        x = f.ones(3, dtype=f.uint8); x[0] = -1; x
        x = f.ones(3, dtype=f.uint8); x[f.tensor([0])] = 300; x
        x = f.ones(3); x[0] = 1e40; x
        x = f.ones(3, dtype=f.float16); x[0] = 1e9; x
        x = f.ones(3, dtype=f.float16); x[f.tensor([True, False, True])] = -1e9; x
        f.tensor(2**63, dtype=f.float32)
        f.tensor(2**63, dtype=f.int64)
        f.tensor([1j, 1.0], dtype=f.float32)
    """,
    "data": """
        f.tensor([f.tensor([1]), f.tensor([2.0])])
        f.tensor([[f.tensor([[1]])]])
        f.tensor([[3, 4], f.tensor([1, 2])])
        f.tensor([[3], f.tensor([2.5])])
        f.tensor(['a'])
        f.tensor({})
        f.tensor({1})
        f.tensor(b'ab')
        f.tensor(object())
        f.tensor([b'ab'])
        f.tensor([b'ab', b'cd'], dtype=f.float32)
        f.as_tensor(b'ab')
        f.ones(1).new_tensor([b'ab'])
        f.tensor([bytearray(b'ab'), memoryview(b'cd')])
        f.tensor([[1, 2], bytearray(b'ab')])
        f.tensor([1, bytearray(b'ab')])
        f.tensor([[1], bytearray(b'ab')])
        f.tensor([array.array('i', [1, 2]), [3.5, 4]])
        f.tensor([collections.deque([1, 2]), range(2)])
        f.tensor([1, 'a'])
        f.tensor(['a', 1])
        f.tensor([''])
        f.tensor([np.str_('a')])
        f.tensor([1.5, np.str_('a')])
        f.tensor(['a'], dtype=f.float32)
        f.tensor([None])
        f.tensor([None], dtype=f.float32)
        f.tensor([1.0, None])
        f.tensor([{1}])
        f.tensor([{1}], dtype=f.int64)
        f.tensor([{1: 2}], dtype=f.bool)
        f.tensor([object()])
        f.tensor([object()], dtype=f.float32)
        f.tensor([...], dtype=f.int64)
        f.tensor([int], dtype=f.complex64)
        f.tensor([fractions.Fraction(1, 2)])
        f.tensor([fractions.Fraction(1, 2)], dtype=f.float32)
        f.tensor([fractions.Fraction(1, 2)], dtype=f.complex64)
        f.tensor([fractions.Fraction(1, 2)], dtype=f.int64)
        f.tensor([np.datetime64('2020-01-01')])
        f.tensor([np.float16(1.5), 2])
        f.tensor([np.int8(3), np.int16(4)])
        f.tensor([[], 1])
        f.tensor([[], [1]])
        f.tensor([[], [[1]]], dtype=f.int64)
        f.tensor([[1], []])
        f.tensor([1, []])
        f.tensor([[1, 2], [3]])
        f.tensor([[1, 2], 3])
        f.tensor([1, [2]])
        f.tensor(2**70)
        f.tensor([2**70], dtype=f.int64)
        f.tensor([2**70], dtype=f.float32)
        f.tensor([-2**70], dtype=f.bool)
        f.tensor([2**63], dtype=f.bool)
        f.tensor([1.5, 2**70])
        f.Tensor([2**70])
    """,
    "ranges": """
        f.arange(end=3)
        f.arange(end=3.5, step=0.5)
        f.arange(end=3, dtype=f.float32)
        f.arange(start=1, end=3)
        f.arange(f.tensor(3))
        f.arange(f.tensor([3]))
        f.arange(1j)
        f.arange(0, 1j, 1)
        f.range(0, 1j)
        f.tril_indices(2, 3, dtype=f.float32)
        f.full((2,), f.tensor(3.5))
        f.full((2,), f.tensor([3.5]))
    """,
    "operators": """
        'a' in f.tensor([1, 2])
        [1] in f.tensor([1, 2])
        f.tensor(1) in f.tensor([1, 2])
        3 @ f.tensor([1, 2])
        f.tensor([1, 2]) @ 3
        ~f.tensor([1.0])
        -f.tensor([True])
        f.tensor([1.0]) << 1
        f.tensor([1]) << 1.5
        f.ones(3).narrow(0, 5, 1)
    """,
    "dtypes of arguments": """
        f.tensor([1j]).maximum(f.tensor([1j]))
        f.tensor([1j]).fmin(f.tensor([1j]))
        f.tensor([1j]).sort()
        f.tensor([1j]).argmax()
        f.tensor([1j]).isposinf()
        f.tensor([1.0]).imag
        f.addcmul(f.tensor(1), f.ones(2), f.ones(2), value=0.5)
        f.addcmul(f.tensor([1, 2]), f.ones(2), f.ones(2), value=0.5)
        f.addcmul(f.tensor([True]), f.tensor([True]), f.tensor([True]))
        f.addcdiv(f.tensor([1.0, 2.0]), f.tensor([1, 2]), f.tensor([1, 2]))
        f.addcdiv(f.tensor([1.0, 2.0]), f.tensor([1.0, 2.0]), f.tensor([1, 2]))
        f.tensor([1]).lerp(f.tensor([2]), 0.5)
        f.tensor([1.0]).lerp(f.tensor([2]), 0.5)
        f.tensor([1.0]).lerp(f.tensor([2.0]), f.tensor(0.5, dtype=f.float16))
        f.tensor([1.0]).lerp(f.tensor([2.0]), 1j)
        f.isin(f.tensor([1]), f.tensor([True]))
        f.isin(f.tensor([1.0]), True)
        f.isin(f.tensor([1.0]), f.tensor([1], dtype=f.float16))
        f.linalg.cross(f.ones(3), f.ones(3, dtype=f.int64))
        f.cross(f.ones(3, dtype=f.bool), f.ones(3, dtype=f.bool), 0)
        f.searchsorted(f.tensor([1, 2]), f.tensor([1.5]))
        f.searchsorted(f.tensor([1.5, 2.5]), f.tensor([2]))
        f.bucketize(f.tensor([1.5, 2.5]), f.tensor([1, 2]))
        f.bucketize(f.tensor([300]), f.tensor([1, 2], dtype=f.uint8))
        f.where(f.tensor([1, 0], dtype=f.uint8), f.ones(2), f.zeros(2))
        f.where(f.tensor([1, 0]), f.ones(2), f.zeros(2))
        f.ones(2).masked_fill(f.tensor([1, 0], dtype=f.uint8), 2.0)
        f.ones(2, 2, dtype=f.bool).index_add(0, f.tensor([0]), f.ones(1, 2, dtype=f.bool), alpha=2)
        f.ones(2, dtype=f.int64).index_add(0, f.tensor([0]), f.ones(1, dtype=f.int64), alpha=1.5)
    """,
    "tensors without dimensions": """
        f.tensor(2.0).movedim([0], [-1])
        f.tensor(2.0).adjoint()
        f.gradient(f.tensor(2.0), dim=[-1], spacing=[f.ones(4)])
        f.tensordot(f.tensor(2.0), f.tensor(3.0), ([0], [0]))
        f.tensordot(f.tensor(2.0), f.tensor(3.0), 0)
        f.linalg.tensorsolve(f.tensor(2.0), f.tensor(3.0), dims=(0,))
    """,
    "dimensions that a tensor without any lacks": """
        f.unique(f.tensor(3.0), dim=0)
        f.unique(f.tensor(3.0), dim=1)
        f.unique(f.tensor(3.0), return_inverse=True, return_counts=True)
        f.unique_consecutive(f.tensor(3.0), dim=-1)
        f.unique_consecutive(f.tensor(3.0), return_inverse=True)
        f.repeat_interleave(f.tensor(3.0), 2)
        f.repeat_interleave(f.tensor(3.0), 2, dim=0)
        f.repeat_interleave(f.tensor(3.0), f.tensor([2]), dim=-1)
        f.repeat_interleave(f.tensor(3.0), f.tensor([2]))
    """,
    "pieces": """
        f.arange(5).split(split_size=2)
        f.arange(5).split([2, 3], dim=0)
        f.split(f.arange(5), split_size_or_sections=[1, 4])
        f.split(f.arange(5), [2, 4])
        f.split(f.arange(5), -1)
        f.split(f.arange(5), 2.0)
        f.split(f.arange(0), 0)
        f.tensor_split(f.arange(5), indices=(1,))
        f.tensor_split(f.arange(5), sections=3)
        f.arange(5).tensor_split(tensor_indices_or_sections=f.tensor(3))
        f.tensor_split(f.arange(5), 2, indices=(1,))
        f.tensor_split(f.arange(5), f.tensor(2.0))
        f.tensor_split(f.arange(5), f.tensor([[1]]))
        f.tensor_split(f.arange(5), 2.0)
        f.tensor_split(f.tensor(5), 1)
        f.hsplit(f.arange(4), sections=2)
        f.chunk(f.arange(5), 10)
        f.chunk(f.arange(5), 0)
        f.chunk(f.arange(5), 2.0)
        F.glu(f.arange(3.0))
        F.glu(f.arange(4))
        F.glu(f.arange(4.0), dim=None)
    """,
    "normalisation": """
        F.batch_norm(f.ones(2, 3), None, None)
        F.batch_norm(f.ones(2, 3), f.zeros(2), f.ones(3))
        F.batch_norm(f.ones(1, 3), f.zeros(3), f.ones(3), training=True)
        F.batch_norm(f.ones(2, 3).long(), f.zeros(3), f.ones(3))
        F.batch_norm(f.ones(2, 3), f.zeros(3), f.ones(3), eps='a')
        F.group_norm(f.ones(1, 2), 2)
        F.group_norm(f.ones(2, 2), 2)
        F.group_norm(f.ones(2, 4), 3)
        F.group_norm(f.ones(2, 4), 2, f.ones(3))
        F.instance_norm(f.ones(2, 3, 1))
        F.instance_norm(f.ones(2, 3, 4), use_input_stats=False)
        F.layer_norm(f.ones(2, 3), (2,))
        F.layer_norm(f.ones(2, 3), (2, 3), f.ones(3))
        F.layer_norm(f.ones(2, 3), (3,), eps=None)
        F.rms_norm(f.ones(2, 3), (2,))
        F.rms_norm(f.ones(2, 3), (3,), f.ones(2))
        f.norm(f.ones(2, 3), 'x')
        f.norm(f.ones(2, 3), p=None, dim=0)
        f.norm(f.ones(2, 3).long())
        f.linalg.norm(f.ones(2, 3), 3)
        f.linalg.norm(f.ones(2, 3), dtype=f.int64)
        f.linalg.vector_norm(f.ones(2, 3), 2, [0, 0])
        f.linalg.matrix_norm(f.ones(3))
        f.linalg.matrix_norm(f.ones(2, 3), 'nuc', (1, 1))
    """,
    "losses": """
        F.mse_loss(f.ones(3), f.ones(3), reduction=None)
        F.mse_loss(f.ones(3), f.ones(3), None, None, 'sum')
        F.mse_loss(f.ones(3), f.ones(3), reduction='x')
        f.nn.MSELoss(reduction=3)(f.ones(3), f.ones(3))
        f.nn.CrossEntropyLoss(reduction=3)(f.ones(2, 3), f.tensor([0, 1]))
        F.kl_div(f.tensor(1.0), f.tensor(1.0), reduction='batchmean')
        F.kl_div(f.ones(2, 3), f.ones(2, 3), reduction='batchmean')
        F.cross_entropy(f.ones(2, 3), f.ones(2, 3), ignore_index=1)
        F.cross_entropy(f.ones(2, 3), f.ones(2, 3), ignore_index=-1)
        F.cross_entropy(f.ones(2, 3), f.tensor([0, 1]), label_smoothing=1.5)
        F.cross_entropy(f.ones(2, 3), f.tensor([-100, -100]))
        F.multi_margin_loss(f.ones(2, 3), f.tensor([0, 1]), weight=f.ones(2))
        F.multi_margin_loss(f.ones(2, 3), f.tensor([0, 1]), 3)
        F.nll_loss(f.ones(2, 3), f.tensor([0, 3]))
        F.nll_loss(f.ones(2, 3), f.tensor([0, 1]), f.ones(2))
        F.huber_loss(f.ones(3), f.zeros(3), delta=0)
        F.smooth_l1_loss(f.ones(3), f.zeros(3), beta=-1)
        F.gaussian_nll_loss(f.ones(2, 3), f.ones(2, 3), f.ones(3))
        F.gaussian_nll_loss(f.ones(2, 3), f.ones(2, 3), -1.0)
        F.triplet_margin_loss(f.ones(2, 3), f.ones(2, 3), f.zeros(2, 3), -1)
        F.margin_ranking_loss(f.ones(3), f.ones(3, 1), f.ones(3))
        F.cosine_embedding_loss(f.ones(2, 3), f.ones(2, 4), f.tensor([1, -1]))
    """,
    "points of the trapezoidal rule": """
        f.trapezoid(f.arange(6.0).reshape(2, 3), f.tensor([[1.0, 2.0, 4.0]]), dim=0)
        f.trapezoid(f.arange(6.0).reshape(2, 3), f.tensor([1.0, 4.0]), dim=0)
        f.trapezoid(f.arange(6.0).reshape(2, 3), f.tensor([1.0, 4.0]), dim=1)
        f.trapezoid(f.ones(2, 1, 3), f.arange(12.0).reshape(4, 3) ** 2)
        f.trapezoid(f.arange(24.0).reshape(2, 3, 4), f.arange(12.0).reshape(3, 4), dim=1)
        f.trapezoid(f.arange(24.0).reshape(2, 3, 4), f.arange(12.0).reshape(3, 4), dim=0)
        f.trapezoid(f.arange(24.0).reshape(2, 3, 4), f.arange(6.0).reshape(2, 3), dim=1)
        f.trapezoid(f.ones(1, 3), f.arange(6.0).reshape(2, 3), dim=0)
        f.trapezoid(f.ones(3), f.arange(6.0).reshape(2, 3))
        f.trapezoid(f.ones(2, 3), f.tensor(2.0))
        f.trapezoid(f.tensor([2.0]), f.tensor([2.0]))
        f.trapezoid(f.zeros(2, 0), f.zeros(3))
        f.trapezoid(f.ones(2), f.ones(2), dx=2)
        f.trapezoid(f.ones(2), dx=2j)
        f.trapezoid(f.ones(2), f.tensor([True, False]))
        f.cumulative_trapezoid(f.ones(2, 1, 3), f.arange(12.0).reshape(4, 3) ** 2)
        f.cumulative_trapezoid(f.arange(24.0).reshape(2, 3, 4), f.arange(12.0).reshape(3, 4), dim=1)
        f.cumulative_trapezoid(f.arange(24.0).reshape(2, 3, 4), f.arange(12.0).reshape(3, 4), dim=0)
        f.cumulative_trapezoid(f.ones(2, 3), f.tensor(2.0))
        f.cumulative_trapezoid(f.ones(2), f.ones(2), dx=2)
        f.cumulative_trapezoid(f.ones(2), dx=2j)
    """,
    "makers": """
        f.ones(2, requires_grad=None, layout=f.strided, pin_memory=False)
        f.zeros(2, requires_grad=None, layout=f.strided, pin_memory=False)
        f.empty(0, requires_grad=None, layout=f.strided, pin_memory=False)
        f.rand(0, requires_grad=None, layout=f.strided, pin_memory=False)
        f.randn(0, requires_grad=None, layout=f.strided, pin_memory=False)
        f.full((2,), 1.0, requires_grad=None, layout=f.strided, pin_memory=False)
        f.arange(2.0, requires_grad=None, layout=f.strided, pin_memory=False)
        f.linspace(0, 2, 3, requires_grad=None, layout=f.strided, pin_memory=False)
        f.logspace(0, 2, 3, requires_grad=None, layout=f.strided, pin_memory=False)
        f.eye(2, requires_grad=None, layout=f.strided, pin_memory=False)
        f.randint(1, (2,), requires_grad=None, layout=f.strided, pin_memory=False)
        f.randperm(1, requires_grad=None, layout=f.strided, pin_memory=False)
        f.empty_strided((0,), (1,), requires_grad=None, layout=f.strided, pin_memory=False)
        f.tril_indices(2, 2, requires_grad=None, layout=f.strided, pin_memory=False)
        f.hann_window(4, requires_grad=None, layout=f.strided, pin_memory=False)
        f.scalar_tensor(2.0, requires_grad=None, layout=f.strided, pin_memory=False)
        f.ones_like(f.ones(2), requires_grad=None, layout=f.strided, pin_memory=False)
        f.zeros_like(f.ones(2), requires_grad=None, layout=f.strided, pin_memory=False)
        f.full_like(f.ones(2), 3.0, requires_grad=None, layout=f.strided, pin_memory=False)
        f.empty_like(f.ones(0), requires_grad=None, layout=f.strided, pin_memory=False)
        f.randint_like(f.ones(2), 1, requires_grad=None, layout=f.strided, pin_memory=False)
        f.ones(1).new_zeros(2, requires_grad=None, layout=f.strided, pin_memory=None)
        f.ones(1).new_ones((2,), requires_grad=None, layout=f.strided, pin_memory=None)
        f.ones(1).new_empty(0, requires_grad=None, layout=f.strided, pin_memory=None)
        f.ones(1).new_full((2,), 3.0, requires_grad=None, layout=f.strided, pin_memory=None)
        f.ones(1).new_empty_strided((0,), (1,), requires_grad=None, layout=f.strided, pin_memory=None)
        f.ones(2, layout=None)
        f.ones(2, layout='strided')
        f.ones(2, layout=f.sparse_coo)
        f.ones(2, pin_memory=1)
        f.ones(1).new_ones(2, layout=3)
        f.randint(1, (2,), layout=3)
        f.ones(2, requires_grad=1)
        f.tensor(2.0, requires_grad=None)
        f.ones(1).new_tensor(2.0, requires_grad=None)
    """,
    "names of arguments": """
        f.result_type(tensor=f.ones(2), other=f.ones(2).int()) == f.float32
        f.result_type(scalar=1, tensor=f.ones(2).int()) == f.int32
        f.result_type(scalar1=1, scalar2=1.0) == f.float32
        f.result_type(f.ones(2))
        f.result_type(f.ones(2), f.ones(2), other=1)
        f.split(tensor=f.arange(5), split_size_or_sections=2)
        f.split(tensor=f.arange(5), split_size_or_sections=[2, 3], dim=0)
        f.split(f.arange(5), tensor=f.arange(5), split_size_or_sections=2)
        f.swapaxes(f.ones(2, 3), axis0=0, axis1=1)
        f.ones(2, 3).swapaxes(axis0=0, axis1=-1)
        f.ones(2, 3).swapaxes(axis0=0)
        f.ones(2, 3).swapdims(dim0=0, dim1=1)
        f.cholesky_solve(f.ones(2, 3), input2=f.eye(2))
        f.ones(2, 3).cholesky_solve(input2=f.eye(2))
    """,
    "writes": """
        x = f.arange(2.0); e = x.expand(3, 2); e[...] = x; [e, x]
        x = f.arange(2.0); e = x.expand(3, 2); e[:] = e; [e, x]
        x = f.arange(2.0); e = x.expand(3, 2); e.copy_(e); [e, x]
        x = f.arange(2.0); e = x.expand(3, 2); e.copy_(x)
        x = f.arange(2.0); e = x.expand(3, 2); e[...] = f.ones(2); e
        x = f.arange(2.0); e = x.expand(3, 2); e[0] = x; [e, x]
        x = f.arange(4.0); x[1:3] = x[0]; x
        x = f.arange(6.0).reshape(2, 3); x[:] = x[1]; x
        x = f.arange(6.0).reshape(2, 3); x[:] = x[:, 1]; x
        x = f.arange(3.0); f.outer(x, x, out=x)
        x = f.arange(3.0); f.ger(x, x, out=x)
        x = f.ones(2, 2); x.copy_(3); x
        x = f.ones(2, 2); x.copy_(2.5); x
        f.ones(2).copy_('a')
        f.zeros(3, 1).expand(3, 4).copy_(1)
        x = f.arange(9.0); x.fill_(x[3]); x
        f.ones(4)[:2].detach_()
        f.ones(4).detach_()
        x = f.arange(9.0).reshape(3, 3); f.gather(x, 0, f.zeros(3, 3, dtype=f.int64), out=x)
        x = f.arange(9.0).reshape(3, 3); f.index_select(x, 0, f.tensor([0, 1, 2]), out=x)
    """,
}
CASES = [line.strip() for text in CALLS.values() for line in text.strip().splitlines()]


@pytest.fixture(params=["cpu", "gpu"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    lucid.set_default_device(request.param)
    yield request.param
    lucid.set_default_device("cpu")


def outcome(m: Any, call: str) -> Any:
    """What a call gives, or the error that it raises."""
    *statements, last = call.split("; ")
    names = {"f": m, "F": m.nn.functional, "np": np} | {t.__name__: t for t in (array, collections, fractions, math)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec("\n".join(statements), names)
            made = eval(last, names)
            return made.eval() if isinstance(made, lucid.Tensor) else made
    except Exception as error:
        return error


def plain(result: Any) -> Any:
    if isinstance(result, (torch.Tensor, lucid.Tensor)):
        values = result.detach().cpu()
        return str(values.dtype).rsplit(".", 1)[-1], tuple(values.shape), values.tolist()
    return [plain(r) for r in result] if isinstance(result, (list, tuple)) else result


@pytest.mark.parametrize("call", CASES)
def test_call(call: str, device: str) -> None:
    wanted, got = outcome(torch, call), outcome(lucid, call)
    if not isinstance(wanted, Exception):
        assert not isinstance(got, Exception), got
        np.testing.assert_equal(plain(got), plain(wanted))
        return
    kinds = (IndexError, TypeError, ValueError, BufferError, RuntimeError)
    kind = next(k for k in kinds if isinstance(wanted, k))
    assert isinstance(got, kind), f"{got!r}; PyTorch: {wanted!r}"


def test_calls_are_listed_once() -> None:
    assert len(CASES) == len(set(CASES))


PRODUCTS = [
    [1e30, 1e30, 1e-30, 1e-30],
    [1e-30, 1e-30, 1e30, 1e30],
    [1e30, 1e-30] * 5,
    [1e20, 1e20, 0.0],
    [math.inf, 3.0],
    [2.0, math.nan, 3.0],
    [-math.inf, 2.0, -3.0],
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("values", PRODUCTS, ids=str)
def test_products_in_order(values: list[float], dtype: str) -> None:
    # On the GPU device the order is MLX's.
    def made(m: Any) -> Any:
        x = m.tensor(values, dtype=getattr(m, dtype))
        columns = m.stack([x, x.flip(0)], 1)
        return [x.prod(), x.prod(0), columns.prod(0), x.flip(0).prod(), x.cumprod(0), columns.cumprod(0)]

    for got, wanted in zip(made(lucid), made(torch), strict=True):
        np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=TABLE["rounding"].rtol)


@pytest.mark.parametrize("values", [PRODUCTS[0], *PRODUCTS[4:]], ids=str)
def test_gradients_of_products_that_are_not_finite(values: list[float]) -> None:
    def made(m: Any, name: str) -> Any:
        x = m.tensor(values, requires_grad=True)
        (g,) = m.autograd.grad(getattr(x, name)(0).sum(), x, create_graph=True)
        return [g.detach(), *m.autograd.grad(g.sum(), x)]

    for name in ("prod", "cumprod"):
        for got, wanted in zip(made(lucid, name), made(torch, name), strict=True):
            np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=TABLE["few ops"].rtol, err_msg=name)


def test_tensors_of_inference_mode(device: str) -> None:
    def said(m: Any) -> list[Any]:
        with m.inference_mode():
            x = m.ones(2)
        asked = ("x.is_inference()", "x.data.is_inference()", "x._version", "(x + 1)._version", "x.clone()[0] + 0 == 1")
        kinds: list[Any] = []
        for text in asked:
            answer = outcome_of(text, x)
            kinds.append(type(answer).__mro__[-3:] if isinstance(answer, Exception) else bool(answer))
        return kinds

    assert said(lucid) == said(torch)


def outcome_of(text: str, x: Any) -> Any:
    try:
        return eval(text, {"x": x})
    except RuntimeError as error:
        return error


#: Zeros beside numbers that are not finite, or whose products are not.
BESIDE_ZEROS = [
    [0.0, 2.0, math.inf],
    [0.0, math.inf, 0.0],
    [math.nan, 0.0, 3.0],
    [0.0, math.nan, math.inf],
    [-math.inf, 0.0, 2.0],
    [1e30, 1e30, 0.0],
    [1.0, 0.0, 3.0],
    [0.0, 0.0, 3.0],
]


@pytest.mark.parametrize("values", BESIDE_ZEROS, ids=str)
def test_gradients_of_products_beside_zeros(values: list[float]) -> None:
    def made(m: Any) -> Any:
        x = m.tensor(values, requires_grad=True)
        table = m.tensor([values, [1.0, 2.0, 3.0], [0.0, 1.0, 2.0]], requires_grad=True)
        results = [x.cumprod(0), table.cumprod(1), table.cumprod(0), x.prod(0), table.prod(1), table.prod()]
        leaves = [x, table, table, x, table, table]
        weights = [m.arange(1.0, r.numel() + 1).reshape(tuple(r.shape)) for r in results]
        return [m.autograd.grad(r, t, w)[0] for r, t, w in zip(results, leaves, weights, strict=True)]

    for got, wanted in zip(made(lucid), made(torch), strict=True):
        np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=TABLE["few ops"].rtol)


def test_sparse_tensors_have_no_memory_to_show(device: str) -> None:
    for m, kind in ((torch, "cpu"), (lucid, device)):
        s = m.eye(2, device=kind).to_sparse()
        with pytest.raises(BufferError, match="layout other than"):
            s.__dlpack__()
        with pytest.raises(BufferError, match="layout other than"):
            m.utils.dlpack.from_dlpack(s)
        with pytest.raises(RuntimeError, match="data pointer"):
            m.utils.dlpack.to_dlpack(s)
