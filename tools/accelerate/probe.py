#!/usr/bin/env python3
"""Questions that Apple's documentation leaves open, asked of Accelerate itself.

    python tools/accelerate/probe.py [LIBRARY]    one JSON object: by question, the answer and what the engine counts on

On a Mac the library is the system's. On Linux it is what stands in for it, compiled here, so that the questions are
tried before anybody with a Mac is asked to run them.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SYSTEM = "/System/Library/Frameworks/Accelerate.framework/Accelerate"
WORDS = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
]
# NumPy's names where they are others.
NUMPY = {name: f"arc{name[1:]}" for name in WORDS if name.startswith("a")}
SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 1e30, -1e30, 1e-30, -1e-30]
Array = np.ndarray[Any, Any]


def stand_in(folder: str) -> str:
    """The library of this folder, compiled."""
    openblas = Path(os.environ.get("OPENBLAS_DIR") or ROOT / "vendor" / "openblas") / "lib"
    out = f"{folder}/accelerate.so"
    words = [os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-fPIC", "-ffp-contract=off", "-shared"]
    words += [str(Path(__file__).resolve().parent / "accelerate.c"), "-o", out]
    subprocess.run([*words, f"-L{openblas}", "-lscipy_openblas", f"-Wl,-rpath,{openblas}", "-lm"], check=True)
    return out


class Probe:
    """A library, and what is asked of it."""

    def __init__(self, library: str) -> None:
        self.library = ctypes.CDLL(library)

    def vforce(self, name: str, x: Array, *, in_place: bool = False) -> Array:
        """A function of vForce over an array."""
        function = self.library[f"vv{name}{'f' if x.dtype == np.float32 else ''}"]
        source = x.copy()
        out = source if in_place else np.full_like(x, 7)
        pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (out, source)]
        function(*pointers, ctypes.byref(ctypes.c_int(x.size)))
        return out

    def libm(self, name: str, x: Array) -> Array:
        """The same by NumPy, in double precision, rounded once."""
        with np.errstate(all="ignore"):
            wide = x.astype(np.float64)
            made = 1 / np.sqrt(wide) if name == "rsqrt" else getattr(np, NUMPY.get(name, name))(wide)
            return np.asarray(made.astype(x.dtype))

    def special_values(self) -> list[str]:
        """Where NaN, infinities, zeros and large numbers have other results than libm's."""
        differ = []
        for kind in (np.float32, np.float64):
            x = np.array(SPECIAL, kind)
            for name in WORDS:
                if name in ("sin", "cos", "tan"):
                    # What a large argument gives is a matter of rounding: not asked here.
                    x = np.array([v for v in SPECIAL if not 1e6 < abs(v) < math.inf], kind)
                got, want = self.vforce(name, x), self.libm(name, x)
                close = np.isclose(got, want, rtol=1e-5, atol=0, equal_nan=True)
                same = close & ((np.signbit(got) == np.signbit(want)) | np.isnan(want))
                differ += [f"vv{name} {kind.__name__}({v}) = {g}" for v, g in zip(x[~same], got[~same], strict=True)]
        return differ

    def denormals(self) -> list[str]:
        """Functions that take a denormal argument for zero, or give zero for a denormal result."""
        flushed = []
        for kind, tiny in ((np.float32, 1e-40), (np.float64, 1e-310)):
            for name in ("sqrt", "sin", "tan", "expm1", "log1p", "log", "sinh", "tanh", "asin", "atan"):
                x = np.full(9, tiny, kind)
                if not np.allclose(self.vforce(name, x), self.libm(name, x), rtol=1e-2, atol=0):
                    flushed.append(f"vv{name} {kind.__name__}")
            low = np.full(9, -90 if kind is np.float32 else -720, kind)
            if not (self.vforce("exp", low) > 0).all():
                flushed.append(f"vvexp {kind.__name__}, result")
        return flushed

    def places(self) -> list[str]:
        """Functions whose result depends on where an element is in the array, or on its neighbours."""
        depend = []
        for kind in (np.float32, np.float64):
            for name in WORDS:
                inside = np.linspace(0.05, 0.95, 37) + (1 if name == "acosh" else 0)
                x = inside.astype(kind)
                whole = self.vforce(name, x)
                alone = np.concatenate([self.vforce(name, x[i : i + 1]) for i in range(x.size)])
                if whole.tobytes() != alone.tobytes():
                    depend.append(f"vv{name} {kind.__name__}")
        return depend

    def in_place(self) -> list[str]:
        """Functions that give something else in place."""
        x = np.linspace(1.01, 1.99, 1000).astype(np.float32)
        pairs = ((name, x - 1 if name in ("asin", "acos", "atanh") else x) for name in WORDS)
        return [f"vv{n}" for n, x in pairs if self.vforce(n, x).tobytes() != self.vforce(n, x, in_place=True).tobytes()]

    def accuracy(self) -> dict[str, float]:
        """The largest distance of float32 results from the true ones, in units in the last place."""
        rng = np.random.default_rng(0)
        worst = {}
        for name in WORDS:
            low, high = {"asin": (-1, 1), "acos": (-1, 1), "atanh": (-0.99, 0.99), "acosh": (1, 50)}.get(name, (-9, 9))
            if name.startswith(("log", "sqrt", "rsqrt")):
                low = 0.01
            x = rng.uniform(low, high, 20_000).astype(np.float32)
            wide = x.astype(np.float64)
            true = 1 / np.sqrt(wide) if name == "rsqrt" else getattr(np, NUMPY.get(name, name))(wide)
            unit = np.spacing(np.abs(true).astype(np.float32)).astype(np.float64)
            worst[f"vv{name}f"] = round(float(np.max(np.abs(self.vforce(name, x) - true) / unit)), 3)
        return worst

    def stride_zero(self) -> bool:
        """May an operand of vDSP have stride 0, so that one number meets all elements?"""
        ok = True
        for kind, end in ((np.float32, ""), (np.float64, "D")):
            a, b = np.array([3], kind), np.arange(1, 38).astype(kind)
            for name, want in (("vadd", b + 3), ("vsub", 3 - b), ("vmul", b * 3), ("vdiv", (3 / b).astype(kind))):
                out = np.zeros_like(b)
                first, second = ((b, 1), (a, 0)) if name in ("vsub", "vdiv") else ((a, 0), (b, 1))
                arguments: list[Any] = []
                for array, step in (first, second, (out, 1)):
                    arguments += [array.ctypes.data_as(ctypes.c_void_p), ctypes.c_long(step)]
                self.library[f"vDSP_{name}{end}"](*arguments, ctypes.c_ulong(b.size))
                ok = ok and out.tobytes() == want.tobytes()
        return ok

    def gemm(self, a: Array, b: Array, c: Array, beta: float) -> Array:
        """`a b + beta c` by rows."""
        (m, k), n = a.shape, b.shape[1]
        ints = [ctypes.c_int(v) for v in (101, 111, 111, m, n, k)]
        at = [x.ctypes.data_as(ctypes.c_void_p) for x in (a, b, c)]
        self.library["cblas_sgemm$NEWLAPACK"](
            *ints,
            ctypes.c_float(1),
            at[0],
            ctypes.c_int(k),
            at[1],
            ctypes.c_int(n),
            ctypes.c_float(beta),
            at[2],
            ctypes.c_int(n),
        )
        return c

    def unread(self) -> bool:
        """With beta 0, is what the result's memory held left unread?"""
        a, b = np.ones((33, 17), np.float32), np.ones((17, 65), np.float32)
        return bool((self.gemm(a, b, np.full((33, 65), np.nan, np.float32), 0.0) == 17).all())

    def steady(self) -> bool:
        """Does the same product have the same bits each time?"""
        rng = np.random.default_rng(1)
        a, b = rng.random((300, 257), np.float32), rng.random((257, 301), np.float32)
        made = {self.gemm(a, b, np.zeros((300, 301), np.float32), 0.0).tobytes() for _ in range(5)}
        return len(made) == 1

    def refused(self) -> int:
        """What sgesdd's info says of a matrix with a NaN: -4 where it looks for one first."""
        n = 5
        a = np.full((n, n), np.nan, np.float32)
        s, u, vt, work = (np.zeros(k, np.float32) for k in (n, n * n, n * n, 4096))
        iwork, info = np.zeros(8 * n, np.int32), ctypes.c_int(77)
        size, room = ctypes.byref(ctypes.c_int(n)), ctypes.byref(ctypes.c_int(4096))
        at = [x.ctypes.data_as(ctypes.c_void_p) for x in (a, s, u, vt, work, iwork)]
        letter = ctypes.c_char_p(b"A")
        self.library["sgesdd$NEWLAPACK"](
            letter, size, size, at[0], size, at[1], at[2], size, at[3], size, at[4], room, at[5], ctypes.byref(info)
        )
        return info.value

    def ask(self) -> dict[str, dict[str, Any]]:
        """All answers, with what the engine counts on; `None` where it counts on nothing."""
        questions: Sequence[tuple[str, Callable[[], Any], Any]] = (
            ("special values of vForce that are not libm's", self.special_values, []),
            ("functions of vForce that flush denormals", self.denormals, []),
            ("functions of vForce whose results depend on an element's place", self.places, []),
            ("functions of vForce that differ in place", self.in_place, []),
            ("largest error of vForce in ulp", self.accuracy, None),
            ("vDSP takes operands with stride 0", self.stride_zero, True),
            ("cblas_sgemm with beta 0 leaves the result's memory unread", self.unread, True),
            ("cblas_sgemm gives the same bits each time", self.steady, True),
            ("info of sgesdd for a matrix with NaN", self.refused, None),
        )
        found = {}
        for text, question, counted_on in questions:
            try:
                answer = question()
            except (AttributeError, OSError) as e:
                answer = f"not asked: {e}"
            ok = answer == counted_on if counted_on is not None else None
            found[text] = {"answer": answer, "counted_on": counted_on, "ok": ok}
        return found


def main() -> int:
    """Ask, and print."""
    with tempfile.TemporaryDirectory(prefix="accelerate-") as folder:
        given = sys.argv[1] if len(sys.argv) > 1 else SYSTEM if sys.platform == "darwin" else stand_in(folder)
        print(json.dumps(Probe(given).ask(), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
