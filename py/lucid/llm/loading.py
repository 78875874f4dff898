"""Models from Hugging Face's folders and from GGUF files, and folders from models.

On the CPU dense weights are in the mapped files: nothing is copied that has the dtype already. GGUF's blocks become
the packed layout of `quantized_matmul` without loss but for the rounding of scales; `Q6_K`, whose groups of 16 that
layout
has not, becomes floats.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lucid
from lucid import _C, Tensor, errors, nn
from lucid.llm.blocks import FORMATS, BlockEmbedding, BlockLinear, refuse
from lucid.llm.config import Config
from lucid.llm.float4 import FLOAT_MODES, float4
from lucid.llm.hub import resolve
from lucid.llm.model import BLANK, CausalLM, QuantizedExpertLinear
from lucid.llm.rope import Rope
from lucid.nn.modules.quantized import QuantizedEmbedding, QuantizedLinear, _Quantized
from lucid.nn.parameter import Parameter
from lucid.serialization._safetensors import _File, save_safetensors
from lucid.serialization._source import MappedSource

_LARGEST_TEXT = 1 << 28
_EXPERT = re.compile(r"(.*\.mlp)\.experts\.(\d+)\.(gate_proj|up_proj|down_proj)\.(weight|scales|biases)$")
_MIXTRAL = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}


class _Header(_File):
    """A safetensors file whose uint32, which kernels of packed weights take as int32, are read as that."""

    def header(self, head: bytes, size: int) -> Any:
        return super().header(re.sub(rb'("dtype"\s*:\s*)"U32"', rb'\1"I32"', head), size)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a file. Raises FileError, naming the file, for anything else."""
    try:
        if path.stat().st_size > _LARGEST_TEXT:
            raise errors.FileError(f"{path}: larger than {_LARGEST_TEXT} bytes")
        made = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise errors.FileNotFoundError(f"{path}: there is no such file") from None
    except (OSError, ValueError, RecursionError) as e:
        raise errors.FileError(f"{path}: not readable as JSON: {e}") from None
    if not isinstance(made, dict):
        raise errors.FileError(f"{path}: expected an object, found {type(made).__name__}")
    return made


