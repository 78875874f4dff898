"""Custom ops: what is registered for each, and how a call goes through autograd, vmap and autocast to a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import lucid
from lucid import errors
from lucid.autograd import Function
from lucid.library._schema import Schema, parse, tensors

OPERATORS: dict[str, Operator] = {}
"""All custom ops by `namespace::name`."""

#: What a dispatch key registers: kernels of a device, of all devices, or another kind of function.
KEYS = {
    "CPU": "cpu",
    **dict.fromkeys(("CUDA", "MPS", "XPU", "PrivateUse1"), "gpu"),
    **dict.fromkeys(("CompositeExplicitAutograd", "CompositeImplicitAutograd", "BackendSelect", ""), "any"),
    **dict.fromkeys(("Autograd", "AutogradCPU", "AutogradCUDA", "AutogradMPS"), "autograd"),
    "Meta": "fake",
    "AutocastCPU": "autocast:cpu",
    **dict.fromkeys(("AutocastCUDA", "AutocastMPS", "AutocastXPU"), "autocast:gpu"),
}


def device_key(device: Any) -> str:
    """`"cpu"`, `"gpu"`, or `"any"`, of the name of a device."""
    if device is None:
        return "any"
    kind = lucid.device(device).type if device not in ("cuda", "mps", "gpu") else "gpu"
    return "cpu" if kind == "cpu" else "gpu"


class Operator:
    """One custom op: `lucid.ops.namespace.name`, and `.default` of it.

    Called as a function of its schema's arguments. `_schema` is the text of the schema.
    """

    def __init__(self, qualname: str, schema_text: str) -> None:
        self._qualname, self._schema = qualname, f"{qualname}{schema_text}"
        self.schema: Schema = parse(schema_text)[1]
        self.__name__ = qualname.split("::")[1]
        self.__qualname__ = self._qualname
        self.kernels: dict[str, Callable[..., Any]] = {}
        self.disabled: set[str] = set()
        self.fake: Callable[..., Any] | None = None
        self.backward: Callable[..., Any] | None = None
        self.setup: Callable[..., Any] | None = None
        self.vmap: Callable[..., Any] | None = None
        self.autograd: Callable[..., Any] | None = None
        self.autocast: dict[str, lucid.dtype] = {}
        self.under_autocast: dict[str, Callable[..., Any]] = {}
        self.is_custom_op = False
        #: What `define` and `custom_op` were told of the op; kept, and read by none of Lucid's own functions.
        self.tags: list[Any] = []
        self.dispatch: dict[type, Callable[..., Any]] = {}

    @property
    def default(self) -> Operator:
        """The op itself: it has one signature."""
        return self

    @property
    def mutated(self) -> list[int]:
        """The places of the arguments that the op writes to."""
        return [i for i, a in enumerate(self.schema.arguments) if a.mutated]

    def overloads(self) -> list[str]:
        """The names of the signatures."""
        return ["default"]

    def name(self) -> str:
        """`namespace::name`."""
        return self._qualname

    def __str__(self) -> str:
        return f"{self._qualname.replace('::', '.')}.default"

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self._qualname.replace('::', '.')}', overload='default')>"

    def kernel(self, values: list[Any]) -> Callable[..., Any]:
        """The function that computes a call on the device of its tensors."""
        found = tensors(values)
        device = "cpu" if not found or found[0].is_cpu else "gpu"
        chosen = None if device in self.disabled else self.kernels.get(device)
        chosen = chosen or self.kernels.get("any")
        if chosen is None:
            there = sorted(self.kernels) or "none"
            raise errors.NotImplementedError(
                f"{self._qualname}: there is no kernel for the device {device!r} (there: {there}); "
                "register one with register_kernel or Library.impl"
            )
        return chosen

    def arguments(self, values: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Values as positional ones and ones by name."""
        args = tuple(v for a, v in zip(self.schema.arguments, values, strict=True) if not a.keyword_only)
        named = {a.name: v for a, v in zip(self.schema.arguments, values, strict=True) if a.keyword_only}
        return args, named

    def compute(self, values: list[Any]) -> Any:
        """Runs the kernel, without autograd, and checks what it gives."""
        # A kernel sees no gradients, so that it may take the numbers out of its arguments.
        values = [_detached(v) for v in values]
        args, named = self.arguments(values)
        result = self.kernel(values)(*args, **named)
        given = {id(t) for t in tensors(values)}
        results = tensors(result if isinstance(result, (list, tuple)) else [result])
        if any(id(t) in given for t in results):
            raise errors.RuntimeError(
                f"{self._qualname} (with implementation in {self.kernel(values)}): a result is one of the arguments; "
                "return a clone of it"
            )
        for i in self.mutated:
            for t in tensors([values[i]]):
                lucid.autograd.graph.increment_version(t)
        return result

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        values = self.schema.bind(self._qualname, args, kwargs)
        found = tensors(values)
        for cls, rule in self.dispatch.items():
            if any(isinstance(t, cls) for t in found):
                return rule(cls, self, tuple({type(t) for t in found}), *self.arguments(values))
        if (self.autocast or self.under_autocast) and found and lucid.is_autocast_enabled(found[0].device.type):
            device = "cpu" if found[0].is_cpu else "gpu"
            if device in self.under_autocast:
                positional, named = self.arguments(values)
                return self.under_autocast[device](*positional, **named)
            if device in self.autocast:
                with lucid.autocast(found[0].device.type, enabled=False):
                    return self(*self._cast(values, self.autocast[device]))
        if self.autograd is not None and lucid.is_grad_enabled() and any(t.requires_grad for t in found):
            positional, named = self.arguments(values)
            return self.autograd(*positional, **named)
        if not found or (self.mutated and not any(t.requires_grad for t in found) and not _in_vmap(found)):
            with lucid.no_grad():
                return self.compute(values)
        return _call(self, values)

    def _cast(self, values: list[Any], dtype: lucid.dtype) -> list[Any]:
        def cast(v: Any) -> Any:
            if isinstance(v, (list, tuple)):
                return type(v)(cast(x) for x in v)
            eligible = isinstance(v, lucid.Tensor) and v.dtype.is_floating_point and v.dtype is not lucid.float64
            return v.to(dtype) if eligible else v

        return [cast(v) for v in values]


