"""Gradients: backward passes, gradients as values, checks against finite differences, grad modes."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from lucid import _C
from lucid._absent import missing
from lucid._C import Tensor
from lucid._C import is_grad_enabled as is_grad_enabled
from lucid._grad_mode import enable_grad as enable_grad
from lucid._grad_mode import enforce_grad_layout_policy as enforce_grad_layout_policy
from lucid._grad_mode import inference_mode as inference_mode
from lucid._grad_mode import is_multithreading_enabled as is_multithreading_enabled
from lucid._grad_mode import no_grad as no_grad
from lucid._grad_mode import set_grad_enabled as set_grad_enabled
from lucid._grad_mode import set_multithreading_enabled as set_multithreading_enabled
from lucid._warnings import warn
from lucid.autograd import _edges
from lucid.autograd._edges import GradientEdge, Places
from lucid.utils.hooks import RemovableHandle as RemovableHandle

if TYPE_CHECKING:
    from lucid.autograd._gradcheck import gradcheck as gradcheck
    from lucid.autograd._gradcheck import gradgradcheck as gradgradcheck
    from lucid.autograd.anomaly_mode import detect_anomaly as detect_anomaly
    from lucid.autograd.anomaly_mode import is_anomaly_check_nan_enabled as is_anomaly_check_nan_enabled
    from lucid.autograd.anomaly_mode import is_anomaly_enabled as is_anomaly_enabled
    from lucid.autograd.anomaly_mode import set_detect_anomaly as set_detect_anomaly
    from lucid.autograd.function import Function as Function
    from lucid.autograd.function import FunctionCtx as FunctionCtx
    from lucid.autograd.function import NestedIOFunction as NestedIOFunction
    from lucid.autograd.functional import hessian as hessian
    from lucid.autograd.functional import hvp as hvp
    from lucid.autograd.functional import jacobian as jacobian
    from lucid.autograd.functional import jvp as jvp
    from lucid.autograd.functional import vhp as vhp
    from lucid.autograd.functional import vjp as vjp
    from lucid.autograd.variable import Variable as Variable
    from lucid.utils.checkpoint import checkpoint as checkpoint

_Grads: TypeAlias = Tensor | Sequence[Tensor | None] | None


def backward(
    tensors: Places,
    grad_tensors: _Grads = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: _Grads = None,
    inputs: Places | None = None,
) -> None:
    """Adds the gradients of `tensors` to their leaves, or to `inputs` alone.

    Each tensor is weighed by its entry of `grad_tensors`, which may be `None` for a tensor of one element. The graph is
    freed unless `retain_graph` or `create_graph`. `grad_variables` is the old name of `grad_tensors`.

    Args:
        tensors (Tensor or sequence of Tensors): the roots of the backward pass, of any shapes.
        grad_tensors (Tensor or sequence of Tensors, optional): the gradients with respect to the roots, of their
            shapes; ones for roots of one element.
        retain_graph (bool, optional): keeps the graph for another pass; the value of `create_graph` by default.
        create_graph (bool, default: False): records the pass itself, for higher derivatives.
        grad_variables (Tensor or sequence of Tensors, optional): deprecated name of `grad_tensors`, of the same
            shapes.
        inputs (Tensor or sequence of Tensors, optional): the tensors whose `grad` is added to, of any shapes; all
            leaves by default.

    Raises:
        RuntimeError: a root requires no gradients, has no gradient given though it has several elements, or its
            graph was freed.

    Example:
        >>> x = lucid.tensor([3.0], requires_grad=True)
        >>> lucid.autograd.backward(x * x)
        >>> x.grad
        tensor([6.])
    """
    if _C._has_torch_function(()):
        # A mode is on, which sees the ops of the pass.
        named = {"grad_variables": grad_variables, "inputs": inputs}
        _C._handle_torch_function(backward, (), tensors, grad_tensors, retain_graph, create_graph, **named)
        return
    if grad_variables is not None:
        warn("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning)
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to `backward()`. Please only "
                "use `grad_tensors`."
            )
        grad_tensors = grad_variables
    keep = create_graph if retain_graph is None else retain_graph
    targets = None if inputs is None else _edges.inputs_of(_edges.listed(inputs))
    if targets is not None and not targets:
        raise RuntimeError("'inputs' argument to backward() cannot be empty")
    roots = _edges.outputs_of(_edges.listed(tensors), grad_tensors)
    _C._backward(roots, grad_tensors, keep, create_graph, targets)


def grad(
    outputs: Places,
    inputs: Places,
    grad_outputs: _Grads = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of `outputs`, weighed by `grad_outputs`, with respect to `inputs`; leaves' `grad` stay as they are.

    An input that no output depends on is an error, `None` with `allow_unused`, and zeros with `materialize_grads`. With
    `is_grads_batched`, `grad_outputs` have a leading dimension, and so have the gradients: one pass makes them all.

    Args:
        outputs (Tensor or sequence of Tensors): what is differentiated, of any shapes.
        inputs (Tensor or sequence of Tensors): what is differentiated with respect to, of any shapes.
        grad_outputs (Tensor or sequence of Tensors, optional): the gradients with respect to the outputs, of their
            shapes; ones for outputs of one element.
        retain_graph (bool, optional): keeps the graph for another pass; the value of `create_graph` by default.
        create_graph (bool, default: False): records the pass itself, for higher derivatives.
        only_inputs (bool, default: True): deprecated; False gives a warning that it is ignored.
        allow_unused (bool, optional): returns None for an input that no output depends on.
        is_grads_batched (bool, default: False): `grad_outputs` have a batch dimension in front, and so have the
            results.
        materialize_grads (bool, default: False): returns zeros for an input that no output depends on.

    Returns:
        tuple of Tensors: a gradient for each input, of its shape.

    Raises:
        RuntimeError: an output requires no gradients, an input is not used, or the graph was freed.

    Example:
        >>> x = lucid.tensor([3.0], requires_grad=True)
        >>> (g,) = lucid.autograd.grad(x**3, x, create_graph=True)
        >>> lucid.autograd.grad(g, x)
        (tensor([18.]),)
    """
    asked = (*_edges.listed(outputs), *_edges.listed(inputs))
    if _C._has_torch_function(asked):
        named = {
            "grad_outputs": grad_outputs,
            "retain_graph": retain_graph,
            "create_graph": create_graph,
            "only_inputs": only_inputs,
            "allow_unused": allow_unused,
            "is_grads_batched": is_grads_batched,
            "materialize_grads": materialize_grads,
        }
        answer: tuple[Any, ...] = _C._handle_torch_function(grad, asked, outputs, inputs, **named)
        return answer
    if not only_inputs:
        warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To accumulate gradient for "
            "other parts of the graph, please use lucid.autograd.backward.",
            FutureWarning,
        )
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    keep = create_graph if retain_graph is None else retain_graph
    places = _edges.listed(inputs)
    if not places:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    targets = _edges.inputs_of(places)
    found: tuple[Any, ...]
    if is_grads_batched:
        # Of an edge the samples' shape is not known: what its weights show is.
        found = _batched_grad(_edges.listed(outputs), targets, grad_outputs, keep, create_graph)
    else:
        roots = _edges.outputs_of(_edges.listed(outputs), grad_outputs)
        found = _C._grad(roots, targets, grad_outputs, keep, create_graph)
    if materialize_grads:
        if any(g is None and isinstance(p, GradientEdge) for g, p in zip(found, places, strict=True)):
            raise RuntimeError("materialize_grads cannot be used when the given input is a GradientEdge")
        return tuple(_C.zeros_like(t) if g is None else g for t, g in zip(targets, found, strict=True))
    if not allow_unused and any(g is None for g in found):
        raise RuntimeError(
            "One of the differentiated Tensors appears to not have been used in the graph. "
            "Set allow_unused=True if this is the desired behavior."
        )
    return found


