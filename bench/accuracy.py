"""The error of every element-wise function on the CPU device in ulp against float64, with PyTorch's beside it.

    python bench/accuracy.py [--samples 10000000] [--only PATTERN] [--dtype float32] [--json FILE] [--worst]

float32 arguments are bit patterns at equal steps over all finite numbers, with edges (subnormals, powers of two and
their neighbours, zeros of the functions); 16-bit floats are taken exhaustively. Of two operands, pairs of such patterns
in random order, and pairs of near magnitudes. The reference is the function in float64 (PyTorch's, or SciPy's where it
has a better one). An ulp is the distance of neighbours in the dtype at the true value, not below that of subnormals; an
infinity or a NaN where the reference has something else counts as an error without size ("wrong").
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lucid
import numpy as np
import scipy.special
import torch
from timing import table

#: Bits of the significand, with the leading one, and the exponent of the least normal number.
FORMATS = {"float32": (24, -126), "float16": (11, -14), "bfloat16": (8, -126)}
CHUNK = 1 << 20
F = "nn.functional."


@dataclass(frozen=True)
class Function:
    """A function in both libraries by its name, and in float64."""

    name: str
    arity: int
    exact: Callable[..., np.ndarray] | None = None
    #: Arguments outside are not asked of it.
    domain: tuple[float, float] = (-np.inf, np.inf)
    #: Where the second operand is not the first's equal.
    second: tuple[float, float] = (-np.inf, np.inf)

    def of(self, lib: Any) -> Callable[..., Any]:
        """The library's function."""
        found = lib
        for part in self.name.split("."):
            found = getattr(found, part)
        return found  # type: ignore[no-any-return]


def unary(names: str, exact: Callable[..., np.ndarray] | None = None, **options: Any) -> list[Function]:
    """Functions of one number."""
    return [Function(name, 1, exact, **options) for name in names.split()]


def functional(names: str) -> list[Function]:
    """Functions of `nn.functional` without an exact one of their own."""
    return [Function(F + name, 1) for name in names.split()]


def _gelu(x: np.ndarray) -> np.ndarray:
    return x * scipy.special.ndtr(x)


def _sinc(x: np.ndarray) -> np.ndarray:
    # The argument is not reduced by a product with an inexact pi.
    whole = np.round(x)
    sign = np.where(np.mod(whole, 2.0) == 0, 1.0, -1.0)
    with np.errstate(all="ignore"):
        return np.where(x == 0, 1.0, sign * np.sin(np.pi * (x - whole)) / (np.pi * x))


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, 30.0))))


def _logit(x: np.ndarray) -> np.ndarray:
    return np.where((x >= 0) & (x <= 1), scipy.special.logit(x), np.nan)


