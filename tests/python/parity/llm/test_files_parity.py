"""GGUF files that the `gguf` package writes, tokenizers, chat templates, and files of any bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import lucid
import numpy as np
import pytest
import tokenizers
import torch
from lucid import _C, llm

from tests.python.parity.llm.models import make, prompts
from tests.python.tolerances import within

BLOCKS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")


def blocks_of(kind: str, rows: int, columns: int) -> np.ndarray:
    """Random blocks whose scales are ordinary numbers."""
    rng = np.random.default_rng(len(kind))
    size, width = gguf.GGML_QUANT_SIZES[getattr(gguf.GGMLQuantizationType, kind)]
    made = rng.integers(0, 256, (rows * columns // size, width), dtype=np.uint8)
    at = {"Q6_K": [208]}.get(kind, [0, 2] if kind[-1] in "1K" else [0])
    for start in at:
        made[:, start : start + 2] = rng.normal(size=(len(made), 1)).astype(np.float16).view(np.uint8)
    return made.reshape(rows, -1)


@pytest.mark.parametrize("kind", BLOCKS)
def test_blocks_are_those_of_ggml(kind: str) -> None:
    raw = blocks_of(kind, 3, 512)
    wanted = gguf.quants.dequantize(raw, getattr(gguf.GGMLQuantizationType, kind))
    tensor = lucid.tensor(raw.reshape(-1))
    np.testing.assert_allclose(
        _C._gguf_dequantize(tensor, kind, [3, 512]).cpu().numpy(), wanted, **within("dequantised")
    )
    bits = _C._gguf_bits(kind)
    assert (bits is None) == (kind == "Q6_K")
    if bits is not None:
        parts = _C._gguf_repack(tensor, kind, [3, 512])
        form = {"bits": bits, "group_size": 32}
        np.testing.assert_allclose(
            lucid.dequantize_affine(*parts, **form).cpu().numpy(), wanted, **within("dequantised")
        )
        x = np.random.default_rng(0).normal(size=(2, 512)).astype(np.float32)
        got = lucid.quantized_matmul(lucid.tensor(x), *parts, **form).cpu().numpy()
        np.testing.assert_allclose(got, x @ wanted.T, **within("rounded weights", np.abs(wanted).max()))
    with pytest.raises(lucid.errors.LucidError):
        _C._gguf_dequantize(tensor, kind, [3, 511])
    with pytest.raises(lucid.errors.LucidError):
        _C._gguf_dequantize(tensor[1:], kind, [3, 512])


def permuted(w: np.ndarray, heads: int) -> np.ndarray:
    """As llama.cpp's converter orders the rows of queries and keys."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_up_proj": "ffn_up",
}
GEMMA = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def write(model: Any, path: Path, arch: str, kind: str | None = None, vocabulary: bool = True) -> None:
    """A model of `transformers` as a GGUF file, its matrices in blocks of a kind."""
    config = model.config
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(head)
    if arch == "gemma2":
        writer.add_sliding_window(config.sliding_window)
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if vocabulary:
        writer.add_tokenizer_model("llama")
        tokens = ["<unk>", "<s>", "</s>"] + [f"t{i}" for i in range(config.vocab_size - 3)]
        writer.add_token_list(tokens)
        writer.add_token_scores([0.0] * len(tokens))
        writer.add_token_types([2, 3, 3] + [1] * (len(tokens) - 3))
        writer.add_eos_token_id(2)
    for name, tensor in model.state_dict().items():
        w = tensor.cpu().numpy()
        base, _, last = name.removeprefix("model.").rpartition(".")
        if arch == "gemma2" and base.endswith("norm"):
            w = w + 1
        if base.startswith("layers."):
            _, layer, rest = base.split(".", 2)
            if arch == "llama" and rest in ("self_attn.q_proj", "self_attn.k_proj"):
                w = permuted(w, config.num_attention_heads if "q_proj" in rest else config.num_key_value_heads)
            theirs = (NAMES | GEMMA if arch == "gemma2" else NAMES)[rest]
            target = f"blk.{layer}.{theirs}.{last}"
        else:
            target = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}[base] + f".{last}"
            if target == "output.weight" and config.tie_word_embeddings:
                continue
        w = np.ascontiguousarray(w, dtype=np.float32)
        if kind is None or w.ndim == 1:
            writer.add_tensor(target, w)
        else:
            form = getattr(gguf.GGMLQuantizationType, kind)
            packed = gguf.quants.quantize(w, form)
            writer.add_tensor(target, packed, raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("llama2", "llama"),
        ("smollm", "llama"),
        ("qwen2", "qwen2"),
        ("qwen3", "qwen3"),
        ("gemma2", "gemma2"),
        ("phi3", "phi3"),
    ],
)
@pytest.mark.parametrize("device", ("cpu", "gpu"))
def test_gguf_models(name: str, arch: str, device: str, tmp_path: Path) -> None:
    sizes = {"query_pre_attn_scalar": 16} if name == "gemma2" else {}
    theirs = make(name, tmp_path / "hf", **sizes)
    rows = prompts(12, seed=3)
    with torch.no_grad():
        wanted = theirs(torch.tensor(rows)).logits.cpu().numpy()
    for kind in (None, "F16", "Q8_0"):
        write(theirs, tmp_path / "m.gguf", arch, kind)
        model = llm.load_model(tmp_path / "m.gguf", device)
        got = model(lucid.tensor(rows, device=device)).cpu().numpy()
        limit = {None: 1e-4, "F16": 2e-2, "Q8_0": 0.05}[kind]
        np.testing.assert_allclose(got, wanted, atol=limit * np.abs(wanted).max())
        assert any(isinstance(m, lucid.nn.QuantizedLinear) for m in model.modules()) == (kind == "Q8_0")
    assert model.config.eos_token_id == [2]


