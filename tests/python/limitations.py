"""Known gaps, as data: what does not work where, and why. The tests read it; so does the support table in the docs."""

from __future__ import annotations

from dataclasses import dataclass

import lucid


@dataclass(frozen=True)
class Limitation:
    """One gap. ``dtype`` is ``"*"`` for all, ``"special"`` for NaN, infinities and the ends of the range,
    ``"ends of integers"`` and ``"ends of floats"`` for the smallest and largest numbers of other dtypes than float32,
    ``"weights"`` for those. ``device`` ``"a GPU"`` is the GPU device where MLX has a GPU, and not the CPU in its place.
    """

    op: str
    device: str
    dtype: str
    reason: str


POLES = "at the poles PyTorch's trigamma gives large finite numbers, from sin(πx) of a rounded πx"
BESSEL_FAR_OUT = "beyond 10^9 PyTorch rounds the angle to float32, more than a period"
NOT_FACTORED = "MLX factors no complex matrices; the error names the CPU"
WIDE_EXPONENTIALS = "computed in float32; PyTorch's in 16 bits is infinite or NaN in float16, of few digits in bfloat16"
IN_FLOAT32 = "one primitive, which autocast runs in float32; PyTorch's is made of products, which it runs in 16 bits"
ONLY_TRUTHS = "bytes other than 0 and 1 are no truth values: `view(bool)` of such is an error, where PyTorch shows True"
NO_FLOAT64 = "the GPU device has no float64; float32 stands in, as documented"

#: What has no right answer at the ends of integer dtypes; where PyTorch's is no better at the ends of floating ones.
ENDS = {
    "ends of integers": {
        "gcd": "the magnitude of the smallest integer does not exist",
        "lcm": "the magnitude of the smallest integer does not exist",
        "ldexp": "2 to an integer beyond the exponents of the dtype",
        "zeta": "orders of 10^18, where PyTorch's loop gives NaN for 0",
        **dict.fromkeys(("bessel_j0", "bessel_j1", "bessel_y1"), BESSEL_FAR_OUT),
        "airy_ai": "at -32768 PyTorch rounds the angle, 4 million, to float32",
    },
    "ends of floats": {
        "remainder": "PyTorch's vectorised fmod gives NaN for float64 dividends beyond its range",
        "fmod": "PyTorch's vectorised fmod gives NaN for float64 dividends beyond its range",
        "mvlgamma": "PyTorch rounds the terms to 16 bits, where they overflow",
        "airy_ai": "at -2.5 PyTorch's asymptotic series has 6 digits in float64",
        **dict.fromkeys(("bessel_j0", "bessel_j1"), "at 7 PyTorch's polynomials have 8 digits in float64"),
    },
}

#: Ops that factor matrices.
FACTORED = (
    *(f"linalg_{name}" for name in ("cholesky", "cholesky_ex", "cond", "det", "eigh", "eigvalsh", "inv", "inv_ex")),
    *(f"linalg_{name}" for name in ("lstsq", "lu", "lu_factor", "lu_factor_ex", "lu_solve", "matrix_exp")),
    *(f"linalg_{name}" for name in ("matrix_norm", "matrix_power", "matrix_rank", "norm", "pinv", "qr", "slogdet")),
    *(f"linalg_{name}" for name in ("solve", "solve_ex", "solve_triangular", "svd", "svdvals", "tensorinv")),
    *("linalg_tensorsolve", "cholesky_inverse", "cholesky_solve", "det", "inverse", "logdet", "matrix_exp"),
    *("matrix_power", "nuclear_norm", "pinverse", "slogdet", "geqrf", "orgqr", "ormqr", "lu", "lu_solve", "svd"),
    *(f"linalg_{name}" for name in ("householder_product", "ldl_factor", "ldl_factor_ex", "ldl_solve")),
    *("triangular_solve",),
)

