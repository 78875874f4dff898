"""`_foreach_*`, `_assert` and `_check*`, which packages around PyTorch call, against PyTorch."""

from __future__ import annotations

from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE, within

NAMES = sorted(name for name in dir(torch) if name.startswith("_foreach_"))
BOTH = (torch, lucid)
# Operands of what takes more than the list: source text, in which `s`, `t` and `u` are lists of three tensors.
PAIRED = ("t", "2", "[2, 0.5, -1.0]", "torch.tensor(2.0, device=s[0].device)")
ALPHA = ("t, alpha=0.5",)
OPERANDS = {
    "add": (*PAIRED, *ALPHA),
    "sub": (*PAIRED, *ALPHA),
    "pow": (*PAIRED, "exponent=3"),
    "addcmul": ("t, u", "t, u, 2", "t, u, value=0.5", "t, u, [1, 2, 3]", "t, u, torch.tensor([1.0, 2.0, 3.0])"),
    "addcdiv": ("t, u", "t, u, 2", "t, u, value=0.5", "t, u, scalars=[1, 2, 3]"),
    "lerp": ("t, 0.25", "t, [0.25, 0.5, 2.0]", "t, weights=u", "t, weight=0.75"),
    "copy": ("t", "t, True"),
    "mm": ("[x.mT for x in t]",),
    "norm": ("", "1", "ord=float('inf')", "2, torch.float64"),
    "powsum": ("", "3"),
    **dict.fromkeys(("mul", "div", "maximum", "minimum", "clamp_min", "clamp_max"), PAIRED),
}


def lists(module: Any, device: str) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    kwargs = {"device": device} if module is lucid else {}

    def three() -> list[Any]:
        numbers = [rng.uniform(0.1, 0.9, (2, n)).astype(np.float32) for n in (3, 1, 2)]
        return [module.tensor(x, **kwargs) for x in numbers]

    return {"torch": module, "s": three(), "t": three(), "u": three()}


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("name", NAMES)
def test_values(name: str, device: str) -> None:
    for operands in OPERANDS.get(name.removeprefix("_foreach_").removesuffix("_"), ("",)):
        if device == "gpu" and "float64" in operands:
            continue
        made = []
        for module in BOTH:
            given = lists(module, device)
            result = eval(f"torch.{name}(s, {operands})", given)
            # What is written to is returned, the list itself; else there are new tensors in a tuple.
            assert (result is given["s"]) if name.endswith("_") else isinstance(result, tuple)
            made.append([x.numpy(force=True) for x in result])
        for theirs, ours in zip(*made, strict=True):
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            np.testing.assert_allclose(ours, theirs, **within("near zero"), err_msg=operands)


def test_gradients() -> None:
    for text in ("torch._foreach_addcmul(s, t, u, [1, 2, 3])", "torch._foreach_pow(2.0, s)", "torch._foreach_norm(s)"):
        gradients = []
        for module in BOTH:
            given = lists(module, "cpu")
            for x in given["s"]:
                x.requires_grad_()
            sum(x.sum() for x in eval(text, given)).backward()
            gradients.append([x.grad.numpy() for x in given["s"]])
        for theirs, ours in zip(*gradients, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=TABLE["few ops"].rtol)


ONE = "[torch.ones(2)]"


@pytest.mark.parametrize(
    "program",
    [
        f"torch._foreach_add({ONE}, [torch.ones(2), torch.ones(2)])",
        "torch._foreach_add([], [])",
        f"torch._foreach_add({ONE}, [1, 2])",
        f"torch._foreach_add({ONE}, [])",
        f"torch._foreach_add({ONE}, 'a')",
        f"torch._foreach_add({ONE})",
        f"torch._foreach_add({ONE}, 1, 2)",
        "torch._foreach_add(1, 2)",
        f"torch._foreach_add({ONE}, 2, alpha=2)",
        f"torch._foreach_add({ONE}, [2.0], alpha=2)",
        f"torch._foreach_mul({ONE}, {ONE}, alpha=2)",
        f"torch._foreach_add({ONE}, torch.ones(2))",
        f"torch._foreach_add({ONE}, [torch.ones(3)])",
        "torch._foreach_add([torch.ones(2), 3], 1)",
        "torch._foreach_sqrt([])",
        "torch._foreach_sqrt_([torch.ones(2, dtype=torch.int)])",
        "torch._foreach_sqrt([torch.ones(2, dtype=torch.int)])[0].dtype",
        "torch._foreach_maximum([torch.tensor([1, 2])], 1.5)[0].tolist()",
        "torch._foreach_maximum([torch.tensor([float('nan'), 1])], 2.0)[0].isnan().tolist()",
        "torch._foreach_max([torch.ones(0)])",
        "torch._foreach_norm([torch.ones(0)], float('inf'))",
        f"torch._foreach_lerp({ONE}, {ONE})",
        f"torch._foreach_lerp({ONE}, {ONE}, scalars=[0.5])",
        f"torch._foreach_addcmul({ONE}, {ONE}, {ONE}, torch.ones(1, 1))",
        f"torch._foreach_copy_({ONE}, [torch.ones(3)])",
        f"torch._foreach_mm({ONE}, {ONE})",
        "torch._foreach_nothing",
        "torch._check(True)",
        "torch._check(1)",
        "torch._check(False)",
        "torch._check(False, 'told')",
        "torch._check(True, lambda: 1 / 0)",
        "torch._check_value(False, lambda: 'made')",
        "torch._check_index(False)",
        "torch._check_not_implemented(False)",
        "torch._check_type(torch.tensor(True))",
        "torch._check_with(Warning, False, 'a')",
        "torch._check_with(KeyError, False, 'a')",
        "torch._check_tensor_all(torch.tensor([True, False]), 'some')",
        "torch._check_tensor_all(torch.tensor([True, True]), 'some')",
        "torch._check_tensor_all(torch.ones(2))",
        "torch._check_tensor_all([1])",
        "torch._assert(False, 'told')",
        "torch._assert(torch.tensor(1), 'told')",
        "torch._assert_async(torch.tensor(0))",
        "torch._assert_async(torch.tensor(0), 'told')",
        "torch._assert_async(torch.tensor(1))",
        "torch._assert_async(torch.ones(2))",
    ],
)
def test_ends(program: str) -> None:
    def end(module: Any) -> tuple[str, str]:
        try:
            return "gives", repr(eval(program, {"torch": module})).replace("lucid", "torch")
        except Exception as e:
            kind = next(k.__name__ for k in type(e).__mro__ if k.__module__ == "builtins")
            return kind, str(e) if str(e) in ("told", "made", "some") else ""

    assert end(lucid) == end(torch)


@pytest.mark.filterwarnings("ignore:.*_check_is_size")
@pytest.mark.parametrize(("i", "most", "fine"), [(3, None, True), (-1, None, False), (3, 2, False), (2, 2, True)])
def test_sizes(i: int, most: int | None, fine: bool) -> None:
    for module in BOTH:
        if fine:
            module._check_is_size(i, max=most)
        else:
            with pytest.raises(RuntimeError):
                module._check_is_size(i, max=most)
