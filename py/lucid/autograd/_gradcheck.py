"""Checks gradients against finite differences, in float64.

The Jacobian is taken column by column: numerically by central differences on each input element, analytically by one
backward pass per output element. Both are exact enough in float64 for the default tolerances. A complex tensor counts
as its real and imaginary parts: the gradient of a real function of it is what it changes by along each of them. In fast
mode one random projection of the Jacobian is compared in place of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lucid import _C
from lucid._C import Tensor
from lucid._warnings import warn
from lucid.autograd import grad


class GradcheckError(RuntimeError):
    """An analytical gradient differs from the numerical one."""


def _listed(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _outputs(function: Callable[..., Any], inputs: Sequence[Any]) -> list[Tensor]:
    found = _listed(function(*inputs))
    for o in found:
        if not isinstance(o, Tensor):
            got = type(o).__name__
            raise AttributeError(
                f"gradcheck expects a function of tensors: '{got}' object has no attribute 'requires_grad'"
            )
    return [o for o in found if _varies(o)]


def _varies(t: Tensor) -> bool:
    return t.dtype.is_floating_point or t.is_complex()


def _size(t: Tensor) -> int:
    """How many real numbers it has."""
    return t.numel() * (2 if t.is_complex() else 1)


def _flat(t: Tensor) -> list[float]:
    """All of them."""
    t = t.detach()
    values: list[float] = (_C.view_as_real(t) if t.is_complex() else t).reshape(-1).tolist()
    return values


def _shaped(numbers: Tensor, like: Tensor) -> Tensor:
    """Real numbers as a tensor like that; several rows of them as several."""
    if like.is_complex():
        pairs = numbers.reshape((*numbers.shape[:-1], like.numel(), 2))
        numbers = _C.view_as_complex(pairs.to(like.dtype.to_real()))
    # Cast first: not every device has float64.
    cast = numbers.to(like.dtype).to(like.device)
    return cast.reshape((*numbers.shape[: numbers.ndim - 1], *like.shape))


def _unit(t: Tensor, j: int) -> Tensor:
    """1 in the place of its number `j`."""
    numbers = _C.zeros(_size(t), dtype=_C.float64, device="cpu")
    numbers[j] = 1
    return _shaped(numbers, t)


def _place(shape: Sequence[int], element: int) -> tuple[int, ...]:
    """The index of an element by its number in row-major order."""
    place: list[int] = []
    for size in reversed(shape):
        element, index = divmod(element, size)
        place.append(index)
    return tuple(reversed(place))


def _numerical(function: Callable[..., Any], inputs: Sequence[Any], which: int, eps: float) -> list[list[list[float]]]:
    """Per output, per input element, the differences quotient of each output element.

    The input is moved in place, so that the function is called with the very tensors whose gradients are checked.
    """
    data = inputs[which].detach()
    columns: list[list[list[float]]] = []
    values = data.reshape(-1).tolist()
    steps = (eps, eps * 1j) if data.is_complex() else (eps,)
    for value, i, step in ((value, i, step) for i, value in enumerate(values) for step in steps):
        place = _place(data.shape, i)
        above: list[list[float]] = []
        below: list[list[float]] = []
        try:
            for side, moved in ((above, value + step), (below, value - step)):
                data[place] = moved
                side += [_flat(o) for o in _outputs(function, inputs)]
        finally:
            data[place] = value
        pairs = zip(above, below, strict=True)
        columns.append([[(a - b) / (2 * eps) for a, b in zip(up, down, strict=True)] for up, down in pairs])
    outputs = len(columns[0]) if columns else len(_outputs(function, inputs))
    return [[column[o] for column in columns] for o in range(outputs)]


def _analytical(output: Tensor, checked: Sequence[Tensor], dtypes: bool = False) -> list[list[list[float]]]:
    """Per input, per output element, the gradient of each input element."""
    rows: list[list[list[float]]] = [[] for _ in checked]
    for i in range(_size(output)):
        grads = grad(output, checked, _unit(output, i), retain_graph=True, allow_unused=True)
        for row, t, g in zip(rows, checked, grads, strict=True):
            if dtypes and g is not None and g.dtype != t.dtype:
                raise GradcheckError(f"Gradient has dtype mismatch: {g.dtype} for an input of {t.dtype}")
            row.append([0.0] * _size(t) if g is None else _flat(g))
    return rows


class _Projection:
    """Random directions of inputs and outputs: what is compared in fast mode is how far each output goes along its own
    when an input does. Their parts are positive, so that what differs in one place is not made up for in another."""

    def __init__(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        self._generator = _C.Generator().manual_seed(0)
        self.inputs = [self._direction(t) for t in inputs]
        self.outputs = [self._direction(t) for t in outputs]

    def _direction(self, t: Tensor) -> Tensor:
        numbers = _C.rand(_size(t), generator=self._generator, dtype=_C.float64, device="cpu")
        return numbers / numbers.square().sum().sqrt() if _size(t) else numbers

    def along(self, output: int, values: Tensor) -> float:
        """How far `values` are along the output's direction."""
        numbers = _C.tensor(_flat(values), dtype=_C.float64, device="cpu")
        return float((numbers * self.outputs[output]).sum())

    def numerical(
        self, function: Callable[..., Any], inputs: Sequence[Any], place: int, k: int, eps: float
    ) -> list[float]:
        """Per output, what the differences quotient goes along its direction."""
        data = inputs[place].detach()
        own, step = data.clone(), _shaped(self.inputs[k] * eps, data)
        sides: list[list[float]] = []
        try:
            for moved in (own + step, own - step):
                data.copy_(moved)
                sides.append([self.along(o, y) for o, y in enumerate(_outputs(function, inputs))])
        finally:
            data.copy_(own)
        return [(a - b) / (2 * eps) for a, b in zip(*sides, strict=True)]

    def analytical(
        self, outputs: Sequence[Tensor], o: int, checked: Sequence[Tensor], dtypes: bool = False
    ) -> list[float]:
        """Per input, what the gradient of how far the output goes along its direction goes along the input's."""
        weight = _shaped(self.outputs[o], outputs[o])
        found = []
        grads = grad(outputs[o], checked, weight, retain_graph=True, allow_unused=True)
        for t, g, own in zip(checked, grads, self.inputs, strict=True):
            if dtypes and g is not None and g.dtype != t.dtype:
                raise GradcheckError(f"Gradient has dtype mismatch: {g.dtype} for an input of {t.dtype}")
            numbers = [0.0] * _size(t) if g is None else _flat(g)
            found.append(float((_C.tensor(numbers, dtype=_C.float64, device="cpu") * own).sum()))
        return found

    def forward(self, function: Callable[..., Any], inputs: Sequence[Any], place: int, k: int) -> list[float]:
        """As `numerical`, by tangents."""
        from lucid.autograd import forward_ad

        x = inputs[place]
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, _shaped(self.inputs[k], x))
            pairs = [
                forward_ad.unpack_dual(y) for y in _outputs(function, [*inputs[:place], dual, *inputs[place + 1 :]])
            ]
            return [0.0 if t is None else self.along(o, t) for o, (_, t) in enumerate(pairs)]

    def compare(self, want: float, got: float, k: int, o: int, how: _How, where: str) -> None:
        """Refuses two numbers that differ by more than as many elements may."""
        atol = how.atol * float(self.inputs[k].sum() * self.outputs[o].sum())
        if not abs(got - want) <= atol + how.rtol * abs(want):
            raise GradcheckError(
                f"Jacobian mismatch for {where},\nnumerical:{want}\nanalytical:{got}\n"
                "The numbers are of one random projection of the Jacobian, as fast mode takes it: without "
                "fast_mode=True all of it is shown.\n"
            )


def gradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Are the gradients of `func` at `inputs` those that finite differences give?

    Checks every floating input that requires a gradient, against every floating output that does; where none does, none
    may depend on the inputs. Inputs should be float64 or complex128: others are warned of.
    Raises `GradcheckError` where they differ by more than `atol + rtol * |numerical|`, or gives `False` unless
    `raise_exception`. `nondet_tol` is how far two backward passes may differ. Gradients must also be zero for weights
    of zero, have their inputs' dtypes with `check_grad_dtypes`, and with `check_undefined_grad` be undefined or zero
    where the outputs' are undefined.

    `check_forward_ad` checks tangents (`lucid.autograd.forward_ad`) likewise, `check_batched_grad` that gradients of
    several weights at once are those of one after another, `check_batched_forward_grad` the same of tangents;
    `check_backward_ad=False` leaves the backward passes out. `masked` is of sparse inputs; there are none.
    Complex inputs and outputs count as their real and imaginary parts; complex64 is not precise enough for the default
    `eps` and tolerances, complex128 is.
    With `fast_mode` a random projection of the Jacobian is compared in place of all of it (Baydin et al., 2022): two
    calls of `func` for each input and one backward pass for each output, whatever their sizes.
    """
    if not (check_backward_ad or check_forward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_grad and not check_backward_ad:
        raise AssertionError("Setting check_batched_grad=True requires check_backward_ad to be True")
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    how = _How(
        check_backward_ad,
        check_forward_ad,
        check_batched_grad,
        check_batched_forward_grad,
        check_undefined_grad and check_backward_ad,
        check_grad_dtypes,
        fast_mode,
        eps,
        atol,
        rtol,
        nondet_tol,
    )
    try:
        _check(func, _listed(inputs), how)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


class _How(NamedTuple):
    """Which ways to a Jacobian are checked, and how far they may be apart."""

    backward: bool
    forward: bool
    batched: bool
    batched_forward: bool
    undefined: bool
    dtypes: bool
    fast: bool
    eps: float
    atol: float
    rtol: float
    nondet_tol: float


def _check(func: Callable[..., Any], inputs: tuple[Any, ...], how: _How) -> None:
    places = [i for i, t in enumerate(inputs) if isinstance(t, Tensor) and t.requires_grad and _varies(t)]
    if not places:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the floating ones does."
        )
    for i in places:
        if inputs[i].dtype.to_real() is not _C.float64:
            warn(
                f"Input #{i} requires gradient and is not a double precision floating point. This check will likely "
                "fail if all the inputs are not of double precision floating point."
            )
        if any(step == 0 and size > 1 for size, step in zip(inputs[i].shape, inputs[i].stride(), strict=True)):
            raise RuntimeError(
                f"The {i}th input has a dimension with stride 0. gradcheck moves elements one by one and cannot where "
                "several are at one place: call .contiguous on the input before passing it to gradcheck."
            )
    checked = [inputs[i] for i in places]
    if how.fast:
        _check_fast(func, inputs, places, how)
        return
    # The inputs are moved before the graph is made: it would refuse to run after.
    numerical = [_numerical(func, inputs, i, how.eps) for i in places]
    outputs = _outputs(func, inputs)
    followed = [o for o, output in enumerate(outputs) if output.requires_grad]
    if not followed and any(abs(v) > how.atol for of_input in numerical for v in _leaves(of_input)):
        raise GradcheckError("Numerical gradient for function expected to be zero")
    for o in followed if how.backward else ():
        rows = _analytical(outputs[o], checked, how.dtypes)
        for k, place in enumerate(places):
            columns = [[row[j] for row in rows[k]] for j in range(_size(checked[k]))]
            _compare(numerical[k][o], columns, how, f"output {o} with respect to input {place}")
        _compare_runs(rows, _analytical(outputs[o], checked), how.nondet_tol)
        if how.batched:
            _compare_batched(rows, _batched(outputs[o], checked), how, o)
    if how.backward and followed:
        _check_scaled([outputs[o] for o in followed], checked)
    if how.undefined:
        _check_undefined([outputs[o] for o in followed])
    if how.forward:
        for k, place in enumerate(places):
            tangents = _forward(func, inputs, place)
            for o in followed:
                where = f"output {o} with respect to input {place} in forward mode"
                _compare(numerical[k][o], tangents[o], how, where)
            if how.batched_forward:
                together = _batched_forward(func, inputs, place)
                for o in followed:
                    _compare(tangents[o], together[o], how, f"output {o}, of tangents one by one and at once,")


def _check_fast(func: Callable[..., Any], inputs: tuple[Any, ...], places: list[int], how: _How) -> None:
    """`_check` by a random projection."""
    checked = [inputs[i] for i in places]
    along = _Projection(checked, _outputs(func, inputs))
    numerical = [along.numerical(func, inputs, place, k, how.eps) for k, place in enumerate(places)]
    outputs = _outputs(func, inputs)
    followed = [o for o, output in enumerate(outputs) if output.requires_grad]
    if not followed and any(abs(v) > how.atol for of_input in numerical for v in of_input):
        raise GradcheckError("Numerical gradient for function expected to be zero")
    for o in followed if how.backward else ():
        found = along.analytical(outputs, o, checked, how.dtypes)
        for k, place in enumerate(places):
            where = f"output {o} with respect to input {place}"
            along.compare(numerical[k][o], found[k], k, o, how, where)
        _compare_runs([[found]], [[along.analytical(outputs, o, checked)]], how.nondet_tol)
        if how.batched:
            _compare_batched(_analytical(outputs[o], checked), _batched(outputs[o], checked), how, o)
    if how.backward and followed:
        _check_scaled([outputs[o] for o in followed], checked)
    if how.undefined:
        _check_undefined([outputs[o] for o in followed])
    for k, place in enumerate(places if how.forward else ()):
        tangents = along.forward(func, inputs, place, k)
        for o in followed:
            where = f"output {o} with respect to input {place} in forward mode"
            along.compare(numerical[k][o], tangents[o], k, o, how, where)
        if how.batched_forward:
            alone, together = _forward(func, inputs, place), _batched_forward(func, inputs, place)
            for o in followed:
                _compare(alone[o], together[o], how, f"output {o}, of tangents one by one and at once,")


def _compare(want: list[list[float]], got: list[list[float]], how: _How, where: str) -> None:
    """Two Jacobians, per input element the derivatives of each output element."""
    pairs = zip([v for row in want for v in row], [v for row in got for v in row], strict=True)
    if not all(abs(b - a) <= how.atol + how.rtol * abs(a) for a, b in pairs):
        raise GradcheckError(
            f"Jacobian mismatch for {where},\nnumerical:{_C.tensor(want)}\nanalytical:{_C.tensor(got)}\n"
        )


def _check_scaled(outputs: list[Tensor], checked: Sequence[Tensor]) -> None:
    """Weights of zero give gradients of zero."""
    zeros = [_C.zeros_like(o) for o in outputs]
    for g in grad(outputs, checked, zeros, retain_graph=True, allow_unused=True):
        if g is not None and any(_flat(g)):
            raise GradcheckError("backward not multiplied by grad_output")


def _check_undefined(outputs: list[Tensor]) -> None:
    """The steps that made the outputs, given no gradients, give none or zeros."""
    for output in outputs:
        node, advice = output.grad_fn, 'Please look at "Notes about undefined output gradients" of PyTorch'
        if node is None:
            continue
        try:
            found = _listed(node(*[None] * node._results()))
        except RuntimeError as e:
            raise GradcheckError(f"Expected backward function to handle undefined output grads. {advice}") from e
        if any(g is not None and any(_flat(g)) for g in found):
            raise GradcheckError(
                "Expected all input grads to be undefined or zero when all output grads are undefined or zero. "
                + advice
            )


def _forward(function: Callable[..., Any], inputs: Sequence[Any], which: int) -> list[list[list[float]]]:
    """Per output, per input element, the tangent of each output element: as `_numerical` gives them."""
    from lucid.autograd import forward_ad

    x = inputs[which]
    columns = []
    for j in range(_size(x)):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, _unit(x, j))
            tangents = [
                forward_ad.unpack_dual(y) for y in _outputs(function, [*inputs[:which], dual, *inputs[which + 1 :]])
            ]
            columns.append([[0.0] * _size(y) if t is None else _flat(t) for y, t in tangents])
    outputs = len(columns[0]) if columns else len(_outputs(function, inputs))
    return [[column[o] for column in columns] for o in range(outputs)]


def _batched(output: Tensor, checked: Sequence[Tensor]) -> list[list[list[float]]]:
    """As `_analytical`, by one pass for all output elements."""
    n = _size(output)
    weights = _shaped(_C.eye(n, dtype=_C.float64, device="cpu"), output)
    grads = grad(output, checked, weights, retain_graph=True, allow_unused=True, is_grads_batched=True)
    return [
        [[0.0] * _size(t) for _ in range(n)] if g is None else [_flat(row) for row in g.detach()]
        for t, g in zip(checked, grads, strict=True)
    ]


def _compare_batched(first: list[list[list[float]]], second: list[list[list[float]]], how: _How, output: int) -> None:
    for a, b in zip(_leaves(first), _leaves(second), strict=True):
        if not abs(a - b) <= how.atol + how.rtol * abs(a):
            raise GradcheckError(f"batched gradients of output {output} are not those one by one: {b!r} and {a!r}")


def _compare_runs(first: list[list[list[float]]], second: list[list[list[float]]], tol: float) -> None:
    for a, b in zip(_leaves(first), _leaves(second), strict=True):
        if not (abs(a - b) <= tol or (a != a and b != b)):
            raise GradcheckError(
                "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times "
                "gives different values, although analytical gradient matches numerical gradient. The tolerance for "
                f"nondeterminism was {tol}."
            )


def _batched_forward(function: Callable[..., Any], inputs: Sequence[Any], which: int) -> list[list[list[float]]]:
    """As `_forward`, with all tangents at once."""
    from lucid.func import jvp, vmap

    x = inputs[which].detach()

    def pushed(v: Tensor) -> list[Tensor]:
        found = jvp(lambda t: tuple(_outputs(function, [*inputs[:which], t, *inputs[which + 1 :]])), (x,), (v,))[1]
        return list(found)

    steps = _shaped(_C.eye(_size(x), dtype=_C.float64, device="cpu"), x)
    return [[_flat(row) for row in y.detach()] for y in vmap(pushed)(steps)]


def _leaves(nested: list[list[list[float]]]) -> list[float]:
    return [v for rows in nested for row in rows for v in row]


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    gen_non_contig_grad_outputs: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """`gradcheck` of the gradients of `func`, with respect to the inputs and to the outputs' weights.

    The weights are random unless `grad_outputs` gives them. `check_fwd_over_rev` checks the gradients' tangents,
    `check_rev_over_rev` their gradients; the rest is as there.

    Args:
        func (Callable[..., Any]): a differentiable function of tensors.
        inputs (Tensor | Sequence[Any]): its arguments, tensors of any shapes, float64 where they are checked.
        grad_outputs (Tensor | Sequence[Tensor], optional): the gradients with respect to the outputs, of their
            shapes; random by default.
        eps (float, default: 1e-06): the step of the finite differences.
        atol (float, default: 1e-05): the absolute tolerance.
        rtol (float, default: 0.001): the relative tolerance.
        raise_exception (bool, default: True): raises an error where the check fails, rather than returning False.
        nondet_tol (float, default: 0.0): how much two runs may differ.
        check_undefined_grad (bool, default: True): also checks that missing gradients count as zeros.
        check_grad_dtypes (bool, default: False): also checks that gradients have the dtypes of the inputs.
        gen_non_contig_grad_outputs (bool, default: False): makes `grad_outputs` that are not contiguous.
        check_batched_grad (bool, default: False): also checks gradients by `vmap`.
        check_fwd_over_rev (bool, default: False): also checks the tangents of the gradients.
        check_rev_over_rev (bool, default: True): checks the gradients of the gradients.
        fast_mode (bool, default: False): compares random projections of the Jacobians alone.
        masked (bool, default: False): for sparse inputs, whose zeros are not differentiated.

    Returns:
        bool: whether the check passed.

    Raises:
        GradcheckError: the check failed, with `raise_exception`.

    Example:
        >>> x = lucid.tensor([1.0, 2.0], dtype=lucid.float64, requires_grad=True)
        >>> lucid.autograd.gradgradcheck(lambda x: x.sin(), (x,))
        True
    """
    args = _listed(inputs)
    outputs = [o for o in _outputs(func, args) if o.requires_grad]
    if grad_outputs is None:
        generator = _C.Generator()
        weights = [
            _C.randn(tuple(o.shape), generator=generator, dtype=o.dtype, device=o.device).requires_grad_()
            for o in outputs
        ]
        if gen_non_contig_grad_outputs:
            weights = [_non_contiguous(w) for w in weights]
    else:
        weights = [w.detach().requires_grad_() for w in _listed(grad_outputs)]
    if len(weights) != len(outputs):
        raise ValueError(f"gradgradcheck expects {len(outputs)} grad_outputs, got {len(weights)}")
    split = len(args)

    def gradients(*values: Any) -> tuple[Tensor, ...]:
        own, given = values[:split], values[split:]
        checked = [t for t in own if isinstance(t, Tensor) and t.requires_grad]
        made = [o for o in _outputs(func, own) if o.requires_grad]
        found = grad(made, checked, given, create_graph=True, allow_unused=True)
        return tuple(_C.zeros_like(t) if g is None else g for t, g in zip(checked, found, strict=True))

    return gradcheck(
        gradients,
        (*args, *weights),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
        masked=masked,
    )


def _non_contiguous(t: Tensor) -> Tensor:
    if t.ndim == 0:
        return t
    wide = _C.stack([t.detach(), t.detach()], -1)
    return wide.select(-1, 0).requires_grad_()
