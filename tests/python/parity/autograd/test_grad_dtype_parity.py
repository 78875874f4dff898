"""The dtype of gradients, hooks as a tensor shows them, and the older hooks of modules, beside PyTorch's."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from types import ModuleType
from typing import Any

import lucid
import pytest
import torch

from tests.python.outcomes import differ, outcome

_LEAF = "x = torch.ones(2, requires_grad=True)\n"
_FUNCTION = (
    "seen = []\n"
    "class F2(torch.autograd.Function):\n"
    "    @staticmethod\n"
    "    def forward(ctx, x):\n"
    "        for _ in range({times}):\n"
    "            ctx.set_output_grad_dtype({dtypes})\n"
    "        return {result}\n"
    "    @staticmethod\n"
    "    def backward(ctx, *gs):\n"
    "        seen.append([g if g is None else str(g.dtype) for g in gs])\n"
    "        return next(g for g in gs if g is not None).float()\n"
    "class Wide(torch.autograd.Function):\n"
    "    @staticmethod\n"
    "    def forward(ctx, x):\n"
    "        return x * 2\n"
    "    @staticmethod\n"
    "    def backward(ctx, g):\n"
    "        return g.double()\n"
)


def function(dtypes: str, then: str, result: str = "x * 2", times: int = 1) -> str:
    return _LEAF + _FUNCTION.format(dtypes=dtypes, result=result, times=times) + then


LEAVES = [
    "x.grad_dtype",
    "torch.ones(2).grad_dtype",
    "torch.ones(2, dtype=torch.int64).grad_dtype",
    "(x * 1).grad_dtype",
    "x.grad_dtype = torch.float64\nx.grad_dtype",
    "x.grad_dtype = None\nx.grad_dtype",
    "x.grad_dtype = 3\nx.grad_dtype",
    "y = x * 1\ny.grad_dtype = torch.float64\nx.grad_dtype",
    "y = torch.ones(2)\ny.grad_dtype = torch.float64\ny.grad_dtype",
    "x.grad_dtype = torch.float64\n(x * 2).sum().backward()\nx.grad",
    "x.grad_dtype = torch.float64\n(x * 2).sum().backward()\n(x * 3).sum().backward()\nx.grad",
    "x.grad_dtype = torch.float16\n(x * 2).sum().backward()\nx.grad",
    "x.grad_dtype = torch.complex64\n(x * 2).sum().backward()\nx.grad",
    "y = x * 2\nx.grad_dtype = torch.float64\ny.sum().backward()\nx.grad",
    "x.grad_dtype = torch.float64\ntorch.autograd.grad((x * 2).sum(), x)[0].dtype",
    "x.grad_dtype = torch.float64\nx.sum().backward(inputs=[x])\nx.grad.dtype",
    "x.grad = torch.ones(2)\nx.grad_dtype = torch.float64\nx.grad_dtype",
    "x.grad = torch.ones(2)\nx.grad_dtype = None\nx.grad_dtype",
    "x.grad_dtype = torch.float64\nx.grad = torch.ones(2)\nx.grad_dtype",
    "x.grad_dtype = torch.float64\nx.grad = torch.ones(2, dtype=torch.float64)\nx.grad",
    "x.grad_dtype = None\nx.grad = torch.ones(2, dtype=torch.float64)\nx.grad",
    "x.grad_dtype = torch.float64\n[y.grad_dtype for y in (x.detach(), x.clone(), x.view(-1))]",
    "x.grad_dtype = torch.float64\nx.data = torch.ones(2, dtype=torch.float16)\n(x.dtype, x.grad_dtype)",
    "x.data = torch.ones(2, dtype=torch.float16)\nx.grad_dtype",
    "x.grad_dtype = torch.float64\nx.requires_grad_(False)\nx.requires_grad_()\nx.grad_dtype",
    "x.grad_dtype = torch.float64\nseen = []\nx.register_hook(lambda g: seen.append(g.dtype))\n"
    "x.sum().backward()\nstr(seen)",
    "x.grad_dtype = torch.float64\nx.register_hook(lambda g: g.float())\nx.sum().backward()",
    "x = torch.ones((), requires_grad=True)\nx.grad_dtype = torch.float64\nx.backward()\nx.grad",
    "x = nn.Parameter(torch.ones(2))\nx.grad_dtype = torch.float64\nF.mse_loss(x, torch.zeros(2)).backward()\nx.grad",
]

DECLARED = [
    function("torch.float64", "F2.apply(x).grad_dtype"),
    function("None", "F2.apply(x).grad_dtype"),
    function("torch.float64", "F2.apply(x).sum().backward()\n(seen, x.grad)"),
    function("torch.float64", "F2.apply(x).backward(torch.ones(2))\nseen"),
    function("torch.float64", "(F2.apply(x) * 2).sum().backward()\nseen"),
    function("torch.float64", "y = F2.apply(x)\n[z.grad_dtype for z in (y * 1, y.view(-1), y.detach())]"),
    function("torch.float64", "y = F2.apply(x)\ny.retain_grad()\ny.sum().backward()\ny.grad.dtype"),
    function("None", "Wide.apply(F2.apply(x)).sum().backward()\nseen"),
    function("torch.float32", "Wide.apply(F2.apply(x)).sum().backward()\nseen"),
    function("", "F2.apply(x)"),
    function("torch.float64, None", "F2.apply(x)"),
    function("torch.float64", "F2.apply(x)", times=2),
    function("3", "F2.apply(x)"),
    function("torch.float64", "F2.apply(x)", "x.long()"),
    function("torch.float64, torch.float64", "F2.apply(x)", "(x * 2, 'text')"),
    function("torch.float64, None", "F2.apply(x)[0].sum().backward()\nseen", "(x * 2, 'text')"),
    function("torch.float64, torch.float16", "F2.apply(x)[0].sum().backward()\nseen", "(x * 2, x * 3)"),
    function("torch.float64", "F2.apply(torch.ones(2))"),
]

HOOKS = [
    "x._backward_hooks",
    "h = x.register_hook(f)\n(type(x._backward_hooks).__name__, list(x._backward_hooks.values()) == [f])",
    "h = x.register_hook(f)\nh.id in x._backward_hooks",
    "h = x.register_hook(f)\nh.remove()\nlen(x._backward_hooks)",
    "x.register_hook(f)\nx.register_hook(print)\nlist(x._backward_hooks.values()) == [f, print]",
    "y = x * 1\ny.register_hook(f)\nlen(y._backward_hooks)",
    "x.register_hook(f)\n(x.detach()._backward_hooks, x.clone()._backward_hooks)",
]

MODULES = [
    "m = nn.Tanh()\nm.register_backward_hook(see)\nm(x).sum().backward()\nseen",
    "m = nn.Linear(2, 1)\nm.register_backward_hook(see)\nm(x).sum().backward()\nlen(seen)",
    "m = nn.Sequential(nn.Tanh(), nn.Tanh())\nm.register_backward_hook(see)\nm(x * 1).sum().backward()\nseen",
    "m = nn.Tanh()\nm.register_backward_hook(lambda m, i, o: (torch.full((2,), 3.0),))\nm(x).sum().backward()\nx.grad",
    "m = nn.Tanh()\nh = m.register_backward_hook(see)\nh.remove()\nm(x).sum().backward()\nseen",
    "m = nn.Tanh()\nm.register_backward_hook(see)\nm.register_full_backward_hook(see)",
    "m = nn.Tanh()\nm.register_full_backward_hook(see)\nm.register_backward_hook(see)",
    "m = nn.Tanh()\nm.register_backward_hook(see)\nm.register_full_backward_pre_hook(lambda m, o: None)\n"
    "m(x).sum().backward()\nlen(seen)",
    "m = nn.Tanh()\nm.register_backward_hook(see)\nm(x.detach())",
]

_SEE = "seen = []\nsee = lambda m, i, o: seen.append((i, o))\nf = lambda g: None\n"


@pytest.mark.parametrize("program", [_LEAF + _SEE + p for p in (*LEAVES, *HOOKS, *MODULES)] + DECLARED)
def test_programs(program: str) -> None:
    ours, theirs = outcome(program, lucid), outcome(program, torch)
    assert not differ(theirs, ours), (theirs, ours)


def _pickled(module: ModuleType, how: str, marked: bool, kind: str) -> tuple[list[str], Any]:
    x = module.ones(2, requires_grad=True)
    x = module.nn.Parameter(x.detach()) if kind == "parameter" else x * 2 if kind == "result" else x
    hook: Any = lambda g: None  # noqa: E731
    mark = module.utils.hooks.unserializable_hook
    handle = x.register_hook(mark(hook) if marked else hook)
    if kind == "removed":
        handle.remove()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            if how == "pickle":
                back = pickle.loads(pickle.dumps(x))
            elif how == "deepcopy":
                back = copy.deepcopy(x)
            else:
                file = io.BytesIO()
                module.save(x, file)
                back = module.load(io.BytesIO(file.getvalue()))
        except RuntimeError as e:
            return [type(e).__mro__[-4].__name__], None
        return [w.category.__name__ for w in seen], (back._backward_hooks or None, back.tolist())


@pytest.mark.parametrize("kind", ["leaf", "parameter", "removed"])
@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("how", ["pickle", "deepcopy", "save"])
def test_hooks_are_not_written(how: str, marked: bool, kind: str) -> None:
    assert _pickled(lucid, how, marked, kind) == _pickled(torch, how, marked, kind)


def test_a_gradient_of_another_dtype_costs_others_nothing() -> None:
    """What has no dtype of its own takes its gradient as before, once one was declared."""
    x, y = (lucid.ones(2, requires_grad=True) for _ in range(2))
    x.grad_dtype = lucid.float64
    (x * y).sum().backward()
    assert (x.grad.dtype, y.grad.dtype) == (lucid.float64, lucid.float32)  # type: ignore[union-attr]


@pytest.mark.parametrize("respects", [None, False, True])
def test_selective_checkpoints_and_hooks_on_saved_tensors(respects: bool | None) -> None:
    from lucid.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

    def contexts() -> Any:
        return create_selective_checkpoint_contexts([lucid.mm])

    calls: list[str] = []

    def pack(t: lucid.Tensor) -> lucid.Tensor:
        calls.append(f"pack {list(t.shape)}")
        return t

    def unpack(t: lucid.Tensor) -> lucid.Tensor:
        calls.append(f"unpack {list(t.shape)}")
        return t

    x = lucid.randn(2, 3, requires_grad=True)
    w = lucid.randn(3, 4, requires_grad=True)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with lucid.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = checkpoint(
                lambda x: lucid.mm(x, w).sin(),
                x,
                use_reentrant=False,
                context_fn=contexts,
                respect_saved_tensors_hooks=respects,
            )
    assert [w.category for w in seen] == ([FutureWarning] if respects is None else [])
    assert ("pack [2, 4]" in calls) == bool(respects)
    y.sum().backward()
    assert ("unpack [2, 4]" in calls) == bool(respects)
    found = (x.grad, w.grad)
    x.grad = w.grad = None
    lucid.mm(x, w).sin().sum().backward()
    for g, other in zip(found, (x.grad, w.grad), strict=True):
        assert g is not None and other is not None and lucid.allclose(g, other)
    with pytest.raises(ValueError, match="use_reentrant=False"):
        checkpoint(lambda x: x, x, use_reentrant=True, respect_saved_tensors_hooks=True)