def _shards(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.exists():
        names = read_json(index).get("weight_map")
        if not isinstance(names, dict) or not all(isinstance(n, str) for n in names.values()):
            raise errors.FileError(f"{index}: has no weight_map of names")
        found = sorted(set(names.values()))
        for name in found:
            if Path(name).name != name:
                raise errors.FileError(f"{index}: {name!r} is no file of the folder")
        paths = [folder / name for name in found]
    else:
        paths = sorted(folder.glob("model*.safetensors")) or sorted(folder.glob("*.safetensors"))
    missing = [p.name for p in paths if not p.exists()]
    if missing or not paths:
        what = f"shards {missing} are missing" if missing else "there are no safetensors files"
        raise errors.FileNotFoundError(f"{folder}: {what}")
    return paths


def _hf_names(name: str, tensor: Tensor, config: Config) -> Iterator[tuple[str, Tensor]]:
    """Our names of a checkpoint's tensor: of fused ones the parts."""
    if name.endswith("rotary_emb.inv_freq"):
        return
    if config.model_type == "gemma3_text":
        # Of a model that sees too, the decoder.
        if re.search(r"(^|\.)(vision_tower|multi_modal_projector)\.", name):
            return
        name = name.removeprefix("language_model.").replace("model.language_model.", "model.", 1)
    # MLX's models have all experts' matrices as one under that name.
    name = name.replace(".block_sparse_moe.", ".mlp.").replace(".mlp.switch_mlp.", ".mlp.")
    for theirs, ours in _MIXTRAL.items():
        name = re.sub(rf"(\.experts\.\d+)\.{theirs}\.", rf"\1.{ours}.", name)
    if ".qkv_proj." in name:
        q, kv = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
        for part, at, size in (("q", 0, q), ("k", q, kv), ("v", q + kv, kv)):
            yield name.replace("qkv_proj", f"{part}_proj"), tensor.narrow(0, at, size)
    elif ".gate_up_proj." in name and ".experts." not in name:
        half = tensor.shape[0] // 2
        yield name.replace("gate_up_proj", "gate_proj"), tensor[:half]
        yield name.replace("gate_up_proj", "up_proj"), tensor[half:]
    else:
        yield name, tensor


def _stacked(tensors: dict[str, Tensor], config: Config) -> dict[str, Tensor]:
    """With the experts' matrices as one each."""
    made: dict[str, Tensor] = {}
    groups: dict[str, dict[int, Tensor]] = {}
    for name, tensor in tensors.items():
        found = _EXPERT.match(name)
        if found:
            groups.setdefault(f"{found[1]}.{found[3]}.{found[4]}", {})[int(found[2])] = tensor
        else:
            made[name] = tensor
    for name, parts in groups.items():
        if sorted(parts) != list(range(config.num_experts)):
            raise errors.FileError(f"load: {name} has experts {sorted(parts)}, expected {config.num_experts} of them")
        made[name] = lucid.stack([parts[i] for i in range(config.num_experts)])
    return made


def _parent(model: nn.Module, path: str) -> tuple[nn.Module, str]:
    lead, _, last = path.rpartition(".")
    return (model.get_submodule(lead) if lead else model), last


def _make_quantized(model: CausalLM, path: str, group_size: int, bits: int) -> _Quantized:
    """Replaces the layer at `path` by an empty quantised one."""
    parent, name = _parent(model, path)
    old: Any = getattr(parent, name)
    made: _Quantized
    if isinstance(old, nn.Linear):
        made = QuantizedLinear(old.in_features, old.out_features, False, group_size, bits, BLANK)
        made.bias = old.bias
    elif isinstance(old, nn.Embedding):
        made = QuantizedEmbedding(old.num_embeddings, old.embedding_dim, group_size, bits, BLANK)
    else:
        made = QuantizedExpertLinear(tuple(old.weight.shape), group_size, bits, BLANK)
    setattr(parent, name, made)
    return made


def _make_blocks(model: CausalLM, path: str, format: str) -> None:
    """Replaces the layer at `path` by an empty one over blocks."""
    parent, name = _parent(model, path)
    old: Any = getattr(parent, name)
    if isinstance(old, nn.Linear):
        setattr(parent, name, BlockLinear(old.out_features, old.in_features, format, old.bias))
    else:
        setattr(parent, name, BlockEmbedding(old.num_embeddings, old.embedding_dim, format))


def _fill(model: CausalLM, tensors: dict[str, Tensor], where: str, device: Any, dtype: Any) -> CausalLM:
    """Puts tensors into the model by name; every parameter must get one, of its shape."""
    own = dict(model.named_parameters())
    buffers = dict(model.named_buffers())
    if model.lm_head is None:
        tensors = {n: t for n, t in tensors.items() if not n.startswith("lm_head.")}
    unknown = sorted(set(tensors) - set(own) - set(buffers))
    missing = sorted((set(own) | set(buffers)) - set(tensors))
    if unknown or missing:
        raise errors.ValueError(f"load: {where} lacks {missing[:5]} and has {unknown[:5]} that the model has not")
    for name, tensor in tensors.items():
        wanted = own.get(name, buffers.get(name))
        assert wanted is not None
        if tensor.shape != wanted.shape:
            raise errors.ValueError(
                f"load: {name} of {where} has shape {tuple(tensor.shape)}, the model expects {tuple(wanted.shape)}"
            )
        if tensor.dtype.is_floating_point and dtype is not None:
            tensor = tensor.to(dtype)
        tensor = tensor.to(device)
        parent, last = _parent(model, name)
        setattr(parent, last, Parameter(tensor, requires_grad=False) if name in own else tensor)
    return model.eval()


def _blank(config: Config) -> CausalLM:
    return CausalLM(config, device=BLANK)


def load_folder(path: str | os.PathLike[str], device: Any = None, dtype: Any = None) -> CausalLM:
    """A model of a Hugging Face folder: `config.json` and safetensors, sharded or not, quantised by MLX or not."""
    folder = Path(path)
    given = read_json(folder / "config.json")
    config = Config.from_hf(given)
    device = lucid.device(lucid.get_default_device() if device is None else device)
    tensors: dict[str, Tensor] = {}
    for shard in _shards(folder):
        file = _Header("load", str(shard), "cpu", True)
        try:
            for name in file.entries:
                for ours, tensor in _hf_names(name, file.tensor(name), config):
                    tensors[ours] = tensor
        finally:
            file.close()
    tensors = _stacked(tensors, config)
    model = _blank(config)
    settings = given.get("quantization")
    if settings is None and given.get("quantization_config"):
        raise errors.NotImplementedError(
            f"{folder}: quantised as {given['quantization_config'].get('quant_method')!r}, which is not read; "
            "MLX's format and GGUF are"
        )
    if settings is not None:
        if not isinstance(settings, dict):
            raise errors.FileError(f"{folder}: the quantization is no object: {settings!r}")
        for name in [n.removesuffix(".scales") for n in tensors if n.endswith(".scales")]:
            given_own = settings.get(name)
            own = given_own if isinstance(given_own, dict) else settings
            mode = own.get("mode", "affine")
            if mode in FLOAT_MODES:
                parts = (tensors[f"{name}.weight"], tensors.pop(f"{name}.scales"))
                tensors[f"{name}.weight"] = float4(*parts, mode)
                continue
            if mode != "affine":
                raise errors.NotImplementedError(
                    f"{folder}: {name} is quantised as {mode!r}, which is not read; affine, mxfp4 and nvfp4 are"
                )
            try:
                _make_quantized(model, name, int(own["group_size"]), int(own["bits"]))
            except (KeyError, TypeError, AttributeError) as e:
                raise errors.FileError(f"{folder}: {name} is quantised in a way that is not understood: {e}") from None
    return _fill(model, tensors, str(folder), device, dtype)


_GGUF_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.gate_proj",
    "ffn_up_exps": "mlp.up_proj",
    "ffn_down_exps": "mlp.down_proj",
}
_GEMMA_LAYER = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_GGUF_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def _gguf_name(name: str, config: Config) -> str | None:
    base, _, kind = name.rpartition(".")
    if base in _GGUF_TOP:
        return f"{_GGUF_TOP[base]}.{kind}"
    found = re.fullmatch(r"blk\.(\d+)\.(\w+)", base)
    table = {**_GGUF_LAYER, **(_GEMMA_LAYER if config.post_norms else {})}
    if found and found[2] in table:
        return f"model.layers.{found[1]}.{table[found[2]]}.{kind}"
    return None


