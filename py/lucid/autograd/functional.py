"""Derivatives of a function at a point: products with vectors, Jacobians, Hessians (`torch.autograd.functional`).

`lucid.func` has the same as functions of functions. Here inputs and outputs are tensors or tuples of them; results
have no history unless `create_graph`, and `strict` makes independence of an input an error instead of zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from lucid import _C
from lucid._C import Tensor
from lucid._grad_mode import enable_grad, set_grad_enabled

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

_Tensors: TypeAlias = tuple[Tensor, ...]
_Function: TypeAlias = Callable[..., Any]


def _tupled(given: Any, what: str, name: str) -> tuple[bool, _Tensors]:
    """Was it a tuple? And it as one."""
    many = isinstance(given, tuple)
    found: _Tensors = given if isinstance(given, tuple) else (given,)
    for i, x in enumerate(found):
        if not isinstance(x, Tensor):
            which = f"value at index {i}" if many else f"given {what}"
            raise TypeError(
                f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but the {which} has type "
                f"{type(x)}."
            )
    return many, found


def _one_or_all(found: _Tensors, many: bool) -> Any:
    return found if many else found[0]


def _traced(inputs: _Tensors, create_graph: bool) -> _Tensors:
    """Inputs to differentiate by, told apart from the same tensors used otherwise."""
    if not create_graph:
        _C._check_untransformed("lucid.autograd.functional")
    return tuple(_C._fresh(x if create_graph else x.detach()) for x in inputs)


def _shown(found: _Tensors, create_graph: bool) -> _Tensors:
    return found if create_graph else tuple(x.detach() for x in found)


def _vector(v: Any, refs: _Tensors, many: bool, create_graph: bool, name: str) -> _Tensors:
    _, given = _tupled(v, "v", name)
    if len(given) != len(refs):
        if many:
            raise RuntimeError(f"v is a tuple of invalid length: should be {len(refs)} but got {len(given)}.")
        raise RuntimeError("The given v should contain a single Tensor.")
    for i, (a, b) in enumerate(zip(given, refs, strict=True)):
        if a.shape != b.shape:
            entry = f"Entry {i} in " if many else ""
            raise RuntimeError(f"{entry}v has invalid size: should be {b.shape} but got {a.shape}.")
    return _shown(given, create_graph)


def _no_vector(refs: _Tensors, why: str) -> _Tensors:
    if len(refs) != 1 or refs[0].numel() != 1:
        raise RuntimeError(why)
    return (_C.ones_like(refs[0]),)


_INDEPENDENT = {
    "outputs": "Output {i} of the user-provided function does not require gradients. The outputs must be computed in a "
    "differentiable manner from the input when running in strict mode.",
    "grad_inputs": "The gradient with respect to input {i} is independent of the inputs of the user-provided function. "
    "This is not allowed in strict mode.",
    "jacobian": "While computing the hessian, found that the jacobian of the user-provided function with respect to "
    "input "
    "{i} is independent of the input. This is not allowed in strict mode. You should ensure that your function is "
    "twice "
    "differentiable and that the jacobian depends on the inputs (this would be violated by a linear function for "
    "example).",
    "hessian": "The hessian of the user-provided function with respect to input {i} is independent of the input. This "
    "is "
    "not allowed in strict mode. You should ensure that your function is thrice differentiable and that the hessian "
    "depends on the inputs.",
}
_MISSING = {
    "back": "The output of the user-provided function is independent of input {i}. This is not allowed in strict mode.",
    "back_trick": "The gradient with respect to the input is independent of entry {i} in the grad_outputs when using "
    "the "
    "double backward trick to compute forward mode gradients. This is not allowed in strict mode.",
    "double_back": "The jacobian of the user-provided function is independent of input {i}. This is not allowed in "
    "strict "
    "mode.",
    "double_back_trick": "The hessian of the user-provided function is independent of entry {i} in the grad_jacobian. "
    "This "
    "is not allowed in strict mode as it prevents from using the double backward trick to replace forward mode AD.",
}


def _check_dependence(tensors: Sequence[Tensor | None], what: str, strict: bool) -> None:
    if not strict:
        return
    for i, t in enumerate(tensors):
        if t is None:
            raise RuntimeError(_MISSING["back"].format(i=i))
        if not t.requires_grad:
            raise RuntimeError(_INDEPENDENT[what].format(i=i))


def _grads(
    outputs: Sequence[Tensor | None],
    inputs: _Tensors,
    weights: Sequence[Tensor | None] | None,
    create_graph: bool,
    retain_graph: bool = True,
) -> tuple[Tensor | None, ...]:
    ws = weights if weights is not None else [None] * len(outputs)
    pairs = [(y, w) for y, w in zip(outputs, ws, strict=True) if y is not None and y.requires_grad]
    if not pairs:
        return (None,) * len(inputs)
    return _C._grad([y for y, _ in pairs], list(inputs), [w for _, w in pairs], retain_graph, create_graph)


def _filled(grads: Sequence[Tensor | None], refs: _Tensors, strict: bool, create_graph: bool, stage: str) -> _Tensors:
    """Zeros for what is missing, unless `strict` forbids it."""
    out = []
    for i, (g, ref) in enumerate(zip(grads, refs, strict=True)):
        if g is None:
            if strict:
                raise RuntimeError(_MISSING[stage].format(i=i))
            out.append(_C.zeros_like(ref))
            continue
        if strict and create_graph and not g.requires_grad:
            what = "hessian" if "double" in stage else "jacobian"
            raise RuntimeError(
                f"The {what} of the user-provided function is independent of input {i}. This is not allowed in strict "
                f"mode when create_graph=True."
            )
        out.append(g)
    return tuple(out)


def _scalar(outputs: _Tensors, many: bool, name: str) -> None:
    if many or len(outputs) != 1:
        raise RuntimeError(f"The function given to {name} should return a single Tensor")
    if outputs[0].numel() != 1:
        raise RuntimeError(f"The Tensor returned by the function given to {name} should contain a single element")


def vjp(
    func: _Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """`func(*inputs)` and `vᵀ J`, shaped as the inputs. `v` is shaped as the outputs, and may be left out for one
    number.

    Args:
        func (_Function): a function of tensors.
        inputs (Tensor or tuple of Tensors): its arguments, of any shapes.
        v (Tensor or tuple of Tensors, optional): the vector, of the shapes of the outputs.
        create_graph (bool, default: False): records the computation, for higher derivatives.
        strict (bool, default: False): raises an error where an output does not depend on an input.

    Returns:
        tuple: the outputs, and the product, of the shapes of the inputs.

    Example:
        >>> lucid.autograd.functional.vjp(lambda x: x**2, lucid.tensor([1.0, 2.0]), lucid.tensor([1.0, 1.0]))
        (tensor([1., 4.]), tensor([2., 4.]))
    """
    with enable_grad():
        many, given = _tupled(inputs, "inputs", "vjp")
        xs = _traced(given, create_graph)
        many_out, outputs = _tupled(func(*xs), "outputs of the user-provided function", "vjp")
        _check_dependence(outputs, "outputs", strict)
    if v is not None:
        weights = _vector(v, outputs, many_out, create_graph, "vjp")
    else:
        weights = _no_vector(
            outputs,
            "The vector v can only be None if the user-provided function returns a single Tensor with a single "
            "element.",
        )
    with set_grad_enabled(create_graph or _C.is_grad_enabled()):
        found = _filled(_grads(outputs, xs, weights, create_graph), xs, strict, create_graph, "back")
    return _one_or_all(_shown(outputs, create_graph), many_out), _one_or_all(_shown(found, create_graph), many)


def jvp(
    func: _Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """`func(*inputs)` and `J v`, shaped as the outputs. `v` is shaped as the inputs, and may be left out for one
    number.

    Computed by differentiating twice.

    Args:
        func (_Function): a function of tensors.
        inputs (Tensor or tuple of Tensors): its arguments, of any shapes.
        v (Tensor or tuple of Tensors, optional): the vector, of the shapes of the inputs.
        create_graph (bool, default: False): records the computation, for higher derivatives.
        strict (bool, default: False): raises an error where an output does not depend on an input.

    Returns:
        tuple: the outputs, and the product, of their shapes.

    Example:
        >>> lucid.autograd.functional.jvp(lambda x: x**2, lucid.tensor([1.0, 2.0]), lucid.tensor([1.0, 1.0]))
        (tensor([1., 4.]), tensor([2., 4.]))
    """
    with enable_grad():
        many, given = _tupled(inputs, "inputs", "jvp")
        xs = _traced(given, create_graph)
        if v is not None:
            vector = _vector(v, xs, many, create_graph, "jvp")
        else:
            vector = _no_vector(
                xs,
                "The vector v can only be None if the input to the user-provided function is a single Tensor with a "
                "single element.",
            )
        many_out, outputs = _tupled(func(*xs), "outputs of the user-provided function", "jvp")
        _check_dependence(outputs, "outputs", strict)
        weights = tuple(_C._fresh(_C.zeros_like(y)) for y in outputs)
        pulled = _grads(outputs, xs, weights, True)
        _check_dependence(pulled, "grad_inputs", strict)
    with set_grad_enabled(create_graph or _C.is_grad_enabled()):
        pushed = _grads(pulled, weights, vector, create_graph)
        found = _filled(pushed, outputs, strict, create_graph, "back_trick")
    return _one_or_all(_shown(outputs, create_graph), many_out), _one_or_all(_shown(found, create_graph), many_out)


def jacobian(
    func: _Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian: for an output of shape (A…) and an input of shape (B…) a block (A…, B…), in tuples as those are.

    `vectorize` computes all rows at once by `vmap`; `strategy="forward-mode"`, which needs it, computes columns.

    Args:
        func (_Function): a function of tensors.
        inputs (Tensor or tuple of Tensors): its arguments, of any shapes.
        create_graph (bool, default: False): records the computation, for higher derivatives.
        strict (bool, default: False): raises an error where an output does not depend on an input.
        vectorize (bool, default: False): computes all rows at once.
        strategy (str, default: "reverse-mode"): "reverse-mode", or "forward-mode", which needs `vectorize`.

    Returns:
        Tensor or tuple: the blocks.

    Raises:
        ValueError: another `strategy`, or "forward-mode" without `vectorize`.

    Example:
        >>> lucid.autograd.functional.jacobian(lambda x: x**2, lucid.tensor([1.0, 2.0]))
        tensor([[2., 0.],
                [0., 4.]])
    """
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function has more outputs '
            'than inputs, "forward-mode" tends to be more performant. Otherwise, prefer to use "reverse-mode".'
        )
    forward = strategy == "forward-mode"
    here = "lucid.autograd.functional.jacobian"
    if forward and create_graph:
        raise NotImplementedError(
            f'{here}: `create_graph=True` and `strategy="forward-mode"` are not supported together (yet). Please '
            f'either set `create_graph=False` or `strategy="reverse-mode"`.'
        )
    if forward and strict:
        raise RuntimeError(
            f'{here}: `strict=True` and `strategy="forward-mode"` are not supported together (yet). Please either set '
            f'`strict=False` or `strategy="reverse-mode"`.'
        )
    if forward and not vectorize:
        raise NotImplementedError(
            "Computing Jacobian using forward-AD or forward-over-reverse Hessian is only implemented for "
            "`vectorize=True`."
        )
    many, given = _tupled(inputs, "inputs", "jacobian")
    if forward:
        return _by_columns(func, given, many)
    with enable_grad():
        xs = _traced(given, create_graph)
        many_out, outputs = _tupled(func(*xs), "outputs of the user-provided function", "jacobian")
        _check_dependence(outputs, "outputs", strict)
        if vectorize and strict:
            raise RuntimeError(
                f"{here}: `strict=True` and `vectorized=True` are not supported together. Please either set "
                f"`strict=False` or `vectorize=False`."
            )
        rows = _all_rows(outputs, xs, create_graph) if vectorize else None
        blocks = []
        for i, y in enumerate(outputs):
            found = rows[i] if rows is not None else _rows(y, xs, create_graph, strict, i)
            shaped = tuple(b.reshape((*y.shape, *x.shape)) for b, x in zip(found, xs, strict=True))
            blocks.append(_one_or_all(_shown(shaped, create_graph), many))
    return _one_or_all(tuple(blocks), many_out)


