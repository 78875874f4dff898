"""Custom ops, as `torch.library`: functions with a schema, kernels by device, gradients, and rules for vmap.

A custom op is a function like Lucid's own: it is one node on the tape, `vmap` knows it, autocast can cast its inputs,
and it is reached as `lucid.ops.namespace.name`. `custom_op` makes one of an annotated function; `Library` and the
functions beside it build one of a schema in text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import lucid
from lucid import errors
from lucid._warnings import warn_without_effect
from lucid.library import _schema
from lucid.library._operator import KEYS, OPERATORS, Operator, device_key
from lucid.library._registration import (
    _name,
    _operator,
    _register,
    impl_abstract,
    register_autocast,
    register_autograd,
    register_fake,
    register_kernel,
    register_torch_dispatch,
    register_vmap,
)

#: The functions that libraries registered: an op's name and a dispatch key.
_REGISTERED: set[tuple[str, str]] = set()

__all__ = [
    "CustomOpDef",
    "Library",
    "custom_op",
    "define",
    "fallthrough_kernel",
    "get_ctx",
    "get_kernel",
    "impl",
    "impl_abstract",
    "infer_schema",
    "opcheck",
    "register_autocast",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_torch_dispatch",
    "register_vmap",
    "triton_op",
    "wrap_triton",
]


def infer_schema(prototype_function: Callable[..., Any], /, *, mutates_args: Any, op_name: str | None = None) -> str:
    """Reads the schema of a function from its annotations.

    Args:
        prototype_function (Callable[..., Any]): every argument and the result have annotations: `Tensor`, `int`,
            `float`, `bool`, `str`, `dtype`, `device`, lists and `Optional` of these, and tuples of results.
        mutates_args (object): the names of the arguments that it writes to, or `"unknown"`: all tensors.
        op_name (str, optional): the name before the schema.

    Returns:
        The schema as text.

    Raises:
        ValueError: an annotation is missing or of another type.

    Example:
        >>> def f(x: lucid.Tensor, n: int = 2) -> lucid.Tensor: ...
        >>> lucid.library.infer_schema(f, mutates_args=())
        '(Tensor x, SymInt n=2) -> Tensor'
    """
    return _schema.infer(prototype_function, mutates_args, op_name)


class CustomOpDef:
    """A custom op: called like the function that it was made of; its methods register gradients, kernels and rules.

    `custom_op` makes it.

    Args:
        namespace (str): the part of the name before `::`.
        name (str): the part after it.
        schema (str): the arguments and results, such as `(Tensor x, float a) -> Tensor`.
        fn (callable): computes the op.

    Example:
        >>> @lucid.library.custom_op("guide::scaled", mutates_args=())
        ... def scaled(x: lucid.Tensor, a: float) -> lucid.Tensor:
        ...     return x * a
        >>> scaled.register_autograd(lambda ctx, grad: (grad * 2.0, None))
        >>> scaled(lucid.ones(2), 2.0)
        tensor([2., 2.])
    """

    def __init__(self, namespace: str, name: str, schema: str, fn: Callable[..., Any]) -> None:
        self._namespace, self._name, self._init_fn = namespace, name, fn
        self._opoverload = Operator(f"{namespace}::{name}", schema)
        self._opoverload.is_custom_op = True
        OPERATORS[self._qualname] = self._opoverload

    @property
    def _qualname(self) -> str:
        return f"{self._namespace}::{self._name}"

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._opoverload(*args, **kwargs)

    def register_kernel(self, device_types: Any, fn: Callable[..., Any] | None = None, /) -> Any:
        """Registers the kernel of one or several devices; see `lucid.library.register_kernel`."""
        return register_kernel(self, device_types, fn)

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Registers the function of shapes and dtypes; see `lucid.library.register_fake`."""
        register_fake(self, fn)
        return fn

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        """Registers the gradient; see `lucid.library.register_autograd`."""
        register_autograd(self, backward, setup_context=setup_context)

    def register_vmap(self, func: Callable[..., Any] | None = None) -> Any:
        """Registers the rule for vmap; see `lucid.library.register_vmap`."""
        return register_vmap(self, func)

    def register_autocast(self, device_type: str, cast_inputs: lucid.dtype) -> None:
        """Registers the dtype of inputs under autocast; see `lucid.library.register_autocast`."""
        register_autocast(self, device_type, cast_inputs)

    def register_torch_dispatch(self, torch_dispatch_class: Any, fn: Callable[..., Any] | None = None, /) -> Any:
        """Registers a function for a subclass; see `lucid.library.register_torch_dispatch`."""
        return register_torch_dispatch(self, torch_dispatch_class, fn)

    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Any:
        """A block in which the kernel of a device is on, or off for the function that the op was made of."""
        import contextlib

        key = device_key(device_type)
        op = self._opoverload
        former = key in op.disabled
        (op.disabled.discard if enabled else op.disabled.add)(key)
        block = contextlib.ExitStack()
        block.callback(lambda: (op.disabled.add if former else op.disabled.discard)(key))
        return block


