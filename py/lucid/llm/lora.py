"""Low-rank adapters: a layer's weight stays as it is, dense or quantised, and learns a product of two thin matrices.

Reference:
    E. Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021; T. Dettmers et al., "QLoRA", 2023.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import lucid
from lucid import Tensor, errors, nn
from lucid.llm.loading import read_json
from lucid.llm.model import CausalLM
from lucid.nn import functional as F
from lucid.nn.modules.quantized import QuantizedLinear
from lucid.nn.parameter import Parameter
from lucid.serialization._safetensors import _File, save_safetensors

#: The layers that get adapters where none are named.
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_PREFIX = "base_model.model."


class LoRALinear(nn.Module):
    """A linear layer with an adapter: `base(x) + alpha / rank · B A dropout(x)`.

    B starts as zeros, so that the layer first gives what `base` gives.

    Args:
        base (Linear or QuantizedLinear): the layer; its parameters take no gradient any more.
        rank (int, optional): rows of A, (rank, in_features), and columns of B, (out_features, rank). Default: 8.
        alpha (float, optional): the adapter's weight, times `rank`. Default: 16.
        dropout (float, optional): the share of the adapter's inputs that is dropped while training. Default: 0.

    Raises:
        TypeError: `base` is another layer.
        ValueError: `rank` is not positive, `alpha` not finite, or `dropout` not from 0 to 1.

    Example:
        >>> layer = lucid.llm.LoRALinear(lucid.nn.Linear(4, 2), rank=2, alpha=4)
        >>> layer(lucid.ones(3, 4)).shape
        lucid.Size([3, 2])
    """

    def __init__(self, base: nn.Module, rank: int = 8, alpha: float = 16.0, dropout: float = 0.0) -> None:
        super().__init__()
        if not isinstance(base, (nn.Linear, QuantizedLinear)):
            raise errors.TypeError(f"LoRALinear: expected Linear or QuantizedLinear, got {type(base).__name__}")
        if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
            raise errors.ValueError(f"LoRALinear: rank must be a positive integer, got {rank!r}")
        if not math.isfinite(alpha) or not 0 <= dropout < 1:
            raise errors.ValueError(f"LoRALinear: alpha must be finite and dropout from 0 to 1, got {alpha}, {dropout}")
        self.base = base
        for parameter in base.parameters():
            parameter.requires_grad_(False)
        self.rank, self.alpha, self.dropout = rank, alpha, dropout
        like = base.scales if isinstance(base, QuantizedLinear) else base.weight
        to: dict[str, Any] = {"device": like.device, "dtype": like.dtype}
        self.lora_A = Parameter(lucid.empty(rank, base.in_features, **to))
        self.lora_B = Parameter(lucid.zeros(base.out_features, rank, **to))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    @property
    def scaling(self) -> float:
        """`alpha / rank`."""
        return self.alpha / self.rank

    def forward(self, x: Tensor) -> Tensor:
        thin = F.dropout(x, self.dropout, self.training) if self.dropout else x
        y: Tensor = self.base(x)
        return y + F.linear(F.linear(thin, self.lora_A), self.lora_B) * self.scaling

    @lucid.no_grad()
    def merged(self, requantize: bool = False) -> nn.Module:
        """A layer of the base's kind with the adapter in its weight; a quantised one becomes dense, unless
        `requantize`."""
        base = self.base
        delta = (self.lora_B @ self.lora_A) * self.scaling
        if isinstance(base, QuantizedLinear):
            weight = base.dequantize() + delta
            if requantize:
                made: nn.Module = QuantizedLinear(
                    base.in_features, base.out_features, False, base.group_size, base.bits, weight.device, weight.dtype
                )
                made.set_weight(weight)
                made.bias = base.bias
                return made
        else:
            weight = base.weight + delta.to(base.weight.dtype)
        dense = nn.Linear(base.in_features, base.out_features, False, device=weight.device, dtype=weight.dtype)
        dense.weight = Parameter(weight.detach(), requires_grad=False)
        dense.bias = base.bias
        return dense

    def extra_repr(self) -> str:
        return f"rank={self.rank}, alpha={self.alpha}, dropout={self.dropout}"


def _replace(model: nn.Module, path: str, made: nn.Module) -> None:
    lead, _, last = path.rpartition(".")
    setattr(model.get_submodule(lead) if lead else model, last, made)


def adapters(model: nn.Module) -> dict[str, LoRALinear]:
    """The layers with adapters, by path."""
    return {path: m for path, m in model.named_modules() if isinstance(m, LoRALinear)}


def add_lora(
    model: CausalLM,
    rank: int = 8,
    alpha: float = 16.0,
    dropout: float = 0.0,
    targets: Iterable[str] = TARGETS,
) -> CausalLM:
    """Gives layers of a model adapters, in place; nothing else gets gradients any more.

    Args:
        model (CausalLM): with dense or quantised layers.
        rank (int, optional): of each adapter. Default: 8.
        alpha (float, optional): each adapter's weight, times `rank`. Default: 16.
        dropout (float, optional): the share of an adapter's inputs that is dropped while training. Default: 0.
        targets (iterable of str, optional): last parts of the layers' names, such as `"q_proj"`. Default: those of
            attention and MLP.

    Returns:
        CausalLM: `model` itself.

    Raises:
        ValueError: no linear layer has the name of a target, or the model has adapters already.

    Example:
        >>> model = lucid.llm.CausalLM(lucid.llm.Config("llama", 32, 16, 32, 2, 2, 1, 8))
        >>> _ = lucid.llm.add_lora(model, rank=2, targets=["q_proj", "v_proj"])
        >>> len([p for p in model.parameters() if p.requires_grad])  # A and B of 2 layers of 2 blocks
        8
    """
    wanted = set(targets)
    if adapters(model):
        raise errors.ValueError("add_lora: the model has adapters already; merge them first")
    found = {
        path: m
        for path, m in model.named_modules()
        if path.rpartition(".")[2] in wanted and isinstance(m, (nn.Linear, QuantizedLinear))
    }
    missing = wanted - {path.rpartition(".")[2] for path in found}
    if missing or not found:
        raise errors.ValueError(f"add_lora: no linear layer is named {', '.join(sorted(missing)) or 'anything'}")
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for path, module in found.items():
        _replace(model, path, LoRALinear(module, rank, alpha, dropout))
    return model


def merge_lora(model: CausalLM, requantize: bool = False) -> CausalLM:
    """Adds a model's adapters to the weights, in place: `W + alpha / rank · B A`.

    Args:
        model (CausalLM): with adapters.
        requantize (bool, optional): whether quantised layers are rounded again; else they become dense. Default: False.

    Returns:
        CausalLM: `model` itself, without adapters.

    Raises:
        ValueError: the model has no adapters.

    Example:
        >>> model = lucid.llm.CausalLM(lucid.llm.Config("llama", 32, 16, 32, 2, 2, 1, 8))
        >>> merged = lucid.llm.merge_lora(lucid.llm.add_lora(model, rank=2))
        >>> any(isinstance(m, lucid.llm.LoRALinear) for m in merged.modules())
        False
    """
    found = adapters(model)
    if not found:
        raise errors.ValueError("merge_lora: the model has no adapters")
    for path, module in found.items():
        _replace(model, path, module.merged(requantize))
    return model


def save_adapter(model: CausalLM, path: str | os.PathLike[str], base: str = "") -> None:
    """Writes a model's adapters as PEFT's folder: `adapter_config.json` and `adapter_model.safetensors`.

    Args:
        model (CausalLM): with adapters of one rank.
        path (str or os.PathLike): the folder; made where there is none.
        base (str, optional): the name of the model that they belong to. Default: empty.

    Raises:
        ValueError: the model has no adapters, or some of several ranks.

    Example:
        >>> import pathlib, tempfile
        >>> model = lucid.llm.CausalLM(lucid.llm.Config("llama", 32, 16, 32, 2, 2, 1, 8))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     lucid.llm.save_adapter(lucid.llm.add_lora(model, rank=2), folder)
        ...     sorted(file.name for file in pathlib.Path(folder).iterdir())
        ['adapter_config.json', 'adapter_model.safetensors']
    """
    found = adapters(model)
    if not found:
        raise errors.ValueError("save_adapter: the model has no adapters")
    kinds = {(m.rank, m.alpha, m.dropout) for m in found.values()}
    if len(kinds) > 1:
        raise errors.ValueError("save_adapter: the adapters have several ranks")
    ((rank, alpha, dropout),) = kinds
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, module in found.items():
        tensors[f"{_PREFIX}{name}.lora_A.weight"] = module.lora_A.detach()
        tensors[f"{_PREFIX}{name}.lora_B.weight"] = module.lora_B.detach()
    save_safetensors(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": dropout,
        "target_modules": sorted({name.rpartition(".")[2] for name in found}),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "use_rslora": False,
        "use_dora": False,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2))


def load_adapter(model: CausalLM, path: str | os.PathLike[str]) -> CausalLM:
    """Gives a model the adapters of a folder that PEFT or `save_adapter` wrote, in place.

    Args:
        model (CausalLM): the model that they belong to, without adapters.
        path (str or os.PathLike): the folder.

    Returns:
        CausalLM: `model` itself.

    Raises:
        FileNotFoundError: a file is missing.
        FileError: a file is damaged.
        NotImplementedError: the adapters are of another kind than plain LoRA.
        ValueError: they do not fit the model, or it has adapters already.

    Example:
        >>> import tempfile
        >>> config = lucid.llm.Config("llama", 32, 16, 32, 2, 2, 1, 8)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     lucid.llm.save_adapter(lucid.llm.add_lora(lucid.llm.CausalLM(config), rank=2), folder)
        ...     model = lucid.llm.load_adapter(lucid.llm.CausalLM(config), folder)
        >>> next(m.rank for m in model.modules() if isinstance(m, lucid.llm.LoRALinear))
        2
    """
    folder = Path(path)
    config = read_json(folder / "adapter_config.json")
    unlike = [n for n in ("use_dora", "fan_in_fan_out", "rank_pattern", "alpha_pattern") if config.get(n)]
    if config.get("peft_type") != "LORA" or unlike or config.get("bias", "none") != "none":
        what = unlike or config.get("peft_type")
        raise errors.NotImplementedError(f"{folder}: adapters of the kind {what} are not read; plain LoRA is")
    rank, alpha = config.get("r"), config.get("lora_alpha", 8)
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1 or not isinstance(alpha, (int, float)):
        raise errors.ValueError(f"{folder}: r and lora_alpha must be positive numbers, got {rank!r} and {alpha!r}")
    if config.get("use_rslora"):
        alpha = alpha * math.sqrt(rank)
    if adapters(model):
        raise errors.ValueError("load_adapter: the model has adapters already; merge them first")
    file = _File("load", str(folder / "adapter_model.safetensors"), "cpu", True)
    try:
        parts: dict[str, dict[str, Tensor]] = {}
        for name in file.entries:
            lead, _, last = name.removesuffix(".weight").removesuffix(".default").rpartition(".")
            if last not in ("lora_A", "lora_B"):
                raise errors.ValueError(f"{folder}: {name} is no part of a LoRA adapter")
            parts.setdefault(lead.removeprefix(_PREFIX), {})[last] = file.tensor(name).clone()
    finally:
        file.close()
    layers = dict(model.named_modules())
    made: dict[str, LoRALinear] = {}
    for where, pair in parts.items():
        base = layers.get(where)
        if len(pair) != 2 or not isinstance(base, (nn.Linear, QuantizedLinear)):
            raise errors.ValueError(
                f"{folder}: the model has no linear layer {where!r}, or half of its adapter is missing"
            )
        module = LoRALinear(base, rank, float(alpha), float(config.get("lora_dropout") or 0.0))
        for name, tensor in pair.items():
            own = getattr(module, name)
            if tuple(tensor.shape) != tuple(own.shape):
                raise errors.ValueError(
                    f"{folder}: {where}.{name} has shape {tuple(tensor.shape)}, expected {tuple(own.shape)}"
                )
            own.data = tensor.to(own.dtype).to(own.device)
        made[where] = module
    if not made:
        raise errors.ValueError(f"{folder}: there are no adapters")
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for where, module in made.items():
        _replace(model, where, module)
    return model.eval()