LIMITATIONS: tuple[Limitation, ...] = (
    *(
        Limitation(name, device, where, reason)
        for where, reasons in ENDS.items()
        for name, reason in reasons.items()
        for device in ("cpu", "gpu")
    ),
    *(Limitation(name, "gpu", "complex64", NOT_FACTORED) for name in FACTORED),
    *(
        Limitation("cholesky_inverse", "cpu", dtype, "the diagonal of a factor is real; PyTorch reads no more of it")
        for dtype in ("complex64", "complex128")
    ),
    *(
        Limitation(f"autocast {name}", "cpu", "*", IN_FLOAT32)
        for name in ("matrix_exp", "linalg_matrix_exp", "linalg_pinv", "pinverse", "linalg_det")
    ),
    *(
        Limitation(name, device, dtype, WIDE_EXPONENTIALS)
        for name in ("matrix_exp", "linalg_matrix_exp")
        for device in ("cpu", "gpu")
        for dtype in ("float16", "bfloat16")
    ),
    Limitation("float_power", "gpu", "*", NO_FLOAT64),
    Limitation("bincount", "gpu", "weights", NO_FLOAT64),
    Limitation("var", "gpu", "beyond 1e18", NO_FLOAT64),
    Limitation("polygamma", "cpu", "special", POLES),
    Limitation("airy_ai", "cpu", "special", "at the least number PyTorch's angle overflows to NaN in float32"),
    Limitation("view_dtype", "cpu", "bool", ONLY_TRUTHS),
    Limitation("polygamma", "gpu", "special", POLES),
    Limitation("dynamic_quantized_matmul", "a GPU", "*", "no product with rounded activations; `NotImplementedError`"),
)

#: Has MLX a GPU here?
ON_A_GPU = lucid.cuda.is_available() or lucid.metal.is_available()


def known(op: str, device: str, dtype: str) -> Limitation | None:
    """The gap that covers a combination, if any."""
    devices = (device, "a GPU") if device == "gpu" and ON_A_GPU else (device,)
    for gap in LIMITATIONS:
        if gap.op == op and gap.device in devices and gap.dtype in ("*", dtype):
            return gap
    return None


#: Primitives without a batching rule, by name: under `vmap` they run sample by sample. Why each has none.
VMAP_FALLBACKS: dict[str, str] = {
    "embedding_sum": "the kernel reads one table; a batch of tables would need indices counted through all of them",
}

DYNAMIC = (
    "what it gives depends on the values, so that samples would differ in shape or in control flow; PyTorch refuses too"
)

#: Rows, or samples of them, that `vmap` refuses, as PyTorch does.
VMAP_REFUSED: dict[str, str] = dict.fromkeys(
    (
        "argwhere",
        "bincount",
        "histc(N(30), 10)",
        "histc(N(3, 4))",
        "histogram(N(30), 5)",
        "histogram(N(12), 4, weight=P(12), density=True)",
        "histogramdd(N(30, 2), [3, 5])",
        "histogramdd(N(30, 3), [1, 3, 3], density=True)",
        "histogramdd(N(20, 2), 3)",
        "index_put(N(3, 4), [B(3)], N(1))",
        "index_put(N(3, 4), [B(3, 4)], N())",
        "masked_scatter",
        "masked_select",
        "nonzero",
        "nonzero_static",
        "one_hot(I(0, 5, 4))",
        "repeat_interleave(I(0, 4, 5))",
        "repeat_interleave(N(3, 4), I(0, 3, 3), 0)",
        "repeat_interleave(N(3, 4), I(0, 3, 4), dim=1)",
        "repeat_interleave(N(3, 4), I(2, 3, 1), 0, output_size=6)",
        "unique",
        "unique_consecutive",
    ),
    DYNAMIC,
)

#: Rows that read a sample's memory, and so need the samples one after the other in it, as in PyTorch.
VMAP_BY_MEMORY: dict[str, str] = {
    "view_dtype": "the parts of an element must be adjacent",
    "as_strided": "strides are those of the storage that the samples share",
    "view_as_complex": "both parts of a number must be adjacent",
}

