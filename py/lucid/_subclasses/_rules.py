"""How a call on fake tensors is computed: on the meta device, with the device of the operands written on the results.

Calls that move tensors, take data, ask for elements or differentiate have a rule by name; all others are computed
alike. Inside of a call no class and no mode is asked, so that fake tensors are tensors of the meta device there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import lucid
from lucid import _C, Tensor, _tensor_types
from lucid._subclasses._call import Call, common_device, device_of, fake_device, is_fake, named, probe, tensors, wrapped
from lucid._subclasses._errors import DataDependentOutputException, DynamicOutputShapeException
from lucid.utils._python_dispatch import _QUERIES, Op

if TYPE_CHECKING:
    from lucid._subclasses.fake_tensor import FakeTensorMode


#: Calls that take tensors of several devices: the first operand's is the result's.
_MIXED = named(
    """copy_ index index_put index_put_ __getitem__ __setitem__ _index_put_impl_ set_ ctc_loss
    pack_padded_sequence _pack_padded_sequence tensor_split pad_packed_sequence result_type can_cast
    promote_types is_same_size resize_as_ set_data swap_tensors"""
)


def _compute(call: Call, device: lucid.device | None = None) -> Any:
    """A call on the meta device."""
    call = call.owned()
    args, kwargs = call.args, dict(call.kwargs)
    operands = list(tensors((args, kwargs)))
    if call.name in _MIXED and operands:
        device = device or operands[0].fake_device
    common = device or common_device(call)
    if "device" in kwargs and kwargs["device"] is not None:
        common, kwargs["device"] = device_of(kwargs["device"]), "meta"
    if kwargs.get("generator") is not None:
        kwargs["generator"] = None
    with _C.DisableTorchFunction():
        result = call.func(*args, **kwargs)
    result = wrapped(result, call.mode, common)
    _compute_constants(call, operands, result)
    return result


#: Results of these have numbers drawn, or no numbers.
_NOT_CONSTANT = named(
    """uniform_ normal_ random_ bernoulli_ exponential_ geometric_ cauchy_ log_normal_ rand_like randn_like
    randint_like empty_like dropout new_empty"""
)


def _compute_constants(call: Call, operands: list[Any], result: Any) -> None:
    """The element of a result, where those of the operands are known; they are forgotten where it is not."""
    known = operands and all(t.constant is not None for t in operands) and call.name not in _NOT_CONSTANT
    if known and (result is None or (is_fake(result) and result.numel() == 1)):

        def real(value: Any) -> Any:
            if is_fake(value):
                return value.constant
            if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
                return type(value)(map(real, value))
            return value

        with _C.DisableTorchFunction(), lucid.no_grad():
            constant = call.func(*map(real, call.args), **{k: real(v) for k, v in call.kwargs.items()})
            if is_fake(result) and isinstance(constant, Tensor) and constant.is_cpu:
                result.__dict__["constant"] = constant
        return
    written = [t for t in operands if t is result]
    if operands and (call.name.endswith("_") or call.name == "__setitem__"):
        written.append(operands[0])
    for t in written:
        t.__dict__["constant"] = None


# ---- attributes ------------------------------------------------------------------------------------------------------

_OF_A_DEVICE = named("is_cpu is_cuda is_metal is_mps is_xla is_xpu is_meta get_device")


def _attribute(call: Call) -> Any:
    tensor = call.args[0]
    attribute = getattr(getattr(call.func, "__self__", None), "__name__", "")
    if not is_fake(tensor):
        if call.name == "__set__" and attribute == "grad" and is_fake(call.args[1]):
            raise TypeError("the gradient of a tensor with memory cannot be a fake tensor")
        return call.func(*call.args, **call.kwargs)
    if call.name == "__get__":
        if attribute == "device":
            return tensor.fake_device
        if attribute in _OF_A_DEVICE:
            with _C.DisableTorchFunction():
                return getattr(probe(tensor.fake_device), attribute)
    elif call.name == "__set__" and isinstance(call.args[1], Tensor):
        call = call.owned()
        if attribute == "data":
            tensor.__dict__.update(fake_device=call.args[1].fake_device, constant=call.args[1].constant)
    with _C.DisableTorchFunction():
        result = call.func(*call.args, **call.kwargs)
    return wrapped(result, call.mode, tensor.fake_device)


def _device_query(call: Call) -> Any:
    with _C.DisableTorchFunction():
        return getattr(probe(call.args[0].fake_device), call.name)()


def _query(call: Call) -> Any:
    with _C.DisableTorchFunction():
        return call.func(*call.args, **call.kwargs)


# ---- devices and data ------------------------------------------------------------------------------------------------


def _moved(call: Call, device: lucid.device, *args: Any, **kwargs: Any) -> Any:
    """A tensor on a device, as `to`; itself where nothing changes."""
    x: Any = call.owned().args[0]
    constant = x.constant
    with _C.DisableTorchFunction():
        result: Any = Tensor.to(x, *args, **kwargs) if args or kwargs else x
        if result is x and device != x.fake_device:
            result = x.clone()
        if constant is not None:
            constant = Tensor.to(constant, *args, **kwargs)
    if result is not x:
        wrapped(result, call.mode, device).__dict__["constant"] = constant
    return result


def _to(call: Call) -> Any:
    kwargs = dict(call.kwargs)
    device, flags, rest = kwargs.pop("device", None), [], []
    given = [*call.args[1:], *([kwargs.pop("other")] if "other" in kwargs else [])]
    for a in given:
        if isinstance(a, bool):
            flags.append(a)
        elif isinstance(a, (str, int, lucid.device)):
            device = a
        elif isinstance(a, Tensor):
            device = fake_device(a) if is_fake(a) else a.device
            with _C.DisableTorchFunction():
                rest.append(a.dtype)
        elif a is not None:
            rest.append(a)
    kwargs.pop("non_blocking", None)
    if flags[1:] and flags[1]:
        kwargs["copy"] = True
    kwargs = {k: v for k, v in kwargs.items() if v is not None and v is not False}
    x = call.owned().args[0]
    return _moved(call, x.fake_device if device is None else device_of(device), *rest, **kwargs)


def _to_named(name: str) -> Callable[[Call], Any]:
    def move(call: Call) -> Any:
        given = call.args[1] if len(call.args) > 1 else call.kwargs.get("device")
        return _moved(call, device_of(name if given is None or isinstance(given, bool) else given))

    return move


def _type(call: Call) -> Any:
    given = call.args[1] if len(call.args) > 1 else call.kwargs.get("dtype")
    x: Any = call.args[0]
    if given is None:
        device = fake_device(x) if is_fake(x) else x.device
        return _tensor_types.name_of(x.dtype, device.type)
    found = (given, None) if isinstance(given, lucid.dtype) else _tensor_types.parse(given)
    if found is None:
        return _compute(call)
    device = call.owned().args[0].fake_device if found[1] is None else device_of(found[1])
    return _moved(call, device, found[0])


def _of_data(call: Call) -> Any:
    """A tensor made of numbers or of an array, which it stands for where it has one element."""
    kwargs = dict(call.kwargs)
    device = device_of(kwargs.pop("device", None))
    if call.args and isinstance(call.args[0], Tensor):
        kept = {k: v for k, v in kwargs.items() if k == "dtype" and v is not None}
        if call.name == "tensor":
            made = _moved(call, device_of(call.kwargs.get("device")), copy=True, **kept).detach()
            return made.requires_grad_(kwargs.get("requires_grad", False))
        given = call.kwargs.get("device")
        return _moved(call, call.owned().args[0].fake_device if given is None else device_of(given), **kept)
    if any(True for _ in tensors((call.args, kwargs))):
        return _compute(Call(call.mode, call.func, call.name, call.args, {**kwargs, "device": device}))
    with _C.DisableTorchFunction(), lucid.device("cpu"):
        real = call.func(*call.args, **kwargs)
        fake = call.mode.fake_tensor_converter.from_real_tensor(call.mode, real, make_constant=real.numel() == 1)
    fake.__dict__["fake_device"] = device
    return fake


def _factory(call: Call) -> Any:
    """A call without tensors: a tensor of the meta device where the function takes one, else of what it makes."""
    kwargs = dict(call.kwargs)
    device = device_of(kwargs.get("device"))
    if kwargs.get("generator") is not None:
        kwargs["generator"] = None
    with _C.DisableTorchFunction():
        try:
            result = call.func(*call.args, **{**kwargs, "device": "meta"})
        except TypeError:
            result = call.func(*call.args, **call.kwargs)
    return wrapped(result, call.mode, device)


def _pinned(call: Call) -> Any:
    call = call.owned()
    with _C.DisableTorchFunction():
        result = call.args[0].clone()
    return wrapped(result, call.mode, call.args[0].fake_device)


# ---- what depends on elements ----------------------------------------------------------------------------------------


def _op(call: Call, name: str) -> Op:
    plain, _, overload = name.partition(".")
    return Op(plain, call.func, overload or "default")


def _elements(op: str) -> Callable[[Call], Any]:
    """A rule for what asks for elements."""

    def ask(call: Call) -> Any:
        call = call.owned()
        fakes = list(tensors((call.args, call.kwargs)))
        if len(fakes) == 1 and call.args and call.args[0] is fakes[0] and fakes[0].constant is not None:
            with _C.DisableTorchFunction():
                return call.func(fakes[0].constant, *call.args[1:], **call.kwargs)
        raise DataDependentOutputException(_op(call, op))

    return ask


def _dynamic(op: str) -> Callable[[Call], Any]:
    """A rule for what has as many elements as others say."""

    def ask(call: Call) -> Any:
        raise DynamicOutputShapeException(_op(call.owned(), op))

    return ask


def _getitem(call: Call) -> Any:
    index = call.args[1] if len(call.args) > 1 else None
    for t in tensors(index):
        with _C.DisableTorchFunction():
            if t.dtype in (lucid.bool, lucid.uint8):
                raise DynamicOutputShapeException(_op(call.owned(), "nonzero"))
    return _compute(call)


def _setitem(call: Call) -> Any:
    call = call.owned()
    x, index = call.args[:2]
    with _C.DisableTorchFunction():
        masked = any(t.dtype in (lucid.bool, lucid.uint8) for t in tensors(index))
    if not masked or not isinstance(call.args[-1], Tensor):
        return _compute(call)
    # How many elements are written depends on the mask; the written tensor becomes one of the tape alike.
    with _C.DisableTorchFunction():
        x.mul_(1).add_(call.args[-1].sum() * 0)
    x.__dict__["constant"] = None
    return None


def _where(call: Call) -> Any:
    if len(call.args) + len(call.kwargs) == 1:
        raise DynamicOutputShapeException(_op(call.owned(), "nonzero"))
    return _compute(call)


def _repeat_interleave(call: Call) -> Any:
    arguments = dict(zip(("input", "repeats", "dim"), call.args, strict=False)) | call.kwargs
    if "self" in arguments:
        arguments["input"] = arguments.pop("self")
    repeats, size = arguments.get("repeats"), arguments.get("output_size")
    if isinstance(repeats, int) and not isinstance(repeats, bool):
        return _compute(call)
    if size is None:
        raise DynamicOutputShapeException(_op(call.owned(), "repeat_interleave.Tensor"))
    call = call.owned()
    x, dim = call.args[0], arguments.get("dim")
    with _C.DisableTorchFunction():
        if repeats is None:
            result = lucid.empty(size, dtype=x.dtype, device="meta")
        else:
            x_ = x.reshape(-1) if dim is None else x
            at = lucid.empty(size, dtype=lucid.int64, device="meta")
            result = x_.index_select(0 if dim is None else dim, at)
    return wrapped(result, call.mode, x.fake_device)


def _unique(call: Call) -> Any:
    raise DynamicOutputShapeException(_op(call.owned(), "unique_dim" if "dim" in call.kwargs else "_unique2"))


# ---- what draws numbers, or reads them for their range ---------------------------------------------------------------


def _like(call: Call) -> Any:
    call = call.owned()
    with _C.DisableTorchFunction():
        result = lucid.empty_like(call.args[0], requires_grad=False)
    return wrapped(result, call.mode, call.args[0].fake_device)


def _multinomial(call: Call) -> Any:
    call = call.owned()
    x, count = call.args[0], call.args[1] if len(call.args) > 1 else call.kwargs["num_samples"]
    with _C.DisableTorchFunction():
        result = lucid.empty((*x.shape[:-1], count), dtype=lucid.int64, device="meta")
    return wrapped(result, call.mode, x.fake_device)


def _one_hot(call: Call) -> Any:
    call = call.owned()
    classes = call.args[1] if len(call.args) > 1 else call.kwargs.get("num_classes", -1)
    if classes < 0:
        raise DynamicOutputShapeException(_op(call, "one_hot"))
    x = call.args[0]
    with _C.DisableTorchFunction():
        result = lucid.empty((*x.shape, classes), dtype=lucid.int64, device="meta")
    return wrapped(result, call.mode, x.fake_device)


# ---- gradients -------------------------------------------------------------------------------------------------------


class _Guards(threading.local):
    """What keeps classes and modes from being asked while a thread differentiates."""

    def __init__(self) -> None:
        self.open: list[Any] = []


_guards = _Guards()


def _differentiate(call: Call) -> Any:
    with (guard := _C.DisableTorchFunction()), lucid.device("meta"):
        _guards.open.append(guard)
        try:
            result = call.func(*call.args, **call.kwargs)
        finally:
            _guards.open.pop()
    if call.name != "grad" or not isinstance(result, tuple):
        return result
    inputs = list(tensors(call.args[1] if len(call.args) > 1 else call.kwargs["inputs"]))
    return tuple(
        g if g is None or not is_fake(x) else wrapped(g, call.mode, x.fake_device)
        for g, x in zip(result, inputs, strict=True)
    )


def _register_hook(call: Call) -> Any:
    tensor, hook = call.args[:2]

    def asked(gradient: Any) -> Any:
        gradient = wrapped(gradient, call.mode, tensor.fake_device)
        if not _guards.open:
            return hook(gradient)
        _guards.open[-1].__exit__(None, None, None)
        try:
            return hook(gradient)
        finally:
            _guards.open[-1].__enter__()

    with _C.DisableTorchFunction():
        return call.func(tensor, asked)


def _iter(call: Call) -> Any:
    return iter(Tensor.unbind(call.args[0], 0))


def _numpy(call: Call) -> Any:
    raise lucid.errors.RuntimeError(f"{call.name}: a FakeTensor has no elements, so that no array is made of it")


_LOCAL = _elements("_local_scalar_dense")

#: Rules of names that any operands have.
RULES: dict[str, Callable[[Call], Any]] = {
    **dict.fromkeys(("__get__", "__set__", "__delete__"), _attribute),
    **dict.fromkeys(
        ("item", "tolist", "__bool__", "__int__", "__float__", "__index__", "__complex__", "_local_scalar_dense"),
        _LOCAL,
    ),
    **dict.fromkeys(("is_nonzero", "__contains__"), _LOCAL),
    "equal": _elements("equal"),
    "allclose": _elements("allclose"),
    **dict.fromkeys(("numpy", "__array__"), _numpy),
    **dict.fromkeys(("nonzero", "argwhere"), _dynamic("nonzero")),
    "masked_select": _dynamic("masked_select"),
    "bincount": _dynamic("bincount"),
    "unique": _unique,
    "unique_consecutive": _dynamic("unique_consecutive"),
    "where": _where,
    "repeat_interleave": _repeat_interleave,
    "__getitem__": _getitem,
    "__setitem__": _setitem,
    **dict.fromkeys(("bernoulli", "poisson"), _like),
    "multinomial": _multinomial,
    "one_hot": _one_hot,
    **dict.fromkeys(("to", "_to_copy"), _to),
    **{name: _to_named(name) for name in ("cpu", "cuda", "gpu", "metal", "mps")},
    "type": _type,
    **dict.fromkeys(("tensor", "as_tensor", "asarray", "scalar_tensor", "from_numpy", "frombuffer"), _of_data),
    **dict.fromkeys(("pin_memory",), _pinned),
    "share_memory_": lambda call: call.args[0],
    **dict.fromkeys(("is_pinned", "is_shared"), lambda call: False),
    "data_ptr": lambda call: 0,
    "get_device": _device_query,
    "__iter__": _iter,
    **dict.fromkeys(("backward", "grad"), _differentiate),
    "register_hook": _register_hook,
}

#: Rules for fake tensors alone: of others the calls go on.
_OF_FAKES = named("__iter__ get_device data_ptr is_pinned is_shared share_memory_ backward grad register_hook")


def run(mode: FakeTensorMode, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call under a mode."""
    named_: Any = func
    name: str = getattr(named_, "_opname", "") or getattr(named_, "__name__", "")
    call = Call(mode, func, name, args, kwargs)
    rule = RULES.get(name)
    operands = list(tensors((args, kwargs)))
    if name in _OF_FAKES and not any(map(is_fake, operands)):
        rule = _query
    if rule is not None:
        return rule(call)
    if name in _QUERIES:
        return _query(call)
    if not operands:
        return _factory(call)
    return _compute(call)
