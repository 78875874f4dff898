"""How far results may be apart: the one place where tolerances are stated, per dtype, and per op where it differs.

`tests/python/unit/test_tolerances.py` fails where a test states a number of its own.
"""

from __future__ import annotations

from typing import NamedTuple

# (relative, absolute)
FORWARD: dict[str, tuple[float, float]] = {
    "float64": (1e-9, 1e-10),
    "float32": (3e-5, 1e-5),
    "float16": (4e-3, 4e-3),
    "bfloat16": (3e-2, 3e-2),
    "complex64": (1e-4, 1e-5),
    "complex128": (1e-9, 1e-10),
}
# Gradients pass through several roundings more.
BACKWARD: dict[str, tuple[float, float]] = {
    "float64": (1e-7, 1e-8),
    "float32": (3e-4, 1e-4),
    "float16": (3e-2, 3e-2),
    "bfloat16": (2e-1, 2e-1),
    "complex64": (1e-3, 1e-4),
    "complex128": (1e-7, 1e-8),
}
# One rounding of a number of magnitude 1, for what is rounded as the largest number beside it is.
EPSILON: dict[str, float] = {"float64": 2.0**-52, "float32": 2.0**-23, "complex64": 2.0**-23, "complex128": 2.0**-52}
EXACT = (0.0, 0.0)
#: Of sums of large terms of both signs, added up in another order: float32's, as a part of the largest result.
SUMS = 1e-6


class Tolerance(NamedTuple):
    """Relative and absolute, and why results may be that far apart."""

    rtol: float
    atol: float
    reason: str


