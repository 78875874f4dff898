"""PyTorch's overloads and argument forms as expressions, run in both libraries: equal values, or errors of one kind."""

from __future__ import annotations

import warnings
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.parity.ops.test_table_parity import to_numpy
from tests.python.tolerances import within

INF, NAN = float("inf"), float("nan")

# `m` is the framework; `x` is 2 by 3, `v` and `w` have 3 elements, `c` is 2 by 3 by 4, `i` int64 and `b` bool like `x`,
# `s` is 0-d, `e` is 0 by 3, `q` is 2 by 2, `q3` 3 by 3, `h` holds infinities and NaN, `k` is `device=` for ours.
VALUES = """
m.max(x); m.max(x, 1); m.max(x, -1, True); m.max(x, dim=0, keepdim=True); m.max(x, x.flip(0)); x.max(1)[1]; x.max()
m.max(x, other=v); m.min(x); m.min(x, 1); m.min(x, dim=0); m.min(x, v); x.min(0).values
x.min(0, keepdim=True).indices; m.max(s); m.max(s, 0); m.max(b); m.max(i, 0); m.max(h, 1); m.min(h, 1); m.std(x)
m.std(x, 1); m.std(x, True); m.std(x, False); m.std(x, unbiased=False); m.std(x, 1, False); m.std(x, 1, False, True)
m.std(x, dim=1, correction=0); m.std(x, (0, 1)); m.std(x, [0], keepdim=True); m.std(x, None); x.std(); x.std(0)
x.std(False); x.std(dim=(0, 1), correction=2); x.std(-1, unbiased=False, keepdim=True); m.var(x); m.var(x, 1, True)
m.var(x, correction=0.5); m.var(x, ()); m.var(x, dim=[]); x.var(unbiased=False); m.var(v[:1])
m.std(v[:1], correction=0); m.std(s); m.var(e, 0); m.std_mean(x); m.std_mean(x, 1)
m.std_mean(x, dim=0, correction=0, keepdim=True); m.std_mean(x, False); m.var_mean(x, (0, 1))
m.var_mean(x, 0, False, True); m.var_mean(x, unbiased=False); m.std(x * 1e20, 1); m.std(h, 1); m.var(x * 1e18, 1)
m.std(x * 1e-30); m.std((x * 300).to(m.float16), 1); m.std(x, 1, correction=3); m.var(x, correction=None); m.sum(x)
m.sum(x, 1); m.sum(x, (0, 1)); m.sum(x, []); m.sum(x, ()); m.sum(x, dim=-1, keepdim=True); m.sum(x, 1, True)
m.sum(x, None); m.sum(i); m.sum(b); m.sum(b, 1); m.sum(i, dtype=m.float32); x.sum(dtype=m.float64)
x.sum((0,), dtype=m.int64); m.sum(e); m.sum(e, 0); m.sum(s, 0); m.sum(s, -1, keepdim=True)
x.sum([0, 1], keepdim=True); m.sum(h, 1); m.sum(i.to(m.uint8), 1); m.prod(x); m.prod(x, 1)
m.prod(x, dim=0, keepdim=True); m.prod(i); m.prod(b); m.prod(e); m.prod(e, 0); m.prod(i, dtype=m.float64); m.mean(x)
m.mean(x, 1); m.mean(x, (0, 1)); m.mean(x, []); m.mean(i, dtype=m.float32); m.mean(e); m.mean(e, 0)
m.mean(x, -1, True); m.mean(s, 0); m.any(b); m.any(b, 1); m.any(b, (0, 1)); m.any(x, 1, keepdim=True); m.any(e)
m.any(e, 0); m.all(b); m.all(b, (0, 1)); m.all(e, 0); m.all(i, -1); m.all(i.to(m.uint8)); m.any(i.to(m.uint8), 1)
m.any(b, dim=None); m.all(b, dim=()); m.amax(x); m.amax(x, 1); m.amax(x, (0, 1)); m.amax(x, ())
m.amin(x, dim=[1], keepdim=True); m.amax(h, 1); m.amin(h, 1); m.argmax(x); m.argmax(x, 1)
m.argmax(x, dim=None, keepdim=True); m.argmin(x, -1, True); m.argmax(s); m.argmax(h, 1); m.argmin(h, 1)
m.argmax(s, 0); m.aminmax(x); m.aminmax(x, dim=1); m.aminmax(x, dim=0, keepdim=True); x.aminmax()
m.aminmax(x, dim=1).max; m.aminmax(s); m.aminmax(h, dim=1); m.count_nonzero(i); m.count_nonzero(i, 1)
m.count_nonzero(x, (0, 1)); m.count_nonzero(b, dim=0); m.count_nonzero(h); m.nansum(h); m.nansum(h, 1)
m.nansum(h, (0, 1), keepdim=True); m.nansum(i); m.nanmean(h); m.nanmean(h, 0); m.nanmean(x, 1, True)
m.logsumexp(x, 1); m.logsumexp(x, (0, 1), True); m.logsumexp(h, 1); m.logsumexp(i, 0)
m.logsumexp(m.full((2, 3), -INF, **k), 1); m.logsumexp(m.full((2, 3), INF, **k), 1); m.logsumexp(s, 0)
m.logsumexp(x * 1e4, 0); m.logsumexp(e, 0); m.log_softmax(h, 1); m.softmax(h, 1)
m.log_softmax(m.full((2, 3), -INF, **k), 1); m.log_softmax(x * 1e4, 0); m.log_softmax(x, -1, dtype=m.float64)
m.softmax(m.tensor([[1.0, -INF, 2.0], [INF, 0.0, 1.0]], **k), 1)
m.log_softmax(m.tensor([[1.0, -INF, 2.0], [INF, 0.0, 1.0]], **k), 1); m.softmax(e, 0); m.norm(x); m.norm(x, 1)
m.norm(x, 2, 1); m.norm(x, p=3, dim=(0, 1)); m.norm(x, 'fro'); m.norm(x, INF, 0); m.norm(x, -INF, 0, True); x.norm()
x.norm(1, 0); x.norm(p='fro', dim=1); m.norm(x, 0); m.norm(x, dim=1, keepdim=True); m.norm(x, dtype=m.float64)
m.norm(e); m.norm(s); m.cumsum(x, 0); m.cumsum(x, dim=-1); m.cumsum(i, 1, dtype=m.float32); m.cumprod(x, 1)
x.cumsum(0); m.cumsum(s, 0); m.cumsum(b, 0); m.split(x, 2, 1); m.split(x, [1, 2], 1); m.split(v, 2); x.split(1)
x.split([2]); m.split(v, (1, 1, 1)); x.split(2, dim=1); v.split([3]); m.chunk(x, 2, 1); m.chunk(v, 5)
x.chunk(2, dim=-1); m.tensor_split(v, 2); m.tensor_split(v, (1,)); m.tensor_split(x, (0, 2), 1); m.tensor_split(v, 5)
m.tensor_split(x, [1], dim=1); m.tensor_split(x, m.tensor([1, 2]), 1); m.hsplit(x, 3); m.hsplit(x, [1])
m.vsplit(x, 2); m.dsplit(c, [1, 3]); x.hsplit(3); m.hsplit(v, (1,)); m.permute(c, (2, 0, 1)); c.permute(2, 0, 1)
c.permute((0, -1, 1)); c.permute(dims=(0, 2, 1)); c.transpose(0, 1); m.transpose(c, -1, 0); c.swapaxes(0, 2)
m.swapdims(c, 0, 1); c.transpose(dim0=0, dim1=2); m.t(x); x.t(); s.t(); x.T; c.mT; q.H; c.mH; c.adjoint()
m.adjoint(c); m.movedim(c, 0, 2); m.movedim(c, (0, 1), (1, 2)); m.moveaxis(c, 0, -1); x.view(3, 2); x.view((6,))
x.view(-1); x.reshape(3, 2); m.reshape(x, (-1,)); x.reshape((2, 1, -1)); x.view_as(x.T.reshape(3, 2))
x.reshape_as(v.expand(2, 3)); v.expand(2, 3); v.expand((2, -1)); v.expand_as(x); m.broadcast_to(v, (2, 3))
v.broadcast_to((2, 2, 3)); s.expand(2); m.broadcast_tensors(x, v); m.broadcast_tensors(v); m.flip(x, (0,))
m.flip(x, [0, 1]); x.flip(0); x.flip(0, 1); x.flip((-1,)); m.flip(x, dims=(1,)); m.fliplr(x); m.flipud(v); x.fliplr()
m.rot90(x); m.rot90(x, 2); m.rot90(c, k=-1, dims=(1, 2)); x.rot90(3, [0, 1]); m.roll(x, 1); m.roll(x, (1, 1), (0, 1))
x.roll(-1, 1); m.tile(v, (2, 2)); v.tile(2); v.tile(2, 2); v.tile((2,)); x.tile(dims=(2,)); v.repeat(2)
v.repeat(2, 1); v.repeat((2, 2)); s.repeat(3); x.tile(()); m.squeeze(x); m.squeeze(c.unsqueeze(0), 0)
m.squeeze(c[:1, :, :1], (0, 2)); c[:1].squeeze(dim=0); c[:1].squeeze(); m.unsqueeze(x, 0); x.unsqueeze(dim=-1)
s.unsqueeze(0); s.squeeze(0); x.squeeze(1); m.flatten(c); m.flatten(c, 1); m.flatten(c, 0, 1)
c.flatten(start_dim=1, end_dim=2); s.flatten(); m.unflatten(x, 1, (3, 1)); x.unflatten(-1, [-1, 3]); c.ravel()
m.ravel(x); m.narrow(x, 1, 0, 2); x.narrow(1, -2, 1); x.narrow(dim=0, start=1, length=1); m.select(x, 0, 1)
x.select(1, -1); m.unbind(x); x.unbind(1); m.unbind(x, dim=-1); c.diagonal(); m.diagonal(c, 1, 1, 2)
c.diagonal(dim1=0, dim2=2); m.diag(v); m.diag(v, 1); m.diag(q); m.diag(q, -1); v.diag(); m.diag_embed(x)
m.diag_embed(x, 1, 0, 2); x.diag_embed(offset=-1); m.diagflat(x); m.diagflat(v, 1); m.trace(q); q.trace(); m.trace(i)
m.hstack((v, w)); m.hstack([x, x]); m.vstack((v, w)); m.row_stack((x, v)); m.dstack((v, w)); m.column_stack((v, w))
m.column_stack((x, x)); m.cat((x, x)); m.cat([x, x], 1); m.cat(tensors=[x, x], dim=-1); m.concat((x, x))
m.stack([v, w], 1); m.stack((v, w), dim=-1); m.hstack((i, x)); m.cat((i, x)); m.vstack((s, s)); m.block_diag(x, v, s)
m.block_diag(); m.block_diag(x); m.atleast_1d(s); m.atleast_2d(v); m.atleast_3d(x); m.atleast_1d(s, v)
m.atleast_2d((s, v)); m.atleast_3d(c); m.atleast_1d([s]); m.meshgrid(v, w, indexing='ij')
m.meshgrid([v, w], indexing='xy'); m.meshgrid(v, indexing='xy'); m.meshgrid(v, s, indexing='ij'); m.diff(v)
m.diff(x, 2); m.diff(x, dim=0); m.diff(x, prepend=x[:, :1]); m.diff(x, append=x); m.diff(b); x.diff(); m.diff(i, 1, 0)
m.diff(v, 0); m.diff(v[:1]); m.trapezoid(x); m.trapezoid(x, v); m.trapezoid(x, dx=2); m.trapezoid(x, dim=0)
m.cumulative_trapezoid(x); m.cumulative_trapezoid(x, v, dim=-1); m.trapz(x); m.trapezoid(i); m.matmul(x, x.T)
m.matmul(v, w); m.matmul(x, v); m.mm(x, x.T); m.mv(x, v); m.dot(v, w); v.dot(w); m.vdot(v, w); m.inner(x, v)
m.inner(x, s); x.inner(v); m.outer(v, w); m.ger(v, w); v.outer(w); m.bmm(c, c.mT); x @ v; m.addmm(x, x, q3)
m.addmm(v, x, q3, beta=2, alpha=0.5); m.addmm(x * NAN, x, q3, beta=0); m.addmv(x[:, 0], x, v)
m.addmv(s, x, v, alpha=2); m.addr(q3, v, w, beta=0.5); m.addr(v, v, w); m.baddbmm(c[:, :, :3], c, c.mT, beta=2)
m.addbmm(q3, c, c.mT, alpha=0.1); x.addmm(x, q3); m.addmm(i, i, i.new_ones(3, 3), alpha=1.5, beta=2)
x.clone().addmm_(x, q3); q3.clone().addr_(v, w, alpha=2); m.kron(x, q); m.kron(v, x); x.kron(v)
m.chain_matmul(x, q3, x.T); m.kron(s, x); m.tensordot(x, q3, 1); m.tensordot(x, q3, dims=([1], [0]))
m.tensordot(c, c, dims=([0, 2], [0, 2])); m.tensordot(v, w, 0); m.tensordot(x, x, dims=2)
m.tensordot(x, x, dims=[[0], [0]]); m.einsum('ij,jk', x, q3); m.einsum('ij,jk->ki', [x, q3]); m.einsum('ij->', x)
m.einsum('ij', x); m.einsum('ii->i', q); m.einsum('i,i', v, w); m.einsum('i,j->ij', v, w)
m.einsum('b...,b...->b', c, c); m.einsum('...ij->...ji', c); m.einsum(' i j , j -> i ', x, v)
m.einsum('ijk,ljk,m->lm', c, c, v); m.einsum('Ab,bA->A', x, x.T); m.einsum('ij,kj->', x, x); m.einsum('ijk->kji', c)
m.einsum('i->', i[0]); m.einsum('ij,i->ij', x, x[:, 0]); m.einsum('...,...', x, v); m.cdist(x, x); m.cdist(x, x, 1)
m.cdist(x, x, p=INF); m.cdist(x, x, p=0); m.cdist(x, q3, compute_mode='donot_use_mm_for_euclid_dist')
m.cdist(x, x, p=0.5); m.dist(x, v); m.dist(x, x, 1); x.dist(v, p=3); m.dist(x, v, 0); m.dist(x, v, INF)
m.renorm(x, 2, 0, 1); m.renorm(x, p=1, dim=1, maxnorm=0.5); x.clone().renorm_(2, 0, 1.0); m.cov(x)
m.cov(x, correction=0); m.cov(v); x.cov(); m.cov(x, fweights=m.tensor([1, 2, 3], **k))
m.cov(x, aweights=m.tensor([0.5, 1.0, 2.0], **k)); m.corrcoef(x); x.corrcoef(); m.corrcoef(v); m.cov(i)
m.equal(x, x.clone()); m.equal(x, v); m.allclose(x, x); m.allclose(h, h); m.allclose(h, h, equal_nan=True)
m.allclose(x, x + 1e-9); m.allclose(x, x + 1, rtol=10, atol=1); m.isclose(h, h, equal_nan=True)
m.isclose(x, x + 1e-3, atol=1e-2); x.eq(x); x.equal(x); x.allclose(x); m.is_nonzero(s); m.is_nonzero(v[:1] * 0)
m.is_signed(x); m.is_signed(i.to(m.uint8)); m.numel(c); m.is_tensor(x); m.is_floating_point(i); m.is_complex(x)
x.is_signed(); x.is_same_size(v); x.nelement(); x.ndimension(); str(m.result_type(x, 1)).split('.')[1]
str(m.result_type(i, 1.5)).split('.')[1]; str(m.result_type(1, 2.5)).split('.')[1]
str(m.result_type(b, True)).split('.')[1]; str(m.result_type(s, i)).split('.')[1]; m.can_cast(m.float32, m.int32)
m.can_cast(m.int8, m.float16); m.can_cast(from_=m.bool, to=m.uint8); x.new_zeros(2); x.new_zeros((2, 3))
x.new_zeros(2, 3, dtype=m.int64); x.new_ones(size=(2,)); x.new_full((2,), 3); x.new_full(size=(2,), fill_value=1.5)
i.new_tensor([1.0, 2.0]); x.new_tensor([1, 2], dtype=m.int32); x.new_empty(0, 3).shape; x.new_tensor(3)
x.to(m.float64); x.to(i); x.to('cpu'); x.to(dtype=m.int32); x.to(x.device, m.float16); x.to(m.int64, copy=True)
x.type_as(i); x.type(m.int32); x.to(tensor=i); x.long(); x.get_device(); x.element_size(); x.itemsize; x.nbytes
c.sum_to_size(1, 4); c.sum_to_size((2, 1, 1)); x.sum_to_size(3); x.unfold(1, 2, 1); m.as_strided(x, (2, 2), (1, 2))
x.as_strided((2,), (1,), 1); m.where(b, x, v); m.where(b, x, 0.0); m.where(b, 1, 2); x.where(b, v); m.where(b)
m.nonzero(i); m.nonzero(i, as_tuple=True); i.nonzero(); i.nonzero(as_tuple=True); x.is_pinned(); m.numel(s)
m.is_nonzero(b[0, :1]); m.clone(x); m.positive(x); x.unsqueeze(1).expand(2, 4, 3); x.expand(2, 2, 3)
x.clone().apply_(lambda a: a + 1) if x.device.type == 'cpu' else x + 1
x.clone().map_(x, lambda a, b: a * b) if x.device.type == 'cpu' else x * x
"""