def _detached(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_detached(v) for v in value)
    return value.detach() if isinstance(value, lucid.Tensor) and value.requires_grad else value


def _in_vmap(found: list[Any]) -> bool:
    return bool(lucid._C._vmap_active()) and any(lucid._C._vmap_parts(t) is not None for t in found)


class _Context:
    """What `setup_context` and `backward` of a custom op get: the context of a `Function`, its needs by argument."""

    def __init__(self, inner: Any, needs: tuple[Any, ...]) -> None:
        object.__setattr__(self, "_inner", inner)
        object.__setattr__(self, "needs_input_grad", needs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._inner, name, value)


def _call(op: Operator, values: list[Any]) -> Any:
    """Puts a call on the tape as one node, whose arguments are the tensors; lists of tensors are taken apart."""
    shape = [len(v) if isinstance(v, (list, tuple)) and tensors(v) else None for v in values]

    def flat(given: list[Any]) -> Iterator[Any]:
        for v, n in zip(given, shape, strict=True):
            yield from (v if n is not None else (v,))

    def whole(parts: Any) -> list[Any]:
        left = iter(parts)
        return [next(left) if n is None else [next(left) for _ in range(n)] for n in shape]

    listed: list[bool] = []

    class Custom(Function):
        @staticmethod
        def forward(*parts: Any) -> Any:
            result = op.compute(whole(parts))
            listed.append(isinstance(result, list))
            return tuple(result) if isinstance(result, list) else result

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            if op.setup is None:
                return
            inner = _Context(ctx, tuple(whole(ctx.needs_input_grad)))
            args, named = op.arguments(whole(inputs))
            output = list(output) if listed and listed[-1] else output
            if named:
                op.setup(inner, args, named, output)
            else:
                op.setup(inner, args, output)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            if op.backward is None:
                raise errors.RuntimeError(
                    f"Trying to backward through {op._qualname} but no autograd formula was registered. "
                    "Please use register_autograd to add one."
                )
            inner = _Context(ctx, tuple(whole(ctx.needs_input_grad)))
            found = op.backward(inner, list(grads)) if listed and listed[-1] else op.backward(inner, *grads)
            found = found if isinstance(found, tuple) else (found,)
            positional = iter(found)
            n = sum(not a.keyword_only for a in op.schema.arguments)
            if len(found) != n:
                raise errors.RuntimeError(f"{op._qualname}: backward gave {len(found)} gradients for {n} arguments")
            given = [None if a.keyword_only else next(positional) for a in op.schema.arguments]
            return tuple(
                g
                for v, size in zip(given, shape, strict=True)
                for g in ((v,) if size is None else (v if v is not None else (None,) * size))
            )

        @staticmethod
        def vmap(info: Any, in_dims: Any, *parts: Any) -> Any:
            args, named = op.arguments(whole(parts))
            dims = whole(in_dims)
            if op.vmap is None:
                return _per_sample(op, info, dims, whole(parts))
            return op.vmap(info, tuple(dims), *args, **named)

    # Which tensors are results of a Function is known by their type, so a list travels as a tuple.
    result = Custom.apply(*flat(values))
    if listed and listed[-1] and isinstance(result, tuple):
        return list(result)
    return result


def _per_sample(op: Operator, info: Any, dims: list[Any], values: list[Any]) -> Any:
    """An op without a rule for vmap: one call for each sample, the results stacked."""

    def take(v: Any, d: Any, i: int) -> Any:
        if isinstance(v, (list, tuple)):
            return [take(x, y, i) for x, y in zip(v, d if isinstance(d, (list, tuple)) else [d] * len(v), strict=True)]
        return v.select(d, i) if isinstance(v, lucid.Tensor) and d is not None else v

    calls = []
    for i in range(info.batch_size):
        args, named = op.arguments([take(v, d, i) for v, d in zip(values, dims, strict=True)])
        calls.append(op(*args, **named))
    if op.mutated and not op.schema.returns:
        return None, None
    if isinstance(calls[0], (list, tuple)):
        stacked = tuple(lucid.stack(list(parts)) for parts in zip(*calls, strict=True))
        return stacked, tuple(0 for _ in stacked)
    return lucid.stack(calls), 0