FUNCTIONS = [
    *unary("exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square reciprocal sin cos tan asin acos atan sinh cosh"),
    *unary("tanh asinh acosh atanh erf erfinv sigmoid neg abs floor ceil trunc round frac sign deg2rad rad2deg"),
    *unary("erfc", scipy.special.erfc),
    *unary("lgamma", scipy.special.gammaln),
    *unary("digamma", scipy.special.digamma, domain=(-1e4, np.inf)),
    *unary("i0 special.i0e special.i1 special.i1e special.erfcx special.entr special.ndtri special.log_ndtr"),
    *unary("special.ndtr", scipy.special.ndtr),
    *unary("special.bessel_j0 special.bessel_j1 special.bessel_y0 special.bessel_y1", domain=(-1e4, 1e4)),
    *unary("special.modified_bessel_k0", scipy.special.k0, domain=(0.0, np.inf)),
    *unary("special.modified_bessel_k1", scipy.special.k1, domain=(0.0, np.inf)),
    *unary("special.scaled_modified_bessel_k0", scipy.special.k0e, domain=(0.0, 1e6)),
    *unary("special.scaled_modified_bessel_k1", scipy.special.k1e, domain=(0.0, 1e6)),
    *unary("special.airy_ai", lambda x: scipy.special.airy(x)[0], domain=(-50.0, 50.0)),
    *unary("sinc", _sinc, domain=(-1e6, 1e6)),
    *unary("logit", _logit),
    *unary(F + "gelu", _gelu),
    *unary(F + "softplus", _softplus),
    *functional("silu mish elu selu celu hardswish hardsigmoid relu6 leaky_relu"),
    *functional("logsigmoid softsign tanhshrink hardshrink softshrink hardtanh relu"),
    Function("add", 2),
    Function("sub", 2),
    Function("mul", 2),
    Function("div", 2),
    Function("pow", 2, domain=(0.0, np.inf)),
    Function("atan2", 2),
    Function("hypot", 2),
    Function("logaddexp", 2),
    Function("logaddexp2", 2),
    Function("remainder", 2),
    Function("fmod", 2),
    Function("floor_divide", 2),
    Function("maximum", 2),
    Function("xlogy", 2),
    Function("special.xlog1py", 2),
    Function("copysign", 2),
    Function("nextafter", 2, lambda a, b: np.nextafter(a.astype(np.float32), b.astype(np.float32)).astype(np.float64)),
    Function("special.zeta", 2, scipy.special.zeta, domain=(1.0, 100.0), second=(0.0, 1e4)),
    Function("special.gammainc", 2, scipy.special.gammainc, domain=(0.0, 100.0), second=(0.0, 200.0)),
    Function("special.gammaincc", 2, scipy.special.gammaincc, domain=(0.0, 100.0), second=(0.0, 200.0)),
]


def exact_values(f: Function, args: list[torch.Tensor]) -> np.ndarray:
    """The function of these arguments in float64."""
    wide = [a.double() for a in args]
    with np.errstate(all="ignore"):
        made = f.exact(*[a.numpy() for a in wide]) if f.exact else f.of(torch)(*wide).numpy()
    return np.asarray(made, dtype=np.float64)


