"""The graph as users see it, against PyTorch: names of steps and where they lead, from each result to the leaves."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import lucid
import pytest
import torch

from tests.python.limitations import GRAPHS, GRAPHS_ON_GPU
from tests.python.parity.ops.test_table_parity import run_lucid, run_torch
from tests.python.samples import rows, samples
from tests.python.tolerances import near

DEVICES = ["cpu", "gpu"]
DTYPES = ("float32", "complex64")
ROWS = [r for r in rows() if r["torch"] != "-" and r["differentiable"] and set(DTYPES) & set(r["dtypes"])]


def tree(node: Any, leaves: list[Any]) -> Any:
    """A step's name, and the trees that it leads to with the numbers of the results there; leaves by their places."""
    name = node.name().rsplit("::")[-1]
    if name == "AccumulateGrad":
        return [i for i, leaf in enumerate(leaves) if leaf is node.variable]
    return (name, *[None if n is None else (tree(n, leaves), nr) for n, nr in node.next_functions])


def trees(found: list[Any], leaves: list[Any]) -> list[Any]:
    """Those of each result, with its number."""
    made = [t for t in found if isinstance(t, (torch.Tensor, lucid.Tensor))]
    return [None if t.grad_fn is None else (tree(t.grad_fn, leaves), t.output_nr) for t in made]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("row", ROWS, ids=lambda r: str(r["name"]))
def test_graphs_of_the_table(row: Any, device: str) -> None:
    dtype = next(d for d in DTYPES if d in row["dtypes"])
    differed, known = False, GRAPHS | GRAPHS_ON_GPU if device == "gpu" else GRAPHS
    for sample in (s for s in samples(row, device) if s.fits(device)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                wanted = trees(*run_torch(row, sample, dtype, "contiguous", True))
            except (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError):
                continue  # That both refuse it is compared elsewhere.
            got = trees(*run_lucid(row, sample, dtype, "contiguous", True, device))
        if row["name"] in known:
            differed |= wanted != got
        else:
            assert got == wanted, f"{row['name']}({sample.text})"
    assert differed or device == "gpu" or row["name"] not in known, f"{row['name']} needs no exception"


def arguments(m: Any, device: str) -> tuple[Any, Any]:
    """Two leaves."""
    x = (m.arange(6.0, device=device).reshape(2, 3) / 7).requires_grad_()
    y = (m.arange(6.0, device=device).reshape(2, 3) / 5 + 1).requires_grad_()
    return x, y


CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "mse_loss": lambda m, x, y: m.nn.functional.mse_loss(x, y),
    "mse_loss of one": lambda m, x, y: m.nn.functional.mse_loss(x, y.detach()),
    "mse_loss of itself": lambda m, x, y: m.nn.functional.mse_loss(x, x),
    "mse_loss of results": lambda m, x, y: m.nn.functional.mse_loss(x * 2, y + x),
    "two losses": lambda m, x, y: m.nn.functional.mse_loss(m.nn.functional.mse_loss(x, y, reduction="none"), y),
    "huber_loss": lambda m, x, y: m.nn.functional.huber_loss(x, y),
    "l1_loss": lambda m, x, y: m.nn.functional.l1_loss(x, y),
    "std": lambda m, x, y: x.std() * y.var(0),
    "softplus": lambda m, x, y: m.nn.functional.softplus(m.nn.functional.softplus(x)),
    "lerp": lambda m, x, y: m.lerp(x, y, 0.3).lerp(x, y),
    "addcmul": lambda m, x, y: m.addcmul(x, x.detach(), y, value=0.5),
    "alpha": lambda m, x, y: x.add(y, alpha=2).sub(x, alpha=3),
    "numbers": lambda m, x, y: (x + 1) * 2 - 3,
    "powers of numbers": lambda m, x, y: 2 ** (2**x),
    "number first": lambda m, x, y: 1 - x,
    "a power": lambda m, x, y: x**3,
    "where": lambda m, x, y: m.where(x > 0.3, x, 0.5),
    "masked_fill": lambda m, x, y: x.masked_fill(x > 0.3, 0.5),
    "cat": lambda m, x, y: m.cat([x, y.detach(), y]),
    "stack": lambda m, x, y: m.stack([x, x], 1),
    "a copying reshape": lambda m, x, y: x.t().reshape(-1),
    "a reshape of a part": lambda m, x, y: x[:, :2].reshape(2, 1, 2),
    "matmul": lambda m, x, y: x @ y.t(),
    "matmul of more": lambda m, x, y: x[None] @ y.t(),
    "matmul of a vector": lambda m, x, y: x[0] @ y.t(),
    "layer_norm": lambda m, x, y: m.nn.functional.layer_norm(x, (3,)),
    "softmax": lambda m, x, y: x.softmax(0).log_softmax(1),
    "gelu": lambda m, x, y: m.nn.functional.gelu(x) + m.nn.functional.silu(y),
    "conversions": lambda m, x, y: x.to(m.float16).to(m.float32),
    "sort": lambda m, x, y: x.sort(1)[0],
    "svd": lambda m, x, y: m.linalg.svd(x, full_matrices=False)[1],
    "clamp": lambda m, x, y: x.clamp(0, 1).clamp(x, y),
    "hstack": lambda m, x, y: m.hstack([x[0], y[0]]),
    "whole dimensions": lambda m, x, y: x[:, 1:] + x[:1, :2] + x[None, :, :2][0],
    "all of it": lambda m, x, y: x[:] + x[:, :] + x[...] + x[:, 0][:, None],
    "elu": lambda m, x, y: m.nn.functional.elu(x * 1, inplace=True),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CALLS)
