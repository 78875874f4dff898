"""The layout of results: strides, and whether they are views, against PyTorch on the op table's samples.

Strides of dimensions of size 1 are not compared, nor those of empty results: no element is addressed by them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.limitations import RESULT_STRIDES
from tests.python.parity.ops.test_table_parity import lucid_tensor, named, torch_function, torch_tensor
from tests.python.samples import Data, Sample, layouts, lucid_function, results, rows, samples
from tests.python.tolerances import within

ROWS = [r for r in rows() if r["torch"] != "-"]
DEVICES = ("cpu", "gpu")


def channels_last(d: Data) -> Data:
    """Numbers that are dressed with their second dimension innermost."""
    return Data(np.ascontiguousarray(np.moveaxis(d.values, 1, -1)), d.varies, d.gradient, d.symmetric, d.distinct)


def made(
    m: Any, row: Any, sample: Sample, layout: str, device: str, leaf: Callable[[Data, Any], bool] | None = None
) -> tuple[list[Any], list[Any]]:
    """An op's arguments that are tensors, or those that are to be leaves, and its results that are tensors."""
    given: list[Any] = []

    def tensor(d: Data) -> Any:
        last = layout == "channels last" and d.values.ndim > 2
        plain = "contiguous" if layout == "channels last" else layout
        shown = channels_last(d) if last else d
        dtype = "float32" if "float32" in row["dtypes"] else row["dtypes"][0]
        t = torch_tensor(shown, dtype, plain, False) if m is torch else lucid_tensor(shown, dtype, plain, False, device)
        t = t.movedim(-1, 1) if last else t
        if leaf is not None and not leaf(d, t):
            return t
        given.append(t if leaf is None else t.detach().requires_grad_())
        return given[-1]

    args, kwargs = sample.map(tensor)
    function = torch_function(row) if m is torch else lucid_function(row)
    value = function(*[named(a, m) for a in args], **{k: named(v, m) for k, v in kwargs.items()})
    return given, [r for r in results(value) if isinstance(r, m.Tensor) and r.layout == m.strided]


Made = tuple[list[Any], list[Any]]


def both(
    row: Any, device: str, of: Sequence[str] | None = None, leaf: Callable[[Data, Any], bool] | None = None
) -> Iterator[tuple[Sample, str, Made, Made]]:
    """What PyTorch and Lucid make of each sample in each layout that PyTorch takes."""
    for sample in samples(row, device):
        for layout in (*layouts(row), "channels last") if of is None else of:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    theirs = made(torch, row, sample, layout, "cpu", leaf)
                except RuntimeError:
                    continue
                yield sample, layout, theirs, made(lucid, row, sample, layout, device, leaf)


def steps(t: Any) -> list[int]:
    return [s for s, n in zip(t.stride(), t.shape, strict=True) if n != 1] if t.numel() else []


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("row", ROWS, ids=lambda r: r["name"])
def test_strides(row: Any, device: str) -> None:
    differ = []
    for sample, layout, (_, wanted), (_, got) in both(row, device):
        for theirs, ours in zip(wanted, got, strict=True):
            if tuple(theirs.shape) == tuple(ours.shape) and steps(theirs) != steps(ours):
                differ.append((sample.text, layout, tuple(theirs.shape), theirs.stride(), ours.stride()))
    assert bool(differ) == (row["name"] in RESULT_STRIDES), differ


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r["name"])
def test_only_views_are_views(row: Any) -> None:
    # A view of what nobody has cannot be detached in place, nor be written to behind `no_grad`.
    views, aliases = [], []
    for sample, _, (inputs, wanted), (given, got) in both(row, "cpu", ["contiguous"]):
        places = [t.untyped_storage().data_ptr() for t in inputs]
        for theirs, ours in zip(wanted, got, strict=True):
            if ours._is_view() and not theirs._is_view():
                views.append(sample.text)
            shown = [t for t in given if t._shares_storage(ours)] if ours.numel() else []
            if shown and theirs.untyped_storage().data_ptr() not in places:
                aliases.append(sample.text)
    assert not views
    assert not aliases