#: Rows whose gradient is not that of what they compute, and why; finite differences do not find it.
STRAIGHT_THROUGH: dict[str, str] = {
    "dynamic_quantized_matmul": "rounding has steps; the gradient is that of the product with activations as they were "
    "(tests/python/parity/llm/test_quantized_ops.py)",
}

#: Rows without a batching rule for some arguments of each sample's own: how many, from the first on, may be batched,
#: and why the others must be shared. That `vmap` refuses those, by an error that says so, is tested.
VMAP_SHARED: dict[str, tuple[int, str]] = {
    "quantized_matmul": (1, "samples are rows more for one quantised matrix; no kernel takes a matrix for each"),
    "dynamic_quantized_matmul": (
        1, "samples are rows more for one quantised matrix; no kernel takes a matrix for each"
    ),
    "gather_qmm": (0, "indices count the leading dimensions of what all samples share; no kernel takes one more"),
}


def vmap_takes(op: str, mask: tuple[bool, ...]) -> bool:
    """Does `vmap` take the row with the tensors that the mask names batched?"""
    return op not in VMAP_SHARED or not any(mask[VMAP_SHARED[op][0] :])


def vmap_refuses(op: str, sample: str) -> bool:
    """Is it an error to run this sample of the row under `vmap`?"""
    return op in VMAP_REFUSED or f"{op}({sample})" in VMAP_REFUSED


LAST_OF_SEVERAL = "PyTorch makes it of several ops and shows the last of them; here the step has the op's own name"
BY_SHAPE = "PyTorch takes another op for other numbers of dimensions, and shows that one's last step"

CONJUGATED = "the last step takes the conjugate of a transform of real numbers, and writes it; PyTorch's marks it"
FROM_REAL = "real numbers have one transform here, where PyTorch records a cast and a complex transform"
FRAMED = "made of `unfold` and `squeeze`, where PyTorch takes strides of the signal, and squeezes in place"

NO_GRADIENT = "PyTorch has no gradient of it"
FAILING = "with reduce PyTorch records a step that fails when it is gone back through"

#: Rows whose last node of the graph has another name in PyTorch, and why.
STEP_NAMES: dict[str, str] = (
    dict.fromkeys(("cdist", "linalg_cond", "matrix_power", "svd", "vander"), LAST_OF_SEVERAL)
    | dict.fromkeys(("diff",), BY_SHAPE)
    | dict.fromkeys(
        (
            "chebyshev_polynomial_t",
            "chebyshev_polynomial_u",
            "chebyshev_polynomial_v",
            "chebyshev_polynomial_w",
            "hermite_polynomial_h",
            "hermite_polynomial_he",
            "laguerre_polynomial_l",
            "legendre_polynomial_p",
            "scaled_modified_bessel_k0",
            "scaled_modified_bessel_k1",
            "shifted_chebyshev_polynomial_t",
            "shifted_chebyshev_polynomial_u",
            "shifted_chebyshev_polynomial_v",
            "shifted_chebyshev_polynomial_w",
        ),
        NO_GRADIENT,
    )
    | dict.fromkeys(("fft_ifft", "fft_ihfft"), CONJUGATED)
    | dict.fromkeys(("fft_fft2", "fft_ifft2", "fft_fftn", "fft_ifftn"), FROM_REAL)
    | {"scatter": FAILING, "stft": FRAMED}
)

ONE_PASS = "one step here, which PyTorch makes of several"
#: Rows whose steps lead on otherwise than in PyTorch, for some samples, and why.
GRAPHS: dict[str, str] = STEP_NAMES | {
    **dict.fromkeys(("linear", "max_pool1d", "avg_pool1d", "nll_loss", "cross_entropy"), ONE_PASS),
    **dict.fromkeys(("scaled_dot_product_attention", "matmul", "logdet", "cartesian_prod"), ONE_PASS),
    **dict.fromkeys(("quantile", "nanquantile", "einsum"), "made of other steps, in another order"),
    "pad": "PyTorch pads in circles by writes, each of which it shows",
    "ndtr": "made of `erfc`, which is right where `1 + erf` has lost its digits",
    "linalg_lstsq": "the residuals are made of the solution, whose step comes between",
    **dict.fromkeys(("fft_hfft", "fft_hfft2", "fft_hfftn"), "conjugates are written first; PyTorch's are marked"),
    "istft": "overlapping frames are padded and added; PyTorch has one node for it",
}
#: The same on the gpu device alone.
GRAPHS_ON_GPU = {"float_power": "in float32, which needs no conversion there"}

