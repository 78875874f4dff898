"""The parts of `torch.ao.quantization` that have a meaning in floating point: stubs and the fusion of layers.

There are no quantized tensors: what prepares, calibrates and converts a model raises `NotImplementedError`.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from lucid import errors, nn
from lucid._absent import QUANTIZED, teller
from lucid.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

__all__ = ["DeQuantStub", "QuantStub", "QuantWrapper", "fuse_modules"]


class QuantStub(nn.Module):
    """Where a model's input would be quantized: gives it as it is.

    Args:
        qconfig (object, optional): kept as an attribute, without effect.

    Example:
        >>> lucid.ao.quantization.QuantStub()(lucid.ones(1))
        tensor([1.])
    """

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Any) -> Any:
        """`x`."""
        return x


class DeQuantStub(QuantStub):
    """Where a model's output would be floating point again: gives it as it is.

    Args:
        qconfig (object, optional): kept as an attribute, without effect.

    Example:
        >>> lucid.ao.quantization.DeQuantStub()(lucid.ones(1))
        tensor([1.])
    """


class QuantWrapper(nn.Module):
    """A module between a `QuantStub` and a `DeQuantStub`.

    Args:
        module (Module): the module that runs.

    Example:
        >>> from lucid import nn
        >>> lucid.ao.quantization.QuantWrapper(nn.ReLU())(lucid.ones(1))
        tensor([1.])
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.quant, self.dequant, self.module = QuantStub(), DeQuantStub(), module
        self.train(module.training)

    def forward(self, x: Any) -> Any:
        """What the module makes of `x`."""
        return self.dequant(self.module(self.quant(x)))


def _fused(layers: list[nn.Module]) -> nn.Module:
    if any(layer.training for layer in layers):
        raise errors.RuntimeError("fuse_modules: layers are fused in evaluation; call model.eval() first")
    first, rest = layers[0], layers[1:]
    if rest and type(rest[0]).__name__ in ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d"):
        norm: Any = rest[0]
        if isinstance(first, nn.Linear):
            first, rest = fuse_linear_bn_eval(first, norm), rest[1:]
        elif type(first).__name__ in ("Conv1d", "Conv2d", "Conv3d"):
            conv: Any = first
            first, rest = fuse_conv_bn_eval(conv, norm), rest[1:]
    if [type(layer).__name__ for layer in rest] not in ([], ["ReLU"]):
        kinds = tuple(type(layer).__name__ for layer in layers)
        raise errors.NotImplementedError(f"fuse_modules: cannot fuse modules: {kinds}")
    return nn.Sequential(first, *rest) if rest else first


def fuse_modules(
    model: nn.Module,
    modules_to_fuse: list[Any],
    inplace: bool = False,
    fuser_func: Any = None,
    fuse_custom_config_dict: Any = None,
) -> nn.Module:
    """Puts one layer in the place of a convolution or linear layer, its batch norm and its ReLU, in evaluation.

    Args:
        model (nn.Module): the model with the layers, in evaluation mode.
        modules_to_fuse (list[Any]): names of layers that follow one another, or a list of such lists.
        inplace (bool, default: False): whether to change `model` itself.
        fuser_func (object, optional): not there; `None`.
        fuse_custom_config_dict (object, optional): not there; `None`.

    Returns:
        The model. The first layer is the fused one, the others are `nn.Identity`.

    Raises:
        RuntimeError: a layer is in training.
        NotImplementedError: layers of other kinds.

    Example:
        >>> from lucid import nn
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU()).eval()
        >>> lucid.ao.quantization.fuse_modules(model, [["0", "1"]])(lucid.ones(1, 2)).shape
        lucid.Size([1, 2])
    """
    if fuser_func is not None or fuse_custom_config_dict is not None:
        raise errors.NotImplementedError("fuse_modules: fusions of one's own are not there")
    model = model if inplace else copy.deepcopy(model)
    groups = [modules_to_fuse] if all(isinstance(n, str) for n in modules_to_fuse) else modules_to_fuse
    for names in groups:
        made = _fused([model.get_submodule(n) for n in names])
        for i, name in enumerate(names):
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, made if i == 0 else nn.Identity())
    return model


def _absent(name: str) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise errors.NotImplementedError(f"ao.quantization.{name}: {QUANTIZED}")

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Not there: {QUANTIZED}.\n\n    Raises:\n        NotImplementedError: always."
    return call


for _name in (
    *("QConfig", "convert", "default_observer", "default_per_channel_weight_observer", "default_weight_observer"),
    *("fuse_modules_qat", "get_default_qat_qconfig", "get_default_qconfig", "prepare", "prepare_qat", "quantize"),
    "quantize_dynamic",
):
    globals()[_name] = _absent(_name)

if not TYPE_CHECKING:
    __getattr__ = teller(__name__)
