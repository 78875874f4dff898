"""Calls at the limits of what an op takes: the same are refused as by PyTorch, by the same kinds of exceptions, and the
others give the same shapes, dtypes and numbers. Each is Python over `f`, the framework, and `F`, its layers' functions.
"""

from __future__ import annotations

import warnings
from typing import Any

import lucid
import pytest
import torch

CALLS = """
f.ones(3).put(f.tensor([0,1,2]), f.ones(6))
f.ones(3).index_copy(0, f.tensor([0]), f.ones(2))
f.ones(3).index_add(0, f.tensor([0]), f.ones(2))
f.ones(3,4).index_copy(0, f.tensor([0]), f.ones(1,3))
f.ones(3,4).index_copy(0, f.tensor([0]), f.ones(3))
f.ones(3,4).index_add(0, f.tensor([0]), f.ones(1,3))
f.ones(3,4).index_add(0, f.tensor([0]), f.ones(3))
f.ones(3,4).index_reduce(0, f.tensor([0]), f.ones(1,3), 'amax')
f.ones(3,4).index_reduce(0, f.tensor([0]), f.ones(2,4), 'amax')
f.ones(3).index_add(0, f.tensor([0,1]), f.tensor(1.))
f.bmm(f.ones(3), f.ones(2,3,4))
f.bmm(f.ones(3,3), f.ones(2,3,4))
f.bmm(f.ones(2,3,3), f.ones(3))
f.bmm(f.tensor(1.), f.ones(2,3,4))
f.baddbmm(f.ones(2), f.ones(3), f.ones(2,3,4))
f.baddbmm(f.ones(2), f.ones(3,3), f.ones(2,3,4))
f.addbmm(f.ones(2), f.ones(3), f.ones(2,3,4))
f.addbmm(f.ones(2), f.tensor(1.), f.ones(2,3,4))
f.addbmm(f.ones(2), f.ones(3,3), f.ones(2,3,4))
f.mv(f.tensor(1.), f.ones(3))
f.mv(f.ones(3), f.ones(3))
f.mv(f.ones(3,3), f.tensor(1.))
f.mm(f.ones(3), f.ones(3,3))
f.addmm(f.ones(3), f.ones(3), f.ones(3,3))
f.addmv(f.ones(3), f.ones(3), f.ones(3))
f.addmv(f.ones(3), f.ones(3,3), f.tensor(1.))
f.addr(f.ones(3), f.ones(3,1), f.ones(3))
f.dot(f.ones(3,1), f.ones(3))
f.addmm(f.ones(2,2,dtype=f.int32), f.ones(2,2,dtype=f.int32), f.ones(2,2,dtype=f.int32), alpha=0.5)
f.addmm(f.ones(2,2,dtype=f.int32), f.ones(2,2,dtype=f.int32), f.ones(2,2,dtype=f.int32), beta=0.5)
f.addbmm(f.ones(2,2,dtype=f.int32), f.ones(1,2,2,dtype=f.int32), f.ones(1,2,2,dtype=f.int32), alpha=0.5)
f.baddbmm(f.ones(1,2,2,dtype=f.int32), f.ones(1,2,2,dtype=f.int32), f.ones(1,2,2,dtype=f.int32), alpha=0.5)
f.addmv(f.ones(2,dtype=f.int32), f.ones(2,2,dtype=f.int32), f.ones(2,dtype=f.int32), alpha=0.5)
f.addr(f.ones(2,2,dtype=f.int32), f.ones(2,dtype=f.int32), f.ones(2,dtype=f.int32), alpha=0.5)
f.addcmul(f.ones(2,dtype=f.int32), f.ones(2,dtype=f.int32), f.ones(2,dtype=f.int32), value=1e10)
f.addcmul(f.ones(2,dtype=f.int32), f.ones(2,dtype=f.int32), f.ones(2,dtype=f.int32), value=0.5)
f.add(f.ones(2,dtype=f.bool), f.ones(2,dtype=f.bool), alpha=-3.1)
f.add(f.ones(2,dtype=f.int32), f.ones(2,dtype=f.int32), alpha=0.5)
f.add(f.ones(2), f.ones(2), alpha=True)
f.sub(f.ones(2), f.ones(2), alpha=True)
f.rsub(f.ones(2), f.ones(2), alpha=True)
f.rsub(f.ones(2,dtype=f.int32), f.ones(2,dtype=f.int32), alpha=0.5)
f.addr(f.ones(2,2), f.ones(2), f.ones(2), alpha=True)
f.addr(f.ones(2,2), f.ones(2), f.ones(2), beta=True)
f.add(f.ones(2,dtype=f.uint8), f.ones(2,dtype=f.uint8), alpha=300)
f.renorm(f.ones(2,2), 2, 0, float('nan'))
f.allclose(f.ones(2), f.ones(2), atol=float('nan'))
f.allclose(f.ones(2), f.ones(2), rtol=float('nan'))
f.isclose(f.ones(2), f.ones(2), rtol=float('nan'))
F.softshrink(f.ones(2), float('inf'))
F.softshrink(f.ones(2), float('nan'))
F.softshrink(f.ones(2), -1.)
F.hardshrink(f.ones(2), float('nan'))
f.range(1,5.5,float('inf'))
f.range(1.5,1,dtype=f.int64)
f.arange(1,float('inf'))
f.arange(1,5,float('nan'))
f.linspace(0,1,-1)
f.linspace(1j,3,0,dtype=f.complex64)
f.complex(f.ones(2), f.ones(2,dtype=f.int32))
f.complex(f.ones(2), f.ones(2,dtype=f.float64))
f.complex(f.ones(2,dtype=f.complex64), f.ones(2))
F.pad(f.ones(3,3), (1,1,1,1), mode='reflect')
F.pad(f.ones(3), (1,1), mode='replicate')
F.pad(f.ones(3,3,3,3), (1,1), mode='circular')
F.pad(f.ones(1,1,1,1,3), (1,1), mode='reflect')
F.pad(f.ones(3,3,3,3), (1,)*8, mode='reflect')
F.pad(f.ones(3,3), (), mode='reflect')
F.pad(f.ones(3,3), (1,1), mode='reflect')
F.pad(f.ones(3,3,3,3,3), (1,)*6, mode='circular')
F.local_response_norm(f.ones(1,6,3), 0)
f.linalg.tensorinv(f.tensor(2.))
f.linalg.tensorinv(f.tensor(2.), ind=4)
f.linalg.tensorinv(f.ones(2,2), ind=0)
f.linalg.vander(f.ones(1))
f.linalg.vander(f.ones(0))
f.linalg.vander(f.ones(3), N=1)
f.vander(f.ones(2,2))
f.unsafe_split(f.ones(4), [2,2])
f.sort(f.ones(2), out=f.ones(2))
f.topk(f.ones(2), 1, out=f.ones(2))
f.kthvalue(f.ones(2), 1, out=f.ones(2))
f.linalg.qr(f.ones(2,2), out=f.ones(2))
f.median(f.ones(2), 0, out=f.ones(2))
f.max(f.ones(2), out=f.ones(2))
f.std_mean(f.ones(2), out=f.ones(2))
f.std(f.ones(2), out=f.ones(2))
f.histc(f.ones(2), 0)
F.rms_norm(f.ones(2), (3,))
F.batch_norm(f.ones(3), f.ones(3), f.ones(3), training=True)
F.batch_norm(f.ones(3), f.ones(3), f.ones(3))
F.group_norm(f.ones(3), 1)
F.group_norm(f.ones(2,4), 2, f.ones(3))
F.group_norm(f.ones(1,4), 4)
f.linalg.cond(f.ones(3,3), 0)
f.linalg.matrix_norm(f.ones(3,3), 3)
f.stack([f.ones(2), f.ones(3)], 100)
f.stack([f.ones(2), f.ones(2)], 100)
f.softmax(f.tensor(True), 1)
f.softmax(f.ones(2,dtype=f.int32), 3)
f.logcumsumexp(f.tensor(1), 1)
f.cross(f.ones(3,4), f.ones(3,4), dim=2)
f.mean(f.ones(3,5), 3, dtype=f.int64)
f.mean(f.ones(3,5,dtype=f.int64))
f.amax(f.ones(3), [0,0])
F.max_pool2d(f.tensor(1.), 2)
F.max_pool2d(f.ones(3), 2)
F.avg_pool2d(f.ones(1,4,4), -2)
F.conv1d(f.ones(2,4), f.ones(2,2,4), stride=())
F.conv2d(f.ones(1,2,4,4), f.ones(2,2,2,2), stride=())
f.ones(3,dtype=f.int32).sigmoid_()
f.ones(3,dtype=f.int32).div_(2)
F.linear(f.ones(2,3), f.ones(4,3), f.tensor(1.)).shape
F.linear(f.ones(2,3), f.ones(4,3), f.ones(2,1)).shape
F.linear(f.ones(2,3), f.ones(4,3), f.ones(3,4)).shape
F.conv_transpose3d(f.ones(1,2,3,3,3), f.ones(2,2,0,2,2))
f.addr(f.ones(2,2,dtype=f.bool), f.ones(2), f.ones(2), alpha=0.5).dtype
f.addr(f.ones(2,2,dtype=f.int32), f.ones(2,dtype=f.int64), f.ones(2)).dtype
f.ones(3,4)[(0,1),[1,2]].shape
f.ones(3,4)[(0,1),].shape
f.ones(3,4)[[0,1],].shape
f.ones(3,4)[((0,1),(1,2))].shape
f.ones(3,4)[[(0,1),(1,2)]].shape
f.ones(3,4)[[[0,1],[1,2]]].shape
f.ones(3,4).index_put([f.tensor(True)], f.tensor([7.])).sum().item()
f.ones(3,4).index_put([f.tensor(False)], f.tensor([7.])).sum().item()
f.ones(3,4).index_put((f.tensor(True), f.tensor([0])), f.tensor(2.)).sum().item()
f.linalg.pinv(f.stack([f.eye(2), 2*f.eye(2)]), atol=f.tensor([1.5,0.])).sum().item()
f.linalg.pinv(f.stack([f.eye(2), 2*f.eye(2)]), rtol=f.tensor([0.,2.])).sum().item()
f.linalg.matrix_rank(f.stack([f.eye(2), 2*f.eye(2)]), atol=f.tensor([1.5,0.])).tolist()
f.linalg.matrix_rank(f.stack([f.eye(2), 2*f.eye(2)]), rtol=f.tensor([0.,2.])).tolist()
f.linalg.matrix_rank(f.eye(2), atol=f.tensor([1.5,0.,3.])).tolist()
f.diff(f.ones(1), 0, 1).shape
f.roll(f.ones(0,3), 2, 5).shape
f.roll(f.ones(3), 2, 5).shape
f.vander(f.ones(3,dtype=f.bool)).dtype
f.linalg.norm(f.ones(0,0), 1).item()
f.linalg.norm(f.ones(0,0), 2).item()
f.linalg.norm(f.ones(0,0), float('inf')).item()
f.linalg.norm(f.ones(2,0), 1).item()
f.linalg.norm(f.ones(0,2), 1).item()
f.linalg.matrix_norm(f.ones(0,0), 1).item()
f.linalg.matrix_norm(f.ones(0,0), 'nuc').item()
f.mm(f.ones(2,2,dtype=f.bool), f.ones(2,2,dtype=f.bool)).dtype
f.dot(f.ones(2,dtype=f.bool), f.ones(2,dtype=f.bool)).dtype
f.inner(f.ones(2,dtype=f.bool), f.ones(2,dtype=f.bool)).dtype
f.matmul(f.ones(2,2,dtype=f.bool), f.ones(2,dtype=f.bool)).dtype
f.bmm(f.ones(1,2,2,dtype=f.bool), f.ones(1,2,2,dtype=f.bool)).dtype
F.multilabel_margin_loss(f.ones(1), f.tensor(0)).item()
F.multilabel_margin_loss(f.tensor(1.), f.tensor([0])).item()
f.linalg.pinv(f.eye(2), rtol=f.ones((),requires_grad=True)).sum().item()
f.isin(f.ones(20), f.ones(5,2)).shape
F.adaptive_avg_pool1d(f.ones(8,8,dtype=f.int32), 5).shape
F.instance_norm(f.ones(2,2,3), f.zeros(2,requires_grad=True), f.ones(2))
F.batch_norm(f.ones(2,2,3), f.zeros(2), f.ones(2,requires_grad=True))
f.std(f.ones(3,dtype=f.bfloat16), out=f.ones(0)).dtype
f.take_along_dim(f.ones(3,3), f.tensor([0,1]), 0)
f.diagonal(f.ones(3))
f.trace(f.ones(3))
f.tril(f.ones(3))
f.cholesky_solve(f.ones(3), f.ones(3,3))
f.cdist(f.ones(3), f.ones(3,3))
f.pdist(f.ones(3))
f.searchsorted(f.ones(2,3), f.ones(3,3))
f.bucketize(f.ones(3), f.ones(3,3))
f.bincount(f.tensor([-1]))
f.bincount(f.ones(2,2,dtype=f.int64))
f.cartesian_prod(f.ones(2,2))
f.block_diag(f.ones(2,2,2))
f.combinations(f.ones(2,2))
f.chain_matmul(f.ones(2))
f.nn.utils.rnn.pad_sequence([])
f.meshgrid(f.ones(2,2))
f.vdot(f.ones(2), f.ones(3))
f.outer(f.ones(2,2), f.ones(2))
f.ger(f.ones(2,2), f.ones(2))
f.trapezoid(f.ones(3), f.ones(4))
f.unflatten(f.ones(6), 0, (2,2))
f.unflatten(f.ones(6), 0, (-1,-1))
f.ones(6).unfold(0, 7, 1)
f.ones(6).unfold(0, 2, 0)
f.ones(6).unfold(1, 2, 1)
f.ones(6).narrow(0, 5, 3)
f.ones(6).narrow(0, -7, 1)
f.ones(6).select(0, 6)
f.ones(6).split(-1)
f.ones(6).split([2,2])
f.ones(6).chunk(0)
f.tensor_split(f.ones(6), 0)
f.hsplit(f.tensor(1.), 2)
f.hsplit(f.ones(5), 2)
f.vsplit(f.ones(5), 2)
f.dsplit(f.ones(5,5), 2)
f.ones(6).expand(3)
f.ones(6).expand(-1,6)
f.ones(2,3).view(7)
f.ones(2,3).permute(0)
f.ones(2,3).permute(0,0)
f.ones(2,3).transpose(0,2)
f.ones(2,3).swapaxes(0,5)
f.ones(2,3).flatten(1,0)
f.ones(2,3).squeeze(5)
f.ones(2,3).unsqueeze(5)
f.ones(2,3).t().t().t().view(6)
f.ones(2,3,4).t()
f.ones(2,3).rot90(1,[0,0])
f.ones(2,3).rot90(1,[0])
f.ones(2,3).flip(5)
f.ones(2,3).roll(1,5)
f.ones(2,3).roll((1,2),0)
f.ones(2,3).repeat(2)
f.ones(2,3).tile('a')
f.ones(2,3).diag_embed(0,0,0)
f.cat([])
f.cat([f.ones(2), f.ones(2,2)])
f.cat([f.ones(2), f.ones(2)], 1)
f.stack([])
f.hstack([])
f.einsum('ij,jk', f.ones(2,3), f.ones(2,3))
f.einsum('ij,j', f.ones(2,3))
f.einsum('i1', f.ones(2,3))
F.instance_norm(f.ones(2))
F.adaptive_avg_pool2d(f.ones(2,3,4,5), (0,7)).shape
F.adaptive_max_pool3d(f.ones(2,3,4,4,5), (2,0,2)).shape
F.interpolate(f.ones(2), (5,))
F.interpolate(f.ones(2, 3), 5)
F.mse_loss(f.tensor(1.), f.ones(5, dtype=f.bfloat16), reduction='none').dtype
F.l1_loss(f.ones(5), f.tensor(2, dtype=f.int64)).dtype
F.smooth_l1_loss(f.ones(5, dtype=f.float16), f.tensor(2.)).dtype
F.soft_margin_loss(f.ones(3), f.tensor([1, 0, 1], dtype=f.uint8), reduction='none').tolist()[1]
F.threshold(f.tensor([-1, -2], dtype=f.int16), -1.7, -4.3).tolist()
F.threshold(f.tensor([-1, -2], dtype=f.int8), -1.7, 300.)
f.median(f.ones(3), out=f.empty(0))
f.median(f.ones(3), 0, out=(f.empty(0), f.empty(0, dtype=f.int64)))[0].dtype
f.quantile(f.ones(3), 0.5, [0])
f.nanquantile(f.ones(3), 0.5, -1)
f.var(f.arange(3.), True, out=f.empty(0))
f.var(f.arange(3.), 0, True, out=f.empty(0))
f.var(f.arange(3.), unbiased=False, out=f.empty(0))
f.var(f.arange(3.), correction=0, out=f.empty(0))
f.std(f.ones(3), 0, keepdim=None)
f.max(f.ones(3), 0, None)
f.var_mean(f.ones(3), out=(f.empty(0), f.empty(0)))
f.var_mean(f.ones(3, dtype=f.int8), out=f.empty(0))
f.where(f.tensor([True]), f.ones(1), 2., out=f.empty(1))
f.where(f.tensor([True]), f.ones(1), f.ones(1), out=f.empty(1))
f.kthvalue(f.ones(3), 100, out=f.empty(0))
f.linalg.slogdet(f.ones(2), out=f.empty(0))
f.linalg.qr(f.ones(3), out=f.empty(0))
f.linalg.lu(f.ones(3), out=f.empty(0))
f.topk(f.ones(3), -2, out=f.empty(0))
f.sort(f.ones(3), 2, out=f.empty(0))
f.aminmax(f.ones(0), out=f.empty(0))
f.add(f.ones(3), 1, out=(f.empty(0),))
f.ones(3).cumsum_(0, dtype=f.int64)
f.ones(3).cumsum_(0, dtype=f.float32)
f.ones(3).cumprod_(0, dtype=f.float16)
f.zeros(size=3)
f.ones(2).reshape(shape=2)
f.ones(2).flip(dims=0)
f.ones(2).flip(0)
f.ones(2).expand(size=2)
f.ones(2).permute(dims=0)
f.ones(2).squeeze(dim=0)
f.view_copy(f.ones(2, 3).t(), (6,))
f.view_copy(f.ones(6), f.int32)
f.view_copy(f.ones(6), dtype=f.int32)
f.view_copy(f.ones(6), size=[2, 3])
f.view_copy(f.ones(6), 6)
f.view_copy(f.ones(6))
f.expand_copy(f.ones(6), 6)
f.expand_copy(f.ones(1), (6,))
f.tensordot(f.ones(3), f.ones(3), [0, 0])
f.tensordot(f.ones(3), f.ones(3), ([0], (0,)))
f.linalg.matrix_norm(f.ones(3, 3), 2, 1)
f.linalg.matrix_norm(f.ones(3, 3), 2, (0, 1))
f.softmax(f.ones(3), 0, f.float16).dtype
f.ones(3).log_softmax(0, f.float16).dtype
f.softmax(f.ones(3), 0, f.float16, out=f.empty(0, dtype=f.float16)).dtype
f.softmax(f.ones(3), 0, f.float16, out=f.empty(0))
f.ones(3, dtype=f.bfloat16).norm(2, 0, False, f.float32).dtype
f.norm(f.ones(3, dtype=f.float16), 2, 0, True, None, f.float32).dtype
f.norm(f.ones(3), 2, 0, True, None, f.float16)
f.ones(3).norm(2, 0, False, f.int64)
f.norm(f.ones(3), dtype=f.complex64)
f.norm(f.ones(3, dtype=f.complex64), dtype=f.complex64).dtype
f.norm(f.ones(3, dtype=f.complex64), dtype=f.float32)
f.norm(f.ones(3, dtype=f.int64), dtype=f.float16)
f.linalg.vector_norm(f.ones(3), dtype=f.bfloat16)
f.linalg.vector_norm(f.ones(3, dtype=f.bfloat16), dtype=f.float16)
f.linalg.vector_norm(f.ones(3, dtype=f.bfloat16), dtype=f.float32).dtype
f.linalg.norm(f.ones(3, 3), dtype=f.float16)
f.linalg.matrix_norm(f.ones(3, 3), dtype=f.float16)
f.linalg.matrix_norm(f.ones(3, 3), 1, dtype=f.float16)
f.linalg.matrix_norm(f.ones(3, 3), 'nuc', dtype=f.complex64)
f.norm(f.ones(3, 3), 'nuc', dtype=f.float16)
f.sort(f.ones(3), stable=None)[0].dtype
F.avg_pool2d(f.ones(1, 2, 2), 2, out=f.empty(0)).shape
F.avg_pool3d(f.ones(1, 2, 2, 2), 2, out=f.empty(1, 1, 1, 1)).tolist()
F.avg_pool2d(f.ones(1, 2, 2), 2, out=f.empty(0, dtype=f.float16))
F.avg_pool2d(f.ones(1, 2, 2), 2, out=None).shape
F.grid_sample(f.ones(0, 1, 2, 2), f.ones(0, 3, 3, 2)).shape
F.grid_sample(f.ones(1, 0, 2, 2, 2), f.ones(1, 3, 1, 3, 3), 'nearest').shape
F.grid_sample(f.ones(1, 2, 2, 2), f.ones(1, 0, 3, 2), 'bicubic').shape
f.ones(1).index_copy(0, f.tensor([0]), f.tensor(3.)).tolist()
f.ones(3).index_copy(0, f.tensor([1]), f.tensor(3.)).tolist()
f.ones(3, 1).index_copy(0, f.tensor([1]), f.tensor(3.))
F.adaptive_avg_pool2d(f.ones(1, 2, 2), None)
F.adaptive_max_pool3d(f.ones(1, 2, 2, 2), None)
F.adaptive_max_pool2d(f.ones(1, 2, 2), (None, 1)).shape
F.adaptive_max_pool2d(f.ones(1, 2, 2), 'a')
F.soft_margin_loss(f.ones(5), f.ones(5, 5))
F.soft_margin_loss(f.ones(5, 5), f.ones(5), reduction='none').shape
f.lu(f.ones(3, 3), get_infos=None)[0].dtype
f.ones(3).norm(2, out=f.empty(0))
f.nansum(f.ones(3, dtype=f.complex64), 5)
f.gradient(f.ones(3, dtype=f.bool), dim=5)
f.cross(f.ones(3), f.ones(3, dtype=f.complex64), 5)
f.add(2**63, 1)
f.mul(1, 2**64 - 1)
f.addcmul(f.ones(2), f.ones(2), f.ones(2), value=True).tolist()
f.addcdiv(f.ones(2), f.ones(2), f.ones(2), value=False).tolist()
f.addcmul(f.ones(2, dtype=f.int32), f.ones(2, dtype=f.int32), f.ones(2, dtype=f.int32), value=True).tolist()
f.div(2**63, f.tensor([1, 2])).tolist()
((2**64 - 1) / f.tensor([1, 2])).tolist()
f.movedim(f.ones(2, 3), (0, 0), (5, 6))
f.movedim(f.ones(2, 3), (0, 0), (0, 1))
f.sum(f.ones(2, 3), (0, 0, 7))
f.amax(f.ones(2, 3), (0, 0, 7))
f.amax(f.ones(2, 3), (0, 0))
f.logsumexp(f.ones(2, 3), (0, 0, 7))
f.addmv(f.ones(2), f.tensor(1.), f.ones(2))
f.addmv(f.ones(2), f.ones(2, 2), f.tensor(1.))
f.ones(2).addmv_(f.tensor(1.), f.tensor(1.))
f.mv(f.tensor(1.), f.tensor(1.))
f.mv(f.ones(2, 2), f.tensor(1.))
F.max_pool2d(f.ones(1, 1, 1), 3, 2, ceil_mode=True)
F.max_pool2d(f.ones(1, 3, 3), 4, 1, ceil_mode=True)
F.max_pool2d(f.ones(1, 3, 3), 4, 2)
F.avg_pool3d(f.ones(1, 3, 3, 3), 4, 1, 1)
F.avg_pool3d(f.ones(1, 2, 2, 2), 3, 2, ceil_mode=True)
f.repeat_interleave(f.arange(3), f.tensor([1, 0, 2], dtype=f.int8), 0).tolist()
f.repeat_interleave(f.tensor([1, 0, 2], dtype=f.uint8)).tolist()
f.repeat_interleave(f.arange(3), f.tensor([1., 0., 2.]), 0)
f.isclose(f.tensor([float('inf'), 1., 3.]), f.tensor([1., float('inf'), 4.]), 0., float('inf')).tolist()
f.isclose(f.tensor([float('inf'), 1., 0.]), f.tensor([1., float('inf'), 4.]), float('inf'), 0.).tolist()
F.soft_margin_loss(f.ones(3, dtype=f.float16), f.ones(3)).dtype
F.soft_margin_loss(f.ones(3, dtype=f.int8), f.ones(3))
f.median(f.ones(3), 5, out=f.ones(3))
f.nanmedian(f.ones(3), 5, out=f.ones(3))
f.repeat_interleave()
f.repeat_interleave(f.ones(3))
f.repeat_interleave(f.tensor([1, 2]), dim=0)
f.repeat_interleave(f.tensor([1, 2])).tolist()
f.exp(f.tensor([complex('inf+infj')])).real.tolist()
f.pow(f.tensor([complex('inf')]), f.tensor([1+2j])).real.tolist()
""".strip().splitlines()


def outcome(f: Any, call: str) -> Any:
    """What the call gives, as text, or what it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = eval(call, {"f": f, "F": f.nn.functional})
        except Exception as error:
            return error
    return str(made).replace("torch", "lucid") if not isinstance(made, f.Tensor) else "a tensor"


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("call", CALLS)
def test_calls_are_taken_or_refused_as_by_pytorch(call: str, device: str) -> None:
    theirs = outcome(torch, call)
    with lucid.device(device):
        ours = outcome(lucid, call)
    if isinstance(theirs, Exception):
        assert isinstance(ours, type(theirs)), ours
        assert isinstance(ours, lucid.errors.LucidError), f"an error of Python's own: {ours}"
    else:
        assert ours == theirs