#: Operands of different strides: which of them decides the strides of the result.
MEETINGS = {
    "row-major and a transpose": lambda m: m.ones(3, 4) + m.ones(4, 3).t(),
    "a transpose and row-major": lambda m: m.ones(4, 3).t() + m.ones(3, 4),
    "a transpose and a row": lambda m: m.ones(4, 3).t() * m.ones(4),
    "a row and a transpose": lambda m: m.ones(4) * m.ones(4, 3).t(),
    "a transpose and a column": lambda m: m.ones(4, 3).t() < m.ones(3, 1),
    "a column and a row": lambda m: m.ones(3, 1) - m.ones(4),
    "a row as a column and a transpose": lambda m: m.ones(1, 3).t() + m.ones(4, 3).t(),
    "channels last and channels": lambda m: last(m) + m.ones(3, 1, 1),
    "channels last and row-major": lambda m: last(m) + m.ones(2, 3, 4, 5),
    "row-major and channels last": lambda m: m.ones(2, 3, 4, 5) + last(m),
    "channels last and a picture": lambda m: m.maximum(last(m), m.ones(4, 5)),
    "expanded and channels last": lambda m: m.ones(2, 1, 4, 5).expand(2, 3, 4, 5) == last(m),
    "expanded and a permutation": lambda m: m.ones(1, 4).expand(3, 4) + m.ones(4, 3).t(),
    "a number and a transpose": lambda m: m.tensor(2.0) / m.ones(4, 3).t(),
    "a part and a part of another order": lambda m: m.ones(5, 6)[1:4, ::2] + m.ones(4, 7).t()[2:5, 1:],
    "a part": lambda m: m.ones(5, 6)[1:4, ::2].exp(),
    "a part of a transpose": lambda m: m.ones(5, 6).t()[1:4, ::2].exp(),
    "of other dtypes": lambda m: m.ones(4, 3).t().int() + m.ones(3, 4),
    "bool of other dtypes": lambda m: m.ones(4, 3).t().int() >= m.ones(3, 4),
    "where a transpose is": lambda m: m.where(m.ones(4, 3).t() > 0, m.ones(3, 4), m.zeros(3, 4)),
    "where, transposes": lambda m: m.where(m.ones(3, 4) > 0, m.ones(4, 3).t(), 2.0),
    "where, expanded": lambda m: m.where(m.tensor([True, False, True, True]), m.ones(4, 3).t(), m.ones(3, 4)),
    "masked_fill": lambda m: m.ones(4, 3).t().masked_fill(m.ones(4, 3).t() > 0, 2.0),
    "three operands": lambda m: m.addcmul(m.ones(4), m.ones(4, 3).t(), m.ones(3, 4)),
    "lerp": lambda m: m.lerp(m.ones(4, 3).t(), m.ones(3, 4), m.ones(4)),
    "clamp": lambda m: m.clamp(m.ones(4, 3).t(), m.zeros(4), m.ones(3, 1)),
    "leaky_relu": lambda m: m.nn.functional.leaky_relu(last(m)),
    "hardtanh": lambda m: m.nn.functional.hardtanh(last(m)),
    "batch_norm of rows": lambda m: m.nn.functional.batch_norm(m.ones(3, 4).t(), None, None, training=True),
    "batch_norm in evaluation": lambda m: m.nn.functional.batch_norm(last(m), m.zeros(3), m.ones(3)),
    "batch_norm of sequences": lambda m: m.nn.functional.batch_norm(m.ones(2, 5, 3).mT, m.zeros(3), m.ones(3)),
    "batch_norm in training": lambda m: m.nn.functional.batch_norm(last(m), None, None, training=True),
    "conv2d": lambda m: m.nn.functional.conv2d(last(m), m.ones(4, 3, 2, 2)),
    "conv2d by a weight": lambda m: m.nn.functional.conv2d(m.ones(2, 3, 4, 5), last(m)[:, :, :2, :2]),
    "conv_transpose2d": lambda m: m.nn.functional.conv_transpose2d(last(m), m.ones(3, 4, 2, 2), stride=2),
    "a chain of layers": lambda m: m.nn.functional.max_pool2d(
        m.nn.functional.group_norm(m.nn.functional.conv2d(last(m), m.ones(4, 3, 2, 2)).relu(), 2), 2
    ),
    "adaptive_avg_pool2d": lambda m: m.nn.functional.adaptive_avg_pool2d(last(m), (3, 2)),
    "adaptive_max_pool2d": lambda m: m.nn.functional.adaptive_max_pool2d(last(m), (3, 2)),
    "interpolate": lambda m: m.nn.functional.interpolate(last(m), scale_factor=2),
    "interpolate, bilinear": lambda m: m.nn.functional.interpolate(last(m), size=(3, 3), mode="bilinear"),
    "side by side": lambda m: m.cat([last(m), last(m)], 1),
    "below each other": lambda m: m.cat([last(m), last(m)[:1]]),
    "side by side, one row-major": lambda m: m.cat([last(m), m.ones(2, 3, 4, 5)], 1),
    "side by side, transposes": lambda m: m.cat([m.ones(4, 3).t(), m.ones(4, 3).t()]),
    "sorted": lambda m: (last(m) * m.arange(5.0)).sort(-1, descending=True)[0],
    "flipped": lambda m: (last(m) * m.arange(5.0)).flip(3, 1),
    "rms_norm": lambda m: m.nn.functional.rms_norm(m.ones(4, 3).t(), (4,)),
    "layer_norm": lambda m: m.nn.functional.layer_norm(m.ones(4, 3).t(), (4,)),
    "tril": lambda m: m.ones(4, 3).t().tril(),
    "pixels into space": lambda m: m.nn.functional.pixel_shuffle(wide(m), 2),
    "pixels out of space": lambda m: m.nn.functional.pixel_unshuffle(wide(m), 2),
    "channels that change groups": lambda m: m.nn.functional.channel_shuffle(wide(m), 2),
    "padded": lambda m: m.nn.functional.pad(last(m), (1, 2, 1, 0), value=3.0),
    "padded and cut": lambda m: m.nn.functional.pad(last(m), (1, -2, 1, 0)),
    "padded in all dimensions": lambda m: m.nn.functional.pad(last(m), (1, 2, 1, 0, 1, 1, 0, 1)),
    "padded by its mirror image": lambda m: m.nn.functional.pad(last(m), (1, 2, 1, 0), mode="reflect"),
    "padded by its edge": lambda m: m.nn.functional.pad(last(m), (1, 2, 1, 0), mode="replicate"),
    "padded around": lambda m: m.nn.functional.pad(last(m), (1, 2, 1, 0), mode="circular"),
    "stacked": lambda m: m.stack([last(m), last(m)]),
    "stacked behind the batch": lambda m: m.stack([last(m), last(m)], 1),
    "stacked behind all": lambda m: m.stack([last(m), last(m)], -1),
    "stacked transposes": lambda m: m.stack([m.ones(4, 3).t(), m.ones(4, 3).t()]),
    "at indices": lambda m: counted(m)[m.tensor([1, 0, 1])],
    "at indices of channels": lambda m: counted(m)[:, m.tensor([1, 0])],
    "at indices of rows": lambda m: counted(m)[:, :, m.tensor([1, -1])],
    "at indices of columns": lambda m: counted(m)[..., m.tensor([1, 0, 4])],
    "at indices apart": lambda m: counted(m)[m.tensor([1, 0]), :, m.tensor([2, 3])],
    "at indices side by side": lambda m: counted(m)[:, m.tensor([1, 0]), m.tensor([2, 3])],
    "at a table of indices": lambda m: counted(m)[m.tensor([[0, 1], [1, 0]])],
    "at a table of indices behind the batch": lambda m: counted(m)[:, m.tensor([[0, 1], [1, 0]])],
    "at a transposed table": lambda m: m.arange(5.0)[m.tensor([[0, 1, 2], [4, 3, 2]]).t()],
    "at a transposed table and a row": lambda m: m.ones(5, 3)[m.tensor([[0, 1], [4, 3]]).t(), m.tensor([1, 2])],
    "where a mask is": lambda m: counted(m)[m.tensor([False, True])],
    "index_select": lambda m: counted(m).index_select(1, m.tensor([1, 0])),
    "index_fill": lambda m: counted(m).index_fill(1, m.tensor([1]), 7.0),
    "index_put": lambda m: counted(m).index_put((m.tensor([1]),), m.tensor(7.0)),
    "max_unpool2d": lambda m: m.nn.functional.max_unpool2d(
        *m.nn.functional.max_pool2d(wide(m), 2, return_indices=True), 2
    ),
    "complex of transposes": lambda m: m.complex(m.ones(4, 3).t(), m.zeros(4, 3).t()).real,
    "complex of a transpose and a row": lambda m: m.complex(m.ones(4), m.zeros(4, 3).t()).imag,
    "polar of transposes": lambda m: m.polar(m.ones(4, 3).t(), m.zeros(4, 3).t()).real,
    "filled": lambda m: m.fill(m.ones(4, 3).t(), 2.0),
    "a diagonal put": lambda m: m.diagonal_scatter(m.ones(4, 4).t(), m.zeros(4)),
    "differences of order 0": lambda m: m.diff(m.ones(4, 3).t(), 0),
    "permuted, copied": lambda m: m.permute_copy(m.ones(2, 3, 4), (2, 0, 1)),
    "transposed, copied": lambda m: m.transpose_copy(m.ones(2, 3), 0, 1),
    "cut, copied": lambda m: m.unbind_copy(counted(m), 1)[1],
    "windows, copied": lambda m: m.unfold_copy(counted(m), 2, 2, 1),
    "expanded, copied": lambda m: m.expand_copy(m.ones(4, 1).t(), (3, 4)),
    "instance_norm": lambda m: m.nn.functional.instance_norm(counted(m)),
    "interpolate, smoothed": lambda m: m.nn.functional.interpolate(
        counted(m), size=(3, 3), mode="bilinear", antialias=True
    ),
    "interpolate row-major, smoothed": lambda m: m.nn.functional.interpolate(
        counted(m).contiguous(), size=(3, 3), mode="bicubic", antialias=True
    ),
    "interpolate bytes": lambda m: m.nn.functional.interpolate(counted(m).to(m.uint8), size=(3, 3), mode="bilinear"),
    "adaptive_avg_pool3d": lambda m: m.nn.functional.adaptive_avg_pool3d(volumes(m), (2, 3, 3)),
    "adaptive_max_pool3d": lambda m: m.nn.functional.adaptive_max_pool3d(volumes(m), (2, 3, 3)),
    "max_unpool3d": lambda m: m.nn.functional.max_unpool3d(
        *m.nn.functional.max_pool3d(volumes(m), 2, return_indices=True), 2
    ),
    "padded and cut by its edge": lambda m: m.nn.functional.pad(counted(m), (3, -2, -1, -1), mode="replicate"),
    "grid_sample": lambda m: m.nn.functional.grid_sample(counted(m), m.zeros(2, 3, 2, 2), align_corners=False),
    "unfold": lambda m: m.nn.functional.unfold(counted(m), 2),
    "one pixel into space": lambda m: m.nn.functional.pixel_shuffle(counted(m)[..., ::2], 1),
    "native_group_norm": lambda m: m.native_group_norm(counted(m), None, None, 2, 3, 20, 3, 1e-5)[0],
    "out of nothing": lambda m: m.exp(m.ones(3, 2).t(), out=m.empty(0)),
    "out of nothing, two": lambda m: m.add(m.ones(3, 2).t(), m.ones(2, 3), out=m.empty(0)),
    "out of its own order": lambda m: m.exp(m.ones(2, 3), out=m.empty(3, 2).t()),
    "to": lambda m: last(m).to(m.int32).to(m.float32),
    "to, contiguous": lambda m: m.ones(4, 3).t().to(m.int32, memory_format=m.contiguous_format),
    "to, channels last": lambda m: m.ones(2, 3, 4, 5).mT.to(m.int32, memory_format=m.channels_last),
}


