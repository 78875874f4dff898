"""Arithmetic of 16-bit floats: each op is rounded once, and factors that 16 bits cannot hold are taken as they are."""

from __future__ import annotations

from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE, within

# Of ones like these the bits are those of PyTorch; a fused product and sum may differ in the last.
EXACT = (
    "x * 0.3",
    "0.3 * x",
    "x / 0.3",
    "x // 0.3",
    "x * 1e5",
    "x / 1e5",
    "x * -1e9",
    "x * 1e-8",
    "x / 1e-8",
    "1e5 / x",
    "x + 0.3",
    "x - 1e5",
    "1e5 - x",
    "x % 0.3",
    "x.clone().mul_(0.3)",
    "x.clone().div_(1e5)",
    "x * torch.tensor(1e5, device=d)",
    "torch.tensor(1e5, device=d) * x",
    "x / torch.tensor(1e5, device=d)",
    "torch.tensor(1e5, device=d) / x",
    "x * torch.tensor(100000, device=d)",
    "x + torch.tensor(1e5, device=d)",
    "x * torch.tensor([100000], device=d)",
    "x[3] * 1e5",
    "x * 2",
    "torch.addcmul(x, x, y, value=1e5)",
    "torch.addcdiv(x, x, y, value=1e-8)",
    "torch.lerp(x, y, 1e-8)",
    "torch.lerp(x, y, 1e5)",
    "torch.lerp(x, y, x)",
    "torch.rsub(x, y, alpha=0)",
    "torch.nn.functional.leaky_relu(-x, 1e-8)",
    "torch.vmap(lambda a: a * 1e5)(x.reshape(5, 4))",
)
CLOSE = (
    "x.add(y, alpha=0.3)",
    "x.sub(y, alpha=300)",
    "torch.rsub(x, y, alpha=0.3)",
    "torch.rsub(x, 2.5, alpha=0.3)",
    "x.add(2.5, alpha=0.3)",
    "torch.addcmul(x, x, y, value=0.3)",
    "torch.addcdiv(x, x, y, value=0.3)",
    "torch.lerp(x, y, 0.7)",
    "torch.nn.functional.normalize(x, dim=0)",
    "torch.nn.functional.cosine_similarity(x, y, dim=0)",
    "torch.nn.functional.pairwise_distance(x * 0, y * 0)",
    "torch.nn.functional.celu(-x, 300.0)",
    "torch.baddbmm(x.reshape(1, 5, 4), y.reshape(1, 5, 4), y.reshape(1, 4, 5)[..., :4], beta=0.3, alpha=1e-3)",
)


def values(module: Any, text: str, dtype: str, device: str) -> np.ndarray:
    rng = np.random.default_rng(5)
    small, large = rng.standard_normal(16), np.array([0.0, 1e-3, 1.0, 6e4])
    kwargs = {"device": device} if module is lucid else {}
    x, y = (
        module.tensor(n.astype(np.float32), **kwargs).to(getattr(module, dtype))
        for n in (np.concatenate([large, small]), rng.standard_normal(20))
    )
    return eval(text, {"torch": module, "x": x, "y": y, "d": device}).to(module.float32).numpy(force=True)  # type: ignore[no-any-return]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_values(dtype: str, device: str) -> None:
    for text in (*EXACT, *CLOSE):
        theirs, ours = values(torch, text, dtype, "cpu"), values(lucid, text, dtype, device)
        if text in EXACT:
            np.testing.assert_array_equal(ours, theirs, err_msg=text)
        else:
            np.testing.assert_allclose(ours, theirs, **within(f"arithmetic of {dtype}"), err_msg=text)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_gradients(device: str) -> None:
    def gradients(module: Any) -> list[Any]:
        kwargs = {"device": device} if module is lucid else {}
        x = module.tensor([1e-3, 2.0], dtype=module.float16, requires_grad=True, **kwargs)
        w = module.tensor(1e5, requires_grad=True, **kwargs)
        loss = (x * w * 1e-5).sum() + (x / 3e5).sum() * 1e5 + module.addcmul(x, x, x, value=0.3).sum()
        loss.backward()
        second = module.tensor([3.0], dtype=module.bfloat16, requires_grad=True, **kwargs)
        (first,) = module.autograd.grad((second**2 * 0.3).sum(), second, create_graph=True)
        first.sum().backward()
        _, tangent = module.func.jvp(lambda a: a * 1e5, (x.detach(),), (x.detach() * 0 + 1e-3,))
        return [(g.dtype, g.tolist()) for g in (x.grad, w.grad, second.grad, tangent)]

    for (theirs, wanted), (ours, given) in zip(gradients(torch), gradients(lucid), strict=True):
        assert str(ours).rpartition(".")[2] == str(theirs).rpartition(".")[2]
        np.testing.assert_allclose(given, wanted, rtol=TABLE["float16"].rtol)


@pytest.mark.parametrize(
    "program",
    [
        "x.add(x, alpha=1e5)",
        "x.sub_(x, alpha=1e5)",
        "torch.rsub(x, x, alpha=1e5)",
        "x.float().add(x.float(), alpha=1e39)",
        "x.float().addcmul(x.float(), x.float(), value=1e39)",
        "x.double().add(x.double(), alpha=1e39).tolist()",
        "x.float().add(x.float(), alpha=float('inf')).tolist()",
        "x.lerp(x, 1e5).tolist()",
        "x.lerp(x, 1e39).tolist()",
        "x.addcmul(x, x, value=1e5).tolist()",
    ],
)
def test_factors_out_of_range(program: str) -> None:
    def end(module: Any) -> str:
        try:
            return str(eval(program, {"torch": module, "x": module.ones(2, dtype=module.float16)}))
        except RuntimeError:
            return "RuntimeError"

    assert end(lucid) == end(torch)


def test_scores_beyond_the_range() -> None:
    """Of 16-bit floats attention's scores are float32, in its gradients too."""

    def run(module: Any, dtype: Any, **kwargs: Any) -> list[np.ndarray]:
        rng = np.random.default_rng(3)
        q, k, v = (
            module.tensor((rng.standard_normal((2, 3, 6, 4)) * 300).astype(np.float32)).to(dtype).requires_grad_()
            for _ in range(3)
        )
        y = module.nn.functional.scaled_dot_product_attention(q, k, v, **kwargs)
        y.float().square().mean().backward()
        return [t.detach().float().numpy() for t in (y, q.grad, k.grad, v.grad)]

    for kwargs in ({}, {"is_causal": True}, {"dropout_p": 1e-12}):
        theirs, ours = run(torch, torch.float16, **kwargs), run(lucid, lucid.float16, **kwargs)
        for at, (wanted, given) in enumerate(zip(theirs, ours, strict=True)):
            # One weight of each row is 1: the gradient of queries and keys is what rounding leaves.
            np.testing.assert_allclose(given, wanted, **within("half cancellations" if at in (1, 2) else "float16"))


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_distances_beyond_the_range(device: str) -> None:
    # PyTorch's are infinite here.
    x = lucid.tensor(np.random.default_rng(4).standard_normal((30, 2)).astype(np.float32) * 300, device=device)
    near = lucid.cdist(x.half(), x.half()[:2])
    assert near.dtype == lucid.float16
    exact = lucid.cdist(x.half().float(), x.half().float()[:2])
    np.testing.assert_allclose(near.float().numpy(force=True), exact.numpy(force=True), **within("half sums"))