#: By what is compared; float32 where the name does not say another dtype.
TABLE: dict[str, Tolerance] = {
    # ---- dtypes ------------------------------------------------------------------------------------------------------
    "rounding": Tolerance(1e-6, 1e-7, "one op, whose result is rounded once or twice"),
    "few ops": Tolerance(1e-5, 1e-6, "a few ops, each of which rounds"),
    "between languages": Tolerance(1e-5, 1e-5, "the same layers from Python and from Rust, by the same kernels"),
    "near zero": Tolerance(2e-5, 2e-5, "sums of terms of both signs: a result near 0 has the error of its terms"),
    "program": Tolerance(2e-4, 2e-5, "a layer, its gradients or a training step, with sums in another order"),
    "deep program": Tolerance(
        2e-4, 1e-4,
        "several layers or large sums: results near 0 have the error of terms near 1",
    ),
    "function transforms": Tolerance(5e-4, 1e-4, "Jacobians, Hessians and products with them, nested"),
    "whole programs": Tolerance(2e-3, 2e-4, "programs of some dozen layers, with their training"),
    "second derivatives": Tolerance(1e-3, 1e-3, "derivatives of derivatives, whose terms are larger than their sum"),
    "complex functions": Tolerance(2e-3, 2e-3, "functions of complex64 beside their branch cuts, and of float16"),
    "decomposition": Tolerance(
        1e-4, 1e-4,
        "factors of matrices and what is computed of them: errors grow with the condition",
    ),
    "float64": Tolerance(1e-9, 1e-12, "float64 through a program"),
    "float64 rounding": Tolerance(1e-12, 1e-12, "one op of float64"),
    "float16": Tolerance(1e-2, 1e-2, "a few ops of float16, which has 11 bits"),
    "float16 rounding": Tolerance(1e-3, 1e-3, "one op of float16"),
    "bfloat16": Tolerance(1e-2, 1e-2, "one op of bfloat16, which has 8 bits"),
    "float8": Tolerance(0.13, 1e-6, "one rounding to a float of 8 bits, of which 2 or 3 are precision"),
    "one rounding of float32": Tolerance(1.01 * 2e-6, 1e-6, "a long sum that is rounded once, in float32"),
    "one rounding of float16": Tolerance(1.01 * 2.0**-11, 1e-6, "a long sum that is rounded once, to float16"),
    "one rounding of bfloat16": Tolerance(1.01 * 2.0**-8, 1e-6, "a long sum that is rounded once, to bfloat16"),
    "lower precision": Tolerance(5e-2, 5e-2, "layers under autocast, in float16 or bfloat16"),
    "resolution": Tolerance(1e-2, 0.0, "the decimal resolution of a dtype, which NumPy rounds to a power of ten"),
    # ---- element-wise functions --------------------------------------------------------------------------------------
    "denormals": Tolerance(1e-5, 1e-37, "results down to the smallest numbers of float32, which are relative as well"),
    "denormal slopes": Tolerance(1e-5, 1e-33, "as `denormals`, of gradients"),
    "probabilities": Tolerance(0.0, 1e-6, "incomplete gamma functions, from 0 to 1"),
    "float64 probabilities": Tolerance(0.0, 1e-9, "as `probabilities`; PyTorch's series end at 1e-9"),
    "airy": Tolerance(4e-5, 1e-5, "the Airy function; just below -2.09 PyTorch's asymptotic series has six digits"),
    "float64 airy": Tolerance(1e-12, 4e-6, "as `airy`, in float64"),
    "float64 functions": Tolerance(
        1e-14, 1e-14,
        "inverse functions of complex numbers in float64, beside their branch points",
    ),
    "logarithms": Tolerance(1e-4, 1e-5, "powers and products that are decomposed into logarithms and exponentials"),
    "transforms": Tolerance(0.0, 3e-6, "Fourier transforms, relative to their largest element"),
    "float64 transforms": Tolerance(0.0, 1e-11, "as `transforms`"),
    "second transforms": Tolerance(3e-4, 3e-4, "gradients of gradients of short-time transforms"),
    "programs of transforms": Tolerance(1e-3, 1e-3, "programs of short-time transforms, with their gradients"),
    "series": Tolerance(5e-4, 2e-6, "functions of extreme arguments, against mpmath or float64"),
    "float64 series": Tolerance(1e-8, 1e-12, "as `series`, in float64"),
    "windows": Tolerance(2e-5, 2e-6, "cosines and exponentials of up to 1,000 points"),
    "log of tails": Tolerance(1e-4, 1e-6, "log_ndtr of arguments far out, where PyTorch's float32 loses digits"),
    "metal functions": Tolerance(3e-7, 0.0, "Metal's functions are precise to two to four units in the last place"),
    "poles": Tolerance(1e-2, 1e-6, "gradients beside a pole, where a rounding of the argument moves them"),
    "second gradients": Tolerance(
        5e-3, 5e-3,
        "differences of gradients that cancel; relative to the largest of a tensor",
    ),
    "bfloat16 gradients": Tolerance(2e-2, 2e-2, "gradients of bfloat16, of magnitude 1"),
    "loss gradients": Tolerance(1e-3, 5e-4, "gradients of losses, whose terms cancel"),
    "arithmetic of float16": Tolerance(2e-3, 1e-6, "an op of float16, computed in float32 or rounded in between"),
    "arithmetic of bfloat16": Tolerance(1.6e-2, 1e-6, "an op of bfloat16, likewise"),
    "half cancellations": Tolerance(1e-2, 0.5, "gradients of queries and keys that are what float16's rounding leaves"),
    "half sums": Tolerance(2e-3, 0.5, "float16 near 1,000, where neighbours are half a unit apart"),
    "half reductions": Tolerance(1e-2, 0.0, "long sums of float16 and bfloat16, which PyTorch rounds in between"),
    # ---- linear algebra ----------------------------------------------------------------------------------------------
    "factors": Tolerance(3e-3, 3e-3, "factors and their gradients, of matrices of any condition"),
    "float64 factors": Tolerance(1e-8, 1e-8, "as `factors`, in float64"),
    "systems": Tolerance(2e-2, 2e-2, "products with a solution of a system of any condition"),
    "float64 systems": Tolerance(1e-8, 2e-2, "as `systems`, in float64"),
    "solve": Tolerance(2e-3, 1e-4, "systems with a condition number near 1e3"),
    "eigenvalues": Tolerance(1e-3, 1e-3, "eigenvalues of matrices that are not normal, and iterations that stop early"),
    # ---- random numbers ----------------------------------------------------------------------------------------------
    "gamma slopes": Tolerance(
        2e-5, 0.0,
        "the derivative of a gamma quantile, against a difference of SciPy's in float64",
    ),
    "beta slopes": Tolerance(2e-4, 0.0, "as `gamma slopes`, of beta quantiles"),
    "PyTorch's gamma slopes": Tolerance(5e-3, 0.0, "PyTorch's approximation has some digits"),
    "PyTorch's beta slopes": Tolerance(2e-2, 0.0, "PyTorch's approximation has some digits"),
    "large gamma slopes": Tolerance(30.0, 0.0, "an expansion in 1 / a, by which it is scaled"),
    "von Mises": Tolerance(2e-3, 6e-4, "against differences of an integral; absolute for a concentration of 1"),
    "float64 von Mises": Tolerance(1e-5, 3e-6, "as `von Mises`"),
    "implicit gradients": Tolerance(1e-3, 1e-5, "gradients through samples, against a difference of density"),
    "sample quantiles": Tolerance(0.0, 0.04, "quantiles of some ten thousand samples; relative to their deviation"),
    "random numbers": Tolerance(4e-6, 2e-5, "transforms of the same random bits by two devices' logarithms"),
    # ---- training ----------------------------------------------------------------------------------------------------
    "converged": Tolerance(0.0, 2e-2, "the weights that some hundred steps lead to"),
    "training": Tolerance(1e-3, 1e-6, "losses after some steps: differences of a rounding grow in each"),
    "differences": Tolerance(1e-4, 1e-7, "a gradient against a difference quotient of float64"),
    "lower precision steps": Tolerance(1e-2, 2e-2, "parameters in float16 and bfloat16 after a step"),
    # ---- kernels of a GPU, emulated ----------------------------------------------------------------------------------
    "emulated float32": Tolerance(2e-4, 2e-4, "norms and products whose sums are taken in another order"),
    "emulated float16": Tolerance(1e-2, 1e-2, "as `emulated float32`, rounded once more or less to float16"),
    "emulated bfloat16": Tolerance(5e-2, 6e-2, "as `emulated float32`, rounded once more or less to bfloat16"),
    # ---- language models ---------------------------------------------------------------------------------------------
    "logits": Tolerance(1e-4, 2e-4, "logits after all layers of a small model"),
    "rounded weights": Tolerance(1e-3, 1e-3, "products with weights that are rounded twice, or read by another kernel"),
    "dequantised": Tolerance(1e-5, 1e-4, "scales in float16, times integers, added in another order"),
    "8-bit activations": Tolerance(0.0, 2e-2, "activations rounded to 8 bits; relative to the largest result"),
    "float16 weights": Tolerance(1e-3, 1e-6, "weights that a file holds in float16"),
    "quantised product": Tolerance(
        1e-4, 3e-4,
        "products of some hundred terms, by the quantised kernel and by the dense one",
    ),
    "quantised gradient": Tolerance(1e-4, 2e-3, "as `quantised product`, of gradients, whose terms are larger"),
    "quantised product of halves": Tolerance(
        3e-2, 0.6,
        "as `quantised product`, in float16 and bfloat16, of results near 30",
    ),
    "8-bit weights": Tolerance(1e-5, 2e-2, "weights of magnitude 1, rounded to 8 bits"),
    "4-bit weights": Tolerance(1e-5, 0.2, "outputs of a model, weights or caches of which are rounded to 4 or 8 bits"),
    "8-bit perplexity": Tolerance(5e-3, 0.0, "the perplexity of a model with 8-bit weights"),
    "4-bit perplexity": Tolerance(5e-2, 0.0, "the perplexity of a model with 4-bit weights"),
}


def forward(dtype: str) -> tuple[float, float]:
    """Tolerances of a result; integers and Booleans are exact."""
    return FORWARD.get(dtype, EXACT)


def backward(dtype: str) -> tuple[float, float]:
    """Tolerances of a gradient."""
    return BACKWARD.get(dtype, EXACT)


def within(name: str, scale: float = 1.0) -> dict[str, float]:
    """An entry of the table as arguments of `assert_allclose` and its kin; `scale` is for the absolute one."""
    return {"rtol": TABLE[name].rtol, "atol": TABLE[name].atol * scale}


def near(name: str, scale: float = 1.0) -> dict[str, float]:
    """An entry of the table as arguments of `pytest.approx`."""
    return {"rel": TABLE[name].rtol, "abs": TABLE[name].atol * scale}
