"""Compares every op with PyTorch on PyTorch's own samples, those that its test suite uses.

    python -m tests.python.opinfo [--device gpu] [--only softmax,cat] [--dtypes float32,int64] [--samples 40]
                                  [--what functions,variants,errors,reference]

Prints a line per difference: missing names and aliases, values, dtypes, shapes, gradients, `requires_grad`, calls that
one framework refuses and the other does not, and kinds of errors. `--what` chooses among the functions on their
samples, the variants (methods, in-place methods, operators, and whether the result is the input), the calls that
must be refused, and the reference samples (infinities, NaN, tiny and large numbers, broadcast and strided tensors).
It is for reading, not for a verdict: the list also shows what has a limitation (complex128, float64 on the gpu
device), rounding of 16-bit gradients, and ties. What turns out to be a bug becomes a test in `parity/`. Needs the
`expecttest` package, which PyTorch's samples import. `tests.python.moduleinfo` does the same for layers and optimizers.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import re
import signal
import types
import warnings
from collections.abc import Iterator
from typing import Any

import lucid
import numpy as np
import torch

from tests.python.samples import DOUBLE

#: Ops whose values are random, or unique only up to signs.
FREE = (  # noqa: SIM905
    "bernoulli cauchy exponential geometric log_normal normal uniform multinomial poisson rand_like randn_like "
    "randint_like randn rand randint randperm empty empty_like new_empty empty_strided new_empty_strided "
    "empty_permuted svd_lowrank pca_lowrank nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d "
    "nn.functional.alpha_dropout nn.functional.feature_alpha_dropout nn.functional.rrelu "
    "nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d linalg.eig linalg.eigh linalg.svd svd "
    "linalg.qr qr linalg.lu lu resize_ resize_as_"
).split()
#: What is not covered: other layouts, PyTorch's internals, packages of their own.
APART = ("sparse", "masked.", "torch.ops", "_", "ops.", "jiterator")
TOLERANCE = {"float16": 2e-2, "bfloat16": 6e-2, "float32": 2e-4, "float64": 1e-7, "complex64": 4e-4, "complex128": 1e-7}
DTYPES = ["float32", "int64", "bool", "complex64", "bfloat16", "float16", "uint8", "float64", "complex128"]


class Apart(Exception):
    """A sample that has no counterpart here."""


class Slow(Exception):
    """A call that took too long."""


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise Slow

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def name_of(dtype: Any) -> str:
    return str(dtype).rsplit(".", 1)[-1]


def find(path: str, roots: tuple[Any, ...] = (lucid, lucid.Tensor)) -> Any:
    for root in roots:
        try:
            for part in path.split("."):
                root = getattr(root, part)
        except AttributeError:
            continue
        return root
    return None


def ported(f: types.FunctionType) -> types.FunctionType:
    """PyTorch's wrapper with `lucid` for its `torch`."""
    out = types.FunctionType(f.__code__, {**f.__globals__, "torch": lucid}, f.__name__, f.__defaults__, f.__closure__)
    out.__kwdefaults__ = f.__kwdefaults__
    return out


def counterpart(f: Any, name: str) -> Any:
    """Ours for a function of PyTorch's: by its name, or its own wrapper with our names in it."""
    if isinstance(f, types.FunctionType) and "testing" in (f.__module__ or ""):
        # A wrapper that holds PyTorch's function in a cell has no other names.
        return find(name) if f.__closure__ and any(callable(c.cell_contents) for c in f.__closure__) else ported(f)
    if isinstance(f, functools.partial):
        return functools.partial(counterpart(f.func, name), *f.args, **f.keywords)
    if getattr(f, "__module__", "") == "_operator":
        return f
    return (
        find(getattr(f, "__name__", name), (lucid.Tensor,)) if type(f).__name__ == "method_descriptor" else find(name)
    )


