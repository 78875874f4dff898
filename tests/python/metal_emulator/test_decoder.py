"""Layers of decoders by the engine's kernels, in both languages and three dtypes, against `lucid.llm`'s modules."""

from __future__ import annotations

import copy
from typing import Any

import lucid
import numpy as np
import pytest
from lucid import llm
from lucid.llm import token_step
from lucid.quantization import quantize

from tests.python.metal_emulator.engine import LANGUAGES, emulated
from tests.python.tolerances import TABLE

pytestmark = pytest.mark.usefixtures("compiler")

SIZES = {
    "vocab_size": 48, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip
KERNELS = {"row_product", "decode_attention", "rms_norm", "rotated_heads", "gated"}


def made(bits: int, dtype: lucid.dtype, **changed: Any) -> llm.CausalLM:
    """A model on the GPU device; of 0 bits a dense one."""
    lucid.manual_seed(0)
    model = llm.CausalLM(llm.Config("llama", **{**SIZES, **changed})).to(dtype)
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.data = (lucid.rand(parameter.shape) + 0.5).to(dtype)
    model = model.to("gpu").eval()
    if bits:
        model = quantize(model, bits, 32)
    lucid.eval(*model.parameters(), *model.buffers())
    return model


@lucid.no_grad()
def logits(model: llm.CausalLM, texts: int, stepped: bool) -> list[np.ndarray]:
    """After a prompt in two pieces and three more tokens, by the engine's decoder or by the modules."""
    cache = llm.Cache(model.config)
    prompt = (lucid.arange(texts * 5).reshape(texts, 5) % model.config.vocab_size).to("gpu")
    outputs = []
    for tokens in [prompt, prompt, *(lucid.full((texts, 1), i, dtype=lucid.int64).to("gpu") for i in (3, 9, 4))]:
        if stepped:
            found = token_step.step(model, tokens, cache)
            assert found is not None
        else:
            found = model.logits(model.hidden(tokens, cache))[:, -1]
        outputs.append(found)
    return [o.float().cpu().numpy() for o in outputs]


def agree(language: str, model: llm.CausalLM, dtype: str, texts: int) -> list[str]:
    bound = TABLE[f"emulated {dtype}"]
    want = logits(model, texts, False)
    with emulated(language) as seen:
        got = logits(model, texts, True)
    for w, g in zip(want, got, strict=True):
        np.testing.assert_allclose(g, w, rtol=bound.rtol, atol=bound.atol)
    return seen


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("dtype", "bits", "texts"),
    [
        ("float32", 0, 1), ("float32", 4, 3), ("float32", 8, 9),
        ("bfloat16", 0, 1), ("bfloat16", 4, 1), ("bfloat16", 8, 2),
        ("float16", 0, 3), ("float16", 4, 1),
    ],
)  # fmt: skip
def test_layers(language: str, dtype: str, bits: int, texts: int) -> None:
    """On CUDA one launch, on Metal one for each point where all of a row is needed; nine texts are more than a launch
    of products takes."""
    seen = set(agree(language, made(bits, getattr(lucid, dtype)), dtype, texts))
    if texts > 8:
        want = KERNELS - {"row_product"}
    else:
        whole = language == "cuda" and dtype != "float32"
        want = KERNELS - {"decode_attention"} | {"decoder_layer"} if whole else KERNELS
    assert seen >= want


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@lucid.no_grad()
def test_prompts(language: str, dtype: str) -> None:
    """Rows that are read in two turns of 16 bytes, gates that end within 16 bytes, and a last layer of which only what
    the next token is made of is computed."""
    model = made(0, getattr(lucid, dtype), hidden_size=2304, intermediate_size=100)
    prompt = lucid.tensor([[3, 1, 4, 1, 5]]).to("gpu")
    want = model.logits(model.hidden(prompt, llm.Cache(model.config)))[:, -1].float().cpu().numpy()
    with emulated(language) as seen:
        found = token_step.step(model, prompt, llm.Cache(model.config))
        assert found is not None
        got = found.float().cpu().numpy()
    bound = TABLE[f"emulated {dtype}"]
    np.testing.assert_allclose(got, want, rtol=bound.rtol, atol=bound.atol)
    assert {"rms_norm", "rotated_heads", "gated"} <= set(seen)


@pytest.mark.parametrize(
    ("bits", "texts", "inner", "hidden"),
    [
        (4, 8, 2304, 64), (0, 3, 4608, 64),
        # Scales of two, four and eight turns are read as words, of rows that are held whole and in pieces.
        (8, 1, 1024, 512), (4, 1, 2048, 64), (8, 2, 4096, 64), (4, 8, 4096, 64),
    ],
)  # fmt: skip
def test_wide_layers(bits: int, texts: int, inner: int, hidden: int) -> None:
    """Rows that a group cannot hold whole, and rows that registers cannot."""
    model = made(bits, lucid.bfloat16, num_hidden_layers=1, intermediate_size=inner, hidden_size=hidden)
    assert "decoder_layer" in agree("cuda", model, "bfloat16", texts)