def last(m: Any) -> Any:
    return m.ones(2, 3, 4, 5).contiguous(memory_format=m.channels_last)


def wide(m: Any) -> Any:
    return m.arange(256.0).reshape(2, 8, 4, 4).contiguous(memory_format=m.channels_last)


def volumes(m: Any) -> Any:
    return m.arange(256.0).reshape(1, 4, 4, 4, 4).contiguous(memory_format=m.channels_last_3d)


def counted(m: Any) -> Any:
    return m.arange(120.0).reshape(2, 3, 4, 5).contiguous(memory_format=m.channels_last)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", MEETINGS)
def test_where_tensors_meet(name: str, device: str) -> None:
    lucid.set_default_device(device)
    try:
        ours = MEETINGS[name](lucid)
    finally:
        lucid.set_default_device("cpu")
    theirs = MEETINGS[name](torch)
    assert ours.stride() == theirs.stride()
    # On a GPU sums have an order of their own.
    torch.testing.assert_close(torch.tensor(ours.tolist()).to(theirs.dtype), theirs)


#: Results that are made by way of others, and of which PyTorch makes new tensors.
NEW: dict[str, Callable[[Any], Any]] = {
    "pixel_shuffle": lambda m: m.nn.functional.pixel_shuffle(squares(m), 2),
    "pixel_shuffle by 1": lambda m: m.nn.functional.pixel_shuffle(squares(m), 1),
    "pixel_unshuffle": lambda m: m.nn.functional.pixel_unshuffle(squares(m), 2),
    "pixel_unshuffle by 1": lambda m: m.nn.functional.pixel_unshuffle(squares(m), 1),
    "channel_shuffle": lambda m: m.nn.functional.channel_shuffle(squares(m), 2),
    "channel_shuffle of one group": lambda m: m.nn.functional.channel_shuffle(squares(m), 1),
    "max_unpool2d": lambda m: m.nn.functional.max_unpool2d(
        *m.nn.functional.max_pool2d(squares(m), 2, return_indices=True), 2
    ),
    "max_unpool3d": lambda m: m.nn.functional.max_unpool3d(
        *m.nn.functional.max_pool3d(squares(m)[None], 2, return_indices=True), 2
    ),
    "unfold": lambda m: m.nn.functional.unfold(squares(m), 2),
    "unfold by 1": lambda m: m.nn.functional.unfold(squares(m), 1),
    "grid_sample": lambda m: m.nn.functional.grid_sample(squares(m), m.zeros(2, 3, 3, 2), align_corners=False),
    "grid_sample nearest": lambda m: m.nn.functional.grid_sample(
        squares(m), m.zeros(2, 3, 3, 2), "nearest", align_corners=False
    ),
    "interpolate": lambda m: m.nn.functional.interpolate(squares(m), scale_factor=2),
    "interpolate to the same": lambda m: m.nn.functional.interpolate(squares(m), scale_factor=1),
    "interpolate, smoothed": lambda m: m.nn.functional.interpolate(squares(m), (2, 2), mode="bilinear", antialias=True),
    "adaptive_avg_pool2d": lambda m: m.nn.functional.adaptive_avg_pool2d(squares(m), 3),
    "adaptive_avg_pool2d to one": lambda m: m.nn.functional.adaptive_avg_pool2d(squares(m), 1),
    "adaptive_avg_pool2d to the same": lambda m: m.nn.functional.adaptive_avg_pool2d(squares(m), 4),
    "adaptive_max_pool2d": lambda m: m.nn.functional.adaptive_max_pool2d(squares(m), 3),
    "adaptive_max_pool2d to the same": lambda m: m.nn.functional.adaptive_max_pool2d(squares(m), 4),
    "places of adaptive_max_pool2d": lambda m: m.nn.functional.adaptive_max_pool2d(squares(m), 3, True)[1],
    "adaptive_max_pool3d": lambda m: m.nn.functional.adaptive_max_pool3d(squares(m), 3, True)[0],
    "fractional_max_pool2d": lambda m: m.nn.functional.fractional_max_pool2d(squares(m), 3, 2),
    "fractional_max_pool3d": lambda m: m.nn.functional.fractional_max_pool3d(squares(m), 2, 2),
    "cut by its edge": lambda m: m.nn.functional.pad(squares(m), (-1, 0, 0, -1), mode="replicate"),
    "padded by nothing": lambda m: m.nn.functional.pad(squares(m), (0, 0, 0, 0), mode="reflect"),
    "gather nothing": lambda m: m.gather(m.ones(5), 0, m.zeros(0, 2, dtype=m.int64)),
    "a number summed to its size": lambda m: m.tensor(2.0).sum_to_size(()),
    "multinomial": lambda m: m.multinomial(m.ones(3, 10), 2),
    "group_norm": lambda m: m.nn.functional.group_norm(squares(m), 2),
    "fold": lambda m: m.nn.functional.fold(m.ones(2, 12, 4), 3, 2),
    "fold of padded images": lambda m: m.nn.functional.fold(m.ones(2, 12, 16), 3, 2, padding=1),
    "affine_grid": lambda m: m.nn.functional.affine_grid(m.ones(2, 2, 3), (2, 3, 4, 4), align_corners=False),
    "conv_tbc": lambda m: m.conv_tbc(m.ones(5, 2, 3), m.ones(2, 3, 4), m.zeros(4)),
    "places of max_pool2d of one image": lambda m: m.nn.functional.max_pool2d(squares(m)[0], 2, return_indices=True)[1],
    "outputs of a recurrent layer": lambda m: m.nn.GRU(3, 4)(m.ones(5, 2, 3))[0],
    "padded sequences": lambda m: m.nn.utils.rnn.pad_packed_sequence(
        m.nn.utils.rnn.pack_padded_sequence(m.ones(4, 2, 3), [4, 2])
    )[0],
    "native_group_norm": lambda m: m.native_group_norm(squares(m), None, None, 2, 4, 16, 2, 1e-5)[0],
}