ERRORS = """
m.max(); m.max(x, 5); m.max(x, 1.5); m.max(x, dim='a'); m.max(e); m.max(e, 0); m.max(x, 0, 1, 2); m.max(x, v, dim=0)
m.max(x, foo=1); m.max(x, m.ones(4, **k)); m.max(x, 9); m.std(x, 4); m.std(i); m.std(x, (0, 0))
m.std(x, unbiased=True, correction=1); m.std(x, 'a'); m.std(); m.std(x, dim=1.5); m.std_mean(i); m.var(x, -4)
m.sum(x, 3); m.sum(x, (0, 0)); m.sum(x, -3); m.sum('a'); m.sum(x, 1.0); m.sum(x, dim=[0.5]); m.sum()
m.sum(x, 0, True, 3); m.sum(x, foo=1); m.sum(s, 1); m.sum(x, (0, 5)); m.sum(3); m.mean(i); m.mean(b); m.mean(x, 7)
m.prod(x, 2); m.prod(x, (0, 1)); m.amax(e, 0); m.amin(e); m.argmax(e); m.argmax(e, 0); m.argmax(x, 2); m.aminmax(e)
m.aminmax(x, dim=2); m.logsumexp(x); m.logsumexp(x, 5); m.any(x, 3); m.all(x, (0, 0)); m.cumsum(x); m.cumsum(x, 2)
m.cumsum(x, 'a'); m.softmax(x, 3); m.count_nonzero(x, 5); m.nansum(x, 4); m.norm(x, 2, 5); m.split(x, -1)
m.split(x, 0); m.split(x, [1, 1], 1); m.split(x, 2, 5); m.split(x, 'a'); m.split(x, [1.5]); m.split(s, 1)
m.chunk(x, 0); m.chunk(x, 2, 7); m.tensor_split(x, 0); m.tensor_split(s, 2); m.hsplit(x, 2); m.hsplit(s, 1)
m.vsplit(v, 3); m.dsplit(x, 1); m.tensor_split(x, 'a'); m.permute(c, (0, 1)); c.permute(0, 0, 1); c.permute(0, 1, 5)
c.permute(); m.transpose(x, 0, 2); m.t(c); m.movedim(c, (0, 1), (0,)); m.movedim(c, (0, 0), (1, 2))
m.movedim(c, 5, 0); x.view(4); x.view(-1, -1); x.view('a'); x.reshape(5, -1); x.T.view(6); x.view(); x.reshape(2.5)
v.expand(2, 4); x.expand(3); v.expand(-1, 3); m.flip(x, (0, 0)); m.flip(x, (5,)); m.rot90(x, 1, (0, 0)); m.rot90(v)
m.rot90(x, 1, (0,)); m.fliplr(v); m.flipud(s); v.repeat(); x.repeat(2); x.repeat(-1, 2); m.roll(x, (1, 2), 0)
m.squeeze(x, 5); m.unsqueeze(x, 4); m.squeeze(x, (0, 0)); m.flatten(c, 2, 1); m.flatten(c, 5)
m.unflatten(x, 1, (2, 2)); m.unflatten(x, 1, ()); m.narrow(x, 1, 2, 3); m.narrow(x, 5, 0, 1); m.narrow(s, 0, 0, 1)
m.select(x, 0, 2); m.select(s, 0, 0); m.unbind(s); m.unbind(x, 3); m.diagonal(v); m.diagonal(c, 0, 1, 1); m.diag(c)
m.diag(s); m.diag_embed(x, 0, 1, 1); m.trace(v); m.trace(c); m.hstack(()); m.vstack([]); m.cat([]); m.cat([x, c])
m.cat([x, v]); m.stack([]); m.stack([v, x]); m.hstack(3); m.cat(x, x); m.column_stack((v, m.ones(2, **k)))
m.block_diag(c); m.block_diag(3); m.meshgrid(x, v); m.meshgrid(v, i[0]); m.meshgrid(v, w, indexing='ab')
m.atleast_1d(3); m.broadcast_tensors(x, m.ones(4, **k)); m.meshgrid(); m.diff(s); m.diff(x, -1); m.diff(x, 1, 5)
m.diff(x, prepend=v); m.trapezoid(x, m.ones(5, **k)); m.trapezoid(b); m.trapezoid(x, dim=4); m.matmul(x, x)
m.matmul(x, s); m.matmul(x, i.T); m.mm(x, v); m.mm(x, x); m.mv(x, x); m.mv(x, x[0, :2]); m.dot(x, v)
m.dot(v, x[0, :2]); m.bmm(x, x); m.bmm(c, c); m.outer(x, v); m.vdot(x, v); m.inner(x, m.ones(2, **k))
m.addmm(x, x, x); m.addmm(c, x, q3); m.addmv(v, x, v); m.addr(v, x, v); m.addmm(x, x, q3, beta='a'); m.addmm(x, x)
m.matmul(x, 3); m.tensordot(x, x, 3); m.tensordot(x, q3, 2); m.tensordot(x, x, -1); m.tensordot(x, x, ([0], [0, 1]))
m.tensordot(x, q3, ([0], [0])); m.tensordot(x, x, ([0, 0], [0, 0])); m.tensordot(x, i.T, 1); m.kron(x, 3)
m.chain_matmul(v); m.einsum('ij', v); m.einsum('ij,jk', x); m.einsum('ij->k', x); m.einsum('ij->ii', x)
m.einsum('i1', x); m.einsum('ij,jk', x, x); m.einsum('ii', x); m.einsum('ij'); m.einsum('i.j', x)
m.einsum('......', x); m.cdist(v, v); m.cdist(x, x[:, :2]); m.cdist(x, x, -1); m.cdist(i, i); m.cdist(x, x, 2, 'a')
m.renorm(v, 2, 0, 1); m.renorm(x, -1, 0, 1); m.renorm(x, 2, 5, 1); m.renorm(x, 2, 0, -1); m.cov(c); m.cov(b)
m.cov(x, fweights=v); m.cov(x, fweights=m.tensor([1, -2, 3], **k)); m.cov(x, aweights=m.ones(2, **k)); m.corrcoef(c)
m.is_nonzero(x); m.is_nonzero(e); m.equal(x, 3); m.allclose(x, i); m.numel(3); x.new_zeros('a'); x.new_full((2,), 'a')
x.new_full((2,)); x.to('nowhere'); c.sum_to_size(3, 3); m.where(b, x); m.where(3); m.as_strided(x, (2,), (1, 1))
m.as_strided(x, (9,), (1,)); x.unfold(1, 5, 1); x.unfold(0, 1, 0); x.apply_(3); x.map_(3, 3); m.can_cast(m.float32)
m.can_cast(3, m.int8); m.result_type(x); m.promote_types(m.int8, 3)
"""