def _tags(given: Any) -> list[Any]:
    """Tags as a list: one, several or none of them."""
    if given is None:
        return []
    return list(given) if isinstance(given, (list, tuple, set, frozenset)) else [given]


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: str | Iterable[str] | None = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """Makes a custom op of a function.

    Differences from PyTorch: an op without a rule for vmap is called once for each sample.

    Args:
        name (str): `namespace::name`.
        fn (Callable[..., Any], optional): the function, its arguments and result annotated; or `None` for a
            decorator. Its results must be no arguments of it.
        mutates_args (str | Iterable[str]): the names of the arguments that it writes to, or `"unknown"`.
        device_types (str | Iterable[str], optional): the devices that it is a kernel of; `None` for all.
        schema (str, optional): instead of one from annotations.
        tags (object, optional): one or several, which become the op's `tags`; they tell a compiler what it may do.

    Returns:
        A `CustomOpDef`, or the decorator.

    Raises:
        ValueError: the name, an annotation or the schema cannot be read.

    Example:
        >>> @lucid.library.custom_op("docs::double", mutates_args=())
        ... def double(x: lucid.Tensor) -> lucid.Tensor:
        ...     return lucid.from_numpy(x.numpy() * 2)
        >>> double.register_autograd(lambda ctx, grad: grad * 2)
        >>> x = lucid.ones(2, requires_grad=True)
        >>> double(x).sum().backward()
        >>> x.grad
        tensor([2., 2.])
        >>> lucid.ops.docs.double(lucid.ones(1))
        tensor([2.])
    """

    def make(function: Callable[..., Any]) -> CustomOpDef:
        text = _schema.infer(function, mutates_args) if schema is None else schema
        if "::" in text.split("(")[0]:
            raise errors.ValueError(f"custom_op({name!r}): the schema must have no name, got {schema!r}")
        namespace, _, short = _name(name).partition("::")
        made = CustomOpDef(namespace, short, text, function)
        made._opoverload.tags = _tags(tags)
        register_kernel(made, device_types, function)
        return made

    return make if fn is None else make(fn)


def define(qualname: str, schema: str, *, lib: Library | None = None, tags: Any = ()) -> None:
    """Defines an op by its schema; kernels are registered afterwards.

    Args:
        qualname (str): `namespace::name`.
        schema (str): `(Tensor x, float y=1.0) -> Tensor`.
        lib (Library, optional): a library that the op is removed with.
        tags (object, optional): see `custom_op`.

    Raises:
        ValueError: the name or the schema cannot be read.
        RuntimeError: the op is there already.

    Example:
        >>> lucid.library.define("docs::plus_one", "(Tensor x) -> Tensor")
        >>> @lucid.library.impl("docs::plus_one", "default")
        ... def plus_one(x):
        ...     return x + 1
        >>> lucid.ops.docs.plus_one(lucid.zeros(1))
        tensor([1.])
    """
    if not isinstance(schema, str):
        raise errors.ValueError(f"define({qualname!r}): expected the schema to be a str, got {type(schema).__name__}")
    name = _name(qualname)
    if name in OPERATORS:
        raise errors.RuntimeError(f"define(): the op {name} is there already")
    OPERATORS[name] = Operator(name, schema)
    OPERATORS[name].tags = _tags(tags)
    if lib is not None:
        lib._defined.append(name)


def impl(qualname: Any, types: Any, func: Callable[..., Any] | None = None, *, lib: Library | None = None) -> Any:
    """Registers the function that computes an op, for one device or several.

    Args:
        qualname (str or Library): `namespace::name`. Or a `Library`; then `types` is the op's name and `func` a
            dispatch key.
        types (str or sequence of str): `"cpu"`, `"cuda"`, …, several of these, or `"default"` for all devices.
        func (callable, optional): the function; without it the result is a decorator.
        lib (Library, optional): a library that takes the registration back when it is destroyed.

    Returns:
        callable: the function itself, or a decorator.

    Raises:
        RuntimeError: there is no such op, or no such device.

    Example:
        >>> lucid.library.define("guide::half_of", "(Tensor x) -> Tensor")
        >>> @lucid.library.impl("guide::half_of", "cpu")
        ... def half_of(x):
        ...     return x / 2
        >>> lucid.ops.guide.half_of(lucid.ones(2))
        tensor([0.5000, 0.5000])
    """
    if isinstance(qualname, Library):
        key: Any = func or ""

        def of_library(function: Callable[..., Any]) -> Callable[..., Any]:
            qualname.impl(types, function, key)
            return function

        return of_library
    op = _operator(qualname)
    given = [types] if isinstance(types, str) else list(types)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for kind in given:
            key = "any" if kind == "default" else KEYS.get(kind) or device_key(kind)
            _register(op, key, function, lib)
        return function

    return register if func is None else register(func)


