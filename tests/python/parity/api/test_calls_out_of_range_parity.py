"""Calls out of an op's range: of nothing, of dtypes without a kernel, of sizes and numbers that do not fit, of NaN and
infinities. What each ends in, or which kind of error it raises, is PyTorch's, on both devices."""

from __future__ import annotations

import re
from collections.abc import Iterator

import lucid
import lucid.nn.functional as F
import pytest
import torch

from tests.python.outcomes import differ, outcome

NAN, INF = 'float("nan")', 'float("inf")'


def typed(text: str, dtype: str) -> str:
    return f"torch.{text}.to(torch.{dtype})"


def of_nothing() -> Iterator[str]:
    ops = [
        "kthvalue(X, 1)",
        "kthvalue(X, 2)",
        "mode(X)",
        "softmax(X, 0)",
        "log_softmax(X, 0)",
        "aminmax(X)",
        "max(X, 0)",
    ]
    ops += [f"{op}(X{dim})" for op in ("median", "nanmedian") for dim in ("", ", 0")]
    ops += [f"{op}(X, {dim})" for op in ("amax", "amin") for dim in ("0", "(0, 0)", "(7,)")]
    ops += [f"{op}(X, 0)" for op in ("cummax", "cummin", "cumsum")]
    for dtype in ("bool", "int64", "float32", "complex64"):
        for shape in ("ones(())", "ones(0)", "ones(0, 3)", "ones(3, 0)", "ones(2)"):
            yield from (f"torch.{op.replace('X', typed(shape, dtype))}" for op in ops)
            yield from (f"{typed(shape, dtype)}.{op}_(0)" for op in ("cumsum", "cumprod"))


def products() -> Iterator[str]:
    for a, b in (("0, 2", "2, 0"), ("0, 2", "2, 3"), ("2, 0", "0, 3"), ("2, 2", "2, 2"), ("2, 3", "3, 0")):
        x, y, one = (typed(f"ones({shape})", "bool") for shape in (a, b, "1"))
        yield from (f"torch.{op}({x}, {y})" for op in ("mm", "matmul"))
        yield f"torch.addmm({one}, {x}, {y})"
        yield f"torch.bmm({x}.unsqueeze(0), {y}.unsqueeze(0))"
        yield f"torch.baddbmm({one}, {x}.unsqueeze(0), {y}.unsqueeze(0))"
    for equation in ("i,j->ij", "i,i->i", "i,i->", "i,j->", "ij,jk->ik", "ij,k->ijk", "i,->i", "ij,ij->i", "ii,j->ij"):
        for pair in (("float32", "int64"), ("bool", "int64"), ("bool", "bool"), ("complex64", "float32")):
            terms = equation.split("->")[0].split(",")
            shapes = [f"ones({', '.join(['2'] * len(term))})" if term else "ones(())" for term in terms]
            given = ", ".join(typed(*each) for each in zip(shapes, pair, strict=True))
            yield f'torch.einsum("{equation}", {given})'


def indices() -> Iterator[str]:
    for shape in ("0", "1, 0", "0, 5", "0, 5, 2"):
        index = f"torch.zeros({shape}, dtype=torch.int64)"
        for x in ("torch.ones(2, 2)", "torch.ones(3)", "torch.ones(())"):
            yield f"torch.scatter({x}, 0, {index}, 2.0)"
            for source in ("torch.ones(1)", "torch.ones(0)", "torch.ones(1, 1)", "torch.ones(1, dtype=torch.int64)"):
                yield f"torch.scatter({x}, 0, {index}, {source})"
                yield f'torch.scatter({x}, 0, {index}, {source}, reduce="add")'
                yield f"torch.scatter_add({x}, 0, {index}, {source})"
    for x in ("torch.ones(2)", "torch.ones(2, 2)", "torch.ones(())"):
        for index in ("[0]", "[0, 1]", "0", "[]", "[0.0]", "[5]"):
            for source in ("ones(1, 2, dtype=torch.int64)", "ones(1, dtype=torch.int64)", "ones(3)", "ones(())"):
                yield f"torch.index_copy({x}, 0, torch.tensor({index}), torch.{source})"
                yield f"torch.index_add({x}, 0, torch.tensor({index}), torch.{source})"
    for step in (0, -1, 2):
        yield f"torch.slice_scatter(torch.ones(4), torch.ones(2), 0, 0, 4, {step})"