def cases(text: str) -> list[str]:
    return [c.strip() for line in text.strip().splitlines() for c in line.split(";") if c.strip()]


def names(m: Any, device: str) -> dict[str, Any]:
    k = {} if m is torch else {"device": device}
    rng = np.random.default_rng(3)

    def make(values: Any) -> Any:
        return m.tensor(np.asarray(values, dtype=np.float32).tolist(), **k)

    x = make(rng.standard_normal((2, 3)))
    return {
        "m": m,
        "k": k,
        "x": x,
        "v": make(rng.standard_normal(3)),
        "w": make(rng.standard_normal(3)),
        "c": make(rng.standard_normal((2, 3, 4))),
        "q": make(rng.standard_normal((2, 2))),
        "q3": make(rng.standard_normal((3, 3))),
        "i": m.tensor([[1, 0, 3], [-2, 5, 0]], **k),
        "b": m.tensor([[True, False, True], [False, False, True]], **k),
        "s": m.tensor(2.5, **k),
        "e": m.zeros((0, 3), **k),
        "h": m.tensor([[1.0, INF, NAN], [-INF, 2.0, 3.0]], **k),
        "INF": INF,
        "NAN": NAN,
    }


def parts(value: Any) -> list[Any]:
    return [p for v in value for p in parts(v)] if isinstance(value, (tuple, list)) else [value]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("case", cases(VALUES))
