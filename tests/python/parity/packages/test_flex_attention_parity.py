"""Attention with functions of scores and masks against PyTorch's."""

from __future__ import annotations

import warnings
from typing import Any

import lucid
import lucid.nn.attention.flex_attention as ours
import numpy as np
import pytest
import torch
import torch.nn.attention.flex_attention as theirs

from tests.python.tolerances import within

DEVICES = ["cpu", "gpu"]
SCORES: dict[str, Any] = {
    "none": None,
    "relative": lambda s, b, h, q, kv: s - 0.1 * (q - kv),
    "by head": lambda s, b, h, q, kv: s * (h + 1) + b,
    "soft cap": lambda s, b, h, q, kv: (s / 2).tanh() * 2,
}
MASKS: dict[str, Any] = {
    "none": None,
    "causal": lambda b, h, q, kv: q >= kv,
    "window": lambda b, h, q, kv: (q - kv < 2) & (kv - q < 2),
    "from the second": lambda b, h, q, kv: q > kv,
}


def data(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def dense(q: Any, k: Any, v: Any, score: Any, mask: Any) -> Any:
    """The same in PyTorch's ops: its kernel has no backward on the CPU."""
    k, v = (t.repeat_interleave(2, 1) for t in (k, v))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    at = torch.meshgrid(*(torch.arange(n) for n in scores.shape), indexing="ij")
    scores = scores if score is None else score(scores, *at)
    scores = scores if mask is None else scores.masked_fill(~mask(*at), -torch.inf)
    return scores.softmax(-1) @ v


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("score", SCORES)
def test_values_and_gradients(score: str, mask: str, device: str) -> None:
    arrays = [data(2, h, 5, 4 + i) for i, h in ((0, 4), (0, 2), (1, 2))]
    found = []
    for f, module in ((torch, theirs), (lucid, ours)):
        where = device if f is lucid else "cpu"
        q, k, v = (f.tensor(a, device=where) for a in arrays)
        block = None if MASKS[mask] is None else module.create_block_mask(MASKS[mask], None, None, 5, 5, device=where)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = module.flex_attention(q, k, v, SCORES[score], block, enable_gqa=True, return_lse=True)
        found.append([t.cpu().numpy() for t in made])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, **within("program"))
    # The first query of one mask sees no key: its row is left out of the gradients.
    rows = slice(1, None) if mask == "from the second" else slice(None)
    here = [lucid.tensor(a, device=device, requires_grad=True) for a in arrays]
    there = [torch.tensor(a, requires_grad=True) for a in arrays]
    block = None if MASKS[mask] is None else ours.create_block_mask(MASKS[mask], None, None, 5, 5, device=device)
    (ours.flex_attention(*here, SCORES[score], block, enable_gqa=True)[:, :, rows] ** 2).sum().backward()
    (dense(*there, SCORES[score], MASKS[mask])[:, :, rows] ** 2).sum().backward()
    for a, b in zip(there, here, strict=True):
        if mask != "from the second":
            np.testing.assert_allclose(b.grad.cpu().numpy(), a.grad.numpy(), **within("program"))
        else:
            assert not b.grad.isnan().any()


def test_masks() -> None:
    for f, module in ((torch, theirs), (lucid, ours)):
        both = module.and_masks(MASKS["causal"], MASKS["window"])
        either = module.or_masks(MASKS["causal"], MASKS["window"])
        for mod, n in ((both, 9), (either, 19), (module.noop_mask, 25)):
            assert int(module.create_mask(mod, None, 2, 5, 5, device="cpu").sum()) == 2 * n
        block = module.create_block_mask(MASKS["causal"], None, None, 300, 300, device="cpu")
        assert block.sparsity() == pytest.approx(100 / 3)
        assert block.to_dense().tolist() == [[[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]]
        made = module.create_mask(SCORES["relative"], 1, 1, 3, 3, device="cpu")
        assert made.dtype is f.bool
        assert bool(made.all())


@pytest.mark.parametrize("device", DEVICES)
def test_blocks_of_masks(device: str) -> None:
    documents = np.repeat([0, 1, 2], [20, 30, 14])
    sides = [f"{full}{side}" for full in ("", "full_") for side in ("kv", "q")]
    parts = [f"{side}_{what}" for side in sides for what in ("num_blocks", "indices")]
    made = []
    for f, module, where in ((torch, theirs, "cpu"), (lucid, ours, device)):
        of = f.tensor(documents, device=where)
        inside = lambda b, h, q, kv, of=of: of[q] == of[kv]  # noqa: E731
        mask = module.and_masks(MASKS["causal"], inside)
        block = module.create_block_mask(mask, 2, None, 64, 64, device=where, BLOCK_SIZE=16)
        again = module.BlockMask.from_kv_blocks(
            block.kv_num_blocks, block.kv_indices, block.full_kv_num_blocks, block.full_kv_indices, 16, block.mask_mod
        )
        q, k, v = (f.tensor(data(2, 3, 64, n), device=where) for n in (8, 8, 4))
        attention = [module.flex_attention(q, k, v, block_mask=m) for m in (block, again)]
        for a in (block, again):
            listed = [getattr(a, n).cpu().numpy() for n in parts]
            made.append([*listed, a.to_dense().cpu().numpy(), a.shape, a.sparsity()])
        made.append([a.cpu().numpy() for a in attention])
    for expected, found in zip(made[:2], made[3:5], strict=True):
        for one, other in zip(expected, found, strict=True):
            np.testing.assert_array_equal(one, other)
    for one, other in zip(made[2], made[5], strict=True):
        np.testing.assert_allclose(other, one, **within("program"))
    # Blocks alone, without a function, are what is seen.
    counts, places = lucid.tensor([[[1, 2]]], device=device), lucid.tensor([[[[1, 0], [0, 1]]]], device=device)
    plain = ours.BlockMask.from_kv_blocks(counts, places, BLOCK_SIZE=(2, 3))
    q, k = lucid.ones(1, 1, 4, 2, device=device), lucid.ones(1, 1, 6, 2, device=device)
    v = lucid.arange(6.0, device=device).reshape(1, 1, 6, 1)
    got = ours.flex_attention(q, k, v, block_mask=plain.to(device)).flatten().tolist()
    np.testing.assert_allclose(got, [4.0, 4.0, 2.5, 2.5], **within("program"))
    with pytest.raises(ValueError, match="both provided or omitted"):
        ours.BlockMask.from_kv_blocks(counts, places, counts)


def test_bad_shapes() -> None:
    q = lucid.ones(1, 4, 3, 2)
    for k in (lucid.ones(1, 4, 3), lucid.ones(1, 4, 3, 5), lucid.ones(1, 3, 3, 2)):
        with pytest.raises(ValueError):
            ours.flex_attention(q, k, k)
    block = ours.create_block_mask(MASKS["causal"], None, None, 2, 2)
    with pytest.raises(ValueError, match="block_mask was created for"):
        ours.flex_attention(q, q, q, block_mask=block)


def test_what_is_given_besides() -> None:
    q = lucid.tensor(data(1, 2, 3, 4))
    out, aux = ours.flex_attention(q, q, q, return_aux=ours.AuxRequest(lse=True, max_scores=True))
    scores = (q @ q.mT) / 2
    assert lucid.allclose(aux.lse, scores.logsumexp(-1))
    assert lucid.allclose(aux.max_scores, scores.amax(-1))
    assert lucid.allclose(out, lucid.nn.functional.scaled_dot_product_attention(q, q, q), **within("few ops"))