def squares(m: Any) -> Any:
    return m.arange(128.0).reshape(2, 4, 4, 4).clone()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("name", NEW)
def test_new_results_are_no_views(name: str, recorded: bool, device: str) -> None:
    def run(m: Any) -> list[Any]:
        with m.set_grad_enabled(recorded):
            y = NEW[name](m)
        size = y.untyped_storage().nbytes() == y.nbytes
        with m.no_grad():
            y.mul_(2)
        y.detach_()
        return [y._is_view(), y._base is None, y.storage_offset(), y.stride(), size]

    lucid.set_default_device(device)
    try:
        ours = run(lucid)
    finally:
        lucid.set_default_device("cpu")
    # PyTorch's `fold` keeps room that its result has no use for.
    assert ours[:3] == [False, True, 0] and ours[4]
    assert ours[:4] == run(torch)[:4]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("need_weights", [False, True])
def test_what_attention_gives_can_be_viewed_as_rows(need_weights: bool, device: str) -> None:
    # PyTorch's cannot with `batch_first`.
    for batch_first in (False, True):
        layer = lucid.nn.MultiheadAttention(4, 2, batch_first=batch_first, device=device)
        theirs = torch.nn.MultiheadAttention(4, 2, batch_first=batch_first)
        theirs.load_state_dict({k: torch.tensor(v.tolist()) for k, v in layer.state_dict().items()})
        x = lucid.arange(40.0, device=device).reshape(5, 2, 4).cos()
        t = torch.arange(40.0).reshape(5, 2, 4).cos()
        ours = layer(x, x, x, need_weights=need_weights)[0]
        want = theirs(t, t, t, need_weights=need_weights)[0]
        assert ours.view(-1, 4).shape == (10, 4)
        assert batch_first or ours.stride() == want.stride()
        torch.testing.assert_close(torch.tensor(ours.tolist()), want, **within("deep program"))