def test_values(case: str, device: str) -> None:
    if device == "gpu" and ("float64" in case or "'cpu'" in case or "get_device" in case):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = parts(eval(case, names(torch, device)))
        got = parts(eval(case, names(lucid, device)))
    assert len(got) == len(wanted), case
    for w, g in zip(wanted, got, strict=True):
        if not isinstance(w, torch.Tensor):
            assert g == w, case
            continue
        assert str(g.dtype).split(".")[-1] == str(w.dtype).split(".")[-1], case
        assert tuple(g.shape) == tuple(w.shape), case
        tolerance = within("float16" if w.dtype == torch.float16 else "near zero")
        np.testing.assert_allclose(to_numpy(g), to_numpy(w), **tolerance, err_msg=case)


KINDS = (TypeError, IndexError, ValueError, NotImplementedError, RuntimeError)


def kind(error: BaseException) -> type[BaseException]:
    return next(k for k in KINDS if isinstance(error, k))


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("case", cases(ERRORS))
def test_errors(case: str, device: str) -> None:
    with pytest.raises(KINDS) as wanted, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eval(case, names(torch, device))
    with pytest.raises(KINDS) as got:
        result = eval(case, names(lucid, device))
        lucid.eval(*[r for r in parts(result) if isinstance(r, lucid.Tensor)])
    # A DtypeMismatch is of both kinds that PyTorch raises for dtypes.
    same = kind(got.value) is kind(wanted.value)
    both = isinstance(got.value, lucid.DtypeMismatch) and isinstance(got.value, kind(wanted.value))
    assert same or both, f"{case}: {got.value!r} for {wanted.value!r}"


def test_named_tuples() -> None:
    x = [[1.0, 3.0], [2.0, 0.0]]
    for name, call in (
        ("max", lambda m, t: m.max(t, 1)),
        ("min", lambda m, t: m.min(t, 1)),
        ("sort", lambda m, t: m.sort(t)),
        ("topk", lambda m, t: m.topk(t, 1)),
        ("aminmax", lambda m, t: m.aminmax(t, dim=0)),
        ("cummax", lambda m, t: m.cummax(t, 0)),
    ):
        ours, theirs = call(lucid, lucid.tensor(x)), call(torch, torch.tensor(x))
        fields = [
            f for f in dir(theirs) if not f.startswith("_") and f not in ("count", "index") and not f.startswith("n_")
        ]
        assert sorted(ours._fields) == sorted(fields), name
        assert repr(ours) == repr(theirs).replace("torch.", "lucid."), name
        assert type(ours).__name__ == name
