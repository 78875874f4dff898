"""Primitives with several results: one step of a graph and one node of the tape for a whole call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import pytest
from lucid import _C

from tests.python.tolerances import within

DEVICES = ("cpu", "gpu")

#: The dimension along which elements are chosen, and the call.
ORDER: dict[str, tuple[int, Callable[[lucid.Tensor], Any]]] = {
    "sort": (1, lambda x: x.sort(1, descending=True)),
    "topk": (0, lambda x: x.topk(2, 0)),
    "kthvalue": (1, lambda x: x.kthvalue(2, 1)),
    "median": (1, lambda x: x.median(1, keepdim=True)),
    "nanmedian": (0, lambda x: x.nanmedian(0)),
    "mode": (1, lambda x: x.mode(1)),
    "max_dim": (1, lambda x: x.max(1)),
    "min_dim": (0, lambda x: x.min(0, keepdim=True)),
    "cummax": (1, lambda x: x.cummax(1)),
    "cummin": (0, lambda x: x.cummin(0)),
}


def steps(call: Callable[[], Any], *inputs: lucid.Tensor) -> tuple[Any, list[str]]:
    """What a call gives, and the names of the steps that it records."""
    recorder = _C._GraphRecorder(list(inputs), False)
    made = call()
    return made, [row["op"] for row in recorder.finish()[0].steps()]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ORDER)
def test_values_and_indices_are_of_one_step_and_one_node(name: str, device: str) -> None:
    x = lucid.tensor([[3.0, 1.0, 2.0], [5.0, 4.0, 5.5], [0.5, 7.0, 6.0]], device=device, requires_grad=True)
    axis, call = ORDER[name]
    (values, indices), names = steps(lambda: call(x), x)
    assert names == [name]
    assert "AccumulateGrad" in values.grad_fn.next_functions[0][0].name()
    assert not indices.requires_grad and indices.tolist() == values.grad_fn._saved_indices.tolist()
    # Each value's gradient goes to the element that its index names.
    (grad,) = lucid.autograd.grad(values.sum(), x)
    at = indices if indices.ndim == 2 else indices.unsqueeze(axis)
    assert grad.tolist() == lucid.zeros_like(x).scatter_add(axis, at, lucid.ones_like(at, dtype=x.dtype)).tolist()
    shown = x.detach().gather(axis, at)
    assert values.tolist() == (shown if values.ndim == 2 else shown.squeeze(axis)).tolist()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_a_recurrent_layer_is_one_step_and_one_node(kind: str, device: str) -> None:
    layer = getattr(lucid.nn, kind)(2, 3).to(device)
    x = lucid.randn(4, 2, 2).to(device).requires_grad_()
    (out, last), names = steps(lambda: layer(x), x, *layer.parameters())
    assert names.count("recurrent") == 1
    states = [out, *(last if isinstance(last, tuple) else (last,))]
    # What a program does to the states is none of the gradient's business.
    sum((t * t).sum() for t in states).backward()
    grads = [t.grad.clone() for t in (x, *layer.parameters())]
    again = layer(x.detach())[0]
    again.relu_()
    again.sum().backward()
    # Step by step, the same.
    x.grad = None
    layer.zero_grad()
    hidden: Any = None
    outs = []
    for t in range(4):
        one, hidden = layer(x[t : t + 1], hidden)
        outs.append(one)
    states = [lucid.cat(outs), *(hidden if isinstance(hidden, tuple) else (hidden,))]
    sum((t * t).sum() for t in states).backward()
    for got, want in zip(grads, [x.grad, *(p.grad for p in layer.parameters())], strict=True):
        lucid.testing.assert_close(got, want, **within("program"))


@pytest.mark.parametrize("device", DEVICES)
def test_quantising_is_one_step(device: str) -> None:
    w = lucid.randn(3, 64).to(device)
    parts, names = steps(lambda: lucid.quantize_affine(w), w)
    assert names == ["quantize_affine"]
    both = lucid.func.vmap(lucid.quantize_affine)(lucid.stack([w, w]))
    assert all(b[1].tolist() == p.tolist() for b, p in zip(both, parts, strict=True))
