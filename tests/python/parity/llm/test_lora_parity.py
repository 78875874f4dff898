"""Adapters against PEFT's, what they learn on dense and quantised models, and merging."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lucid
import numpy as np
import peft
import pytest
import torch
from lucid import llm
from lucid.llm.finetuning import Example, evaluate, read_examples

from tests.python.parity.llm.models import make, prompts
from tests.python.tolerances import TABLE, within


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    folder = tmp_path_factory.mktemp("llama2")
    return make("llama2", folder), folder


def test_adapters_of_peft_are_read_and_ours_by_it(base: Any, tmp_path: Path) -> None:
    folder = base[1]
    theirs = peft.get_peft_model(
        torch_model(folder), peft.LoraConfig(r=4, lora_alpha=12, target_modules=["q_proj", "down_proj"])
    )
    for name, p in theirs.named_parameters():
        if "lora_B" in name:
            p.data = torch.randn(p.shape, generator=torch.Generator().manual_seed(1)) * 0.1
    theirs.save_pretrained(tmp_path / "peft")
    rows = prompts(12, 12)
    wanted = theirs(torch.tensor(rows)).logits.detach().numpy()
    ours = llm.load_adapter(llm.load_model(folder), tmp_path / "peft")
    with lucid.no_grad():
        got = ours(lucid.tensor(rows)).numpy()
        np.testing.assert_allclose(got, wanted, **within("logits"))
        llm.save_adapter(ours, tmp_path / "ours", str(folder))
        again = peft.PeftModel.from_pretrained(torch_model(folder), tmp_path / "ours")
        np.testing.assert_allclose(again(torch.tensor(rows)).logits.detach().numpy(), wanted, **within("logits"))
        # Merged, the model has its own layers again, and is written as such.
        llm.merge_lora(ours)
        np.testing.assert_allclose(ours(lucid.tensor(rows)).numpy(), wanted, **within("logits"))
        llm.save_model(ours, tmp_path / "merged")
        merged = torch_model(tmp_path / "merged", "LlamaForCausalLM")
        np.testing.assert_allclose(merged(torch.tensor(rows)).logits.detach().numpy(), wanted, **within("logits"))


def torch_model(folder: Path, kind: str = "AutoModelForCausalLM") -> Any:
    import transformers

    if not json.loads((folder / "config.json").read_text()).get("architectures"):
        kind = "LlamaForCausalLM"
    return getattr(transformers, kind).from_pretrained(folder, dtype=torch.float32).eval()


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("bits", [None, 4])
def test_adapters_learn(base: Any, bits: int | None, device: str, tmp_path: Path) -> None:
    lucid.manual_seed(0)
    model = llm.load_model(base[1], device)
    if bits is not None:
        lucid.quantization.quantize(model, bits, 32)
    frozen = {n: p.detach().clone() for n, p in (*model.named_parameters(), *model.named_buffers())}
    llm.add_lora(model, rank=4, alpha=8)
    examples = [Example([*row, *row]) for row in prompts(8, 8, 6, 7)]
    before = evaluate(model, examples)
    losses = llm.finetune(model, examples, 25, batch_size=4, learning_rate=2e-2, warmup=2)
    after = evaluate(model, examples)
    assert len(losses) == 25 and losses[0] == pytest.approx(before, rel=TABLE["training"].rtol) and after < 0.6 * before
    own = dict((*model.named_parameters(), *model.named_buffers()))
    for name, value in frozen.items():
        lead, _, last = name.rpartition(".")
        now = own.get(name, own.get(f"{lead}.base.{last}"))
        assert now is not None and bool((now == value).all())
    llm.save_adapter(model, tmp_path)
    x = lucid.tensor(prompts(9), device=device)
    with lucid.no_grad():
        wanted = model(x).cpu().numpy()
        llm.merge_lora(model)
        np.testing.assert_allclose(model(x).cpu().numpy(), wanted, **within("rounded weights"))
    fresh = llm.load_model(base[1], device)
    if bits is not None:
        lucid.quantization.quantize(fresh, bits, 32)
    with lucid.no_grad():
        np.testing.assert_allclose(llm.load_adapter(fresh, tmp_path)(x).cpu().numpy(), wanted, **within("near zero"))


def test_all_parameters_learn(base: Any) -> None:
    model = llm.load_model(base[1])
    for p in model.parameters():
        p.requires_grad_(True)
    examples = [Example(row) for row in prompts(8, 8)]
    before = evaluate(model, examples)
    llm.finetune(model, examples, 10, batch_size=2, accumulate=2, learning_rate=3e-3, warmup=1)
    assert evaluate(model, examples) < 0.6 * before


def test_loss_is_that_of_what_is_learned(base: Any) -> None:
    theirs, folder = base
    model = llm.load_model(folder)
    examples = [Example(prompts(9)[0], 4), Example(prompts(5, seed=3)[0], 1)]
    total, count = 0.0, 0
    for e in examples:
        logits = theirs(torch.tensor([e.tokens])).logits[0, e.start - 1 : -1].detach()
        labels = torch.tensor(e.tokens[e.start :])
        total += float(torch.nn.functional.cross_entropy(logits, labels, reduction="sum"))
        count += len(labels)
    assert evaluate(model, examples) == pytest.approx(total / count, rel=TABLE["few ops"].rtol)


class Letters:
    """A tokenizer of bytes with a template."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return ([1] if add_special_tokens else []) + list(text.encode())

    def apply_chat_template(self, messages: Any, add_generation_prompt: bool = True, tools: Any = None) -> str:
        return "".join(f"{m['role'][0]}:{m['content']};" for m in messages) + ("a:" if add_generation_prompt else "")