def patterns(dtype: str, samples: int) -> torch.Tensor:
    """Arguments over the whole range of a dtype, with the edges."""
    if dtype != "float32":
        every = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)
        return every.view(getattr(torch, dtype))
    bits = np.arange(0, 1 << 32, max(1, (1 << 32) // samples), dtype=np.uint64).astype(np.uint32)
    powers = np.arange(0, 256, dtype=np.uint32) << 23
    near = [(powers + np.uint32(d & 0xFFFFFFFF)) for d in (0, 1, 2, -1, -2)]
    simple = np.concatenate([np.arange(-400, 401) / 8.0, np.arange(-40, 41) * np.pi / 8]).astype(np.float32)
    around = [simple.view(np.uint32) + np.uint32(d & 0xFFFFFFFF) for d in (0, 1, -1)]
    edges = np.concatenate([*near, *around]).astype(np.uint32)
    both = np.concatenate([bits, edges, edges | np.uint32(1 << 31)])
    return torch.from_numpy(both.view(np.float32).copy())


def arguments(f: Function, dtype: str, samples: int) -> list[torch.Tensor]:
    """The arguments that are in the function's domain."""
    x = patterns(dtype, samples)
    x = x[torch.isfinite(x) & (x >= f.domain[0]) & (x <= f.domain[1])]
    if f.arity == 1:
        return [x]
    generator = torch.Generator().manual_seed(1)
    if dtype != "float32":
        x = x.repeat(max(1, min(samples, 1 << 22) // len(x)))
    first = x[torch.randperm(len(x), generator=generator)]
    pool = patterns(dtype, samples)
    pool = pool[torch.isfinite(pool) & (pool >= f.second[0]) & (pool <= f.second[1])]
    other = pool[torch.randint(len(pool), (len(x),), generator=generator)]
    # Half of the pairs are of near magnitudes, where the operands do not swallow each other.
    near = (first.float() * torch.empty(len(x)).uniform_(-4, 4, generator=generator)).to(first.dtype)
    near = torch.where((near >= f.second[0]) & (near <= f.second[1]) & torch.isfinite(near), near, other)
    return [first, torch.where(torch.arange(len(x)) % 2 == 0, other, near)]


def errors(got: np.ndarray, true: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """The error of each in ulp, and which are wrong in kind."""
    digits, least = FORMATS[dtype]
    with np.errstate(all="ignore"):
        exponent = np.maximum(np.frexp(np.abs(true))[1] - 1, least)
        ulp = np.ldexp(1.0, exponent - (digits - 1))
        # What overflows in the dtype may be an infinity, half an ulp before as well.
        most = np.ldexp(2.0 - 2.0 ** (1 - digits), 127 if dtype != "float16" else 15)
        size = np.abs(got - true) / ulp
        over = np.isinf(got) & (np.abs(true) >= most) & (np.sign(got) == np.sign(true))
        size = np.where(over | (got == true) | (np.isnan(got) & np.isnan(true)), 0.0, size)
        size = np.where(np.isfinite(got) & np.isinf(true), np.inf, size)
    wrong = ~np.isfinite(size)
    return np.where(wrong, 0.0, size), wrong


def measure(f: Function, dtype: str, samples: int) -> dict[str, Any]:
    """The worst error of both libraries, and where ours is."""
    args = arguments(f, dtype, samples)
    worst = {"ours": 0.0, "torch": 0.0}
    wrong = {"ours": 0, "torch": 0}
    where: dict[str, list[float]] = {"ours": [], "torch": []}
    for start in range(0, len(args[0]), CHUNK):
        part = [a[start : start + CHUNK] for a in args]
        true = exact_values(f, part)
        results = {"torch": f.of(torch)(*part)}
        ours = [lucid.from_numpy(a.float().numpy()) for a in part]
        ours = [a if dtype == "float32" else a.to(getattr(lucid, dtype)) for a in ours]
        results["ours"] = torch.from_numpy(f.of(lucid)(*ours).to(lucid.float32).numpy())
        for side, made in results.items():
            got = made.float().numpy().astype(np.float64)
            size, bad = errors(got, true, dtype)
            at = int(size.argmax())
            if size[at] > worst[side]:
                worst[side] = float(size[at])
                where[side] = [float(a[at]) for a in part]
            if bad.any() and wrong[side] == 0:
                at = int(bad.argmax())
                where[f"{side} wrong"] = [*(float(a[at]) for a in part), float(got[at]), float(true[at])]
            wrong[side] += int(bad.sum())
    return {"name": f.name, "dtype": dtype, "samples": len(args[0]), **worst, "wrong": wrong, "where": where}


def main() -> int:
    """Reads the command line, measures, prints."""
    parser = argparse.ArgumentParser(description="Errors of element-wise functions in ulp.")
    parser.add_argument("--samples", type=int, default=10_000_000, help="arguments of float32")
    parser.add_argument("--only", default="", metavar="PATTERN", help="functions whose name this expression finds")
    parser.add_argument("--dtype", action="append", choices=list(FORMATS), help="default: all three")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rows here")
    parser.add_argument("--worst", action="store_true", help="also say where ours is worst")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows, lines = [], []
    for f in FUNCTIONS:
        if not re.search(args.only, f.name):
            continue
        for dtype in args.dtype or list(FORMATS):
            try:
                row = measure(f, dtype, args.samples)
            except (NotImplementedError, RuntimeError, TypeError) as error:
                print(f"skipped {f.name} {dtype}: {str(error)[:90]}", file=sys.stderr)
                continue
            rows.append(row)
            numbers = [f"{row['ours']:.2f}", f"{row['torch']:.2f}", *(str(n) for n in row["wrong"].values())]
            lines.append([f"{f.name} {dtype}", *numbers])
            if args.worst:
                print(f.name, dtype, row["where"], flush=True)
    print(table(["", "ours ulp", "PyTorch ulp", "ours wrong", "PyTorch wrong"], lines))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=0) + "\n")
    bad = [r for r in rows if r["dtype"] == "float32" and r["ours"] > 2 and r["torch"] <= 2]
    print(f"{len(rows)} rows; float32 above 2 ulp where PyTorch is not: {[r['name'] for r in bad]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