TEXTS = ["Hello, world!", "  two  spaces\n\nand lines\t", "naïve café 東京 🙂", "it's 12345 don't", "", "a\u0000b"]


def train(kind: str) -> tokenizers.Tokenizer:
    """A small tokenizer of this kind, trained on the licence of a package."""
    text = [Path(gguf.__file__).read_text(), *TEXTS] * 3
    if kind == "gpt2":
        made = tokenizers.ByteLevelBPETokenizer()
        made.train_from_iterator(text, vocab_size=400, special_tokens=["<|end|>"], show_progress=False)
    else:
        made = tokenizers.SentencePieceBPETokenizer(fuse_unk=True)
        made.train_from_iterator(
            text, vocab_size=400, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False, limit_alphabet=90
        )
    return made


def test_tokenizer_of_a_folder(tmp_path: Path) -> None:
    theirs = train("gpt2")
    theirs.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": {"content": "<|end|>"}, "chat_template": "{{ messages[0].content }}{{ eos_token }}"})
    )
    ours = llm.load_tokenizer(tmp_path)
    for text in TEXTS:
        ids = theirs.encode(text).ids
        assert ours.encode(text) == ids and ours.decode(ids) == theirs.decode(ids)
        stream = ours.stream()
        assert "".join([*(stream.add(t) for t in ids), stream.finish()]) == theirs.decode(ids)
    assert ours.vocab_size == theirs.get_vocab_size() and ours.id_to_token(0) == "<|end|>"
    assert ours.token_to_id("<|end|>") == 0 and ours.token_to_id("no such") is None
    assert ours.apply_chat_template([{"role": "user", "content": "Hi"}]) == "Hi<|end|>"
    with pytest.raises(lucid.errors.ValueError, match="Unicode"):
        ours.encode("\ud800")
    with pytest.raises(lucid.errors.LucidError):
        ours.decode([-1])
    assert isinstance(ours.decode([10**6]), str)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(lucid.errors.ValueError, match="tokenizer"):
        llm.load_tokenizer(tmp_path)
    with pytest.raises(lucid.errors.FileNotFoundError):
        llm.load_tokenizer(tmp_path / "none")


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_tokenizer_of_a_gguf_file(kind: str, tmp_path: Path) -> None:
    theirs = train(kind)
    model = json.loads(theirs.to_str())["model"]
    tokens = sorted(theirs.get_vocab(), key=theirs.get_vocab().get)
    writer = gguf.GGUFWriter(tmp_path / "t.gguf", "llama")
    writer.add_tokenizer_model(kind)
    writer.add_token_list(tokens)
    special = ("<|end|>", "<unk>", "<s>", "</s>")
    writer.add_token_types([3 if t in special else 1 for t in tokens])
    if kind == "gpt2":
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_merges([" ".join(m) for m in model["merges"]])
    else:
        # SentencePiece's scores: a piece that was merged earlier is better.
        made = {"".join(m): -float(i) for i, m in reversed(list(enumerate(model["merges"])))}
        writer.add_token_scores([made.get(t, -1000.0) for t in tokens])
        writer.add_bos_token_id(1)
        writer.add_unk_token_id(0)
        writer.add_add_bos_token(True)
        writer.add_chat_template("{{ bos_token }}{% for m in messages %}{{ m['content'] | trim }}{% endfor %}")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ours = llm.load_tokenizer(tmp_path / "t.gguf")
    for text in TEXTS[:1] + TEXTS[3:4] if kind == "llama" else TEXTS:
        ids = theirs.encode(text).ids
        assert ours.encode(text, False) == ids
        assert ours.decode(ids) == theirs.decode(ids)
    if kind == "llama":
        assert ours.encode("it")[0] == 1
        assert ours.apply_chat_template([{"role": "user", "content": " x "}]) == "<s>x"


