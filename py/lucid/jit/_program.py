"""Traced programs: the ops of a run as data, which run again without the program that they were of.

A file is what `lucid.save` writes: the ops as JSON, and the tensors. Reading it runs no code of the file; ops are
looked up by name among Lucid's own.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid._recorder import Call, Recorder
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter
from lucid.utils import _pytree

VERSION = 1

#: Where an op's function is, by the name that a file has for the place.
_PLACES: dict[str, Callable[[], Any]] = {
    "lucid": lambda: lucid,
    "_C": lambda: lucid._C,
    "functional": lambda: lucid.nn.functional,
    "Tensor": lambda: Tensor,
    "linalg": lambda: lucid.linalg,
    "special": lambda: lucid.special,
    "fft": lambda: lucid.fft,
}
#: Methods that Python's operators call.
_METHODS = frozenset(
    f"__{side}{name}__"
    for side in ("", "i")
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
) | {f"__{name}__" for name in ("getitem", "neg", "abs", "invert", "eq", "ne", "lt", "le", "gt", "ge")}

_WORDS = (
    "to float double half bfloat16 int long short char byte bool cfloat cdouble cpu gpu cuda clone detach "
    "type type_as max min reshape_as view_as expand_as expand_dims ravel concat concatenate row_stack "
    "clip conj absolute negative multiply divide true_divide subtract greater greater_equal less "
    "less_equal not_equal moveaxis swapaxes swapdims fix new_zeros new_ones new_full new_empty empty_like "
    "std_mean var_mean item cosine_similarity pairwise_distance bilinear instance_norm pixel_shuffle "
    "pixel_unshuffle channel_shuffle embedding_bag grid_sampler affine_grid_generator alpha_dropout "
    "feature_alpha_dropout adaptive_avg_pool1d adaptive_max_pool1d "
)
#: Methods and functions beside the op table's that compute and touch nothing else.
_OTHERS = frozenset(_WORDS.split())


@functools.cache
def _ops() -> frozenset[str]:
    names = {schema.name for schema in lucid.op_schemas()}
    return frozenset(names | {f"{n}_" for n in names}) | _OTHERS | _METHODS


def _allowed(place: str, name: str) -> bool:
    """Is it an op? What reads and writes files, or changes settings, is none."""
    if place in ("lucid", "_C", "Tensor"):
        return name in _ops()
    module = _PLACES[place]()
    function = getattr(module, name, None)
    return not name.startswith("_") and getattr(function, "__module__", None) in (
        *("lucid._C", None, "builtins", module.__name__),
        *(m for m in (getattr(function, "__module__", None),) if m and m.startswith("lucid.nn._functional")),
    )


class ProgramError(errors.RuntimeError):
    """A program that cannot be saved, or a file that is none."""


def _place(call: Call) -> tuple[str, str]:
    """Where the function of an op is, and its name there."""
    function = getattr(call.function, "_function", call.function)
    name = getattr(function, "__name__", call.name)
    for place, get in _PLACES.items():
        if getattr(get(), name, None) is function and _allowed(place, name):
            return place, name
    for place, get in _PLACES.items():
        if callable(getattr(get(), call.name, None)) and _allowed(place, call.name):
            return place, call.name
    raise ProgramError(f"jit.save: the op {call.name} cannot be found by name; ops of Lucid's own are saved")


def _function(place: str, name: str) -> Any:
    found = _PLACES.get(place)
    function = getattr(found(), name, None) if found and _allowed(place, name) else None
    if not callable(function) or isinstance(function, type):
        raise ProgramError(f"jit.load: the file names the op {place}.{name}, which is not there")
    return function


class _Writer:
    """Values as JSON; tensors by name."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.labels: dict[int, str] = {}
        self.tensors: dict[str, Tensor] = {}
        self.kept: list[Any] = []

    def name(self, t: Tensor) -> str:
        found = self.names.get(id(t))
        if found is None:
            found = self.labels.get(id(t)) or f"constant_{len(self.tensors)}"
            self.names[id(t)], self.tensors[found] = found, t.detach()
            self.kept.append(t)
        return found

    def write(self, v: Any) -> Any:
        if isinstance(v, Tensor):
            return {"tensor": self.name(v)}
        if v is None or isinstance(v, (bool, int, str)):
            return v
        if isinstance(v, float):
            return {"float": v.hex()}
        if isinstance(v, complex):
            return {"complex": [v.real.hex(), v.imag.hex()]}
        if isinstance(v, slice):
            return {"slice": [self.write(p) for p in (v.start, v.stop, v.step)]}
        if v is Ellipsis:
            return {"ellipsis": True}
        if isinstance(v, lucid.dtype):
            return {"dtype": str(v).rpartition(".")[2]}
        if isinstance(v, lucid.device):
            return {"device": str(v)}
        if isinstance(v, list):
            return {"list": [self.write(p) for p in v]}
        if isinstance(v, tuple):
            return {"tuple": [self.write(p) for p in v]}
        if isinstance(v, dict) and all(isinstance(k, str) for k in v):
            return {"dict": {k: self.write(p) for k, p in v.items()}}
        raise ProgramError(f"jit.save: a value of {type(v).__name__} cannot be written")