def _rows(y: Tensor, xs: _Tensors, create_graph: bool, strict: bool, i: int) -> _Tensors:
    """The Jacobian of one output, a row per element, one backward pass each."""
    rows: list[list[Tensor]] = [[] for _ in xs]
    for element in y.reshape(-1).unbind(0):
        for at, (g, x) in enumerate(zip(_grads((element,), xs, None, create_graph), xs, strict=True)):
            if g is None and strict:
                raise RuntimeError(
                    f"Output {i} of the user-provided function is independent of input {at}. This is not allowed in "
                    f"strict mode."
                )
            if g is not None and strict and create_graph and not g.requires_grad:
                raise RuntimeError(
                    f"The jacobian of the user-provided function is independent of input {i}. This is not allowed in "
                    f"strict mode when create_graph=True."
                )
            rows[at].append(_C.zeros_like(x) if g is None else g)
    return tuple(
        _C.stack(r) if r else _C.zeros((0, *x.shape), dtype=x.dtype, device=x.device)
        for r, x in zip(rows, xs, strict=True)
    )


def _all_rows(outputs: _Tensors, xs: _Tensors, create_graph: bool) -> list[_Tensors]:
    """The Jacobian of each output, a row per element, by one batched backward pass."""
    from lucid.func._jacobian import basis
    from lucid.func._vmap import vmap

    def pull(*weights: Tensor) -> _Tensors:
        found = _grads(outputs, xs, weights, create_graph)
        return tuple(_C.zeros_like(x) if g is None else g for g, x in zip(found, xs, strict=True))

    together = vmap(pull)(*basis(outputs))
    rows, start = [], 0
    for y in outputs:
        rows.append(tuple(b.narrow(0, start, y.numel()) for b in together))
        start += y.numel()
    return rows