def test_examples(tmp_path: Path) -> None:
    tokenizer: Any = Letters()
    path = tmp_path / "x.jsonl"
    rows = [
        {"text": "ab"},
        {"prompt": "abc", "completion": "de"},
        {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]},
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    text, completion, chat = read_examples(path, tokenizer, 64, 2)
    assert text.tokens == [1, 97, 98, 2] and text.start == 1
    assert completion.tokens == [1, 97, 98, 99, 100, 101, 2] and completion.start == 4
    assert bytes(chat.tokens[chat.start : -1]).decode() == "y;"
    assert len(read_examples(path, tokenizer, 4, 2)) == 1
    plain = tmp_path / "x.txt"
    plain.write_text("abcdefgh")
    assert [len(e.tokens) for e in read_examples(plain, tokenizer, 4, None)] == [4, 4]
    for content, words in (("{", "line 1"), ('{"text": 3}', "needs"), ("", "no example")):
        path.write_text(content)
        with pytest.raises(lucid.errors.ValueError, match=words):
            read_examples(path, tokenizer, 8, None)


def test_refusals(base: Any, tmp_path: Path) -> None:
    model = llm.load_model(base[1])
    llm.save_adapter(llm.add_lora(llm.load_model(base[1]), 2), tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    for change, words in (
        ({"peft_type": "IA3"}, "IA3"), ({"use_dora": True}, "use_dora"), ({"r": 0}, "r and lora_alpha"),
        ({"r": 3}, "shape"),
    ):  # fmt: skip
        (tmp_path / "adapter_config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(lucid.errors.LucidError, match=words):
            llm.load_adapter(model, tmp_path)
    assert not llm.lora.adapters(model)
    for call, words in (
        (lambda: llm.add_lora(model, targets=["nothing"]), "nothing"),
        (lambda: llm.add_lora(model, rank=0), "rank"),
        (lambda: llm.merge_lora(model), "no adapters"),
        (lambda: llm.finetune(model, [Example([1, 2])], 1), "requires a gradient"),
        (lambda: llm.LoRALinear(lucid.nn.ReLU()), "Linear"),  # type: ignore[arg-type]
    ):
        with pytest.raises(lucid.errors.LucidError, match=words):
            call()