def masks() -> Iterator[str]:
    for value in ("2", "[2]", "[[2]]", "[2, 3]", "2j", "2 + 0j", "True"):
        for mask in ("[True, False, True]", "[False, False, False]"):
            put = f"index_put((torch.tensor({mask}),), torch.tensor({value})"
            yield f"torch.ones(3).{put})"
            yield f"torch.ones(3).{put}, accumulate=True)"
            yield f"torch.ones(3, dtype=torch.int64).{put})"
            yield f"torch.ones(3, 2).{put})"
            yield f"x = torch.ones(3)\nx.{put.replace('put', 'put_', 1)})\nx"


def layers() -> Iterator[str]:
    for n in (1, 2):
        tail = ", 2" * (n - 1)
        for x, w in (("1, 1, 0", "1, 1, 2"), ("1, 0, 3", "0, 1, 2"), ("0, 1, 3", "1, 1, 2"), ("1, 1, 3", "1, 0, 2")):
            for op in (f"conv_transpose{n}d", f"conv{n}d"):
                yield f"F.{op}(torch.ones({x}{tail}), torch.ones({w}{tail}), padding=1).shape"
        for dtype in ("int64", "bool", "complex64", "float16"):
            # Not bfloat16: there it is the machine's instructions that say if PyTorch takes a bias of another dtype.
            for own in ("float32", "int64"):
                x, w = typed(f"ones(1, 1, 3{tail})", own), typed(f"ones(1, 1, 2{tail})", own)
                yield f"F.conv_transpose{n}d({x}, {w}, {typed('ones(1)', dtype)})"
    for mode in ("replicate", "reflect", "circular"):
        for x in ("1, 0, 2", "0, 1, 2", "0, 2", "1, 2, 0"):
            yield f'F.pad(torch.ones({x}), (1, 1), mode="{mode}").shape'
        yield f'F.pad(torch.ones(1, 1, 2, 0), (0, 0, 1, 1), mode="{mode}").shape'
    yield "F.pad(torch.ones(1, 1, 0), (-1, 3)).shape"
    for n in (1, 2, 3):
        for x in (
            "0, 4",
            "1, 0, 4",
            "0, 4, 3",
            "1, 0, 4, 3",
            "0, 2, 4, 3",
            "1, 1, 0, 4",
            "0, 2, 2, 3, 4",
            "1, 0, 2, 3, 4",
        ):
            for size in ("3", "1", "0", "None"):
                yield from (f"F.adaptive_{kind}_pool{n}d(torch.ones({x}), {size}).shape" for kind in ("avg", "max"))
    for scale in (NAN, INF, "0.0"):
        for mode in ("nearest", "area"):
            yield f'F.interpolate(torch.ones(1, 1, 2), scale_factor={scale}, mode="{mode}")'
    x = "torch.arange(6.0).reshape(1, 2, 3)"
    for mean in ("float32", "int16"):
        for var in ("float32", "int16", "float16"):
            given = f"{x}, {typed('zeros(2)', mean)}, {typed('ones(2)', var)}"
            yield from (f"F.instance_norm({given}, use_input_stats={flag}).dtype" for flag in (True, False))
    for table in ("torch.ones(1, 2)", "torch.ones(3, 1)"):
        for op in ("embedding", "embedding_bag"):
            yield f"w = {table}\nF.{op}(torch.tensor([[0, 2]]), w.expand(3, 2), max_norm=1.0)\nw"


