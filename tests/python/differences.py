"""Calls that end otherwise than in PyTorch, as data: what each gives there and here, and why.

The docs' table is made of it, and a test runs each on both sides, so that none is listed longer than it holds.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """One program, whose last line is an expression. ``torch`` and ``lucid`` are what it gives, or the error's kind."""

    program: str
    torch: str
    lucid: str
    reason: str


def because(reason: str, *found: tuple[str, str, str]) -> list[Difference]:
    """Differences of one reason: the programs, what they give in PyTorch, and here."""
    return [Difference(program, torch, lucid, reason) for program, torch, lucid in found]


DIFFERENCES: tuple[Difference, ...] = (
    *because(
        "the dtypes are those that MLX and the kernels of the CPU have",
        (
            "torch.complex(torch.ones(1, dtype=torch.float16), torch.ones(1, dtype=torch.float16)).dtype",
            "torch.complex32",
            "raises RuntimeError, TypeError",
        ),
    ),
    *because(
        "the generator is another: it gives the same numbers on every device",
        ("torch.manual_seed(0)\ntorch.rand(2)", "tensor([0.4963, 0.7682])", "tensor([0.3152, 0.4927])"),
    ),
    *because(
        "a decomposition that fails raises; PyTorch's answer is that of its LAPACK",
        ('torch.linalg.eigvalsh(torch.full((2, 2), float("nan")))', "tensor([nan, nan])", "raises LinAlgError"),
    ),
    *because(
        "the reflections are whole products",
        (
            'torch.linalg.householder_product(torch.ones(2, 2), torch.tensor([1.0, float("nan")]))',
            "tensor([[ 0., nan], [-1., nan]])",
            "tensor([[nan, nan], [nan, nan]])",
        ),
    ),
    *because(
        "one function under two names, of which PyTorch's other one has `out`",
        ("torch.conj(torch.ones(2), out=torch.zeros(2))", "raises TypeError", "tensor([1., 1.])"),
        ("F.sigmoid(torch.zeros(2), out=torch.zeros(2))", "raises TypeError", "tensor([0.5000, 0.5000])"),
        ("F.tanh(torch.zeros(2), out=torch.zeros(2))", "raises TypeError", "tensor([0., 0.])"),
    ),
    *because(
        "one row for overloads that PyTorch tells apart by another argument",
        ("torch.bucketize(2, torch.arange(3), out=torch.tensor(0))", "raises TypeError", "tensor(2)"),
        ("torch.tensor([1, 2]).repeat_interleave()", "raises TypeError", "tensor([0, 1, 1])"),
    ),
    *because(
        "another fault of the call is named first",
        ("torch.movedim(torch.ones(2, 3), 5, (0, 1))", "raises TypeError", "raises RuntimeError"),
        ("F.batch_norm(torch.ones(1, 2), 0.5, None, training=True)", "raises ValueError", "raises TypeError"),
    ),
    *because(
        "the exponential that overflows is not taken",
        ("torch.sigmoid(torch.tensor([-500 - 500j]))", "tensor([nan+nanj])", "tensor([-0.+0.j])"),
    ),
    *because(
        "the other triangle is not read, and has no gradient",
        (
            "x = torch.eye(2).requires_grad_()\ntorch.cholesky_inverse(x).sum().backward()\nx.grad",
            "tensor([[-2., -2.], [-2., -2.]])",
            "tensor([[-2., 0.], [-2., -2.]])",
        ),
    ),
    *because(
        "the gradient is of what was not written over",
        (
            "x = torch.ones(2, requires_grad=True)\n"
            "torch.as_strided_scatter(x, torch.zeros(1), (1,), (1,), 0).sum().backward()\n"
            "x.grad",
            "tensor([1., 0.])",
            "tensor([0., 1.])",
        ),
    ),
    *because(
        "the series' sum is 0; PyTorch's loop divides infinities",
        ("torch.special.zeta(torch.tensor(1e20), torch.tensor(2.0))", "tensor(nan)", "tensor(0.)"),
    ),
    *because(
        "of several NaN the first is the maximum here, in PyTorch the last",
        (
            'x = torch.tensor([[float("nan"), float("nan")]], requires_grad=True)\n'
            "F.max_pool1d(x, 2).sum().backward()\n"
            "x.grad",
            "tensor([[0., 1.]])",
            "tensor([[1., 0.]])",
        ),
    ),
    *because(
        "in place nothing changes its size",
        (
            "torch.ones(5).addbmm_(torch.ones(1, 3, 2), torch.ones(1, 2, 5)).shape",
            "torch.Size([3, 5])",
            "raises RuntimeError",
        ),
    ),
    *because(
        "takes any layout",
        ("torch.kron(torch.ones(3, 4).t(), torch.ones(2, 2)).shape", "raises RuntimeError", "torch.Size([8, 6])"),
    ),
    *because(
        "a result of its own, where PyTorch shows a view of what was made on the way",
        ('torch.einsum("ij,jk->ik", torch.ones(2, 3), torch.ones(3, 2))._is_view()', "True", "False"),
        ("torch.inner(torch.ones(2, 3), torch.ones(2, 3))._is_view()", "True", "False"),
    ),
    *because(
        "what is beyond a storage that shrank reads as zeros",
        ("x = torch.ones(4)\nx.untyped_storage().resize_(8)\nx[2:].shape", "raises RuntimeError", "torch.Size([2])"),
    ),
    *because(
        "the hook goes with the tensor",
        (
            "x = torch.ones(2, 3, requires_grad=True)\n"
            "y = x * 1\n"
            "y.retain_grad()\n"
            "y.t_()\n"
            "y.sum().backward()\n"
            "y.grad.shape",
            "torch.Size([2, 3])",
            "torch.Size([3, 2])",
        ),
    ),
    *because(
        "the tape is one for all levels",
        (
            "x = torch.ones(2, requires_grad=True)\n"
            "seen = []\n"
            "torch.vmap(lambda s: seen.append(s.requires_grad) or s)(x)\n"
            "seen",
            "[False]",
            "[True]",
        ),
    ),
    *because(
        "a rule for it is there",
        (
            'torch.vmap(lambda x: F.rrelu(x, training=True), randomness="same")(torch.ones(2, 3)).shape',
            "raises RuntimeError",
            "torch.Size([2, 3])",
        ),
    ),
    *because(
        "an attribute that is another result of the call",
        (
            "x = torch.ones(3, requires_grad=True)\nx.aminmax()[0].grad_fn._saved_max",
            "tensor(1., grad_fn=<AminmaxBackward0>)",
            "raises AttributeError",
        ),
    ),
    *because(
        "steps do not keep their results' shapes",
        ("x = torch.ones(3, requires_grad=True)\nlen((x * 2).grad_fn._input_metadata)", "1", "raises AttributeError"),
    ),
    *because(
        "not there: composites would call it several times",
        ("torch.autograd.graph.node_creation_hook.__name__", "node_creation_hook", "raises AttributeError"),
    ),
    *because(
        "no ranges for NVIDIA's tools, no traces of PyTorch's own format; sums of events are a `ProfileSummary`",
        ("torch.autograd.profiler.emit_nvtx.__name__", "emit_nvtx", "raises AttributeError"),
        ("torch.profiler.ExecutionTraceObserver.__name__", "ExecutionTraceObserver", "raises AttributeError"),
        ("torch.autograd.profiler.EventList.__name__", "EventList", "raises AttributeError"),
    ),
    *because(
        "products and sums in another order, beside infinities",
        (
            "x = torch.tensor([1.0], requires_grad=True)\n"
            "w = torch.tensor([2.0])\n"
            'F.binary_cross_entropy_with_logits(x, torch.tensor([float("inf")]), pos_weight=w).backward()\n'
            "x.grad",
            "tensor([nan])",
            "tensor([-inf])",
        ),
    ),
    *because(
        "a number of truth and a dimension are told apart later",
        ("torch.trapezoid(torch.ones(3, dtype=torch.complex64), dx=True)", "raises RuntimeError", "tensor(2.+0.j)"),
    ),
    *because(
        "memory of MLX's keeps its size",
        ("x = torch.ones(4, device=gpu)\nx.untyped_storage().resize_(64).nbytes()", "64", "raises RuntimeError"),
    ),
    *because(
        "what a transform's function writes to `.data` is seen by no tape",
        (
            "x = torch.ones(2, requires_grad=True)\n"
            "y = x * 1\n"
            "torch.func.grad(lambda a: (a.data.mul_(2), (a * a).sum())[1])(y)\n"
            "torch.autograd.grad(y.sum(), x)[0]",
            "tensor([2., 2.])",
            "tensor([1., 1.])",
        ),
    ),
    *because(
        "the tape is one for all threads, too",
        (
            "import threading\n"
            "def f(x):\n"
            "    made = []\n"
            "    t = threading.Thread(target=lambda: made.append(x * 2))\n"
            "    t.start()\n"
            "    t.join()\n"
            "    return made[0].sum()\n"
            "torch.func.grad(f)(torch.ones(2))",
            "tensor([0., 0.])",
            "tensor([2., 2.])",
        ),
    ),
    *because(
        "what leads nowhere requires no gradient outside of the transform",
        (
            "x = torch.ones(2, requires_grad=True)\ntorch.func.jacfwd(lambda a: a * 1)(x).requires_grad",
            "True",
            "False",
        ),
        (
            "def f(a):\n"
            "    with torch.no_grad():\n"
            "        v = a[:]\n"
            "    return v.sum()\n"
            "torch.func.grad_and_value(f)(torch.ones(2, requires_grad=True) * 1)[1].requires_grad",
            "True",
            "False",
        ),
    ),
    *because(
        "the derivative of x² is 6 at 3: PyTorch's forward mode goes by the operand after it was written over",
        (
            "def f(x):\n"
            "    y = x.clone()\n"
            "    return y.mul_(y)\n"
            "torch.func.jvp(f, (torch.tensor(3.0),), (torch.tensor(1.0),))[1]",
            "tensor(12.)",
            "tensor(6.)",
        ),
    ),
    *because(
        "each element is written by what was there: PyTorch's loop reads what it has written",
        (
            "torch.vmap(lambda s: s.mul_(s[0]))(torch.tensor([[2.0, 3.0], [4.0, 5.0]]))",
            "tensor([[ 4., 12.], [16., 80.]])",
            "tensor([[ 4., 6.], [16., 20.]])",
        ),
    ),
    *because(
        "a batched tensor's data is refused in `vmap` itself, not in a transform inside of it",
        (
            "torch.vmap(lambda s: torch.func.grad(lambda a: (a * s.data).sum())(s))(torch.ones(2, 3)).shape",
            "raises RuntimeError",
            "torch.Size([2, 3])",
        ),
    ),
    *because(
        "an expanded tensor takes any tangent",
        (
            "torch.func.jacfwd(lambda a: a * 1)(torch.ones(3).expand(2, 3)).shape",
            "raises RuntimeError",
            "torch.Size([2, 3, 2, 3])",
        ),
    ),
    *because(
        "an input that has a history stays in it",
        (
            "def f(a):\n    a.detach_()\n    return (a * a).sum()\n"
            "torch.func.grad(f)(torch.ones(2, requires_grad=True) * 1)",
            "tensor([0., 0.])",
            "raises RuntimeError",
        ),
    ),
    *because(
        "overlaps are looked for in what a sample shows",
        (
            "torch.vmap(lambda a: a.flatten().lerp_(a, 0.5))(torch.ones(3)).shape",
            "raises RuntimeError",
            "torch.Size([3, 1])",
        ),
    ),
    *because(
        "histories are kept with what they were made from, at all levels",
        (
            "x = torch.ones(2, requires_grad=True)\ntorch.vmap(lambda s: torch.autograd.grad((s * s).sum(), s)[0])(x)",
            "raises RuntimeError",
            "tensor([2., 2.])",
        ),
    ),
    *because(
        "NaN where one condition of several decides",
        (
            'torch.linalg.cond(torch.tensor([[float("inf"), 1.0], [1.0, 1.0]], dtype=torch.complex64), -1)',
            "tensor(inf)",
            "tensor(nan)",
        ),
    ),
    *because(
        "the same numbers are compared with each sample's chance",
        (
            'torch.vmap(lambda s: s.clone().bernoulli_(s), randomness="same")(torch.ones(2, 3)).shape',
            "raises RuntimeError",
            "torch.Size([2, 3])",
        ),
    ),
    *because(
        "computed when it is asked for: no view that is turned around later",
        ("torch.ones(2, dtype=torch.complex64).conj().is_conj()", "True", "False"),
    ),
    *because(
        "a mask of bytes takes numbers as it takes tensors",
        (
            "x = torch.zeros(2)\nx[torch.tensor([1, 0], dtype=torch.uint8)] = 5\nx",
            "raises RuntimeError",
            "tensor([5., 0.])",
        ),
    ),
    *because(
        "tensors of one memory that are pickled together stay so",
        (
            "import pickle\nx = torch.zeros(2)\na, b = pickle.loads(pickle.dumps([x, x[1:]]))\na.fill_(1.0)\nb",
            "tensor([0.])",
            "tensor([1.])",
        ),
    ),
    *because(
        "all dimensions are numbers, or all of their kind is refused",
        (
            "torch.var(torch.tensor([[1.0, 2.0], [3.0, 5.0]]), dim=(0, True))",
            "tensor(2.9167)",
            "raises TypeError",
        ),
    ),
    *because(
        "numbers that are not written are not looked at, as PyTorch does with `out`",
        (
            "torch.linspace(1j, -3, 0, dtype=torch.int64)",
            "raises RuntimeError",
            "tensor([], dtype=torch.int64)",
        ),
    ),
    *because(
        "where a number goes `None` does, too",
        (
            "torch.histogram(torch.ones(2), torch.tensor([0.0, 2.0]), range=None).hist",
            "raises TypeError",
            "tensor([2.])",
        ),
    ),
    *because(
        "what is beyond the dtype is its largest number",
        (
            "torch.logspace(100, -3, 2, dtype=torch.int64)",
            "tensor([-9223372036854775808, 0])",
            "tensor([9223372036854775807, 0])",
        ),
    ),
    *because(
        "of matrices with NaN or infinities there is no decomposition to go by; PyTorch's answer is that of its LAPACK",
        (
            'torch.linalg.slogdet(torch.full((2, 2), float("nan"))).sign',
            "tensor(0.)",
            "tensor(nan)",
        ),
        (
            'torch.linalg.cholesky(torch.tensor([[float("inf"), 1.0], [1.0, 1.0]]))',
            "raises LinAlgError",
            "tensor([[inf, 0.], [0., 1.]])",
        ),
        (
            'torch.linalg.pinv(torch.tensor([[float("inf"), 1.0], [1.0, 1.0]]))',
            "tensor([[0., 0.], [0., 0.]])",
            "raises LinAlgError",
        ),
    ),
    *because(
        "a list of tensors is stacked",
        (
            "torch.asarray([torch.ones(2), torch.ones(2)])",
            "raises ValueError",
            "tensor([[1., 1.], [1., 1.]])",
        ),
    ),
    *because(
        "an element that a view shows twice is written once",
        (
            ("x = torch.zeros(4)\nx.unfold(0, 2, 1).add_(1)\nx"),
            "tensor([1., 2., 2., 1.])",
            "tensor([1., 1., 1., 1.])",
        ),
    ),
    *because(
        "a tensor that is given twice has one gradient",
        (
            (
                "x = torch.ones(2, requires_grad=True)\n"
                "seen = []\n"
                "y = F.mse_loss(x, x)\n"
                "y.grad_fn.register_hook(lambda i, o: seen.extend(i))\n"
                "y.backward()\n"
                "[g is None for g in seen]"
            ),
            "[False, False]",
            "[False, True]",
        ),
    ),
    *because(
        "one step: no product with a transposed weight, and no cast, is shown",
        (
            "F.linear(torch.ones(1, 2), torch.ones(3, 2, requires_grad=True)).grad_fn.next_functions[1][0].name()",
            "TBackward0",
            "torch::autograd::AccumulateGrad",
        ),
        (
            (
                "w = torch.ones(2, 2, requires_grad=True)\n"
                'with torch.autocast("cpu"):\n'
                "    y = torch.mm(torch.ones(2, 2), w)\n"
                "y.grad_fn.next_functions[1][0].name()"
            ),
            "ToCopyBackward0",
            "torch::autograd::AccumulateGrad",
        ),
    ),
    *because(
        "an op in place keeps a result of its own, which writes to `.data` do not reach",
        (
            (
                "x = torch.ones(2, requires_grad=True)\n"
                "y = x * 0.5\n"
                "y.tanh_()\n"
                "y.data.mul_(2)\n"
                "y.sum().backward()\n"
                "x.grad"
            ),
            "tensor([0.0729, 0.0729])",
            "tensor([0.3932, 0.3932])",
        ),
    ),
    *because(
        "what PyTorch warns of, and does, is done without a word",
        (
            (
                "import warnings\n"
                "import numpy\n"
                "with warnings.catch_warnings(record=True) as seen:\n"
                '    warnings.simplefilter("always")\n'
                "    numpy.sin(torch.ones(2))\n"
                "len(seen)"
            ),
            "1",
            "0",
        ),
        (
            (
                "import warnings\n"
                "with warnings.catch_warnings(record=True) as seen:\n"
                '    warnings.simplefilter("always")\n'
                "    torch.normal(0.0, torch.ones(3), out=torch.zeros(2))\n"
                "len(seen)"
            ),
            "1",
            "0",
        ),
        (
            (
                "import warnings\n"
                "torch.set_warn_always(True)\n"
                "with warnings.catch_warnings(record=True) as seen:\n"
                '    warnings.simplefilter("always")\n'
                "    torch.sparse_coo_tensor([[0]], [1.0])\n"
                "torch.set_warn_always(False)\n"
                "len(seen)"
            ),
            "1",
            "0",
        ),
    ),
    *because(
        "one warning a call",
        (
            (
                "import warnings\n"
                "torch.set_warn_always(True)\n"
                "with warnings.catch_warnings(record=True) as seen:\n"
                '    warnings.simplefilter("always")\n'
                "    torch.std(torch.ones(1, dtype=torch.complex64))\n"
                "torch.set_warn_always(False)\n"
                "len(seen)"
            ),
            "2",
            "1",
        ),
    ),
    *because(
        "numbers are operands",
        (
            ("torch.logical_and(torch.ones(2), 2)"),
            "raises TypeError",
            "tensor([True, True])",
        ),
    ),
    *because(
        "the tensor itself is read before it is written",
        (
            ("x = torch.arange(4.0, requires_grad=True) * 1\nx.put_(torch.tensor([1, 0]), x[:2])"),
            "raises RuntimeError",
            "tensor([1., 0., 2., 3.], grad_fn=<PutBackward0>)",
        ),
        (
            ("x = torch.arange(4.0)\nx.masked_scatter_(torch.tensor([False, True, True, True]), x)"),
            "tensor([0., 0., 0., 0.])",
            "tensor([0., 0., 1., 2.])",
        ),
    ),
    *because(
        "sparse tensors are no leaves",
        (
            ("torch.eye(2).to_sparse().requires_grad_().requires_grad"),
            "True",
            "raises NotImplementedError, RuntimeError",
        ),
    ),
    *because(
        "a negative dimension is counted from the end in the gradient, too",
        (
            (
                "v = torch.tensor([3.0, 4.0, 5.0], requires_grad=True)\n"
                "x = torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], v, (2, 3))\n"
                "torch.sparse.log_softmax(x, -1).to_dense().pow(2).sum().backward()\n"
                "v.grad"
            ),
            "tensor([ 0.0000, -1.9201, -0.1685])",
            "tensor([ 0.0000, -1.7516, 1.7516])",
        ),
    ),
    *because(
        "of views sparse tensors have those that reorder their dimensions; call to_dense() for others",
        (
            ("x = torch.sparse_coo_tensor([[0]], torch.ones(1, 2), (3, 2))\nx.unsqueeze(0).shape"),
            "torch.Size([1, 3, 2])",
            "raises NotImplementedError, RuntimeError",
        ),
        (
            ("x = torch.sparse_coo_tensor([[0]], torch.ones(1, 2), (3, 2))\nx[0].shape"),
            "torch.Size([2])",
            "raises NotImplementedError, RuntimeError",
        ),
    ),
    *because(
        "a leaf stays one",
        (
            ("x = torch.ones(2, requires_grad=True)\ntorch.asarray(x, requires_grad=False)\nx.requires_grad"),
            "False",
            "True",
        ),
    ),
    *because(
        "not there as a decorator",
        (
            ("torch.utils.checkpoint.checkpoint(use_reentrant=False)(lambda x: x * 2)(torch.ones(1))"),
            "tensor([2.])",
            "raises TypeError",
        ),
    ),
    *because(
        "denormal numbers are not flushed",
        (
            "on = torch.set_flush_denormal(True)\ntorch.set_flush_denormal(False)\non",
            "True",
            "False",
        ),
    ),
    *because(
        "computed when it is asked for: no view that is negated later",
        (
            ("torch.ones(2, dtype=torch.complex64).conj().imag.is_neg()"),
            "True",
            "False",
        ),
    ),
    *because(
        "of views and their copies sparse tensors have those that reorder their dimensions",
        (
            ("torch.narrow_copy(torch.eye(2).to_sparse(), 0, 0, 1).shape"),
            "torch.Size([1, 2])",
            "raises NotImplementedError, RuntimeError",
        ),
    ),
    *because(
        "`lucid.profiler.profile` has it",
        (
            ('hasattr(torch.autograd.profiler.profile, "key_averages")'),
            "True",
            "False",
        ),
    ),
)