@pytest.mark.parametrize("device", DEVICES)
def test_new_results_share_no_memory(device: str) -> None:
    lucid.set_default_device(device)
    try:
        for made in (
            lambda x: lucid.nn.functional.pixel_shuffle(x, 1),
            lambda x: lucid.nn.functional.unfold(x, 1),
            lambda x: lucid.nn.functional.channel_shuffle(x, 1),
            lambda x: lucid.nn.functional.adaptive_max_pool2d(x, 4, True)[0],
            lambda x: lucid.nn.functional.pad(x, (-1, 0, 0, -1), mode="replicate"),
        ):
            x = squares(lucid)
            made(x).zero_()
            assert x.equal(squares(lucid))
    finally:
        lucid.set_default_device("cpu")


def made_of_nothing(m: Any) -> list[Any]:
    """Results that are made by way of others: what can be done with them."""
    with m.no_grad():
        made = [m.dot(m.ones(3), m.ones(3)), m.ones(3, 3).logsumexp(1), m.eye(3).det(), m.ones(2, 3).mv(m.ones(3))]
    factor = m.tensor(2.0, requires_grad=True)
    seen: list[Any] = []
    for t in made:
        t.mul_(factor)
        seen += [t.requires_grad, t._base is None, t.detach_().tolist()]
    x = m.ones(3, 3, requires_grad=True)
    y = x.median(1)[0]
    y.mul_(3)
    y.sum().backward()
    edges = m.tensor([0.0, 1.0, 2.0])
    m.histogram(m.ones(3), edges)[1].fill_(7)
    return [*seen, x.grad.tolist(), edges.tolist()]