def _read(v: Any, values: dict[str, Tensor], device: Any) -> Any:
    if not isinstance(v, dict):
        return v
    ((kind, value),) = v.items()

    def inner(p: Any) -> Any:
        return _read(p, values, device)

    if kind == "tensor":
        return values[value]
    if kind == "list":
        return [inner(p) for p in value]
    if kind == "tuple":
        return tuple(inner(p) for p in value)
    if kind == "dict":
        return {k: inner(p) for k, p in value.items()}
    if kind == "slice":
        return slice(*(inner(p) for p in value))
    if kind == "float":
        return float.fromhex(value)
    if kind == "complex":
        return complex(*(float.fromhex(p) for p in value))
    if kind == "ellipsis":
        return Ellipsis
    if kind == "device":
        return lucid.device(value) if device is None else device
    if kind == "dtype" and isinstance(found := getattr(lucid, value, None), lucid.dtype):
        return found
    raise ProgramError(f"jit.load: the file has a value of kind {kind!r}, unknown here")


def record(obj: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The program of a call, as JSON has it, and its tensors."""
    inputs = [t for t in _pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
    # What is made of weights alone is recorded too, so that gradients reach them.
    own = [*obj.parameters(), *obj.buffers()] if isinstance(obj, Module) else []
    recorder = Recorder([*inputs, *own], ProgramError, "jit.save")
    with lucid.no_grad(), recorder:
        result = obj(*args, **kwargs)
    w = _Writer()
    if isinstance(obj, Module):
        w.labels = {id(t): n for n, t in [*obj.named_parameters(), *obj.named_buffers()]}
    for i, t in enumerate(inputs):
        w.names[id(t)] = f"input/{i}"
    calls = []
    for i, call in enumerate(recorder.calls):
        place, name = _place(call)
        given = [w.write(call.args), w.write(call.kwargs)]
        made = []
        for j, t in enumerate(call.outs):
            w.names[id(t)] = f"{i}/{j}"
            made.append(f"{i}/{j}")
        calls.append([place, name, *given, made])
    program = {
        "version": VERSION,
        "name": type(obj).__name__ if isinstance(obj, Module) else getattr(obj, "__name__", "function"),
        "training": bool(getattr(obj, "training", False)),
        "args": w.write(args),
        "kwargs": w.write(kwargs),
        "calls": calls,
        "result": w.write(result),
        "parameters": [n for n, t in w.tensors.items() if n in set(w.labels.values())],
    }
    trained = dict(obj.named_parameters()) if isinstance(obj, Module) else {}
    program["trained"] = [n for n in w.tensors if n in trained and trained[n].requires_grad]
    return program, w.tensors


class TracedProgram(Module):
    """A program that `jit.load` has read: a module whose call runs the ops again.

    Parameters and buffers have the names that they had; their gradients flow. Sizes, numbers and control flow are those
    of the example that was traced.
    """

    def __init__(self, program: dict[str, Any], tensors: dict[str, Tensor], device: Any = None) -> None:
        super().__init__()
        if program.get("version") != VERSION:
            raise ProgramError(f"jit.load: a program of version {program.get('version')}; this reads {VERSION}")
        self.__dict__["_program"], self.__dict__["_device"] = program, device
        self.__dict__["_places"] = {}
        self.__dict__["_functions"] = [_function(place, name) for place, name, *_ in program["calls"]]
        self.original_name = str(program["name"])
        trained, named = set(program["trained"]), set(program["parameters"])
        for name, t in tensors.items():
            *path, last = name.split(".") if name in named else [name]
            at: Module = self
            for part in path:
                if part not in at._modules:
                    at.add_module(part, Module())
                at = at._modules[part]  # type: ignore[assignment]
            if name in trained:
                at.register_parameter(last, Parameter(t))
            else:
                at.register_buffer(last, t, persistent=name in named)
            self.__dict__["_places"][name] = (at, last)
        self.train(bool(program["training"]))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the ops.

        Raises:
            TypeError: for other arguments than the example's.
        """
        program, device = self.__dict__["_program"], self.__dict__["_device"]
        values: dict[str, Any] = {n: getattr(at, last) for n, (at, last) in self.__dict__["_places"].items()}
        wanted = [v for v in _tensors_of([program["args"], program["kwargs"]])]
        given = [t for t in _pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        if len(wanted) != len(given):
            raise errors.TypeError(
                f"{self.original_name}: {len(wanted)} tensors were traced, and {len(given)} are given"
            )
        values.update(zip(wanted, given, strict=True))
        for function, (_, _, at, named, made) in zip(self.__dict__["_functions"], program["calls"], strict=True):
            result = function(*_read(at, values, device), **_read(named, values, device))
            outs = [t for t in _pytree.tree_leaves(result) if isinstance(t, Tensor)]
            values.update(zip(made, outs, strict=True))
        return _read(program["result"], values, device)

    @property
    def code(self) -> str:
        """The ops, one on a line."""
        lines = []
        for place, name, args, kwargs, made in self.__dict__["_program"]["calls"]:
            given = ", ".join([*_tensors_of([args]), *(f"{k}=…" for k in kwargs.get("dict", {}))])
            lines.append(f"{', '.join(made)} = {place}.{name}({given})")
        return "\n".join(lines)

    def save(self, f: Any) -> None:
        """Writes it to a file again."""
        write(self.__dict__["_program"], {n: getattr(at, last).detach() for n, (at, last) in self._places.items()}, f)


def _tensors_of(value: Any) -> list[str]:
    """The names of tensors in what was written, in order."""
    if isinstance(value, list):
        return [n for v in value for n in _tensors_of(v)]
    if not isinstance(value, dict):
        return []
    if "tensor" in value and len(value) == 1 and isinstance(value["tensor"], str):
        return [value["tensor"]]
    return [n for v in value.values() for n in _tensors_of(v)]


def write(program: dict[str, Any], tensors: dict[str, Tensor], f: Any) -> None:
    """Writes a program and its tensors."""
    lucid.save({"lucid.jit": json.dumps(program), "tensors": tensors}, f)


def read(f: str | os.PathLike[str] | Any, map_location: Any) -> TracedProgram:
    """Reads what `write` has written.

    Raises:
        ProgramError: for other files.
    """
    try:
        found = lucid.load(f, map_location=map_location, weights_only=True)
        program, tensors = json.loads(found["lucid.jit"]), dict(found["tensors"])
    except (KeyError, TypeError, ValueError, errors.LucidError) as e:
        raise ProgramError(f"jit.load: no program that lucid.jit.save has written ({e})") from None
    where = next(iter(tensors.values())).device if map_location is not None and tensors else None
    try:
        return TracedProgram(program, tensors, where)
    except (KeyError, TypeError, ValueError) as e:
        raise ProgramError(f"jit.load: the program is damaged: {e!r}") from None