def losses() -> Iterator[str]:
    for number in (NAN, "1.0", "3.0"):
        x = f"torch.tensor([[{number}, 1, 2], [1, {NAN}, 4]])"
        for p in (1, 2):
            loss = f"F.multi_margin_loss(X, torch.tensor([0, 2]), p={p})"
            yield loss.replace("X", x)
            yield f"x = {x}.requires_grad_()\n{loss.replace('X', 'x')}.backward()\nx.grad"
        yield f"F.multilabel_margin_loss({x}, torch.tensor([[0, -1, 0], [1, 2, -1]]))"
    for margin in ("8.4", "1", "-0.5", NAN):
        for dtype in ("int64", "uint8", "float32"):
            x = typed("tensor([1, 3, 10])", dtype)
            for reduction in ("none", "mean", "sum"):
                call = f'{x}, torch.tensor([-1, 1, 2]), margin={margin}, reduction="{reduction}"'
                yield f"F.hinge_embedding_loss({call})"
    for dtype in ("uint8", "int64", "float32", "float16"):
        x = typed("ones(2)", dtype)
        for var in (*(typed("ones(2)", other) for other in ("uint8", "int64", "float32")), "1.0", "1"):
            yield f"F.gaussian_nll_loss({x}, {x}, {var}).dtype"


def numbers() -> Iterator[str]:
    for p in (NAN, "3.5", "0", "-1"):
        for x in (
            "torch.tensor(2.0)",
            "torch.tensor([2.0])",
            "torch.tensor([[2.0], [-3.0]])",
            "torch.tensor([2.0, 3.0])",
        ):
            for dim in ("", ", dim=0", ", dim=-1, keepdim=True", ", dim=()"):
                yield f"torch.linalg.vector_norm({x}, {p}{dim})"
    infinite = ("inf", "complex(-inf, 2)", "complex(inf, 1)", "complex(0, inf)", "complex(nan, 0)", "1 + 1j", "-inf")
    for a in infinite:
        for b in infinite:
            pair = f"torch.tensor({a}, dtype=torch.complex64), torch.tensor({b}, dtype=torch.complex64)"
            yield f"inf, nan = {INF}, {NAN}\ntorch.logaddexp({pair})"
    for start in ("100", "-100", "3", "2.5", "1000"):
        for dtype in ("float32", "int64", "int8", "float16"):
            yield f"torch.logspace({start}, -3, 1, dtype=torch.{dtype})"
            yield f"torch.linspace({start}, -3, 1, dtype=torch.{dtype})"
    for zero in ("0.0", "-0.0"):
        yield f"x = torch.tensor([{zero}], requires_grad=True)\ntorch.mvlgamma(x, 1).backward()\nx.grad"
    for name in ("var_mean", "std_mean", "var", "std"):
        yield from (f"torch.{name}(torch.ones(2, 2), {how})" for how in ("dim=True", "True", "dim=1", "unbiased=True"))
    edges = "torch.tensor([0.0, 2.0])"
    for bins in ("True", "2", "2.0", "bins=True", edges, f"{edges}, range=(0.0, 1.0)", "2, range=(0.0, 1.0)"):
        yield f"torch.histogram(torch.ones(2).cpu(), {bins.replace('])', ']).cpu()')}).hist"
    for dims in ("(1,)", "5", "((0,), (0, 1))", "([0], [0], [0])", "-1"):
        yield f"torch.tensordot(torch.ones(2), torch.ones(2), {dims})"


def memory() -> Iterator[str]:
    image = "torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last)"
    for x in ("torch.ones(3, 4).t()", "torch.ones(3, 4)", "torch.ones(4).expand(3, 4)", "torch.ones(6, 4)[::2]", image):
        yield from (f"torch.{op}({x}).stride()" for op in ("isreal", "nonzero", "argwhere"))
        yield f"F.logsigmoid({x}).stride()"
        for op in ("unique", "unique_consecutive"):
            for dim in (0, 1):
                yield f"[t.stride() for t in torch.{op}({x}, dim={dim}, return_inverse=True, return_counts=True)]"
    for turned in ("", ".t()"):
        places = f"torch.arange(6).reshape(2, 3){turned}"
        yield f"[t.stride() for t in torch.unravel_index({places}, (2, 5, 1))]"