class Library:
    """Ops of a namespace, defined and implemented by hand.

    Args:
        ns (str): the namespace.
        kind (str): `"DEF"`, `"FRAGMENT"` or `"IMPL"`.
        dispatch_key (str, default: ""): the key of `impl` by default.

    Raises:
        ValueError: another kind.

    Example:
        >>> lib = lucid.library.Library("docs2", "DEF")
        >>> lib.define("twice(Tensor x) -> Tensor")
        'twice'
        >>> lib.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        >>> lucid.ops.docs2.twice(lucid.ones(1))
        tensor([2.])
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise errors.ValueError(f"Unsupported kind: {kind}")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._defined: list[str] = []
        self._registered: list[tuple[str, str]] = []
        self._undo: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Defines an op by its schema, with its name before it; gives the name.

        Raises:
            ValueError: the schema cannot be read.
            RuntimeError: the op is there already.
        """
        name, _ = _schema.parse(schema)
        name = name.removeprefix(f"{self.ns}::")
        define(f"{self.ns}::{name}", schema[schema.index("(") :], lib=self, tags=tags)
        return name

    def impl(
        self,
        op_name: Any,
        fn: Callable[..., Any],
        dispatch_key: str = "",
        *,
        with_keyset: bool = False,
        allow_override: bool = True,
    ) -> None:
        """Registers a function of an op for a dispatch key: `"CPU"`, `"CUDA"`, `"Meta"`, `"Autograd"`, …

        Args:
            allow_override (bool, optional): whether it may take the place of one that a library registered before.
                Default: True.

        Raises:
            RuntimeError: there is no such op, or the key has a function.
            ValueError: there is no such key.
        """
        key = dispatch_key or self.dispatch_key
        if key not in KEYS:
            raise errors.ValueError(f"Library.impl(): expected a dispatch key of {sorted(KEYS)}, got {key!r}")
        if with_keyset:
            raise errors.NotImplementedError("Library.impl(): there are no key sets; leave with_keyset out")
        found = _operator(op_name if isinstance(op_name, Operator) else self._full(op_name))
        registered = (self._full(str(op_name)), key)
        if registered in _REGISTERED and not allow_override:
            raise errors.RuntimeError(
                f"Library.impl(): {registered[0]} has a function for the dispatch key {key} that a library registered; "
                "leave allow_override out to replace it"
            )
        if fn is not fallthrough_kernel:
            _register(found, KEYS[key], fn, self)
        _REGISTERED.add(registered)
        self._registered.append(registered)

    def _full(self, name: str) -> str:
        name = name.removesuffix(".default")
        return name if "::" in name else f"{self.ns}::{name}"

    def _register_fake(self, op_name: str, fn: Callable[..., Any], **options: Any) -> None:
        register_fake(self._full(op_name), fn, lib=self, allow_override=bool(options.get("allow_override", True)))

    def fallback(self, fn: Callable[..., Any], dispatch_key: str = "", *, with_keyset: bool = False) -> None:
        """A kernel for all ops that have none, in PyTorch.

        Raises:
            NotImplementedError: always; register a kernel for each op.
        """
        raise errors.NotImplementedError("Library.fallback(): register a kernel for each op with Library.impl")

    def _destroy(self) -> None:
        """Removes the ops that it defined, and what was registered with it."""
        for undo in self._undo:
            undo()
        self._undo.clear()
        for name in self._defined:
            OPERATORS.pop(name, None)
        self._defined.clear()
        _REGISTERED.difference_update(self._registered)
        self._registered.clear()


def fallthrough_kernel(*args: Any, **kwargs: Any) -> Any:
    """Leaves a dispatch key to the next one, where `Library.impl` gets it as the kernel. It is never called.

    Args:
        args (object): never used.
        kwargs (object): never used.

    Returns:
        object: nothing.

    Raises:
        NotImplementedError: it is called.

    Example:
        >>> lib = lucid.library.Library("guide2", "DEF")
        >>> _ = lib.define("same(Tensor x) -> Tensor")
        >>> lib.impl("same", lucid.library.fallthrough_kernel, "AutogradCPU")
    """
    raise errors.NotImplementedError("fallthrough_kernel() should never be called.")


