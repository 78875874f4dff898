"""Calls that end otherwise than in PyTorch, as data: what each gives there and here, and why.

The docs' table is made of it, and a test runs each on both sides, so that none is listed longer than it holds.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import io
import warnings
from dataclasses import dataclass
from types import ModuleType


@dataclass(frozen=True)
class Difference:
    """One program, whose last line is an expression. ``torch`` and ``lucid`` are what it gives, or the error's kind."""

    program: str
    torch: str
    lucid: str
    reason: str


DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "torch.complex(torch.ones(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)).dtype",
        "torch.complex128",
        "raises RuntimeError, TypeError",
        "complex64 is the only complex dtype",
    ),
    Difference(
        "torch.tensor([1], dtype=torch.uint16)",
        "tensor([1], dtype=torch.uint16)",
        "raises AttributeError",
        "the dtypes are those that MLX and the kernels of the CPU have",
    ),
    Difference(
        'torch.ones(2, device="meta").shape',
        "torch.Size([2])",
        "raises RuntimeError",
        "there are no tensors without memory",
    ),
    Difference(
        "torch.manual_seed(0)\ntorch.rand(2)",
        "tensor([0.4963, 0.7682])",
        "tensor([0.3152, 0.4927])",
        "the generator is another: it gives the same numbers on every device",
    ),
    Difference(
        'torch.linalg.eigvalsh(torch.full((2, 2), float("nan")))',
        "tensor([nan, nan])",
        "raises LinAlgError",
        "a decomposition that fails raises; PyTorch's answer is that of its LAPACK",
    ),
    Difference(
        'torch.linalg.cond(torch.tensor([[float("inf"), 1.0], [1.0, 1.0]]), 2)',
        "tensor(nan)",
        "raises LinAlgError",
        "a decomposition that fails raises; PyTorch's answer is that of its LAPACK",
    ),
    Difference(
        'torch.linalg.cholesky(torch.full((2, 2), complex(float("nan"), 0)))',
        "raises LinAlgError",
        "tensor([[nan+0.j, 0.+0.j], [nan+nanj, nan+0.j]])",
        "NaN is not looked for in complex matrices",
    ),
    Difference(
        'torch.linalg.householder_product(torch.ones(2, 2), torch.tensor([1.0, float("nan")]))',
        "tensor([[ 0., nan], [-1., nan]])",
        "tensor([[nan, nan], [nan, nan]])",
        "the reflections are whole products",
    ),
    Difference(
        "torch.conj(torch.ones(2), out=torch.zeros(2))",
        "raises TypeError",
        "tensor([1., 1.])",
        "one function under two names, of which PyTorch's other one has `out`",
    ),
    Difference(
        "F.sigmoid(torch.zeros(2), out=torch.zeros(2))",
        "raises TypeError",
        "tensor([0.5000, 0.5000])",
        "one function under two names, of which PyTorch's other one has `out`",
    ),
    Difference(
        "F.tanh(torch.zeros(2), out=torch.zeros(2))",
        "raises TypeError",
        "tensor([0., 0.])",
        "one function under two names, of which PyTorch's other one has `out`",
    ),
    Difference(
        "torch.bucketize(2, torch.arange(3), out=torch.tensor(0))",
        "raises TypeError",
        "tensor(2)",
        "one row for overloads that PyTorch tells apart by another argument",
    ),
    Difference(
        "torch.tensor([1, 2]).repeat_interleave()",
        "raises TypeError",
        "tensor([0, 1, 1])",
        "one row for overloads that PyTorch tells apart by another argument",
    ),
    Difference(
        "torch.histogram(torch.ones(2), torch.tensor([0.0, 2.0]), range=(0.0, 1.0)).hist",
        "raises TypeError",
        "tensor([2.])",
        "one row for overloads that PyTorch tells apart by another argument",
    ),
    Difference(
        "torch.movedim(torch.ones(2, 3), 5, (0, 1))",
        "raises TypeError",
        "raises RuntimeError",
        "another fault of the call is named first",
    ),
    Difference(
        "torch.amax(torch.ones(0, 3), (0, 0))",
        "raises IndexError",
        "raises RuntimeError",
        "another fault of the call is named first",
    ),
    Difference(
        "torch.tensordot(torch.ones(2), torch.ones(2), (1,))",
        "raises ValueError",
        "raises TypeError",
        "another fault of the call is named first",
    ),
    Difference(
        "F.batch_norm(torch.ones(1, 2), 0.5, None, training=True)",
        "raises ValueError",
        "raises TypeError",
        "another fault of the call is named first",
    ),
    Difference(
        "torch.kthvalue(torch.ones(0), 2, 0)",
        "raises IndexError",
        "raises RuntimeError",
        "another fault of the call is named first",
    ),
    Difference(
        "torch.index_copy(torch.ones(2), 0, torch.tensor([0]), torch.ones(1, 2, dtype=torch.float64))",
        "raises IndexError",
        "raises RuntimeError, TypeError",
        "another fault of the call is named first",
    ),
    Difference(
        "torch.slice_scatter(torch.ones(4), torch.ones(4), 0, 0, 4, -1)",
        "raises RuntimeError",
        "raises ValueError",
        "the kind of slicing's, and of Python's own conversion",
    ),
    Difference(
        'F.interpolate(torch.ones(1, 1, 2), scale_factor=float("nan"))',
        "raises RuntimeError",
        "raises ValueError",
        "the kind of slicing's, and of Python's own conversion",
    ),
    Difference(
        "torch.pow(torch.tensor([0j]), torch.tensor(0j))",
        "tensor([nan+nanj])",
        "tensor([1.+0.j])",
        "here 1, as in PyTorch where the exponent is a number",
    ),
    Difference(
        'torch.logaddexp(torch.tensor(complex(float("inf"), 0)), torch.tensor(1 + 1j))',
        "tensor(inf+0.j)",
        "tensor(nan+nanj)",
        "no rules of its own for complex infinities",
    ),
    Difference(
        "torch.special.zeta(torch.tensor(1e20), torch.tensor(2.0))",
        "tensor(nan)",
        "tensor(0.)",
        "the series' sum is 0; PyTorch's loop divides infinities",
    ),
    Difference(
        'torch.linalg.vector_norm(torch.tensor(2.0), float("nan"))',
        "tensor(2.)",
        "tensor(nan)",
        "PyTorch has a way of its own for one element",
    ),
    Difference(
        'F.multi_margin_loss(torch.tensor([[float("nan"), 1, 2]]), torch.tensor([0]))',
        "tensor(0.)",
        "tensor(nan)",
        "PyTorch compares NaN with 0 and leaves it out",
    ),
    Difference(
        "x = torch.tensor([-0.0], requires_grad=True)\ntorch.float_power(x, 0.5).backward()\nx.grad",
        "tensor([-inf])",
        "tensor([inf])",
        "the sign of a zero that is a limit from above here",
    ),
    Difference(
        "x = torch.tensor([-0.0], requires_grad=True)\ntorch.mvlgamma(x, 1).backward()\nx.grad",
        "tensor([-inf])",
        "tensor([inf])",
        "the sign of a zero that is a limit from above here",
    ),
    Difference(
        'x = torch.tensor([[float("nan"), float("nan")]], requires_grad=True)\n'
        "F.max_pool1d(x, 2).sum().backward()\n"
        "x.grad",
        "tensor([[0., 1.]])",
        "tensor([[1., 0.]])",
        "of several NaN the first is the maximum here, in PyTorch the last",
    ),
    Difference(
        'F.hinge_embedding_loss(torch.tensor([1]), torch.tensor([-1]), margin=8.4, reduction="none").dtype',
        "torch.int64",
        "torch.float32",
        "PyTorch cuts the margin to an integer",
    ),
    Difference(
        "torch.linalg.lstsq(torch.eye(3), torch.ones(3, 3, 2)).solution.shape",
        "raises RuntimeError",
        "torch.Size([3, 3, 2])",
        "batches are broadcast as elsewhere",
    ),
    Difference(
        "F.conv_transpose1d(torch.ones(1, 1, 0), torch.ones(1, 1, 2)).shape",
        "raises RuntimeError",
        "torch.Size([1, 1, 2])",
        "sizes of nothing give results of zeros, or of nothing",
    ),
    Difference(
        'F.pad(torch.ones(1, 0, 2), (1, 1), mode="replicate").shape',
        "raises RuntimeError",
        "torch.Size([1, 0, 4])",
        "sizes of nothing give results of zeros, or of nothing",
    ),
    Difference(
        "torch.logspace(100, -3, 1)",
        "raises RuntimeError",
        "tensor([inf])",
        "the power is computed before it is looked at",
    ),
    Difference(
        "torch.var_mean(torch.ones(2, 2), dim=True)",
        "raises TypeError",
        "(tensor(0.), tensor(1.))",
        "a bool is an int, as in Python",
    ),
    Difference(
        "torch.histogram(torch.ones(2), True).hist",
        "raises TypeError",
        "tensor([2.])",
        "a bool is an int, as in Python",
    ),
    Difference(
        "F.adaptive_avg_pool2d(torch.ones(1, 0, 4, 3), 5).shape",
        "torch.Size([1, 0, 5, 5])",
        "raises RuntimeError",
        "all sizes but that of the batch are checked",
    ),
    Difference(
        'torch.einsum("i,j->ij", torch.ones(2, dtype=torch.float64), torch.ones(2, dtype=torch.int64)).dtype',
        "torch.float64",
        "raises RuntimeError, TypeError",
        "operands need one dtype, also where they are not summed over",
    ),
    Difference(
        'torch.scatter(torch.ones(2, 2), 0, torch.ones(0, dtype=torch.int64), torch.ones(1), reduce="add")',
        "tensor([[1., 1.], [1., 1.]])",
        "raises RuntimeError",
        "an index without elements has to fit, too",
    ),
    Difference(
        "torch.ones(3).index_put((torch.tensor([True, False, True]),), torch.tensor(2, dtype=torch.int64))",
        "tensor([2., 1., 2.])",
        "raises RuntimeError, TypeError",
        "PyTorch makes it a `masked_fill`, which casts",
    ),
    Difference(
        "torch.softmax(torch.ones(0, dtype=torch.int64), 0)",
        "tensor([], dtype=torch.int64)",
        "raises NotImplementedError, RuntimeError, TypeError",
        "a dtype that the op does not take is refused before it is seen that there is nothing to do",
    ),
    Difference(
        "torch.mm(torch.ones(0, 2, dtype=torch.bool), torch.ones(2, 0, dtype=torch.bool)).shape",
        "torch.Size([0, 0])",
        "raises NotImplementedError, RuntimeError, TypeError",
        "a dtype that the op does not take is refused before it is seen that there is nothing to do",
    ),
    Difference(
        "torch.cummin(torch.tensor(1j), 0)",
        "torch.return_types.cummin( values=tensor(0.+1.j), indices=tensor(0))",
        "raises NotImplementedError, RuntimeError, TypeError",
        "a dtype that the op does not take is refused before it is seen that there is nothing to do",
    ),
    Difference(
        "torch.tensor(True).cumsum_(0)",
        "tensor(True)",
        "raises RuntimeError, TypeError",
        "a dtype that the op does not take is refused before it is seen that there is nothing to do",
    ),
    Difference(
        "F.embedding_bag(torch.tensor([[0]]), torch.ones(1, 2).expand(3, 2), max_norm=1.0).shape",
        "torch.Size([1, 2])",
        "raises RuntimeError",
        "a write to elements that several places show is refused",
    ),
    Difference(
        "torch.ones(5).addbmm_(torch.ones(1, 3, 2), torch.ones(1, 2, 5)).shape",
        "torch.Size([3, 5])",
        "raises RuntimeError",
        "in place nothing changes its size",
    ),
    Difference(
        "torch.nonzero(torch.ones(2, 3)).stride()",
        "(1, 6)",
        "(2, 1)",
        "found row by row; PyTorch finds by columns",
    ),
    Difference(
        "torch.isreal(torch.ones(3, 4).t()).stride()",
        "(1, 4)",
        "(3, 1)",
        "made by a comparison, whose result is row-major",
    ),
    Difference(
        "F.logsigmoid(torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last)).is_contiguous()",
        "True",
        "False",
        "keeps the format, which PyTorch drops",
    ),
    Difference(
        "torch.kron(torch.ones(3, 4).t(), torch.ones(2, 2)).shape",
        "raises RuntimeError",
        "torch.Size([8, 6])",
        "takes any layout",
    ),
    Difference(
        'torch.einsum("ij,jk->ik", torch.ones(2, 3), torch.ones(3, 2))._is_view()',
        "True",
        "False",
        "a result of its own, where PyTorch shows a view of what was made on the way",
    ),
    Difference(
        "torch.inner(torch.ones(2, 3), torch.ones(2, 3))._is_view()",
        "True",
        "False",
        "a result of its own, where PyTorch shows a view of what was made on the way",
    ),
    Difference(
        "x = torch.ones(4)\nx.untyped_storage().resize_(8)\nx[2:].shape",
        "raises RuntimeError",
        "torch.Size([2])",
        "what is beyond a storage that shrank reads as zeros",
    ),
    Difference(
        "x = torch.ones(2, requires_grad=True)\nF.mse_loss(x, torch.zeros(2)).grad_fn.next_functions[0][0].name()",
        "torch::autograd::AccumulateGrad",
        "MseLossBackward0",
        "a composite's steps are all named after the function that was called",
    ),
    Difference(
        "x = torch.ones(2, 3, requires_grad=True)\n"
        "y = x * 1\n"
        "y.retain_grad()\n"
        "y.t_()\n"
        "y.sum().backward()\n"
        "y.grad.shape",
        "torch.Size([2, 3])",
        "torch.Size([3, 2])",
        "the hook goes with the tensor",
    ),
    Difference(
        "x = torch.ones(2, requires_grad=True)\n"
        "seen = []\n"
        "torch.vmap(lambda s: seen.append(s.requires_grad) or s)(x)\n"
        "seen",
        "[False]",
        "[True]",
        "the tape is one for all levels",
    ),
    Difference(
        'torch.vmap(lambda x: F.rrelu(x, training=True), randomness="same")(torch.ones(2, 3)).shape',
        "raises RuntimeError",
        "torch.Size([2, 3])",
        "a rule for it is there",
    ),
    Difference(
        "x = torch.ones(3, requires_grad=True)\nx.sort()[0].grad_fn._saved_descending",
        "raises AttributeError",
        "False",
        "attributes of steps are the call's arguments",
    ),
    Difference(
        "x = torch.ones(3, requires_grad=True)\nx.aminmax()[0].grad_fn._saved_max",
        "tensor(1., grad_fn=<AminmaxBackward0>)",
        "raises AttributeError",
        "attributes of steps are the call's arguments",
    ),
    Difference(
        "x = torch.ones(3, requires_grad=True)\nlen((x * 2).grad_fn._input_metadata)",
        "1",
        "raises AttributeError",
        "steps do not keep their results' shapes",
    ),
    Difference(
        "class F2(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x):\n"
        "        ctx.set_output_grad_dtype(torch.float64)\n"
        "        return x * 2\n"
        "    @staticmethod\n"
        "    def backward(ctx, g):\n"
        "        return g.float()\n"
        "F2.apply(torch.ones(1, requires_grad=True)).requires_grad",
        "True",
        "raises AttributeError",
        "a gradient is cast before it comes to a step",
    ),
    Difference(
        "torch.autograd.graph.node_creation_hook.__name__",
        "node_creation_hook",
        "raises AttributeError",
        "not there: composites would call it several times",
    ),
    Difference(
        "torch.compile(lambda x: x + 1)(torch.ones(1))",
        "tensor([2.])",
        "raises AttributeError",
        "not there",
    ),
    Difference(
        "torch.special.airy_ai(torch.zeros(1))",
        "tensor([0.3550])",
        "raises AttributeError",
        "not there",
    ),
    Difference(
        "torch.lobpcg(torch.eye(9))[0].shape",
        "torch.Size([1])",
        "raises AttributeError",
        "not there",
    ),
    Difference(
        "torch.autograd.profiler.emit_nvtx.__name__",
        "emit_nvtx",
        "raises AttributeError",
        "not there",
    ),
)


def outcome(program: str, module: ModuleType) -> str:
    """What a program gives with `torch` as the name of a framework: its last line in words, or the builtin errors that
    what it raises is one of.
    """
    *lines, last = ast.parse(program).body
    assert isinstance(last, ast.Expr), program
    names: dict[str, object] = {"torch": module, "nn": module.nn, "F": module.nn.functional}
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            exec(compile(ast.Module(lines, []), "<program>", "exec"), names)
            value = eval(compile(ast.Expression(last.value), "<program>", "eval"), names)
            return " ".join(str(value).replace("lucid", "torch").split())
        except Exception as e:
            kinds = dict.fromkeys(kind.__name__.lstrip("_") for kind in type(e).__mro__)
            if "LinAlgError" in kinds:
                return "raises LinAlgError"
            plain = {"LookupError", "Exception", "BaseException", "object"}
            return "raises " + ", ".join(k for k in kinds if hasattr(builtins, k) and k not in plain)


def differ(torch: str, lucid: str) -> bool:
    """Are these outcomes different? An error of several kinds is of each."""
    if torch.startswith("raises ") and lucid.startswith("raises "):
        return not set(torch[7:].split(", ")) & set(lucid[7:].split(", "))
    return torch != lucid
