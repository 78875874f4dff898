"""The ops that PyTorch composes gradients of, node by node: what `TorchDispatchMode` shows of a backward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucid import _C, Tensor

#: By a node's name without its number: the names that it saved its arguments by and that the rule reads, and the rule.
#: A node that saved nothing by a name is shown as one op, unless the name ends in "?".
#: A rule gets what runs an op, what was saved, the gradients of the results and the engine's gradients of the inputs,
#: `None` where none is asked for; it returns gradients of the inputs, or `None` for the engine's.
RULES: dict[str, tuple[tuple[str, ...], Callable[..., Any]]] = {}


def rule(names: str, saved: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that makes a function the rule of these nodes."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        RULES.update(dict.fromkeys(names.split(), (tuple(saved.split()), function)))
        return function

    return register


def signed(dim: int) -> int:
    """A dimension as it was given; nodes tell integers without sign."""
    return dim - 2**64 if dim >= 2**63 else dim


@rule("Clone Expand Alias Contiguous")
def same(_run: Any, _saved: Any, grads: Any, _inputs: Any) -> Any:
    return (grads[0],)


@rule("Add", "alpha?")
def add(run: Any, saved: Any, grads: Any, inputs: Any) -> Any:
    return grads[0], _times(run, grads[0], saved.alpha, inputs[1:])


@rule("Sub", "alpha?")
def sub(run: Any, saved: Any, grads: Any, inputs: Any) -> Any:
    if len(inputs) < 2 or inputs[1] is None:
        return grads[0], None
    return grads[0], _times(run, run("neg", grads[0]), saved.alpha, inputs[1:])


@rule("Rsub", "alpha?")
def rsub(run: Any, saved: Any, grads: Any, inputs: Any) -> Any:
    return (_times(run, run("neg", grads[0]), saved.alpha, inputs),)


def _times(run: Any, grad: Tensor, factor: Any, wanted: Sequence[Any]) -> Any:
    if not wanted or wanted[0] is None:
        return None
    return grad if factor in (None, 1) else run("mul.Tensor", grad, factor)


@rule("Neg")
def neg(run: Any, _saved: Any, grads: Any, _inputs: Any) -> Any:
    return (run("neg", grads[0]),)


@rule("Mul", "self? other?")
def mul(run: Any, saved: Any, grads: Any, inputs: Any) -> Any:
    wanted = [(i, (saved.other, saved.self)[i]) for i, x in enumerate(inputs) if x is not None]
    if any(factor is None for _, factor in wanted):
        return NotImplemented
    made = {i: run("mul.Tensor", grads[0], factor) for i, factor in wanted}
    return tuple(made.get(i) for i in range(len(inputs)))


@rule("Div", "self? other rounding_mode?")
def div(run: Any, saved: Any, grads: Any, inputs: Any) -> Any:
    if saved.rounding_mode is not None or (len(inputs) > 1 and inputs[1] is not None and saved.self is None):
        return NotImplemented
    first = None if inputs[0] is None else run("div.Tensor", grads[0], saved.other)
    if len(inputs) < 2 or inputs[1] is None:
        return first, None
    ratio = run("div.Tensor", saved.self, saved.other)
    return first, run("div.Tensor", run("mul.Tensor", run("neg", grads[0]), ratio), saved.other)


@rule("Pow", "exponent saved_tensors")
def power(run: Any, saved: Any, grads: Any, inputs: Any) -> Any:
    n = saved.exponent
    if isinstance(n, Tensor) or len(inputs) != 1 or len(saved.saved_tensors) != 1:
        return NotImplemented
    factor = run("mul.Scalar", run("pow.Tensor_Scalar", saved.saved_tensors[0], n - 1), n)
    return (run("mul.Tensor", grads[0], factor),)


@rule("Exp", "result")
def exp(run: Any, saved: Any, grads: Any, _inputs: Any) -> Any:
    return (run("mul.Tensor", grads[0], run("detach", saved.result)),)


@rule("Sqrt", "result")
def sqrt(run: Any, saved: Any, grads: Any, _inputs: Any) -> Any:
    return (run("div.Tensor", grads[0], run("mul.Scalar", run("detach", saved.result), 2)),)


@rule("Log", "self")
def log(run: Any, saved: Any, grads: Any, _inputs: Any) -> Any:
    return (run("div.Tensor", grads[0], saved.self),)


@rule("Sin", "self")
def sin(run: Any, saved: Any, grads: Any, _inputs: Any) -> Any:
    return (run("mul.Tensor", grads[0], run("cos", saved.self)),)


@rule("Cos", "self")
def cos(run: Any, saved: Any, grads: Any, _inputs: Any) -> Any:
    return (run("mul.Tensor", grads[0], run("neg", run("sin", saved.self))),)


@rule("Abs", "self")
def absolute(run: Any, saved: Any, grads: Any, _inputs: Any) -> Any:
    return (run("mul.Tensor", grads[0], run("sgn", saved.self)),)


@rule("Reciprocal", "result")
def reciprocal(run: Any, saved: Any, grads: Any, _inputs: Any) -> Any:
    result = run("detach", saved.result)
    square = run("mul.Tensor", result, result)
    return (run("mul.Tensor", run("neg", grads[0]), square),)


@rule("ToCopy")
def to_copy(run: Any, _saved: Any, grads: Any, inputs: Any) -> Any:
    return (run("_to_copy", grads[0], dtype=inputs[0].dtype, device=inputs[0].device),)


@rule("View UnsafeView ReshapeAlias")
def view(run: Any, _saved: Any, grads: Any, inputs: Any) -> Any:
    if len(inputs) != 1 or grads[0].numel() != inputs[0].numel():
        return NotImplemented  # A linear layer or a product of batches: a matrix product is below it.
    grad, shape = grads[0], tuple(inputs[0].shape)
    with _C.DisableTorchFunction():
        try:
            grad.view(shape)
        except RuntimeError:
            grad = None
    if grad is None:
        grad = run("clone", grads[0], memory_format=_C.contiguous_format)
    return (run("view", grad, shape),)


@rule("T")
def t(run: Any, _saved: Any, grads: Any, _inputs: Any) -> Any:
    return (run("t", grads[0]),)


@rule("Transpose", "dim0 dim1")
def transpose(run: Any, saved: Any, grads: Any, _inputs: Any) -> Any:
    return (run("transpose.int", grads[0], signed(saved.dim0), signed(saved.dim1)),)


@rule("Permute", "dims?")
def permute(run: Any, saved: Any, grads: Any, _inputs: Any) -> Any:
    n = grads[0].dim()
    dims = [signed(d) % n for d in saved.dims] if saved.dims else list(range(n))[::-1]
    return (run("permute", grads[0], sorted(range(n), key=dims.__getitem__)),)


@rule("Unsqueeze", "dim")
def unsqueeze(run: Any, saved: Any, grads: Any, _inputs: Any) -> Any:
    return (run("squeeze.dim", grads[0], signed(saved.dim) % grads[0].dim()),)


@rule("Squeeze", "dim?")
def squeeze(run: Any, saved: Any, grads: Any, inputs: Any) -> Any:
    given, had = list(grads[0].shape), list(inputs[0].shape)
    if isinstance(saved.dim, int):
        lost = [signed(saved.dim) % max(len(had), 1)]
    else:
        lost = [i for i in range(len(had)) if had[:i] + had[i + 1 :] == given][:1]
    if len(inputs) != 1 or not lost or len(had) != len(given) + 1:
        return NotImplemented
    return (run("unsqueeze", grads[0], lost[0]),)


@rule("Index", "indices dims?")
def index(run: Any, saved: Any, grads: Any, inputs: Any) -> Any:
    indices = [saved.indices] if isinstance(saved.indices, Tensor) else saved.indices
    if not isinstance(indices, (tuple, list)) or len(indices) != 1 or saved.dims not in ((0,), [0], None):
        return NotImplemented
    zeros = run("new_zeros", grads[0], tuple(inputs[0].shape))
    return (run("index_put", zeros, list(indices), grads[0], True),)


@rule("Cat", "dim")
def cat(run: Any, saved: Any, grads: Any, inputs: Any) -> Any:
    if any(x is None for x in inputs):
        return NotImplemented
    dim, made, start = signed(saved.dim) % grads[0].dim(), [], 0
    for x in inputs:
        made.append(run("slice.Tensor", grads[0], dim, start, start + x.shape[dim]))
        start += x.shape[dim]
    return tuple(made)


@rule("Sum Mean", "dim? keepdim?")
def reduced(run: Any, saved: Any, grads: Any, inputs: Any) -> Any:
    made = _restored(run, grads[0], saved, inputs[0].dim())
    made = run("expand", made, tuple(inputs[0].shape))
    if run.node == "Mean":
        made = run("div.Scalar", made, inputs[0].numel() // max(grads[0].numel(), 1))
    return (made,)


def _restored(run: Any, grad: Tensor, saved: Any, n: int) -> Tensor:
    """The gradient of a sum with the dimensions that it lost."""
    if saved.keepdim or grad.dim() == n or saved.dim is None:
        return grad
    dims = [saved.dim] if isinstance(saved.dim, int) else saved.dim
    if len(dims) == 0 or len(dims) == n:
        return grad
    for dim in sorted(signed(d) % n for d in dims):
        grad = run("unsqueeze", grad, dim)
    return grad


@rule("Max Min", "dim indices keepdim?")
def extremum(run: Any, saved: Any, grads: Any, inputs: Any) -> Any:
    if not isinstance(saved.dim, int) or saved.indices is None:
        return NotImplemented
    grad, indices, dim = grads[0], saved.indices, signed(saved.dim) % max(inputs[0].dim(), 1)
    if not saved.keepdim and inputs[0].dim():
        grad = run("unsqueeze", grad, dim)
        indices = run("unsqueeze", indices, dim) if indices.dim() < inputs[0].dim() else indices
    return (run("scatter.src", run("new_zeros", grad, tuple(inputs[0].shape)), dim, indices, grad),)


@rule("Topk Sort", "dim indices")
def sorted_values(run: Any, saved: Any, grads: Any, inputs: Any) -> Any:
    zeros = run("new_zeros", grads[0], tuple(inputs[0].shape))
    return (run("scatter.src", zeros, signed(saved.dim) % max(grads[0].dim(), 1), saved.indices, grads[0]),)


@rule("Where", "condition")
def where(run: Any, saved: Any, grads: Any, inputs: Any) -> Any:
    if len(inputs) != 2:
        return NotImplemented

    def side(first: bool) -> Tensor:
        zero = run("scalar_tensor", 0.0, dtype=grads[0].dtype, device=grads[0].device)
        made: Tensor = run("where.self", saved.condition, *((grads[0], zero) if first else (zero, grads[0])))
        return made

    return tuple(None if x is None else side(i == 0) for i, x in enumerate(inputs))


@rule("MaskedFill", "mask")
def masked_fill(run: Any, saved: Any, grads: Any, inputs: Any) -> Any:
    if len(inputs) != 1:
        return NotImplemented
    return (run("masked_fill.Scalar", grads[0], saved.mask, 0),)


@rule("MseLoss L1Loss SmoothL1Loss HuberLoss", "self? target?")
def loss(run: Any, saved: Any, grads: Any, inputs: Any) -> Any:
    """Shown once for each input; the engine made both."""
    args = (grads[0], saved.self, saved.target)
    return tuple(None if x is None else run.engines(run.whole_name(), x, args) for x in inputs)


@rule("Mm", "self? mat2? weight?")
def mm(run: Any, saved: Any, grads: Any, inputs: Any) -> Any:
    by_rows = saved.weight is not None  # The second operand is a transposed weight, and its gradient goes there.
    if len(inputs) != 2 or not _are_matrices(inputs, grads[0]):
        return NotImplemented
    grad, (first, second) = grads[0], inputs
    if (first is not None and not by_rows and saved.mat2 is None) or (second is not None and saved.self is None):
        return NotImplemented
    made = _of_second(run, grad, saved.self, saved.mat2, by_rows) if second is not None else None
    other = _transposed(saved.weight) if by_rows else saved.mat2
    return _of_first(run, grad, other, saved.self) if first is not None else None, made


@rule("Addmm", "self? mat1? mat2? weight? alpha? beta?")
def addmm(run: Any, saved: Any, grads: Any, inputs: Any) -> Any:
    grad = grads[0]
    if len(inputs) != 3 or any(f not in (None, 1) for f in (saved.alpha, saved.beta)) or grad.is_complex():
        return NotImplemented
    operands = (saved.mat1, saved.mat2) if saved.weight is None else (saved.self, saved.weight)
    wanted = inputs[1:] if saved.weight is None else inputs[:2]
    if not _are_matrices(wanted, grad) or any(
        x is not None and other is None for x, other in zip(wanted, operands[::-1], strict=True)
    ):
        return NotImplemented
    if saved.weight is None:
        first = _of_first(run, grad, saved.mat2, saved.mat1) if inputs[1] is not None else None
        second = _of_second(run, grad, saved.mat1, saved.mat2, False) if inputs[2] is not None else None
        return (None if inputs[0] is None else grad), first, second
    # A linear layer, whose operands are its input, its weight and its bias.
    first = _of_first(run, grad, _transposed(saved.weight), saved.self) if inputs[0] is not None else None
    second = _of_second(run, grad, saved.self, None, True) if inputs[1] is not None else None
    return first, second, (None if inputs[2] is None else grad)


def _are_matrices(inputs: Sequence[Any], grad: Tensor) -> bool:
    return grad.dim() == 2 and not grad.is_complex() and all(x is None or x.dim() == 2 for x in inputs)


def _transposed(weight: Tensor) -> Tensor:
    """The operand that the engine's product has a layer's weight in the place of."""
    with _C.DisableTorchFunction():
        return weight.t()


def _by_columns(x: Tensor) -> bool:
    return x.dim() == 2 and x.stride(0) == 1 and x.stride(1) == x.shape[0]


def _of_first(run: Any, grad: Tensor, second: Tensor, first: Tensor | None) -> Tensor:
    """The gradient of a product's first operand."""
    if first is not None and _by_columns(first) and not first.is_contiguous():
        by_columns: Tensor = run("t", run("mm", second, run("t", grad)))
        return by_columns
    made: Tensor = run("mm", grad, run("t", second))
    return made