@pytest.mark.parametrize("device", DEVICES)
def test_results_are_no_views_of_what_nobody_has(device: str) -> None:
    lucid.set_default_device(device)
    try:
        assert made_of_nothing(lucid) == made_of_nothing(torch)
    finally:
        lucid.set_default_device("cpu")


def test_what_is_given_back_is_the_same_object() -> None:
    def run(m: Any) -> list[bool]:
        x, F = m.ones(2, 2), m.nn.functional
        given = [F.dropout(x, 0.5, False), m.positive(x), m.real(x), m.conj(x), m.nn.Dropout().eval()(x)]
        seen = [t is x for t in (*given, F.dropout(x, 0.5, True), x.expand(2, 2), x.contiguous(), m.neg(x))]
        v, k = m.ones(3), m.ones(1, 1, 2, 2)
        several = [*m.atleast_1d(x, v), *m.atleast_2d([x, v]), *m.broadcast_tensors(x, m.ones(2), x)]
        seen += [t is x for t in (*several, m.atleast_1d(x), m.atleast_2d(x), m.atleast_3d(x))]
        seen += [m.atleast_1d(v) is v, m.atleast_2d(v) is v, m.atleast_3d(k) is k, m.cartesian_prod(v) is v]
        same = (F.interpolate(k, scale_factor=1), F.interpolate(k, size=(2, 2), mode="bilinear"), F.pad(k, (0, 0)))
        return [*seen, *(t is k for t in same)]

    assert run(lucid) == run(torch)


