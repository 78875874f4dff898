"""Writing at indices and searching, where the op table's samples cannot say it: in place, through views, errors."""

from __future__ import annotations

from typing import Any

import lucid
import pytest
import torch

DEVICES = ("cpu", "gpu")


def both(run: Any, device: str) -> tuple[Any, Any]:
    """What a function of the framework gives in both."""
    return run(lucid, {"device": device}), run(torch, {})


@pytest.mark.parametrize("device", DEVICES)
def test_writes_at_indices_go_through_views(device: str) -> None:
    def run(m: Any, on: Any) -> Any:
        x = m.arange(24.0, **on).reshape(4, 6)
        view = x.t()[1:5]
        view[m.tensor([0, 2], **on)] = m.tensor([-1.0, -2.0, -3.0, -4.0], **on)
        view[:, m.tensor([3], **on)] = 7
        x.view(-1).put_(m.tensor([0, -1], **on), m.tensor([50.0, 60.0], **on))
        x[1].index_add_(0, m.tensor([1, 1], **on), m.tensor([100.0, 100.0], **on))
        x.select(1, 0).scatter_(0, m.tensor([2], **on), 9.0)
        x[x > 40] += 1
        return x.tolist()

    ours, theirs = both(run, device)
    assert ours == theirs


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_of_writes_in_place(device: str) -> None:
    def run(m: Any, on: Any) -> Any:
        a = m.arange(12.0, **on).reshape(3, 4).requires_grad_()
        v = m.tensor([2.0, 3.0], **on).requires_grad_()
        x = a * 2
        x[m.tensor([0, 2], **on), m.tensor([1, 1], **on)] = v
        x[:, 2:].index_put_((m.tensor([1], **on),), v, accumulate=True)
        x.scatter_(1, m.tensor([[0], [3], [0]], **on), m.ones(3, 1, **on))
        x.index_fill_(0, m.tensor([1], **on), v.sum())
        (x * x).sum().backward()
        return a.grad.tolist(), v.grad.tolist(), x.tolist()

    ours, theirs = both(run, device)
    assert ours == theirs


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "write",
    [
        lambda m, x, at: x.scatter_(0, at, 1.0),
        lambda m, x, at: x.index_add_(0, at, m.ones(2)),
        lambda m, x, at: x.index_copy_(0, at, m.ones(2)),
        lambda m, x, at: x.index_fill_(0, at, 1.0),
        lambda m, x, at: x.put_(at, m.ones(2)),
        lambda m, x, at: x.__setitem__(at, 1.0),
        lambda m, x, at: x.index_put_((at,), m.ones(2)),
    ],
)
def test_indices_out_of_range_write_nothing(write: Any, device: str) -> None:
    x = lucid.zeros(3, device=device)
    with lucid_default(device), pytest.raises((IndexError, RuntimeError)):
        write(lucid, x, lucid.tensor([0, 3], device=device))
    assert x.tolist() == [0.0, 0.0, 0.0]


class lucid_default:
    """Makes new tensors on a device."""

    def __init__(self, device: str) -> None:
        self.device = device

    def __enter__(self) -> None:
        lucid.set_default_device(self.device)

    def __exit__(self, *_: object) -> None:
        lucid.set_default_device("cpu")


@pytest.mark.parametrize("device", DEVICES)
def test_negative_indices_are_refused_where_pytorch_refuses(device: str) -> None:
    x, at = lucid.zeros(3, device=device), lucid.tensor([-1], device=device)
    with pytest.raises((IndexError, RuntimeError)):
        x.index_select(0, at)
    with pytest.raises((IndexError, RuntimeError)):
        x.index_add(0, at, lucid.ones(1, device=device))
    assert x.take(at).tolist() == [0.0]


@pytest.mark.parametrize("device", DEVICES)
def test_nan_wins_extrema_at_indices(device: str) -> None:
    nan = float("nan")
    x = lucid.tensor([1.0, nan, 3.0], device=device)
    y = x.scatter_reduce(
        0, lucid.tensor([0, 0, 1, 2], device=device), lucid.tensor([2.0, nan, 5.0, 1.0], device=device), "amax"
    )
    assert y[:2].isnan().all() and y[2].item() == 3.0


@pytest.mark.parametrize("device", DEVICES)
def test_weighted_counts(device: str) -> None:
    at, weights = [0, 2, 2, 5], [0.5, 1.0, 2.0, 4.0]
    ours = lucid.bincount(lucid.tensor(at, device=device), lucid.tensor(weights, device=device), minlength=7)
    theirs = torch.bincount(torch.tensor(at), torch.tensor(weights), minlength=7)
    assert ours.tolist() == theirs.tolist()
    for bad in ([-1], [[1]]):
        with pytest.raises(RuntimeError):
            lucid.bincount(lucid.tensor(bad, device=device))


def test_results_have_pytorchs_forms() -> None:
    x = lucid.tensor([3.0, 1.0, 2.0])
    assert isinstance(x.median(), lucid.Tensor)
    assert x.median(0)._fields == ("values", "indices")
    assert isinstance(x.unique(), lucid.Tensor)
    assert len(x.unique(return_inverse=True, return_counts=True)) == 3
    assert lucid.histogram(x, 2)._fields == ("hist", "bin_edges")
    rows = lucid.cartesian_prod(lucid.tensor([1, 2]), lucid.tensor([3, 4]))
    assert rows.tolist() == torch.cartesian_prod(torch.tensor([1, 2]), torch.tensor([3, 4])).tolist()
    counts, x_edges, y_edges = lucid.histogram2d(x, x, 2)
    assert (counts.shape, x_edges.shape, y_edges.shape) == ((2, 2), (3,), (3,))


@pytest.mark.parametrize("device", DEVICES)
def test_medians_and_nan(device: str) -> None:
    nan = float("nan")
    data = [[1.0, nan, 3.0, 2.0], [nan, nan, nan, nan], [4.0, 3.0, 2.0, 1.0]]
    ours, theirs = lucid.tensor(data, device=device), torch.tensor(data)
    for name in ("median", "nanmedian"):
        got, want = getattr(ours, name)(1), getattr(theirs, name)(1)
        torch.testing.assert_close(torch.tensor(got.values.tolist()), want.values, equal_nan=True)
        picked = ours.gather(1, got.indices.unsqueeze(1)).squeeze(1)
        torch.testing.assert_close(torch.tensor(picked.tolist()), want.values, equal_nan=True)
    for name in ("quantile", "nanquantile"):
        got, want = getattr(ours, name)(0.4, 1), getattr(theirs, name)(0.4, 1)
        torch.testing.assert_close(torch.tensor(got.tolist()), want, equal_nan=True)