def _by_columns(func: _Function, inputs: _Tensors, many: bool) -> Any:
    from lucid.func._jacobian import jacfwd

    shape: dict[str, bool] = {}
    outside = _C._current_transform()

    def listed(*xs: Tensor) -> _Tensors:
        # To PyTorch this is no transform, so the function may do what it may not inside of those.
        inside = _C._current_transform()
        _C._leave_transform(outside)
        try:
            shape["many"], outputs = _tupled(func(*xs), "outputs of the user-provided function", "jacobian")
        finally:
            _C._leave_transform(inside)
        return outputs

    detached = tuple(x.detach() for x in inputs)
    found = jacfwd(listed, tuple(range(len(inputs))))(*detached)
    blocks = tuple(_one_or_all(_shown(b, False), many) for b in found)
    return _one_or_all(blocks, shape["many"])


def hessian(
    func: _Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The Hessian of a function of one number: a tensor, or a tuple of tuples, block (i, j) by inputs i and j.

    Args:
        func (_Function): a function of tensors that returns one number.
        inputs (Tensor or tuple of Tensors): its arguments, of any shapes.
        create_graph (bool, default: False): records the computation, for higher derivatives.
        strict (bool, default: False): raises an error where an output does not depend on an input.
        vectorize (bool, default: False): computes all rows at once.
        outer_jacobian_strategy (str, default: "reverse-mode"): "reverse-mode" or "forward-mode".

    Returns:
        Tensor or tuple: the blocks.

    Raises:
        RuntimeError: the output is not one number, or depends on no input, with `strict`.

    Example:
        >>> lucid.autograd.functional.hessian(lambda x: (x**3).sum(), lucid.tensor([1.0, 2.0]))
        tensor([[ 6.,  0.],
                [ 0., 12.]])
    """
    many, given = _tupled(inputs, "inputs", "hessian")
    if outer_jacobian_strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')

    def single(*xs: Tensor) -> Tensor:
        out = func(*xs)
        many_out, outputs = _tupled(out, "outputs of the user-provided function", "hessian")
        _check_dependence(outputs, "outputs", strict)
        _scalar(outputs, many_out, "hessian")
        return outputs[0].squeeze()

    def inner(*xs: Tensor) -> Any:
        jac = jacobian(single, xs, create_graph=True)
        _check_dependence(jac, "jacobian", strict)
        return jac

    found = jacobian(inner, given, create_graph, strict, vectorize, outer_jacobian_strategy)
    return found if many else found[0][0]


def vhp(
    func: _Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """`func(*inputs)`, one number, and `vᵀ H`, shaped as the inputs, as `v` is.

    Args:
        func (_Function): a function of tensors that returns one number.
        inputs (Tensor or tuple of Tensors): its arguments, of any shapes.
        v (Tensor or tuple of Tensors, optional): the vector, of the shapes of the inputs.
        create_graph (bool, default: False): records the computation, for higher derivatives.
        strict (bool, default: False): raises an error where the output does not depend on an input.

    Returns:
        tuple: the output, and the product, of the shapes of the inputs.

    Example:
        >>> lucid.autograd.functional.vhp(lambda x: (x**3).sum(), lucid.tensor([1.0]), lucid.tensor([1.0]))
        (tensor(1.), tensor([6.]))
    """
    many, xs, vector, output, jac = _first_derivative(func, inputs, v, create_graph, strict, "vhp")
    with set_grad_enabled(create_graph or _C.is_grad_enabled()):
        found = _filled(_grads(jac, xs, vector, create_graph), xs, strict, create_graph, "double_back")
    return _shown((output,), create_graph)[0], _one_or_all(_shown(found, create_graph), many)


def hvp(
    func: _Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """`func(*inputs)`, one number, and `H v`, shaped as the inputs, as `v` is. `vhp` is faster where `H` is
    symmetric.

    Args:
        func (_Function): a function of tensors that returns one number.
        inputs (Tensor or tuple of Tensors): its arguments, of any shapes.
        v (Tensor or tuple of Tensors, optional): the vector, of the shapes of the inputs.
        create_graph (bool, default: False): records the computation, for higher derivatives.
        strict (bool, default: False): raises an error where the output does not depend on an input.

    Returns:
        tuple: the output, and the product, of the shapes of the inputs.

    Example:
        >>> lucid.autograd.functional.hvp(lambda x: (x**3).sum(), lucid.tensor([1.0]), lucid.tensor([1.0]))
        (tensor(1.), tensor([6.]))
    """
    many, xs, vector, output, jac = _first_derivative(func, inputs, v, create_graph, strict, "hvp")
    with enable_grad():
        weights = tuple(_C._fresh(_C.zeros_like(x)) for x in xs)
        twice = _grads(jac, xs, weights, True)
        _check_dependence(twice, "hessian", strict)
    with set_grad_enabled(create_graph or _C.is_grad_enabled()):
        pushed = _grads(twice, weights, vector, create_graph)
        found = _filled(pushed, xs, strict, create_graph, "double_back_trick")
    return _shown((output,), create_graph)[0], _one_or_all(_shown(found, create_graph), many)


def _first_derivative(
    func: _Function, inputs: Any, v: Any, create_graph: bool, strict: bool, name: str
) -> tuple[bool, _Tensors, _Tensors, Tensor, tuple[Tensor | None, ...]]:
    """What `vhp` and `hvp` begin with: inputs, vector, output, and the gradient to differentiate again."""
    with enable_grad():
        many, given = _tupled(inputs, "inputs", name)
        xs = _traced(given, create_graph)
        if v is not None:
            vector = _vector(v, xs, many, create_graph, name)
        else:
            vector = _no_vector(
                xs,
                "The vector v can only be None if the input to the user-provided function is a single Tensor with a "
                "single element.",
            )
        many_out, outputs = _tupled(func(*xs), "outputs of the user-provided function", name)
        _check_dependence(outputs, "outputs", strict)
        _scalar(outputs, many_out, name)
        weight = _C.ones_like(outputs[0])
        jac = _grads(outputs, xs, (weight,), True)
        _check_dependence(jac, "jacobian", strict)
    return many, xs, vector, outputs[0], jac