#: Calls that PyTorch refuses with another kind, and the kind here, with the reason.
OTHER_KINDS: dict[str, tuple[type[Exception], str]] = {
    "F.group_norm(f.ones(2, 4), 0)": (RuntimeError, "PyTorch divides by zero"),
    "F.unfold(f.ones(3, 3), 2)": (RuntimeError, "PyTorch fails while it looks for a dimension"),
    **dict.fromkeys(
        ("F.mse_loss([1.0, 2.0], [1.0, 3.0])", "F.l1_loss(f.ones(2), [1.0, 3.0])"),
        (TypeError, "PyTorch fails while it looks for a method"),
    ),
    "nn.Parameter(3)": (TypeError, "PyTorch fails while it looks for a method"),
    "f.save({}, 3)": (TypeError, "PyTorch's is an AttributeError"),
}

#: Calls with bad numbers that are not noticed on the GPU device, where that would mean waiting for numbers.
UNSEEN_ON_GPU = (
    "F.binary_cross_entropy(f.full((2,), 1.5), f.ones(2))",
    "F.binary_cross_entropy(f.full((2,), -0.5), f.ones(2))",
    "F.binary_cross_entropy(f.full((2,), float('nan')), f.ones(2))",
)

SMALL = "PyTorch has another kernel for single small volumes, which knows no channels last"
COPIED = "PyTorch writes into a copy that has the input's strides"
#: Rows whose results have other strides than in PyTorch, and why. Each has a sample that shows it.
RESULT_STRIDES = {
    **dict.fromkeys(("conv3d", "conv_transpose3d"), SMALL),
    "put": COPIED,
    "chain_matmul": "of one matrix PyTorch's has the matrix's strides",
    **dict.fromkeys(
        ("fft_fft2", "fft_ifft2", "fft_fftn", "fft_ifftn"),
        "of expanded real numbers: PyTorch makes complex ones of them first, in rows; here they keep their layout",
    ),
}

