"""Compares every op with PyTorch on PyTorch's own samples, those that its test suite uses.

    python -m tests.python.opinfo [--device gpu] [--only softmax,cat] [--dtypes float32,int64] [--samples 40]

Prints a line per difference: missing names and aliases, values, dtypes, shapes, gradients, `requires_grad`, calls that
one framework refuses and the other does not, and kinds of errors. It is for reading, not for a verdict: the list also
shows what has a limitation (complex128, float64 on the gpu device), rounding of 16-bit gradients, and ties. What turns
out to be a bug becomes a test in `parity/`. Needs the `expecttest` package, which PyTorch's samples import.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import types
import warnings
from collections.abc import Iterator
from typing import Any

import lucid
import numpy as np
import torch

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
TOLERANCE = {"float16": 2e-2, "bfloat16": 6e-2, "float32": 2e-4, "float64": 1e-7, "complex64": 4e-4}
DTYPES = ["float32", "int64", "bool", "complex64", "bfloat16", "float16", "uint8", "float64"]


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


def counterpart(op: Any) -> Any:
    """Ours for an op: by its name, or PyTorch's own wrapper where that only calls methods."""
    f = op.op
    if isinstance(f, types.FunctionType) and "testing" in (f.__module__ or "") and "torch" not in f.__code__.co_names:
        return f
    return find(getattr(f, "__name__", op.name)) if type(f).__name__ == "method_descriptor" else find(op.name)


class Translator:
    """PyTorch's arguments as ours; `leaves` has the pairs of tensors that require gradients."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.leaves: list[tuple[Any, Any]] = []

    def tensor(self, t: Any) -> Any:
        name = name_of(t.dtype)
        if t.layout != torch.strided or not hasattr(lucid, name) or (self.device == "gpu" and name == "float64"):
            raise Apart
        x = t.detach().resolve_conj().resolve_neg().contiguous()
        wide = x.float() if x.dtype == torch.bfloat16 else x
        y = lucid.tensor(wide.numpy().copy(), device=self.device).to(getattr(lucid, name))
        if not t.is_contiguous() and t.numel() > 1 and 0 not in t.stride():
            order = sorted(range(t.ndim), key=lambda i: -t.stride()[i])
            y = y.permute(order).contiguous().permute([order.index(i) for i in range(t.ndim)])
        return y.requires_grad_(t.requires_grad)

    def __call__(self, a: Any) -> Any:
        if isinstance(a, torch.Tensor):
            y = self.tensor(a)
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


def compare(op: Any, f: Any, sample: Any, device: str, grads: bool) -> str | None:
    """What differs in one call, and in its gradients."""
    translate = Translator(device)
    x, args, kwargs = translate(sample.input), translate(sample.args), translate(sample.kwargs)
    theirs = refusal = None
    try:
        theirs = op.op(sample.input, *sample.args, **sample.kwargs)
    except (RuntimeError, TypeError, ValueError, IndexError) as e:
        refusal = e
    try:
        ours = f(x, *args, **kwargs)
    except Exception as e:
        return None if refusal is not None else f"raises {type(e).__name__}: {str(e)[:160]}"
    if refusal is not None:
        return f"not refused: {type(refusal).__name__}: {str(refusal)[:80]}"
    a, b = flat(theirs), flat(ours)
    if len(a) != len(b):
        return f"{len(a)} results for {len(b)}"
    values = op.name not in FREE
    for i, (p, q) in enumerate(zip(a, b, strict=True)):
        if why := difference(p, q, values):
            return f"result {i}: {why}"
    pairs = [(p, q) for p, q in zip(a, b, strict=True) if isinstance(p, torch.Tensor)]
    pairs = [(p, q) for p, q in pairs if p.requires_grad or q.requires_grad]
    if not (grads and values and translate.leaves and pairs):
        return None
    if any(p.requires_grad != q.requires_grad for p, q in pairs):
        return f"requires_grad {[p.requires_grad for p, _ in pairs]}"
    weights = [torch.randn(p.shape, dtype=p.dtype if p.is_complex() else torch.float32).to(p.dtype) for p, _ in pairs]
    try:
        want = torch.autograd.grad([p for p, _ in pairs], [t for t, _ in translate.leaves], weights, allow_unused=True)
    except RuntimeError:
        return None
    got = lucid.autograd.grad(
        [q for _, q in pairs], [t for _, t in translate.leaves], [translate.tensor(w) for w in weights],
        allow_unused=True,
    )  # fmt: skip
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
    yield from (f"alias {a.name} is missing" for a in op.aliases if find(a.name) is None)
    for variant in (op.method_variant, op.inplace_variant):
        name = getattr(variant, "__name__", "<lambda>")
        if name != "<lambda>" and not hasattr(lucid.Tensor, name):
            yield f"method {name} is missing"


def refusals(op: Any, f: Any, device: str) -> Iterator[str]:
    """Bad input that is not refused, or with another kind of error."""
    for bad in op.error_inputs("cpu"):
        sample = bad.sample_input
        try:
            translate = Translator(device)
            with time_limit(20):
                f(translate(sample.input), *translate(sample.args), **translate(sample.kwargs))
            yield f"({shown(sample)}): not refused: {bad.error_regex[:80]}"
        except (Apart, ValueError) as e:
            if isinstance(e, ValueError) and not isinstance(e, bad.error_type):
                yield f"({shown(sample)}): {type(e).__name__} for {bad.error_type}: {str(e)[:120]}"
        except Exception as e:
            if not isinstance(e, bad.error_type):
                yield f"({shown(sample)}): {type(e).__name__} for {bad.error_type}: {str(e)[:120]}"


def differences(op: Any, device: str, dtypes: list[str], limit: int) -> Iterator[str]:
    f = counterpart(op)
    if f is None:
        yield "is missing"
        return
    yield from names(op)
    for name in dtypes:
        dtype = getattr(torch, name)
        if dtype not in op.dtypes or (name == "float64" and device == "gpu"):
            continue
        grads = op.supports_autograd and dtype in op.backward_dtypes and (dtype.is_floating_point or dtype.is_complex)
        torch.manual_seed(0)
        found = 0
        for sample, _ in zip(op.sample_inputs("cpu", dtype, requires_grad=grads), range(limit), strict=False):
            try:
                with time_limit(20):
                    why = compare(op, f, sample, device, grads)
            except Apart:
                continue
            except Slow:
                why = "more than 20 seconds"
            if why:
                found += 1
                yield f"({shown(sample)}): {why}"
            if found == 3:
                break
    if op.error_inputs_func is not None:
        yield from refusals(op, f, device)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--only", default="", help="names, with commas between")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--samples", type=int, default=40, help="at most so many for an op and a dtype")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

    only = set(filter(None, args.only.split(",")))
    total = 0
    for op in op_db:
        if op.name.startswith(APART) or (only and op.name not in only):
            continue
        full = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        for why in differences(op, args.device, args.dtypes.split(","), args.samples):
            total += 1
            print(full, why.replace("\n", " "), flush=True)
    print(f"{total} differences")


if __name__ == "__main__":
    main()