def _of_second(run: Any, grad: Tensor, first: Tensor, second: Tensor | None, by_rows: bool) -> Tensor:
    """The gradient of a product's second operand; `by_rows`, of the matrix that it is the transpose of."""
    if second is None or _by_columns(second):
        made: Tensor = run("t", run("mm", run("t", grad), first))
        if by_rows:
            made = run("t", made)
        return made
    made = run("mm", run("t", first), grad)
    return made


@rule("Stack", "dim?")
def stack(run: Any, saved: Any, grads: Any, inputs: Any) -> Any:
    dim = signed(saved.dim or 0) % grads[0].dim()
    if grads[0].shape[dim] != sum(x is not None for x in inputs):
        return NotImplemented  # The engine added those of a tensor that is stacked twice.
    return tuple(None if x is None else run("select.int", grads[0], dim, i) for i, x in enumerate(inputs))


@rule("Fill")
def fill(run: Any, _saved: Any, grads: Any, _inputs: Any) -> Any:
    return (run("zeros_like", grads[0]),)


@rule("Bmm", "self? mat2?")
def bmm(run: Any, saved: Any, grads: Any, inputs: Any) -> Any:
    grad = grads[0]
    needs = [saved.mat2] * (inputs[0] is not None) + [saved.self] * (inputs[-1] is not None)
    if len(inputs) != 2 or grad.is_complex() or any(x is None for x in needs):
        return NotImplemented
    second = run("bmm", run("transpose.int", saved.self, 1, 2), grad) if inputs[1] is not None else None
    first = run("bmm", grad, run("transpose.int", saved.mat2, 1, 2)) if inputs[0] is not None else None
    return first, second