def test_graphs_of_calls(name: str, device: str) -> None:
    found = []
    for m, on in ((torch, "cpu"), (lucid, device)):
        leaves = arguments(m, on)
        y = CALLS[name](m, *leaves)
        found.append((tree(y.grad_fn, list(leaves)), y.output_nr))
    assert found[0] == found[1]


# ---- hooks on what is several steps here ----------------------------------------------------------------------------


def watched(m: Any, device: str, call: Callable[[Any, Any, Any], Any], change: bool) -> Any:
    """The gradients that hooks on the last step see, how often, and those of the leaves."""
    x, y = arguments(m, device)
    result = call(m, x, y)
    seen = []

    def after(inputs: Any, outputs: Any) -> Any:
        seen.append([None if g is None else g.tolist() for g in (*inputs, *outputs)])
        return tuple(None if g is None else g * 2 for g in inputs) if change else None

    result.grad_fn.register_hook(after)
    result.grad_fn.register_prehook(lambda outputs: seen.append(len(outputs)))
    result.sum().backward()
    return seen, x.grad.tolist(), None if y.grad is None else y.grad.tolist()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("change", [False, True])
@pytest.mark.parametrize(
    "name", ["mse_loss", "mse_loss of one", "mse_loss of results", "huber_loss", "softplus", "lerp", "addcmul", "std"]
)
def test_hooks_see_the_whole_step(name: str, change: bool, device: str) -> None:
    wanted, got = (watched(m, on, CALLS[name], change) for m, on in ((torch, "cpu"), (lucid, device)))

    def close(a: Any, b: Any) -> None:
        if isinstance(a, list):
            assert isinstance(b, list) and len(a) == len(b)
            for one, other in zip(a, b, strict=True):
                close(one, other)
        else:
            assert a == b if a is None else a == pytest.approx(b, **near("program"))

    close(list(wanted), list(got))


@pytest.mark.parametrize("device", DEVICES)
def test_chosen_gradients_pass_hooks(device: str) -> None:
    """A walk that is for one of the leaves runs the steps that lead there, and the hook sees the gradient."""
    for m, on in ((torch, "cpu"), (lucid, device)):
        x, y = arguments(m, on)
        loss = m.nn.functional.mse_loss(x, y)
        seen = []
        loss.grad_fn.register_hook(lambda inputs, outputs, seen=seen: seen.append([g is not None for g in inputs]))
        (g,) = m.autograd.grad(loss, [y], retain_graph=True)
        assert g.shape == (2, 3) and seen[0][1]
        loss.backward()
        assert seen[1] == [True, True]


@pytest.mark.parametrize("device", DEVICES)
def test_a_step_runs_by_itself(device: str) -> None:
    """What a node gives when it is called is the gradients of the arguments of the whole call."""
    found = []
    for m, on in ((torch, "cpu"), (lucid, device)):
        x, y = arguments(m, on)
        made = m.nn.functional.mse_loss(x, y).grad_fn(m.ones((), device=on))
        found.append([g.tolist() for g in made])
    assert found[0] == [[pytest.approx(row) for row in g] for g in found[1]]