MEETING = "of operands with other strides another one gives those of the result, or of the gradient"
CHOSEN = "made of choices, whose conditions come first; PyTorch has a kernel that takes the gradient first"
EXPANDED = "an expanded gradient stays so, or gets memory, where PyTorch's does not, or does"
DIAGONAL = "a diagonal of the gradient here is one of PyTorch's, or a copy"
MOVED = "made along dimensions that were moved to the end, which PyTorch does in another order"
GRADIENT_COPIED = "written into a copy of another order than PyTorch's"
TRANSFORMED = "as the transform here leaves it; PyTorch's is the real part of complex numbers, or in its kernel's order"
#: The same of gradients, and on the gpu device alone.
GRADIENT_STRIDES = {
    "polar": "PyTorch's has the strides of complex numbers' parts",
    "scaled_dot_product_attention": "PyTorch's has the layout of its kernel's blocks",
    "linear": "of one vector PyTorch's bias gets the expanded gradient of a sum as it is",
    "cdist": "PyTorch's kernel writes by rows",
    "triangular_solve": "PyTorch's zeros for the second result are expanded",
    **dict.fromkeys(("rot90", "cat", "block_diag"), EXPANDED),
    **dict.fromkeys(("diag", "diag_embed", "diagflat", "diagonal_scatter"), DIAGONAL),
    **dict.fromkeys(("linalg_matrix_norm", "linalg_norm"), MOVED),
    **dict.fromkeys(("conv3d", "conv_transpose3d"), SMALL),
    **dict.fromkeys(("put", "chain_matmul"), GRADIENT_COPIED),
    **dict.fromkeys(("binary_cross_entropy_with_logits", "lerp", "addmm", "matrix_power"), MEETING),
    **dict.fromkeys(("atanh", "atan2", "igammac", "ldexp", "mvlgamma", "nextafter", "sgn", "polygamma"), MEETING),
    **dict.fromkeys(("logit", "log_ndtr", "copysign", "pow", "float_power"), MEETING),
    **dict.fromkeys(("xlogy", "xlog1py", "fmax", "fmin"), CHOSEN),
    **dict.fromkeys(("_fft_r2c", "istft"), TRANSFORMED),
    **dict.fromkeys(
        (f"fft_{name}{n}" for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft") for n in ("", "2", "n")),
        TRANSFORMED,
    ),
    "stft": "PyTorch's of an expanded signal is expanded: the mean of those of the elements that share memory",
}
GRADIENT_STRIDES_ON_GPU = {"prod": "made of the products of the others, beside zeros"}

#: Rows that take `None` where PyTorch does not, or the other way, and why.
NONE_ARGUMENTS = {
    "to": "its overloads differ in what stands before `None`",
    "gradient": "`spacing` may be None unless `dim` is a list",
    "repeat_interleave": "`dim` may be None where there are `repeats`",
    "histogram": "`range` may be None where `bins` is a number",
    "sort": "`stable` may be None where `dim` has its name, too",
    "cdist": "PyTorch looks `compute_mode` up, and has no None there",
    "stft": "PyTorch asks whether `center` is true, and reads `pad_mode` if so; here they are a bool and a str",
}

#: Rows that have no `out=` here, where PyTorch's have, and why.
NO_OUT = dict.fromkeys(
    ("_fft_c2c", "_fft_r2c", "_fft_c2r"), "no `out=`: these are PyTorch's inner functions; those of `fft` have it"
)
#: Rows whose `out=` takes more dtypes than PyTorch's, and why.
OUT_DTYPES = dict.fromkeys(
    ("fft_ifft", "fft_ihfft"),
    "the result is cast to a wider `out`; PyTorch transforms real numbers in it, and casts none",
)
#: Rows whose `out=` is told apart otherwise than in PyTorch, and how.
OUT_ARGUMENTS = NO_OUT | {
    "conj_physical": "`lucid.conj` is another name for it, and writes to `out`, too",
    "bucketize": "PyTorch writes the places of a tensor, not of a number",
    "nonzero": "with `as_tuple` PyTorch gives a tuple, and here `out` is looked at no more",
    "where": "PyTorch has `out` where both are tensors",
}

LAST = "PyTorch's is that of the last op that it makes this one of"
NONE = "none given: PyTorch has another word for it"
#: Attributes `_saved_…` of steps that differ from PyTorch's, by row and name, and why.
SAVED_ATTRIBUTES = {
    **dict.fromkeys([(op, "self_sym_sizes") for op in ("avg_pool1d", "max_pool1d")], LAST),
    **dict.fromkeys([(op, n) for op in ("quantile", "nanquantile") for n in ("dim", "self_sym_sizes")], LAST),
    **dict.fromkeys([("prelu", "weight"), ("nll_loss", "target")], LAST),
    **dict.fromkeys(
        [
            ("std", "correction"),
            ("var", "correction"),
            ("cross", "dim"),
            ("embedding", "padding_idx"),
        ],
        NONE,
    ),
    **dict.fromkeys([(op, "dim") for op in ("amax", "amin")], NONE),
    ("roll", "dims"): NONE,
    **dict.fromkeys([(f"{op}_pool{n}d", "stride") for op in ("avg", "max") for n in (2, 3)], NONE),
    ("narrow", "start"): "counted from the front there",
    ("matmul", "self_sym_strides"): "those of a tensor without elements",
    ("linalg_tensorsolve", "self_sym_sizes"): "solved as a column",
    ("scatter_add", "index"): "kept here for the gradient of its second argument",
}