@lucid.no_grad()
def test_matrices_that_are_written() -> None:
    """What is known of a layer from one token to the next holds as long as its matrices do."""
    model = made(4, lucid.bfloat16, num_hidden_layers=1)
    before = logits(model, 1, False)
    with emulated("cuda"):
        _ = logits(model, 1, True)
    mlp = model.model.layers[0].mlp
    for module in (mlp.up_proj, mlp.down_proj):
        module.scales.mul_(-3.0)
    model.model.layers[0].input_layernorm.weight.mul_(2.0)
    after = logits(model, 1, False)
    assert max(abs(b - a).max() for b, a in zip(before, after, strict=True)) > 0.1
    assert "decoder_layer" in agree("cuda", model, "bfloat16", 1)


@lucid.no_grad()
def test_caches() -> None:
    """Keys and values are written in place, and yet nobody sees them change: neither a copy of a cache, which goes its
    own way, nor what was read before, nor a cache that is read between tokens."""
    model = made(4, lucid.bfloat16, num_hidden_layers=1)

    def token(number: int) -> lucid.Tensor:
        return lucid.full((1, 1), number, dtype=lucid.int64).to("gpu")

    def found(cache: llm.Cache, number: int) -> np.ndarray:
        logits = token_step.step(model, token(number), cache)
        assert logits is not None
        return logits.float().cpu().numpy()

    with emulated("cuda") as seen:
        alone, read = llm.Cache(model.config), llm.Cache(model.config)
        first = [found(alone, number) for number in range(3)]
        for number, want in enumerate(first):
            np.testing.assert_array_equal(found(read, number), want)
            assert bool(read.layers[0].buffers[0].isfinite().all().item())
        other = copy.deepcopy(alone)
        view = alone.layers[0].buffers[1][:, :, :4].clone()
        before = view.float().cpu().numpy()
        ways = [(found(alone, 5 + k), found(other, 9 + k)) for k in range(3)]
        np.testing.assert_array_equal(view.float().cpu().numpy(), before)
        # Steps that nobody reads come about for the next one.
        token_step.step(model, token(7), read)
        assert "decoder_layer" in seen
        for numbers, own in (((5, 6, 7), 0), ((9, 10, 11), 1)):
            again = llm.Cache(model.config)
            for number in range(3):
                found(again, number)
            for k, number in enumerate(numbers):
                np.testing.assert_array_equal(found(again, number), ways[k][own])
        # Back to fewer tokens than the last kernel counted.
        for layer in alone.layers:
            layer.length = 3
        alone.offset = 3
        np.testing.assert_array_equal(found(alone, 9), ways[0][1])


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    "changed",
    [
        {"qkv_bias": True, "mlp_bias": True, "o_bias": True, "hidden_act": "gelu_pytorch_tanh"},
        {"qk_norm": True},
        {"unit_offset": True, "post_norms": True, "scale_embeddings": True, "final_logit_softcapping": 30.0},
        {"attn_logit_softcapping": 20.0, "hidden_act": "gelu"},
        {"head_dim": 128, "num_hidden_layers": 1},
        {"head_dim": 24, "num_hidden_layers": 1},
        {"tie_word_embeddings": True, "partial_rotary_factor": 0.5},
    ],
    ids=lambda c: next(iter(c)),
)
def test_architectures(language: str, changed: dict[str, Any]) -> None:
    """What a kernel does not take is computed by ops, between kernels that it takes."""
    assert "row_product" in agree(language, made(4, lucid.float32, **changed), "float32", 2)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("rows", [1, 8, 9, 40])
def test_products_with_packed_rows(language: str, rows: int) -> None:
    """Few rows take a kernel of the engine; many on CUDA the matrix unpacked."""
    lucid.manual_seed(1)
    x = lucid.randn(2, rows, 160).to("gpu") if rows < 5 else lucid.randn(rows, 160).to("gpu")
    parts = lucid.quantize_affine(lucid.randn(70, 160).to("gpu"), group_size=32, bits=4)
    lucid.eval(x, *parts)
    want = lucid.quantized_matmul(x, *parts, group_size=32, bits=4).cpu().numpy()
    with emulated(language) as seen:
        got = lucid.quantized_matmul(x, *parts, group_size=32, bits=4).cpu().numpy()
    assert ("row_product" in seen) == (rows <= 8)
    bound = TABLE["emulated float32"]
    np.testing.assert_allclose(got, want, rtol=bound.rtol, atol=bound.atol)
