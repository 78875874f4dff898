"""What is registered for an op: kernels, gradients, batching rules and casts under autocast."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import lucid
from lucid import errors
from lucid.library._operator import OPERATORS, Operator, device_key

if TYPE_CHECKING:
    from lucid.library import Library


def _name(qualname: str) -> str:
    """Checks a name of the form `namespace::name`."""
    if not isinstance(qualname, str) or not re.fullmatch(r"\w+::\w+(\.\w+)?", qualname):
        raise errors.ValueError(f"expected a name of the form 'namespace::name', got {qualname!r}")
    return qualname.removesuffix(".default")


def _operator(op: Any) -> Operator:
    """The op of a name, an op, or a `CustomOpDef`."""
    op = getattr(op, "_opoverload", op)
    if isinstance(op, Operator):
        return op
    found = OPERATORS.get(_name(op))
    if found is None:
        raise errors.RuntimeError(f"there is no op {op}; define it with custom_op, define or Library.define")
    return found


def _register(op: Operator, kind: str, fn: Callable[..., Any], lib: Library | None = None) -> None:
    if kind in ("autograd", "fake"):
        put(lib, op, kind, fn)
    elif kind.startswith("autocast:"):
        put(lib, op, "under_autocast", fn, kind.removeprefix("autocast:"))
    else:
        put(lib, op, "kernels", fn, kind)


def put(lib: Library | None, op: Operator, attribute: str, value: Any, key: Any = None) -> None:
    """Registers what belongs to an op; a library that is given takes it back when it is destroyed."""
    table = vars(op) if key is None else getattr(op, attribute)
    name = attribute if key is None else key
    table[name] = value
    if lib is None or value is None:
        return

    def take_back() -> None:
        if table.get(name) is value and key is None:
            table[name] = None
        elif table.get(name) is value:
            del table[name]

    lib._undo.append(take_back)


def register_kernel(
    op: Any, device_types: Any, func: Callable[..., Any] | None = None, /, *, lib: Library | None = None
) -> Any:
    """Registers the kernel of an op for one device or several.

    Args:
        op (str, Operator or CustomOpDef): the op or its name.
        device_types (str, sequence of str or None): `"cpu"`, `"cuda"` or another name of the GPU device, several of
            these, or None for all devices.
        func (callable, optional): the kernel; without it the result is a decorator.
        lib (Library, optional): a library that takes the registration back when it is destroyed.

    Returns:
        callable: the kernel itself, or a decorator.

    Raises:
        RuntimeError: there is no such op, or no such device.

    Example:
        >>> @lucid.library.custom_op("guide::shifted", mutates_args=())
        ... def shifted(x: lucid.Tensor) -> lucid.Tensor:
        ...     raise NotImplementedError
        >>> @lucid.library.register_kernel("guide::shifted", "cpu")
        ... def shifted_on_cpu(x):
        ...     return x + 1
        >>> shifted(lucid.zeros(2))
        tensor([1., 1.])
    """
    found = _operator(op)
    given = [device_types] if device_types is None or isinstance(device_types, str) else list(device_types)
    keys = [device_key(d) for d in given]

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for key in keys:
            put(lib, found, "kernels", function, key)
        return function

    return register if func is None else register(func)


def register_fake(
    op: Any,
    func: Callable[..., Any] | None = None,
    /,
    *,
    lib: Library | None = None,
    _stacklevel: int = 1,
    allow_override: bool = True,
) -> Any:
    """Registers the function that gives empty results of an op's shapes and dtypes, with which `opcheck` compares.

    Differences from PyTorch: there it runs while a program is traced. Here calls run the kernel.

    Args:
        op (str, Operator or CustomOpDef): the op or its name.
        func (callable, optional): takes the op's arguments and gives tensors of the right shape and dtype; without it
            the result is a decorator.
        lib (Library, optional): a library that takes the registration back when it is destroyed.
        allow_override (bool, optional): whether it may replace another one, as it always may of a `custom_op`.

    Returns:
        callable: the function itself, or a decorator.

    Raises:
        RuntimeError: there is no such op, or it has a function of shapes that may not be replaced.

    Example:
        >>> @lucid.library.custom_op("guide::doubled", mutates_args=())
        ... def doubled(x: lucid.Tensor) -> lucid.Tensor:
        ...     return x * 2
        >>> @lucid.library.register_fake("guide::doubled")
        ... def empty_doubled(x):
        ...     return lucid.empty_like(x)
        >>> lucid.library.opcheck(doubled, (lucid.ones(2),))["test_faketensor"]
        'SUCCESS'
    """
    found = _operator(op)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if found.fake is not None and not (allow_override or found.is_custom_op):
            raise errors.RuntimeError(
                f"register_fake(): the op {found._qualname} already has a fake impl registered; "
                "pass allow_override=True to replace it"
            )
        put(lib, found, "fake", function)
        return function

    return register if func is None else register(func)


impl_abstract = register_fake


def register_autograd(
    op: Any,
    backward: Callable[..., Any],
    /,
    *,
    setup_context: Callable[..., Any] | None = None,
    lib: Library | None = None,
) -> None:
    """Registers the gradient of an op.

    Args:
        op (str, Operator or CustomOpDef): the op or its name.
        backward (callable): `backward(ctx, *grads)` gives a gradient, or None, for each positional argument, and a list
            of them for a list of tensors. It is recorded under `create_graph`, so that gradients of gradients work.
        setup_context (callable, optional): `setup_context(ctx, inputs, output)`, or with arguments by name
            `setup_context(ctx, inputs, keyword_only_inputs, output)`: saves what `backward` needs with
            `ctx.save_for_backward`, or as attributes.
        lib (Library, optional): a library that takes the registration back when it is destroyed.

    Raises:
        RuntimeError: there is no such op, or it writes to its arguments.

    Example:
        >>> @lucid.library.custom_op("guide::squared", mutates_args=())
        ... def squared(x: lucid.Tensor) -> lucid.Tensor:
        ...     return x * x
        >>> def setup(ctx, inputs, output):
        ...     ctx.save_for_backward(inputs[0])
        >>> def backward(ctx, grad):
        ...     return 2 * grad * ctx.saved_tensors[0]
        >>> lucid.library.register_autograd("guide::squared", backward, setup_context=setup)
        >>> x = lucid.tensor(3.0, requires_grad=True)
        >>> squared(x).backward()
        >>> x.grad
        tensor(6.)
    """
    found = _operator(op)
    if found.mutated:
        raise errors.RuntimeError(
            f"Cannot register autograd formula for non-functional operator {found._qualname}: it writes to arguments"
        )
    put(lib, found, "backward", backward)
    put(lib, found, "setup", setup_context)


def register_vmap(op: Any, func: Callable[..., Any] | None = None, /, *, lib: Library | None = None) -> Any:
    """Registers the batching rule of an op: how it computes all samples of `vmap` at once.

    Args:
        op (str, Operator or CustomOpDef): the op or its name.
        func (callable, optional): `func(info, in_dims, *args, **kwargs)` gives `(result, out_dims)`; without it the
            result is a decorator.
        lib (Library, optional): a library that takes the registration back when it is destroyed.

    Returns:
        callable: the function itself, or a decorator.

    Raises:
        RuntimeError: there is no such op.

    Example:
        >>> @lucid.library.custom_op("guide::negated", mutates_args=())
        ... def negated(x: lucid.Tensor) -> lucid.Tensor:
        ...     return -x
        >>> @lucid.library.register_vmap("guide::negated")
        ... def negated_batch(info, in_dims, x):
        ...     return negated(x), in_dims[0]
        >>> lucid.vmap(negated)(lucid.ones(3, 2)).shape
        lucid.Size([3, 2])
    """
    found = _operator(op)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        put(lib, found, "vmap", function)
        return function

    return register if func is None else register(func)


def register_autocast(op: Any, device_type: str, cast_inputs: lucid.dtype, /, *, lib: Library | None = None) -> None:
    """Registers the dtype that an op's floating point inputs are cast to under autocast.

    Args:
        op (str, Operator or CustomOpDef): the op or its name.
        device_type (str): `"cpu"`, or `"cuda"` or another name of the GPU device.
        cast_inputs (dtype): what they are cast to, such as `lucid.bfloat16`.
        lib (Library, optional): a library that takes the registration back when it is destroyed.

    Raises:
        RuntimeError: there is no such op.
        ValueError: another device, or `cast_inputs` is no dtype.

    Example:
        >>> @lucid.library.custom_op("guide::copied", mutates_args=())
        ... def copied(x: lucid.Tensor) -> lucid.Tensor:
        ...     return x.clone()
        >>> lucid.library.register_autocast("guide::copied", "cpu", lucid.bfloat16)
        >>> with lucid.autocast("cpu"):
        ...     copied(lucid.ones(2)).dtype
        lucid.bfloat16
    """
    if device_type not in ("cpu", "cuda", "gpu", "mps", "metal", "mlx"):
        raise errors.ValueError(f"Unknown device type: {device_type}")
    if not isinstance(cast_inputs, lucid.dtype):
        raise errors.ValueError(f"register_autocast(): expected a dtype, got {type(cast_inputs).__name__}")
    put(lib, _operator(op), "autocast", cast_inputs, "cpu" if device_type == "cpu" else "gpu")


def register_torch_dispatch(
    op: Any, torch_dispatch_class: Any, func: Callable[..., Any] | None = None, /, *, lib: Library | None = None
) -> Any:
    """Registers what an op does with tensors of a subclass.

    Args:
        op (str, Operator or CustomOpDef): the op or its name.
        torch_dispatch_class (type): the subclass of `Tensor`.
        func (callable, optional): `func(cls, op, types, args, kwargs)`; without it the result is a decorator.
        lib (Library, optional): a library that takes the registration back when it is destroyed.

    Returns:
        callable: the function itself, or a decorator.

    Raises:
        RuntimeError: there is no such op.

    Example:
        >>> class Named(lucid.Tensor): ...
        >>> @lucid.library.custom_op("guide::kept", mutates_args=())
        ... def kept(x: lucid.Tensor) -> lucid.Tensor:
        ...     return x.clone()
        >>> @lucid.library.register_torch_dispatch("guide::kept", Named)
        ... def kept_named(cls, op, types, args, kwargs):
        ...     return "named"
        >>> kept(lucid.ones(2).as_subclass(Named))
        'named'
    """
    found = _operator(op)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        put(lib, found, "dispatch", function, torch_dispatch_class)
        return function

    return register if func is None else register(func)