class Translator:
    """PyTorch's arguments as ours; `leaves` has the pairs of tensors that require gradients.

    What shares memory there does so here, with the same strides.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.leaves: list[tuple[Any, Any]] = []
        self.storages: dict[int, Any] = {}
        self.kept: list[Any] = []
        self.seen: dict[int, tuple[Any, Any]] = {}

    def numbers(self, t: Any) -> Any:
        wide = t.float() if t.dtype == torch.bfloat16 else t
        flat = lucid.tensor(wide.reshape(-1).numpy().copy(), device=self.device).to(getattr(lucid, name_of(t.dtype)))
        return flat.reshape(tuple(t.shape)).clone()

    def tensor(self, t: Any) -> Any:
        name = name_of(t.dtype)
        if t.layout != torch.strided or not hasattr(lucid, name) or (self.device == "gpu" and name in DOUBLE):
            raise Apart
        if t.device.type != "cpu":
            raise Apart
        x = t.detach().resolve_conj().resolve_neg()
        self.kept.append(x)
        memory = x.untyped_storage()
        size = memory.nbytes() // x.element_size()
        key = memory.data_ptr()
        if x.is_contiguous() and x.numel() == size and (key not in self.storages or not size):
            y = self.numbers(x)
            self.storages[key] = y.detach()
        else:
            if key not in self.storages:
                self.storages[key] = self.numbers(torch.empty(0, dtype=x.dtype).set_(memory, 0, (size,), (1,)))
            y = self.storages[key]
            if name_of(y.dtype) != name or y.numel() != size or (x.numel() and not size):
                raise Apart
            y = y.as_strided(tuple(x.shape), tuple(x.stride()), x.storage_offset()) if x.numel() else self.numbers(x)
        return y.requires_grad_(t.requires_grad)

    def __call__(self, a: Any) -> Any:
        if isinstance(a, torch.Tensor):
            if id(a) in self.seen:
                return self.seen[id(a)][1]
            y = self.tensor(a)
            self.seen[id(a)] = a, y
            if a.requires_grad:
                self.leaves.append((a, y))
            return y
        if isinstance(a, torch.dtype):
            if not hasattr(lucid, name_of(a)):
                raise Apart
            return getattr(lucid, name_of(a))
        if isinstance(a, torch.device) or (isinstance(a, str) and a == "cpu"):
            return self.device
        if isinstance(a, (torch.layout, torch.memory_format, torch.Generator)):
            raise Apart
        if isinstance(a, torch.nn.Module):
            if list(a.parameters()):
                raise Apart
            return getattr(lucid.nn, type(a).__name__)()
        if isinstance(a, (types.FunctionType, types.BuiltinFunctionType)) and str(a.__module__).startswith("torch"):
            return find(f"nn.functional.{a.__name__}") or find(a.__name__)
        if type(a).__name__ == "LinearCrossEntropyOptions":
            return lucid.nn.LinearCrossEntropyOptions(**self(dataclasses.asdict(a)))
        if isinstance(a, torch.Size):
            return tuple(a)
        if isinstance(a, (list, tuple)):
            return type(a)(*map(self, a)) if hasattr(a, "_fields") else type(a)(map(self, a))
        if isinstance(a, dict):
            return {k: self(v) for k, v in a.items()}
        return a


def flat(o: Any) -> list[Any]:
    if isinstance(o, dict):
        o = list(o.values())
    return [y for x in o for y in flat(x)] if isinstance(o, (list, tuple)) else [o]


def array(t: Any) -> np.ndarray[Any, Any]:
    t = t.detach().resolve_conj()
    if isinstance(t, torch.Tensor):
        if t.layout != torch.strided:
            raise Apart
        t = t.resolve_neg() if not t._is_zerotensor() else torch.zeros_like(t)
    out: np.ndarray[Any, Any] = (t.float() if name_of(t.dtype) == "bfloat16" else t).cpu().numpy()
    return out


def difference(theirs: Any, ours: Any, values: bool) -> str | None:
    if not isinstance(theirs, torch.Tensor):
        if isinstance(theirs, (float, complex)) and isinstance(ours, (float, complex)):
            close = np.isclose(ours, theirs, 1e-4, 1e-4, equal_nan=True)
            return None if close or not values else f"{theirs} for {ours}"
        same = name_of(theirs) == name_of(ours) if isinstance(theirs, torch.dtype) else theirs == ours
        return None if same or not values else f"{theirs!r} for {ours!r}"
    if not isinstance(ours, lucid.Tensor):
        return f"no tensor but {type(ours).__name__}"
    if tuple(theirs.shape) != tuple(ours.shape):
        return f"shape {tuple(theirs.shape)} for {tuple(ours.shape)}"
    if name_of(theirs.dtype) != name_of(ours.dtype):
        return f"dtype {theirs.dtype} for {ours.dtype}"
    if not values:
        return None
    a, b = array(theirs), array(ours)
    tolerance = TOLERANCE.get(name_of(theirs.dtype), 0)
    wide = a.astype(np.complex128)
    finite = np.abs(wide[np.isfinite(wide)])
    slack = tolerance * max(1.0, 0.1 * float(finite.max(initial=0)))
    close = np.isclose(wide, b.astype(np.complex128), tolerance, slack, equal_nan=True)
    if close.all():
        return None
    at = tuple(int(i) for i in np.argwhere(~close)[0])
    return f"{a[at]} for {b[at]} at {at} of {a.shape}, and {(~close).sum() - 1} more"


def shown(sample: Any) -> str:
    def one(a: Any) -> str:
        if isinstance(a, torch.Tensor):
            return f"{name_of(a.dtype)}{list(a.shape)}"
        return f"[{', '.join(map(one, a))}]" if isinstance(a, (list, tuple)) else repr(a)[:40]

    named = [f"{k}={one(v)}" for k, v in sample.kwargs.items()]
    return ", ".join([one(sample.input), *map(one, sample.args), *named])


def clones(o: Any) -> Any:
    return [clones(x) for x in o] if isinstance(o, (list, tuple)) else o.clone()


def attempt(f: Any, *args: Any, **kwargs: Any) -> tuple[Any, Exception | None]:
    """The result, or the error."""
    try:
        return f(*args, **kwargs), None
    except (Apart, Slow):
        raise
    except Exception as e:
        return None, e


def line(e: Exception) -> str:
    return f"{type(e).__name__}: {str(e)[:120]}"


def compare_errors(theirs: Exception | None, ours: Exception | None) -> str | None:
    """Ours may be of a kind that derives from PyTorch's."""
    if theirs is None or ours is None:
        return f"not refused: {line(theirs)}" if theirs else f"refused: {line(ours)}" if ours else None
    kind = next(k for k in type(theirs).__mro__ if k.__module__ == "builtins")
    return None if isinstance(ours, kind) else f"{line(ours)}, where PyTorch's is {line(theirs)}"


