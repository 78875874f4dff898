"""GPTQ: packed words, error of layers, and perplexity of a trained model, against rounding to the nearest."""

from __future__ import annotations

from pathlib import Path

import lucid
import pytest
from lucid import llm
from lucid.llm.finetuning import Example
from lucid.llm.quantizing import calibration_windows, gptq
from lucid.nn.modules.quantized import QuantizedLinear
from lucid.quantization.gptq import Hessian, gptq_linear, pack

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_packed_words_are_those_of_quantize_affine(bits: int) -> None:
    lucid.manual_seed(bits)
    words, scales, biases = lucid.quantize_affine(lucid.randn(4, 96), group_size=32, bits=bits)
    dense = lucid.dequantize_affine(words, scales, biases, group_size=32, bits=bits).reshape(4, 3, 32)
    elements = ((dense - biases[..., None]) / scales[..., None]).round().reshape(4, 96)
    assert bool((pack(elements, bits) == words).all())


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_layers_answer_nearer_than_rounded_ones(bits: int) -> None:
    lucid.manual_seed(0)
    linear = lucid.nn.Linear(64, 24)
    # Inputs whose elements go together, as those of networks do.
    x = lucid.randn(256, 8) @ lucid.randn(8, 64) + 0.1 * lucid.randn(256, 64)
    hessian = Hessian(64)
    hessian.add(x)
    wanted = linear(x)
    made = gptq_linear(linear, hessian, bits, 32)
    nearest = QuantizedLinear.from_linear(linear, 32, bits)
    error, plain = ((m(x) - wanted).square().mean().item() for m in (made, nearest))
    assert error < 0.5 * plain
    with pytest.raises(lucid.errors.ValueError, match="inputs"):
        gptq_linear(linear, Hessian(64), bits, 32)


def test_a_trained_model_loses_less(tmp_path: Path) -> None:
    lucid.manual_seed(0)
    config = llm.Config("llama", 257, 64, 128, 2, 2, 1, 32, max_position_embeddings=512)
    tokens = list((ROOT / "LICENSE-APACHE").read_bytes()[:10000])
    model = llm.CausalLM(config)
    examples = [Example(tokens[i : i + 128]) for i in range(0, 8000, 128)]
    llm.finetune(model, examples, 150, batch_size=4, learning_rate=5e-3)
    llm.save_model(model, tmp_path)
    whole = llm.perplexity(model, tokens[:4000], 128)
    made = {}
    for method in ("nearest", "gptq"):
        model = llm.load_model(tmp_path)
        if method == "nearest":
            lucid.quantization.quantize(model, 2, 32, lambda path, _: "layers" in path)
        else:
            gptq(model, calibration_windows(model, tokens[:8000], 32, 128), 2, 32, others=False)
        assert sum(isinstance(m, QuantizedLinear) for m in model.modules()) == 14
        made[method] = llm.perplexity(model, tokens[:4000], 128) / whole
    assert made["gptq"] - 1 < 0.7 * (made["nearest"] - 1), made
    gptq(llm.load_model(tmp_path), calibration_windows(model, tokens, 2, 16), 4, 32)
    with pytest.raises(lucid.errors.ValueError, match="one length"):
        gptq(llm.load_model(tmp_path), [[1, 2], [3]])