def _batched_grad(
    outputs: Sequence[_edges.Place], inputs: Sequence[Tensor], grads: _Grads, keep: bool, create_graph: bool
) -> tuple[Any, ...]:
    """`grad` over the first dimension of `grads`."""
    from lucid.func import vmap

    if grads is None:
        raise RuntimeError("grad(): with is_grads_batched, grad_outputs must be given")
    used: list[bool] = []

    def one(weights: Any) -> tuple[Tensor, ...]:
        found = _C._grad(_edges.outputs_of(outputs, weights), inputs, weights, keep, create_graph)
        used[:] = [g is not None for g in found]
        return tuple(g for g in found if g is not None)

    listed = (grads,) if isinstance(grads, Tensor) else tuple(grads)
    made = iter(vmap(one)(listed))
    return tuple(next(made) if u else None for u in used)


def _is_checkpoint_valid() -> bool:
    """Whether what a backward pass recomputes may call `backward`: not where chosen gradients alone are asked for."""
    return not _C._chosen_alone()


# What is imported on first use, and where it lives.
_NAMES = {
    "Function": "lucid.autograd.function",
    "FunctionCtx": "lucid.autograd.function",
    "NestedIOFunction": "lucid.autograd.function",
    "Variable": "lucid.autograd.variable",
    "checkpoint": "lucid.utils.checkpoint",
    "detect_anomaly": "lucid.autograd.anomaly_mode",
    "gradcheck": "lucid.autograd._gradcheck",
    "gradgradcheck": "lucid.autograd._gradcheck",
    "is_anomaly_check_nan_enabled": "lucid.autograd.anomaly_mode",
    "is_anomaly_enabled": "lucid.autograd.anomaly_mode",
    "hessian": "lucid.autograd.functional",
    "hvp": "lucid.autograd.functional",
    "jacobian": "lucid.autograd.functional",
    "jvp": "lucid.autograd.functional",
    "vhp": "lucid.autograd.functional",
    "vjp": "lucid.autograd.functional",
    "set_detect_anomaly": "lucid.autograd.anomaly_mode",
}
_MODULES = {"anomaly_mode", "forward_ad", "function", "functional", "grad_mode", "graph", "profiler", "variable"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"lucid.autograd.{name}")
    if name not in _NAMES:
        raise missing("lucid.autograd", name)
    value = getattr(import_module(_NAMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES, *_MODULES})