#: Ops on images with the channels innermost, whose gradients have PyTorch's strides.
OF_IMAGES = {
    "conv2d": lambda F, x, m: F.conv2d(x, m.ones(4, 3, 2, 2)),
    "conv2d, groups": lambda F, x, m: F.conv2d(x, m.ones(3, 1, 2, 2), groups=3),
    "conv_transpose2d": lambda F, x, m: F.conv_transpose2d(x, m.ones(3, 4, 2, 2), stride=2),
    "max_pool2d": lambda F, x, m: F.max_pool2d(x, 2),
    "avg_pool2d": lambda F, x, m: F.avg_pool2d(x, 2),
    "adaptive_avg_pool2d": lambda F, x, m: F.adaptive_avg_pool2d(x, (2, 5)),
    "adaptive_max_pool2d": lambda F, x, m: F.adaptive_max_pool2d(x, (2, 5)),
    "batch_norm": lambda F, x, m: F.batch_norm(x, None, None, m.ones(3), m.ones(3), training=True),
    "max_unpool2d": lambda F, x, m: F.max_unpool2d(*F.max_pool2d(x[..., :4], 2, return_indices=True), 2),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", OF_IMAGES)
def test_gradients_of_images(name: str, device: str) -> None:
    def run(m: Any) -> list[Any]:
        x = counted(m).requires_grad_()
        y = OF_IMAGES[name](m.nn.functional, x, m)
        weights = [m.ones_like(y), m.ones(tuple(y.shape)), m.ones(()).expand(tuple(y.shape))]
        # On the gpu device a norm in training is made of ops on elements, whose gradients have the layout of theirs.
        weights = weights[:1] if name == "batch_norm" and device == "gpu" else weights
        grads = [m.autograd.grad(y, x, g, retain_graph=True)[0] for g in weights]
        return [(g.stride(), np.asarray(g.tolist()).round(4).tolist()) for g in grads]

    lucid.set_default_device(device)
    try:
        ours = run(lucid)
    finally:
        lucid.set_default_device("cpu")
    theirs = run(torch)
    assert [stride for stride, _ in ours] == [stride for stride, _ in theirs]
    for (_, a), (_, b) in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, **within("second derivatives"))


