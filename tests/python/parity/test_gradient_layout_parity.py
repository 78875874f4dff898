"""Where gradients lie: the strides of what `autograd.grad` gives, against PyTorch on the op table's samples.

Strides of dimensions of size 1 are not compared, nor those of empty gradients. The gradients that leaves keep lie as
the leaves do: `test_layout_parity`.
"""

from __future__ import annotations

import warnings
from typing import Any

import lucid
import pytest
import torch

from tests.python.parity.test_layout_parity import DEVICES, ROWS, channels_last, steps
from tests.python.parity.test_table_parity import lucid_tensor, named, torch_function, torch_tensor
from tests.python.samples import Data, Sample, layouts, lucid_function, results, samples

MEETING = "of operands that lie otherwise another one says how the result does, or the gradient"
CHOSEN = "made of choices, whose conditions come first; PyTorch has a kernel that takes the gradient first"
WINDOWED = "made along the last dimension of what was moved there; PyTorch moves it back"
EXPANDED = "an expanded gradient stays so, or gets memory, where PyTorch's does not, or does"
DIAGONAL = "a diagonal of the gradient here is one of PyTorch's, or a copy"
COLUMNS = "PyTorch's is by columns where this one is by rows, or the other way; no copy is made for that"
LAST = "PyTorch keeps channels last, or does not"
COPIED = "written into a copy of another order than PyTorch's"
#: What lies otherwise in PyTorch, and why. Each has a sample that shows it.
OTHERWISE = {
    "mean": "expanded here; PyTorch writes the same number everywhere",
    "polar": "PyTorch's lies among the parts of complex numbers",
    "scaled_dot_product_attention": "PyTorch's lies as its kernel's blocks do, or as the transposed keys",
    "batch_norm": "of few rows the channels are put together first, and stay so",
    "linear": "PyTorch's lies as a transposed input or weight does",
    "matmul": "a transposed weight of a batch is multiplied as such",
    "cdist": "PyTorch's kernel writes by rows",
    **dict.fromkeys(("rot90", "frac", "cat", "view_as_complex", "block_diag"), EXPANDED),
    **dict.fromkeys(("diag", "diag_embed", "diagflat", "diagonal_scatter"), DIAGONAL),
    **dict.fromkeys(("sort", "msort", "quantile", "nanquantile", "logcumsumexp", "segment_reduce"), WINDOWED),
    **dict.fromkeys(("linalg_matrix_norm", "linalg_norm"), WINDOWED),
    **dict.fromkeys(
        ("linalg_lstsq", "linalg_qr", "linalg_pinv", "pinverse", "linalg_eigh", "linalg_eigvalsh"), COLUMNS
    ),
    **dict.fromkeys(("linalg_solve", "linalg_solve_ex", "linalg_solve_triangular", "triangular_solve"), COLUMNS),
    **dict.fromkeys(("linalg_lu_solve", "linalg_householder_product", "orgqr", "ormqr"), COLUMNS),
    **dict.fromkeys(("conv1d", "conv3d", "conv_transpose1d", "conv_transpose3d", "group_norm"), LAST),
    **dict.fromkeys(("max_pool1d", "avg_pool1d", "avg_pool3d"), LAST),
    **dict.fromkeys(("index_reduce", "scatter_reduce", "put", "take", "masked_select", "addr", "chain_matmul"), COPIED),
    **dict.fromkeys(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"), MEETING),
    **dict.fromkeys(
        ("binary_cross_entropy_with_logits", "logsigmoid", "gelu", "lerp", "addmm", "matrix_power"), MEETING
    ),
    **dict.fromkeys(("atanh", "atan2", "igammac", "ldexp", "mvlgamma", "nextafter", "sgn", "polygamma"), MEETING),
    **dict.fromkeys(("logit", "log_ndtr", "copysign", "pow", "float_power"), MEETING),
    **dict.fromkeys(("xlogy", "xlog1py", "nan_to_num", "fmax", "fmin"), CHOSEN),
    **dict.fromkeys(("elu", "selu", "celu", "relu6", "softplus", "hardtanh", "hardswish", "hardsigmoid"), CHOSEN),
    **dict.fromkeys(("hardshrink", "softshrink"), CHOSEN),
}
#: The same on the gpu device alone.
OTHERWISE_ON_GPU = {"prod": "made of the products of the others, beside zeros"}


def made(m: Any, row: Any, sample: Sample, layout: str, device: str) -> tuple[list[Any], list[Any]]:
    """Leaves that require gradients, and what an op makes of them."""
    leaves: list[Any] = []

    def tensor(d: Data) -> Any:
        last = layout == "channels last" and d.values.ndim > 2
        plain = "contiguous" if layout == "channels last" else layout
        shown = channels_last(d) if last else d
        dtype = "float32" if "float32" in row["dtypes"] else row["dtypes"][0]
        t = torch_tensor(shown, dtype, plain, False) if m is torch else lucid_tensor(shown, dtype, plain, False, device)
        t = t.movedim(-1, 1) if last else t
        if d.varies and d.gradient and (t.is_floating_point() or t.is_complex()):
            t = t.detach().requires_grad_()
            leaves.append(t)
        return t

    args, kwargs = sample.map(tensor)
    function = torch_function(row) if m is torch else lucid_function(row)
    value = function(*[named(a, m) for a in args], **{k: named(v, m) for k, v in kwargs.items()})
    return leaves, [r for r in results(value) if isinstance(r, m.Tensor)]


#: Gradients that come: row-major, as the result lies, and of a sum.
COMING = {
    "row-major": lambda m, y: m.ones(tuple(y.shape), device=y.device, dtype=y.dtype),
    "alike": lambda m, y: m.ones_like(y),
    "of a sum": lambda m, y: m.ones((), device=y.device, dtype=y.dtype).expand(tuple(y.shape)),
}


def strides(m: Any, leaves: list[Any], made: list[Any], coming: str) -> list[Any]:
    """Sizes, strides and all strides of the gradients of each result; `None` for what has none."""
    seen: list[Any] = []
    for y in made:
        grads = [None] * len(leaves)
        if y.requires_grad:
            try:
                g = COMING[coming](m, y)
                grads = m.autograd.grad(y, leaves, g, retain_graph=True, allow_unused=True)
            except RuntimeError:
                pass
        lie = [None if g is None or g.layout != m.strided else (tuple(g.shape), steps(g), g.stride()) for g in grads]
        seen += lie
    return seen


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("row", [r for r in ROWS if r["differentiable"]], ids=lambda r: r["name"])
def test_strides_of_gradients(row: Any, device: str) -> None:
    differ = []
    for sample in samples(row, device):
        for layout in (*layouts(row), "channels last"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    theirs = made(torch, row, sample, layout, "cpu")
                except RuntimeError:
                    continue
                ours = made(lucid, row, sample, layout, device)
                for coming in COMING:
                    pairs = zip(strides(torch, *theirs, coming), strides(lucid, *ours, coming), strict=True)
                    for want, got in pairs:
                        if want and got and want[0] == got[0] and want[1] != got[1]:
                            differ.append((sample.text, layout, coming, want[0], want[2], got[2]))
    assert bool(differ) == (row["name"] in OTHERWISE or (device == "gpu" and row["name"] in OTHERWISE_ON_GPU)), differ