def compare(f: Any, g: Any, sample: Any, device: str, grads: bool, values: bool, in_place: bool = False) -> str | None:
    """What differs between two functions in one call, and in its gradients."""
    translate = Translator(device)
    x, args, kwargs = translate(sample.input), translate(sample.args), translate(sample.kwargs)
    start, begin = sample.input, x
    if in_place:
        start, begin = clones(start), clones(begin)
    theirs, refusal = attempt(f, start, *sample.args, **sample.kwargs)
    ours, error = attempt(g, begin, *args, **kwargs)
    if refusal or error:
        return compare_errors(refusal, error)
    if in_place and (theirs is start) != (ours is begin):
        return f"the result {'is' if theirs is start else 'is not'} the input"
    a, b = flat(theirs), flat(ours)
    if in_place:
        a, b = a + flat(start), b + flat(begin)
    if len(a) != len(b):
        return f"{len(a)} results for {len(b)}"
    for i, (p, q) in enumerate(zip(a, b, strict=True)):
        if why := difference(p, q, values):
            return f"result {i}: {why}"
    pairs = [(p, q) for p, q in zip(a, b, strict=True) if isinstance(p, torch.Tensor)]
    pairs = [(p, q) for p, q in pairs if p.requires_grad or q.requires_grad]
    if any(p.requires_grad != q.requires_grad for p, q in pairs):
        return f"requires_grad {[p.requires_grad for p, _ in pairs]}"
    if not (grads and values and translate.leaves and pairs):
        return None
    return compare_gradients(pairs, translate)


def compare_gradients(pairs: list[tuple[Any, Any]], translate: Translator) -> str | None:
    """Of PyTorch's results and ours with respect to the leaves, weighted with random numbers."""
    weights = [torch.randn(p.shape, dtype=p.dtype if p.is_complex() else torch.float32).to(p.dtype) for p, _ in pairs]
    leaves, vs = zip(*translate.leaves, strict=True)
    results, outs = zip(*pairs, strict=True)
    want, refusal = attempt(torch.autograd.grad, results, leaves, weights, allow_unused=True)
    ws = [translate.tensor(w) for w in weights]
    got, error = attempt(lucid.autograd.grad, outs, vs, ws, allow_unused=True)
    if refusal or error:
        why = compare_errors(refusal, error)
        return f"backward: {why}" if why else None
    for i, (p, q) in enumerate(zip(want, got, strict=True)):
        if p is None or q is None:
            present = p if q is None else q
            if present is not None and np.any(array(present) != 0):
                return f"gradient {i}: {'none' if p is None else 'one'} for {'none' if q is None else 'one'}"
        elif why := difference(p, q, True):
            return f"gradient {i}: {why}"
    return None