def _unpermuted(x: Tensor, heads: int) -> Tensor:
    """Rows in the order of halves that are rotated together; GGUF's `llama` has pairs beside each other."""
    rows = x.shape[0]
    return x.reshape(heads, rows // heads // 2, 2, *x.shape[1:]).transpose(1, 2).reshape(x.shape).contiguous()


def load_gguf(
    path: str | os.PathLike[str], device: Any = None, dtype: Any = None, rounds: bool = False
) -> CausalLM:
    """A model of a GGUF file; its blocks stay quantised, and as they are if activations are to be rounded."""
    file = os.fspath(path)
    metadata, entries = _C._gguf_header(file)
    config = Config.from_gguf(metadata, frozenset(e[0] for e in entries))
    device = lucid.device(lucid.get_default_device() if device is None else device)
    floats = dtype or lucid.float32
    source = MappedSource(file)
    tensors: dict[str, Tensor] = {}
    model = _blank(config)
    permuted = config.model_type in ("llama", "mixtral")
    for name, kind, shape, start, size in entries:
        if name.startswith("rope_f"):
            raw = lucid.frombuffer(source.read(start, size), dtype=lucid.float32)
            _set_factors(model, name, raw.tolist())
            continue
        parts = list(_gguf_parts(name, shape, config))
        if not parts:
            raise errors.ValueError(f"load: {file} has a tensor {name} that the architecture has not")
        raw = lucid.frombuffer(source.read(start, size), dtype=lucid.uint8)
        held: dict[str, Tensor]
        bits = _C._gguf_bits(kind)
        if rounds and kind in FORMATS and len(shape) == 2:
            held = {"blocks": raw.reshape(shape[0], -1)}
            for ours, _, _ in parts:
                _make_blocks(model, ours.rpartition(".")[0], kind)
        elif bits is not None and len(shape) > 1:
            packed = dict(zip(("weight", "scales", "biases"), _C._gguf_repack(raw, kind, list(shape)), strict=True))
            held = packed
            for ours, _, _ in parts:
                _make_quantized(model, ours.rpartition(".")[0], 32, bits)
        elif bits is not None or kind == "Q6_K":
            held = {"": _C._gguf_dequantize(raw, kind, list(shape))}
        else:
            number = {"F32": lucid.float32, "F16": lucid.float16, "BF16": lucid.bfloat16, "F64": lucid.float64}
            if kind not in number:
                raise errors.ValueError(f"load: {name} of {file} holds {kind}, which no weight does")
            held = {"": raw.view(number[kind]).reshape(list(shape))}
        for ours, at, rows in parts:
            for suffix, tensor in held.items():
                if rows is not None:
                    tensor = tensor.narrow(0, at, rows).contiguous()
                if permuted and ".self_attn.q_proj." in ours:
                    tensor = _unpermuted(tensor, config.num_attention_heads)
                if permuted and ".self_attn.k_proj." in ours:
                    tensor = _unpermuted(tensor, config.num_key_value_heads)
                target = f"{ours.rpartition('.')[0]}.{suffix}" if suffix else ours
                tensors[target] = tensor
    return _fill(model, tensors, file, device, floats)


def _gguf_parts(name: str, shape: Any, config: Config) -> Iterator[tuple[str, int, int | None]]:
    """Our names of a tensor, and which of its rows they are."""
    found = re.fullmatch(r"blk\.(\d+)\.(attn_qkv|ffn_up)\.(weight|bias)", name)
    if found and found[2] == "attn_qkv":
        q, kv = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
        for part, at, size in (("q", 0, q), ("k", q, kv), ("v", q + kv, kv)):
            yield f"model.layers.{found[1]}.self_attn.{part}_proj.{found[3]}", at, size
    elif found and config.model_type == "phi3" and shape[0] == 2 * config.intermediate_size:
        for part, at in (("gate", 0), ("up", config.intermediate_size)):
            yield f"model.layers.{found[1]}.mlp.{part}_proj.{found[3]}", at, config.intermediate_size
    else:
        ours = _gguf_name(name, config)
        if ours is not None:
            yield ours, 0, None


def _set_factors(model: CausalLM, name: str, factors: list[float]) -> None:
    """Divisors of the frequencies: Llama 3's, or Phi-3's for short and long texts."""
    config = model.config
    if name.startswith("rope_freqs"):
        theta, dim = config.rope_theta, config.rotary_dim
        if len(factors) != dim // 2 or not all(f > 0 for f in factors):
            raise errors.ValueError(f"load: {name} has {len(factors)} factors, expected {dim // 2} positive ones")
        config.rope_scaling = None
        made = [theta ** -(i / dim) / f for i, f in zip(range(0, dim, 2), factors, strict=True)]
        model.rope.short = (made, 1.0)
        return
    scaling = config.rope_scaling or {}
    scaling[f"{'long' if '_long' in name else 'short'}_factor"] = factors
    config.rope_scaling = scaling
    if "long_factor" in scaling and "short_factor" in scaling:
        scaling["rope_type"] = "longrope"
        model.rope = Rope(config)


def load_model(
    path: str | os.PathLike[str], device: Any = None, dtype: Any = None, activations: str = "float"
) -> CausalLM:
    """Loads a model of a Hugging Face folder or a GGUF file.

    Args:
        path (str or os.PathLike): the folder, the file, or the id of a model in the hub's cache, `OWNER/NAME`.
        device (device or str, optional): where it goes. Default: the default device.
        dtype (dtype, optional): of float weights, scales and biases. Default: as they are stored; of GGUF files
            float32.
        activations (str, default: 'float'): `"int8"` rounds activations to 8 bits before products with quantised
            matrices of 4 or 8 bits and with GGUF's blocks, which then stay as they are; for inference on the CPU,
            which is faster so.

    Returns:
        CausalLM: in evaluation mode; no parameter requires a gradient.

    Raises:
        FileNotFoundError: there is no such file or folder.
        FileError: a file is damaged.
        ValueError: the files do not fit together, or the kind of model is not known.

    Example:
        >>> import tempfile
        >>> model = lucid.llm.CausalLM(lucid.llm.Config("llama", 32, 16, 32, 2, 2, 1, 8))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     lucid.llm.save_model(model, folder)
        ...     loaded = lucid.llm.load_model(folder)
        >>> loaded.config.vocab_size
        32
    """
    place = resolve(path)
    if activations not in ("float", "int8"):
        raise errors.ValueError(f"load_model: activations must be 'float' or 'int8', got {activations!r}")
    rounds = activations == "int8"
    if rounds and lucid.device(lucid.get_default_device() if device is None else device).type != "cpu":
        raise errors.ValueError("load_model: activations of 8 bits are the cpu's")
    if place.is_dir():
        model = load_folder(place, device, dtype)
    elif place.exists():
        model = load_gguf(place, device, dtype, rounds)
    else:
        raise errors.FileNotFoundError(f"{place}: there is no such file or folder")
    for module in model.modules():
        if isinstance(module, (QuantizedLinear, QuantizedEmbedding)) and module.bits in (4, 8):
            module.dynamic = rounds
    return model


_SHARD = 4 << 30


def save_model(model: CausalLM, path: str | os.PathLike[str], source: str | os.PathLike[str] | None = None) -> None:
    """Writes a model as a Hugging Face folder that `load_model` reads, in shards of at most 4 GB.

    Quantised weights are written in mlx-community's layout (as int32 words).

    Args:
        model (CausalLM): dense or quantised, without adapters.
        path (str or os.PathLike): the folder; made where there is none.
        source (str or os.PathLike, optional): the folder that the model came from, whose tokenizer is copied. Default:
            none.

    Raises:
        OSError: the folder cannot be written.

    Example:
        >>> import pathlib, tempfile
        >>> model = lucid.llm.CausalLM(lucid.llm.Config("llama", 32, 16, 32, 2, 2, 1, 8))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     lucid.llm.save_model(model, folder)
        ...     sorted(file.name for file in pathlib.Path(folder).iterdir())
        ['config.json', 'model.safetensors']
    """
    refuse("save_model", model)
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = {}
    for name, module in model.named_modules():
        if isinstance(module, _Quantized):
            settings[name] = {"group_size": module.group_size, "bits": module.bits}
    config = to_hf(model.config)
    if settings:
        first = next(iter(settings.values()))
        config["quantization"] = {**first, **{n: s for n, s in settings.items() if s != first}}
    tensors = {n: t.detach() for n, t in (*model.named_parameters(), *model.named_buffers())}
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        nbytes = tensor.numel() * tensor.itemsize
        if shards[-1] and size + nbytes > _SHARD:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += nbytes
    names = {}
    for i, shard in enumerate(shards):
        file = "model.safetensors" if len(shards) == 1 else f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        save_safetensors(shard, folder / file, {"format": "pt"})
        names.update(dict.fromkeys(shard, file))
    if len(shards) > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    if source is not None and Path(source).is_dir():
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
            if (Path(source) / name).exists():
                (folder / name).write_bytes((Path(source) / name).read_bytes())


def to_hf(config: Config) -> dict[str, Any]:
    """The `config.json` that `Config.from_hf` reads as this one."""
    c = config
    made: dict[str, Any] = {
        name: getattr(c, name)
        for name in (
            *("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "head_dim"),
            *("num_attention_heads", "num_key_value_heads", "rms_norm_eps", "rope_theta", "rope_scaling"),
            *("max_position_embeddings", "tie_word_embeddings", "mlp_bias", "hidden_act", "partial_rotary_factor"),
            *("attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"),
            *("bos_token_id", "eos_token_id", "pad_token_id"),
        )
    }
    if c.rope_local_theta is not None:
        full = {"rope_type": "default", **(c.rope_scaling or {}), "rope_theta": c.rope_theta}
        local = {"rope_type": "default", "rope_theta": c.rope_local_theta}
        made["rope_parameters"] = {"full_attention": full, "sliding_attention": local}
        del made["rope_theta"], made["rope_scaling"]
        made["hidden_activation"] = c.hidden_act
    made["attention_bias"] = c.qkv_bias
    windows = [w for w in c.layer_windows if w is not None]
    made["sliding_window"] = windows[0] if windows else None
    if windows:
        made["layer_types"] = ["full_attention" if w is None else "sliding_attention" for w in c.layer_windows]
    if c.rope_scaling and c.rope_scaling.get("original_max_position_embeddings"):
        made["original_max_position_embeddings"] = c.rope_scaling["original_max_position_embeddings"]
    if c.num_experts:
        made["num_local_experts" if c.model_type == "mixtral" else "num_experts"] = c.num_experts
        made["num_experts_per_tok"] = c.num_experts_per_tok
        made["moe_intermediate_size"] = c.moe_intermediate_size
        made["norm_topk_prob"] = c.norm_topk_prob
        made["mlp_only_layers"] = [i for i, sparse in enumerate(c.sparse_layers) if not sparse]
    return made