#: What the `cpu` device's LAPACK makes of matrices; MLX has one of its own.
def matrices() -> Iterator[str]:
    for a, b in (("3, 3", "3, 3, 2"), ("3, 3", "3"), ("2, 3, 3", "3, 2"), ("2, 3, 3", "2, 3"), ("2, 3, 3", "1, 3, 2")):
        matrix = f"torch.ones({a}).cumsum(-1) + torch.eye(3)"
        yield f"torch.linalg.lstsq({matrix}, torch.ones({b})).solution.shape"
    for shape in ("0, 0", "0, 3", "3, 0", "0, 2, 2", "2, 2", "2, 0, 0"):
        for op in ("lu_factor", "lu_factor_ex", "lu"):
            yield f"[t.shape for t in torch.linalg.{op}(torch.ones({shape}), pivot=False)]"
    places = [f"[[{NAN}, 1.0], [1.0, 1.0]]", f"[[1.0, 1.0], [{NAN}, 1.0]]", f"[[{NAN}, {NAN}], [{NAN}, {NAN}]]"]
    for matrix in places:
        for dtype in ("float32", "float64", "complex64"):
            x = f"torch.tensor({matrix}, dtype=torch.{dtype})"
            yield f"torch.linalg.solve({x}, torch.ones(2, dtype=torch.{dtype}))"
            yield from (
                f"torch.linalg.{op}({x})" for op in ("cholesky", "inv", "det", "svdvals", "cond", "matrix_rank")
            )
            yield f"torch.linalg.cholesky_ex({x}).info"
    for matrix in (f"[[{INF}, 1.0], [1.0, 1.0]]", f"[[1.0, 1.0], [-{INF}, 1.0]]"):
        x = f"torch.tensor({matrix})"
        yield from (f"torch.linalg.{op}({x})" for op in ("svdvals", "cond", "matrix_rank"))
        yield from (f"torch.linalg.matrix_norm({x}, {p})" for p in ("2", "-2", '"nuc"'))


FAMILIES = (of_nothing, products, indices, masks, layers, losses, numbers, memory, matrices)


def ends(program: str, device: str) -> str:
    lucid.set_default_device(device)
    try:
        return re.sub(r", device='[^']*'", "", outcome(program, lucid))
    finally:
        lucid.set_default_device("cpu")


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_it_ends_as_in_pytorch(family: object, device: str) -> None:
    if family is matrices and device == "gpu":
        device = "cpu"
    programs = list(family())  # type: ignore[operator]
    assert programs
    found = [(p, outcome(p, torch), ends(p, device)) for p in programs]
    assert [each for each in found if differ(*each[1:])] == []


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("dtype", ["int64", "bool", "complex64", "float16"])
def test_a_convolution_of_bfloat16_takes_no_bias_of_another_dtype(dtype: str, device: str) -> None:
    x, weight = (lucid.ones(1, 1, n, dtype=lucid.bfloat16, device=device) for n in (3, 2))
    with pytest.raises((RuntimeError, TypeError), match="bfloat16"):
        F.conv_transpose1d(x, weight, lucid.ones(1, device=device).to(getattr(lucid, dtype)))


def test_the_least_integer_is_not_taken_for_zero() -> None:
    """Their bits are alike but for the kind of number; constants of the gpu device are kept by both."""
    x = lucid.tensor([1, 2], device="gpu")
    least = lucid.full((2,), -(2**63), dtype=lucid.int64, device="gpu")
    assert least.tolist() == [-(2**63)] * 2
    for zero, one in ((0.0, 1.0), (0, 1)):
        assert x.masked_fill(x == 1, zero).tolist() == [0, 2]
        assert lucid.full((), -(2**63), dtype=lucid.int64, device="gpu").item() == -(2**63)
        assert x.masked_fill(x == 1, one).tolist() == [1, 2]