MESSAGES = [
    {"role": "system", "content": "Be brief. "},
    {"role": "user", "content": 'What\'s "2 < 3" & ünï?\n'},
    {"role": "assistant", "content": "True"},
    {"role": "user", "content": "Why"},
]
TEMPLATES = {
    "chatml": (
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'].strip() + "
        "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "llama": (
        "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
        "{% set system = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% endif %}"
        "{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}{% if loop.index0 == 0 and system is defined %}"
        "{% set content = '<<SYS>>' + system | trim + '<</SYS>>' + message['content'] %}{% else %}"
        "{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
        "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
        "{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
    ),
    "tools": """
{%- macro show(m) %}
    {{- m.role | upper }}: {{ m.content.split('\n')[0] }}
{%- endmacro %}
{%- set ns = namespace(n=0) %}
{%- for m in messages if m.role != 'system' %}
    {%- set ns.n = ns.n + 1 %}
    {{- show(m) }} ({{ ns.n }})
{% endfor %}
{%- if tools is defined %}{{ tools | tojson }} {{ tools[0] | tojson(indent=2) }}{% endif %}
{{- messages | length }} {{ messages[-1].content.startswith('Wh') }} {{ {'a': none}.items() | list }}""",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_give_what_transformers_gives(name: str) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    tools = [{"a": [1, 2.5, True, None], "type": "f & <x>"}]
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    wanted = render_jinja_template(
        [MESSAGES], chat_template=TEMPLATES[name], add_generation_prompt=True, tools=tools, **special
    )[0][0]
    tokenizer = llm.Tokenizer(None, special, TEMPLATES[name])
    assert tokenizer.apply_chat_template(MESSAGES, tools=tools) == wanted


HOSTILE_TEMPLATES = {
    "loop": "{% for i in range(100000) %}{% for j in range(100000) %}{{ j }}{% endfor %}{% endfor %}",
    "recursion": "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "raise": "{{ raise_exception('no') }}",
    "syntax": "{% if %}",
    "include": "{% include 'chat' %}",
    "huge": "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
    "repeat": "{{ 'x' * 100000000000 }}",
    "nested": "{{ " + "(" * 50000 + "1" + ")" * 50000 + " }}",
    "filter": "{{ 1 | no_such_filter }}",
    "attribute": "{{ messages.__class__.__mro__[1] }}",
}


@pytest.mark.parametrize("name", HOSTILE_TEMPLATES)
def test_hostile_templates(name: str) -> None:
    with pytest.raises(lucid.errors.ValueError, match="template"):
        llm.Tokenizer(None, {}, HOSTILE_TEMPLATES[name]).apply_chat_template(MESSAGES)


def test_damaged_gguf_files(tmp_path: Path) -> None:
    theirs = make("smollm", tmp_path / "hf", hidden_size=32, intermediate_size=32, num_hidden_layers=1)
    path = tmp_path / "m.gguf"
    write(theirs, path, "llama", "Q8_0")
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    bad = tmp_path / "bad.gguf"

    def read() -> None:
        # Read, or an error of ours; whatever is read is made of the file's bytes.
        try:
            model = llm.load_model(bad, "cpu")
            model(lucid.tensor([[1, 2]]))
            llm.load_tokenizer(bad)
        except lucid.errors.LucidError:
            return

    for cut in [0, 3, 4, 8, 16, 24, 100, *rng.integers(24, len(whole), 20).tolist()]:
        bad.write_bytes(whole[:cut])
        with pytest.raises(lucid.errors.LucidError):
            _C._gguf_header(str(bad))
    head = whole.index(b"token_embd") if b"token_embd" in whole else 2000
    for _ in range(300):
        data = bytearray(whole)
        for at in rng.integers(0, head + 200, 3):
            data[at] = rng.choice([0, 1, 127, 128, 255, rng.integers(256)])
        bad.write_bytes(data)
        read()
    # Counts and lengths as large as they can be.
    for at in (8, 16):
        data = bytearray(whole)
        data[at : at + 8] = b"\xff" * 8
        bad.write_bytes(data)
        with pytest.raises(lucid.errors.LucidError, match="do not fit"):
            _C._gguf_header(str(bad))
    write(theirs, bad, "rwkv")
    with pytest.raises(lucid.errors.ValueError, match="architecture"):
        llm.load_model(bad)
    write(theirs, bad, "llama", vocabulary=False)
    with pytest.raises(lucid.errors.LucidError, match="tokenizer"):
        llm.load_tokenizer(bad)


@pytest.mark.parametrize(("mode", "group"), [("mxfp4", 32), ("nvfp4", 16)])
def test_folders_in_mlx_floats_of_4_bits(mode: str, group: int, tmp_path: Path) -> None:
    import mlx.core as mx

    make("llama2", tmp_path / "dense")
    model = llm.load_model(tmp_path / "dense")
    llm.save_model(model, tmp_path / "packed")
    tensors: dict[str, Any] = {}
    dense: dict[str, np.ndarray] = {}
    for name, tensor in model.named_parameters():
        w = mx.array(tensor.detach().numpy())
        if not name.endswith("proj.weight"):
            tensors[name] = w
            continue
        tensors[name], scales = mx.quantize(w, group_size=group, bits=4, mode=mode)
        tensors[name.replace(".weight", ".scales")] = scales
        back = mx.dequantize(tensors[name], scales, group_size=group, bits=4, mode=mode, dtype=mx.float32)
        dense[name] = np.array(back)
    mx.save_safetensors(str(tmp_path / "packed" / "model.safetensors"), tensors)
    config = json.loads((tmp_path / "packed" / "config.json").read_text())
    config["quantization"] = {"group_size": group, "bits": 4, "mode": mode}
    (tmp_path / "packed" / "config.json").write_text(json.dumps(config))
    read = dict(llm.load_model(tmp_path / "packed").named_parameters())
    assert dense
    for name, wanted in dense.items():
        np.testing.assert_array_equal(read[name].detach().float().numpy(), wanted)
    logits = llm.load_model(tmp_path / "packed", dtype=lucid.float32)(lucid.tensor(prompts(5)))
    assert logits.isfinite().all()
    lost = next(n for n in tensors if n.endswith(".scales"))
    tensors[lost] = tensors[lost][:, :-1]
    mx.save_safetensors(str(tmp_path / "packed" / "model.safetensors"), tensors)
    with pytest.raises(lucid.errors.ValueError, match="do not fit"):
        llm.load_model(tmp_path / "packed")