def get_kernel(op: Any, dispatch_key: Any, **options: Any) -> Callable[..., Any]:
    """Gives the function that is registered for an op and a dispatch key.

    Args:
        op (str, Operator or CustomOpDef): the op or its name.
        dispatch_key (str or enum member): `"CPU"`, `"CUDA"`, `"Autograd"`, ….
        options (object): PyTorch's others; ignored.

    Returns:
        callable: the function.

    Raises:
        RuntimeError: there is no such op, or it has no function for the key.

    Example:
        >>> @lucid.library.custom_op("guide::same", mutates_args=())
        ... def same(x: lucid.Tensor) -> lucid.Tensor:
        ...     return x.clone()
        >>> lucid.library.get_kernel("guide::same", "CPU")(lucid.ones(1))
        tensor([1.])
    """
    found = _operator(op)
    name = getattr(dispatch_key, "name", str(dispatch_key))
    kernel = found.kernels.get(KEYS.get(name, name)) or found.kernels.get("any")
    if kernel is None:
        raise errors.RuntimeError(f"get_kernel(): {found._qualname} has no kernel for {name}")
    return kernel


def get_ctx() -> Any:
    """The context of a function of shapes, for sizes that are not known before a call.

    Raises:
        RuntimeError: always; it is only there while a program is traced, which does not happen.
    """
    raise errors.RuntimeError("get_ctx(): there are no symbolic sizes; compute the size from the tensors")


def opcheck(
    op: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: Any = ("test_schema", "test_autograd_registration", "test_faketensor"),
    raise_exception: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, str]:
    """Tests what was registered for an op, on one call of it.

    Args:
        op (Operator or CustomOpDef): what `custom_op` or `lucid.ops` gives.
        args (tuple): the call's positional arguments.
        kwargs (dict, optional): the call's named arguments.
        test_utils (str or sequence of str, optional): which tests: `"test_schema"` (only what the schema says is
            written to, and results are no arguments), `"test_autograd_registration"` (inputs that need a gradient get
            one), `"test_faketensor"` (the function of `register_fake` gives the kernel's shapes and dtypes). Default:
            all three.
        raise_exception (bool, optional): whether a failure is raised, or given in the result. Default: True.
        atol (float, optional): nothing is compared within a tolerance; a number gives one warning.
        rtol (float, optional): nothing is compared within a tolerance; a number gives one warning.

    Returns:
        dict of str to str: by test `"SUCCESS"`, or the error.

    Raises:
        RuntimeError: a test fails, and `raise_exception` is True.

    Example:
        >>> @lucid.library.custom_op("guide::tripled", mutates_args=())
        ... def tripled(x: lucid.Tensor) -> lucid.Tensor:
        ...     return x * 3
        >>> lucid.library.opcheck(tripled, (lucid.ones(2),), test_utils="test_schema")
        {'test_schema': 'SUCCESS'}
    """
    warn_without_effect(
        "opcheck", "no values are compared within a tolerance", atol=atol is not None, rtol=rtol is not None
    )
    from lucid.library._opcheck import run

    names = [test_utils] if isinstance(test_utils, str) else list(test_utils)
    return run(_operator(op), args, kwargs or {}, names, raise_exception)


def triton_op(name: str, fn: Any = None, /, *, mutates_args: Any, schema: str | None = None) -> Any:
    """Refuses to make an op of Triton's kernels, which do not run here.

    Args:
        name (str): `namespace::name`.
        fn (callable, optional): calls the kernels.
        mutates_args (sequence of str): the names of arguments that are written to.
        schema (str, optional): the arguments and results.

    Returns:
        callable: nothing here; the op in PyTorch.

    Raises:
        NotImplementedError: always; `lucid.metal.run_kernel` and `lucid.cuda.run_kernel` run source code.

    Example:
        >>> lucid.library.triton_op("guide::add", mutates_args=())
        Traceback (most recent call last):
        ...
        lucid.errors.NotImplementedError: triton_op(): Triton's kernels do not run here; ...
    """
    raise errors.NotImplementedError(
        "triton_op(): Triton's kernels do not run here; see lucid.metal for custom kernels"
    )


def wrap_triton(triton_kernel: Any, /) -> Any:
    """Refuses a kernel of Triton's, which does not run here.

    Args:
        triton_kernel (callable): what `triton.jit` gives.

    Returns:
        callable: nothing here; what PyTorch's compiler traces.

    Raises:
        NotImplementedError: always; `lucid.metal.run_kernel` and `lucid.cuda.run_kernel` run source code.

    Example:
        >>> lucid.library.wrap_triton(lambda: None)
        Traceback (most recent call last):
        ...
        lucid.errors.NotImplementedError: wrap_triton(): Triton's kernels do not run here; ...
    """
    raise errors.NotImplementedError(
        "wrap_triton(): Triton's kernels do not run here; see lucid.metal for custom kernels"
    )