def names(op: Any) -> Iterator[str]:
    """The names of an op that are missing here."""
    if counterpart(op.op, op.name) is None:
        yield "is missing"
    yield from (f"alias {a.name} is missing" for a in op.aliases if find(a.name.removeprefix("torch.")) is None)
    for variant in (op.method_variant, op.inplace_variant):
        name = getattr(variant, "__name__", "<lambda>")
        if name != "<lambda>" and not hasattr(lucid.Tensor, name):
            yield f"method {name} is missing"


def refusals(op: Any, device: str) -> Iterator[str]:
    """Bad input that is not refused, or with another kind of error."""
    f = counterpart(op.op, op.name)
    for bad in op.error_inputs("cpu"):
        sample = bad.sample_input
        try:
            translate = Translator(device)
            x, args, kwargs = translate(sample.input), translate(sample.args), translate(sample.kwargs)
            with time_limit(20):
                _, error = attempt(f, x, *args, **kwargs)
        except Apart:
            continue
        _, refusal = attempt(op.op, sample.input, *sample.args, **sample.kwargs)
        if refusal is None:
            continue
        if why := compare_errors(refusal, error):
            yield f"({shown(sample)}): {why}"


def variants(op: Any) -> Iterator[tuple[str, Any, Any, bool]]:
    """The ways to call an op other than as a function: a name, PyTorch's, ours, is it in place?"""
    for kind in ("method", "inplace", "operator", "inplace_operator"):
        if (f := getattr(op, f"{kind}_variant", None)) and (g := counterpart(f, op.name)):
            yield kind, f, g, kind.startswith("inplace")


def on_samples(
    op: Any, f: Any, g: Any, device: str, dtypes: list[str], limit: int, how: str, in_place: bool = False
) -> Iterator[str]:
    """At most three differences for a dtype."""
    for name in dtypes:
        dtype = getattr(torch, name)
        if dtype not in op.dtypes or (name in DOUBLE and device == "gpu"):
            continue
        grads = op.supports_autograd and dtype in op.backward_dtypes and (dtype.is_floating_point or dtype.is_complex)
        grads = grads and how != "reference" and (op.supports_inplace_autograd or not in_place)
        torch.manual_seed(0)
        samples = (op.reference_inputs if how == "reference" else op.sample_inputs)("cpu", dtype, requires_grad=grads)
        found = 0
        for sample, _ in zip(samples, range(limit), strict=False):
            if in_place and sample.broadcasts_input:
                continue
            try:
                with time_limit(20):
                    why = compare(f, g, sample, device, grads, op.name not in FREE, in_place)
            except Apart:
                continue
            except Slow:
                why = "more than 20 seconds"
            if why:
                found += 1
                yield f"({shown(sample)}): {why}"
            if found == 3:
                break


def differences(op: Any, device: str, dtypes: list[str], limit: int, what: list[str]) -> Iterator[str]:
    f = counterpart(op.op, op.name)
    if "functions" in what:
        yield from names(op)
    for how in ("functions", "reference"):
        if f is not None and how in what:
            yield from on_samples(op, op.op, f, device, dtypes, limit, how)
    if "variants" in what:
        for kind, theirs, ours, in_place in variants(op):
            for why in on_samples(op, theirs, ours, device, dtypes, limit, "variants", in_place):
                yield f"{kind} {why}"
    if f is not None and "errors" in what and op.error_inputs_func is not None:
        yield from refusals(op, device)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--only", default="", help="names, with commas between")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--samples", type=int, default=40, help="at most so many for an op and a dtype")
    parser.add_argument("--what", default="functions,errors", help="of functions, variants, errors and reference")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

    only = set(filter(None, args.only.split(",")))
    total = 0
    for op in op_db:
        if op.name.startswith(APART) or (only and op.name not in only):
            continue
        full = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        kinds = set()
        for why in differences(op, args.device, args.dtypes.split(","), args.samples, args.what.split(",")):
            total += 1
            # Each kind once: those that tell of other numbers and dtypes, too, are of the same.
            kind = re.sub(r"[-+(]?\d[-+.\dej)]*|-?inf|nan|[a-z]+\d+|\b[A-Z][a-z]+$", "#", why.rpartition("): ")[2])
            if kind in kinds:
                continue
            kinds.add(kind)
            print(full, why.replace("\n", " "), flush=True)
    print(f"{total} differences")


if __name__ == "__main__":
    main()
