"""The names, places and defaults of arguments, side by side with PyTorch's: of functions, classes and their methods.

What is written in Python tells its signature in both frameworks. Of what is not, PyTorch's schemas tell the names, and
a call with such a name alone tells whether it is taken.
"""

from __future__ import annotations

import importlib
import inspect
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import lucid
import pytest
import torch

MODULES = (  # noqa: SIM905
    "amp autograd autograd.forward_ad autograd.functional autograd.graph func linalg nn nn.functional nn.init "
    "nn.parameter nn.utils nn.utils.parametrizations nn.utils.parametrize nn.utils.prune nn.utils.rnn optim "
    "optim.lr_scheduler optim.swa_utils random special utils.checkpoint utils.data utils.data.sampler utils.dlpack"
).split()
DEVICE = "the accelerator has another name here"
#: What differs on purpose, and why.
OTHERWISE = {
    "GradScaler.__init__": DEVICE,
    "graph.save_on_cpu.__init__": DEVICE,
    "optim.LBFGS.step": "without a closure PyTorch's error says so, here it is one of a helpful message",
    "autocast.__init__": "without a device both cast, as the Lucid of the seeds has it",
    "torch.cdist": "None stands for the mode that PyTorch names",
    "checkpoint.checkpoint": "the function is not optional; PyTorch's error comes later",
    "data.random_split": "the default generator is made when it is first used",
    "Tensor.dim_order": "the default is the same",
    "Tensor.split": "by either of its two names, of which one is by name only",
    "torch.split": "the tensor goes by either of its two names",
    "torch.tensordot": "`out` is by name only, as everywhere",
    "TypedStorage.__init__": "made by storage classes alone",
}


def members(path: str) -> Iterator[tuple[str, Any, Any]]:
    """What both packages have, with its path: functions, and the constructors and methods of classes."""
    theirs = importlib.import_module(f"torch.{path}".rstrip("."))
    ours = importlib.import_module(f"lucid.{path}".rstrip("."))
    for name in getattr(theirs, "__all__", None) or [n for n in dir(theirs) if not n.startswith("_")]:
        t, o = getattr(theirs, name, None), getattr(ours, name, None)
        if o is None or inspect.ismodule(t):
            continue
        place = f"{path.rsplit('.', 1)[-1] or 'torch'}.{name}"
        if inspect.isfunction(t):
            yield place, t, o
        if isinstance(t, type) and isinstance(o, type) and not issubclass(t, BaseException):
            yield f"{place}.__init__", t.__init__, o.__init__
            for method, value in vars(t).items():
                if not method.startswith("_") and inspect.isfunction(value) and hasattr(o, method):
                    yield f"{place}.{method}", value, getattr(o, method)


def signature(f: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(f)
    except (TypeError, ValueError):
        return None


def default(p: inspect.Parameter) -> str:
    value = p.default
    if hasattr(value, "__name__"):
        return str(value.__name__).strip("_")
    return repr(value).replace("torch.", "").replace("lucid.", "")


def differences(theirs: Any, ours: Any) -> list[str]:
    a, b = signature(theirs), signature(ours)
    if a is None or b is None:
        return []
    own, found, place = b.parameters, [], 0
    names = [p.name for p in own.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    open_names = any(p.kind is p.VAR_KEYWORD for p in own.values())
    listed = any(p.kind is p.VAR_POSITIONAL for p in own.values())
    for p in a.parameters.values():
        if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
            continue
        q = own.get(p.name)
        if p.name == "self":
            pass
        elif q is None:
            found += [] if open_names else [f"no {p}"]
        elif default(q) != default(p) and q.default is not ...:
            found.append(f"{q} for {p}")
        elif p.kind is p.POSITIONAL_OR_KEYWORD and not listed and (q.name not in names or names.index(q.name) != place):
            found.append(f"{p.name} in another place")
        place += p.kind is p.POSITIONAL_OR_KEYWORD
    return found


@pytest.mark.parametrize("path", ["", *MODULES])
def test_signatures(path: str) -> None:
    differ = {place: found for place, t, o in members(path) if (found := differences(t, o))}
    differ = {place: found for place, found in differ.items() if not any(place.endswith(k) for k in OTHERWISE)}
    assert not differ


#: Names in PyTorch's schemas that no call may use: of overloads for scripts, and of results.
OF_SCRIPTS = {*"ablnixt", "idx", "list", "indices", "values", "element", "test_element", "out0", "out1", "out2", "self"}
#: Arguments that have no use here, or are the CUDA build's own.
UNTAKEN = {"out_dtype", "sparse_grad", "implicit", "generator", "names"}


def schema_names(name: str) -> set[str]:
    found = set()
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}"):
        if not any(a.is_out or "Dimname" in str(a.type) for a in schema.arguments):
            found |= {a.name for a in schema.arguments}
    return found - OF_SCRIPTS - UNTAKEN


def takes(f: Callable[..., Any], name: str) -> bool:
    """Is the name known? What else is wrong with such a call does not count."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            f(**{name: object()})
    except TypeError as error:
        return "unexpected keyword" not in str(error)
    except Exception:
        return True
    return True


BUILTINS = [n for n in dir(torch) if isinstance(getattr(torch, n), types.BuiltinFunctionType) and n[0] != "_"]


def test_functions_take_the_names_of_schemas() -> None:
    refused = {}
    for name in BUILTINS:
        ours = getattr(lucid, name, None)
        wanted = schema_names(name)
        missing = [n for n in sorted(wanted) if ours is not None and not takes(ours, n)]
        if missing:
            refused[name] = missing
    # These names no overload has that Python code may call.
    assert refused == {"sort": ["reverse"], "sparse_coo_tensor": ["layout"]}
