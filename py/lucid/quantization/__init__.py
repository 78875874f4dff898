"""Weight-only quantisation of modules: `quantize` replaces layers by those that keep packed weights.

The format is MLX's group-wise affine one (`lucid.quantize_affine`). Activations stay floats; PyTorch's
`quantize_dynamic`,
which rounds them to int8, is another thing and is not here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid import errors
from lucid.nn.modules.linear import Linear
from lucid.nn.modules.module import Module
from lucid.nn.modules.quantized import BITS, GROUPS, QuantizedEmbedding, QuantizedLinear
from lucid.nn.modules.sparse import Embedding
from lucid.quantization import gptq

__all__ = ["QuantizedEmbedding", "QuantizedLinear", "dequantize", "gptq", "model_bytes", "quantize"]

Predicate = Callable[[str, Module], bool | dict[str, int]]


def quantize(model: Module, bits: int = 4, group_size: int = 64, predicate: Predicate | None = None) -> Module:
    """Replaces linear and embedding layers in a module, in place, by quantised ones.

    Each group of `group_size` neighbouring elements of a row has a scale and a bias: `w ≈ scale · q + bias`, with `q`
    of `bits` bits. Modules with a method `to_quantized(group_size, bits)` are replaced by what it gives. A weight that
    two layers share is quantised for each.

    Args:
        model (Module): changed in place; what is itself a linear or embedding layer is given back replaced.
        bits (int, optional): bits of an element: 2, 3, 4, 5, 6 or 8. Default: 4.
        group_size (int, optional): elements that share a scale and a bias: 32, 64 or 128. Default: 64.
        predicate (callable, optional): called with each layer's path and the layer; a false result leaves it, a dict
            such as `{"bits": 8}` has its own settings. Default: all layers whose rows fall into groups.

    Returns:
        Module: `model`, or what replaces it.

    Raises:
        TypeError: `model` is no module.
        ValueError: the format does not have such sizes, or no layer was replaced.

    Example:
        >>> model = lucid.nn.Sequential(lucid.nn.Linear(64, 64), lucid.nn.ReLU(), lucid.nn.Linear(64, 2))
        >>> lucid.quantization.quantize(model, bits=8)[0]
        QuantizedLinear(in_features=64, out_features=64, bias=True, group_size=64, bits=8)
    """
    if bits not in BITS or group_size not in GROUPS:
        raise errors.ValueError(
            f"quantize: bits must be one of {BITS} and group_size one of {GROUPS}, got {bits} and {group_size}"
        )
    if not isinstance(model, Module):
        raise errors.TypeError(f"quantize: expected a module, got {type(model).__name__}")
    count = 0

    def replaced(path: str, module: Module) -> Module | None:
        own = getattr(module, "to_quantized", None)
        columns: int
        if own is not None:
            columns = module.quantized_columns
        elif type(module) is Linear:
            columns = module.in_features
        elif type(module) is Embedding and module.max_norm is None:
            columns = module.embedding_dim
        else:
            return None
        asked = True if predicate is None else predicate(path, module)
        settings = {"bits": bits, "group_size": group_size, **(asked if isinstance(asked, dict) else {})}
        if asked is False or (predicate is None and columns % settings["group_size"]):
            return None
        if own is not None:
            made: Module = own(settings["group_size"], settings["bits"])
            return made
        if isinstance(module, Linear):
            return QuantizedLinear.from_linear(module, **settings)
        assert isinstance(module, Embedding)
        return QuantizedEmbedding.from_embedding(module, **settings)

    whole = replaced("", model)
    if whole is not None:
        return whole
    for path, parent in list(model.named_modules()):
        for name, child in list(parent.named_children()):
            made = replaced(f"{path}.{name}" if path else name, child)
            if made is not None:
                setattr(parent, name, made)
                count += 1
    if not count:
        raise errors.ValueError(
            f"quantize: no layer was replaced; rows must fall into groups of {group_size}, and the predicate allow it"
        )
    return model


def dequantize(model: Module) -> Module:
    """Replaces quantised layers in a module, in place, by float ones with the rounded weights.

    Args:
        model (Module): with layers of `quantize`; what is itself such a layer is given back replaced.

    Returns:
        Module: `model`, or what replaces it.

    Example:
        >>> model = lucid.nn.Sequential(lucid.nn.Linear(64, 2))
        >>> _ = lucid.quantization.quantize(model, bits=8)
        >>> lucid.quantization.dequantize(model)[0]
        Linear(in_features=64, out_features=2, bias=True)
    """

    def back(module: Module) -> Module | None:
        if isinstance(module, QuantizedLinear):
            weight = module.dequantize()
            made = Linear(module.in_features, module.out_features, False, device=weight.device, dtype=weight.dtype)
            made.weight.data = weight
            made.bias = module.bias
            return made
        if isinstance(module, QuantizedEmbedding):
            weight = module.dequantize()
            return Embedding.from_pretrained(weight, freeze=False)
        return None

    whole = back(model)
    if whole is not None:
        return whole
    for _, parent in list(model.named_modules()):
        for name, child in list(parent.named_children()):
            made = back(child)
            if made is not None:
                setattr(parent, name, made)
    return model


def model_bytes(model: Module) -> int:
    """Counts the bytes of a module's parameters and buffers; what is shared counts once.

    Args:
        model (Module): quantised or not.

    Returns:
        int: the bytes.

    Example:
        >>> lucid.quantization.model_bytes(lucid.nn.Linear(3, 2))
        32
    """
    seen: dict[Any, int] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        seen[id(tensor)] = tensor.numel() * tensor.itemsize
    return sum(seen.values())