#: Leaves, and functions of them; the gradient of a leaf has the leaf's strides, whatever it was made of.
LEAVES = {
    "channels last": counted,
    "transposed": lambda m: m.arange(12.0).reshape(4, 3).t(),
    "permuted": lambda m: m.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1),
    "row-major": lambda m: m.arange(12.0).reshape(4, 3),
    "with gaps": lambda m: m.arange(24.0).reshape(4, 6)[:, ::2],
    "expanded": lambda m: m.arange(4.0).expand(3, 4),
    "of one row": lambda m: m.arange(4.0).reshape(4, 1).t(),
    "empty": lambda m: m.ones(0, 3).t(),
    "number": lambda m: m.tensor(2.0),
}
FUNCTIONS = {
    "sum": lambda t, m: t.sum(),
    "mean": lambda t, m: t.mean(),
    "product": lambda t, m: (t * t).sum(),
    "flattened": lambda t, m: (t.reshape(-1) * m.arange(float(t.numel()))).sum(),
    "row-major": lambda t, m: t.contiguous().exp().sum(),
    "twice": lambda t, m: (t * 2).sum() + t.flatten().cos().sum(),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("leaf", LEAVES)
def test_gradients_lie_as_their_leaves(leaf: str, function: str, create_graph: bool, device: str) -> None:
    def run(m: Any) -> list[Any]:
        x = LEAVES[leaf](m).detach().requires_grad_()
        seen = []
        for _ in range(2):
            FUNCTIONS[function](x, m).backward(create_graph=create_graph)
            seen += [steps(x.grad), x.grad.requires_grad, x.grad._is_view(), x.grad.detach().tolist()]
            if create_graph and function == "product":
                seen.append(m.autograd.grad(x.grad.sum(), x)[0].tolist())
            if create_graph:
                x.grad = None
        return seen

    lucid.set_default_device(device)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours = run(lucid)
    finally:
        lucid.set_default_device("cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = run(torch)
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(a, (bool, list)) and a == b:
            continue
        np.testing.assert_allclose(a, b, **within("near zero"))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"proj_size": 2}], ids=str)
@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_recurrent_layers(name: str, options: dict[str, Any], batch_first: bool, device: str) -> None:
    if "proj_size" in options and (name != "LSTM" or batch_first):
        # PyTorch has another kernel for these, which turns the result in place.
        return

    def seen(m: Any, **where: str) -> list[Any]:
        layer = getattr(m.nn, name)(3, 4, batch_first=batch_first, **options).to(**where)
        found = []
        for shape in ((2, 5, 3), (5, 3)):
            for grad in (True, False):
                with m.set_grad_enabled(grad), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    out, last = layer(m.ones(shape, **where))
                each = (out, *last) if isinstance(last, tuple) else (out, last)
                found += [(tuple(t.shape), t.stride(), t._is_view(), t.storage_offset()) for t in each]
        return found

    assert seen(lucid, device=device) == seen(torch, device="cpu")
