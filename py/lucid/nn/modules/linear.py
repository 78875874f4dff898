"""Linear maps."""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.nn import functional as F
from lucid.nn import init
from lucid.nn.modules.lazy import LazyModuleMixin, blank_parameter
from lucid.nn.modules.module import Module, weight_and_bias
from lucid.nn.parameter import Parameter

__all__ = ["Bilinear", "FusedLinear", "Identity", "LazyLinear", "Linear", "NonDynamicallyQuantizableLinear"]


class Identity(Module):
    """Gives back its input.

    Args:
        args (object): ignored, so that it can stand for any module.
        kwargs (object): ignored likewise.

    Example:
        >>> lucid.nn.Identity(54, unused=True)(lucid.ones(2))
        tensor([1., 1.])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Linear(Module):
    """`x @ weight.T + bias`: (…, in_features) to (…, out_features).

    `weight` (out_features, in_features) and `bias` (out_features) start uniform within ±1/sqrt(in_features).

    Args:
        in_features (int): Size of each input row.
        out_features (int): Size of each output row.
        bias (bool, default: True): Whether to add a learned bias.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Example:
        >>> from lucid import nn
        >>> nn.Linear(3, 2)(lucid.zeros(5, 3)).shape
        lucid.Size([5, 2])
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(lucid.empty((out_features, in_features), device=device, dtype=dtype))
        self.register_parameter(
            "bias", Parameter(lucid.empty(out_features, device=device, dtype=dtype)) if bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new parameters."""
        # For a kernel (out, in) this is uniform within ±1/sqrt(in), as the bias.
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, *weight_and_bias(self))

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class NonDynamicallyQuantizableLinear(Linear):
    """`Linear` under the name that PyTorch's attention shows for its output projection.

    Args:
        in_features (int): the size of each input row.
        out_features (int): the size of each output row.
        bias (bool, default: True): learns an additive bias.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Example:
        >>> from lucid import nn
        >>> nn.modules.linear.NonDynamicallyQuantizableLinear(3, 2)(lucid.zeros(5, 3)).shape
        lucid.Size([5, 2])
    """


class FusedLinear(Linear):
    """`Linear` followed by an activation, "relu" or "gelu", in one call. Not in PyTorch.

    On the GPU device MLX's lazy graph fuses the bias and the activation.

    Args:
        in_features (int): the size of each input row.
        out_features (int): the size of each output row.
        bias (bool, default: True): learns an additive bias.
        activation (str, default: "relu"): "relu" or "gelu".
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Raises:
        ValueError: another activation.

    Example:
        >>> from lucid import nn
        >>> nn.FusedLinear(3, 2)(lucid.zeros(5, 3)).shape
        lucid.Size([5, 2])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        activation: str = "relu",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if activation not in ("relu", "gelu"):
            raise errors.ValueError(f"activation should be relu/gelu, not {activation}")
        super().__init__(in_features, out_features, bias, device, dtype)
        self.activation = activation

    def forward(self, input: Tensor) -> Tensor:
        call = F.fused_linear_relu if self.activation == "relu" else F.fused_linear_gelu
        return call(input, *weight_and_bias(self))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, activation={self.activation!r}"


class Bilinear(Module):
    """`x1 A x2 + b` for two inputs: (…, in1_features) and (…, in2_features) to (…, out_features).

    `weight` (out, in1, in2) and `bias` (out) start uniform within ±1/sqrt(in1_features).

    Args:
        in1_features (int): Size of each row of the first input.
        in2_features (int): Size of each row of the second input.
        out_features (int): Size of each output row.
        bias (bool, default: True): Whether to add a learned bias.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Raises:
        ValueError: `in1_features` is not positive.

    Example:
        >>> from lucid import nn
        >>> nn.Bilinear(3, 4, 5)(lucid.zeros(2, 3), lucid.zeros(2, 4)).shape
        lucid.Size([2, 5])
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            raise errors.ValueError(f"in1_features must be > 0, but got {in1_features}")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight = Parameter(lucid.empty((out_features, in1_features, in2_features), device=device, dtype=dtype))
        self.register_parameter(
            "bias", Parameter(lucid.empty(out_features, device=device, dtype=dtype)) if bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new parameters."""
        bound = 1 / math.sqrt(self.weight.size(1))
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )


class LazyLinear(LazyModuleMixin, Linear):
    """`Linear` whose `in_features` is the last size of the first input.

    Args:
        out_features (int): the size of each output row.
        bias (bool, default: True): learns an additive bias.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Example:
        >>> from lucid import nn
        >>> nn.LazyLinear(2)(lucid.zeros(5, 3)).shape
        lucid.Size([5, 2])
    """

    cls_to_become = Linear

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        # Zero sizes: nothing to draw before they are known.
        super().__init__(0, 0, False)
        self.weight = blank_parameter(device, dtype)
        self.out_features = out_features
        if bias:
            self.bias = blank_parameter(device, dtype)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Takes `in_features` from the input, and draws parameters."""
        if not self.has_uninitialized_params():
            return
        self.in_features = input.shape[-1]
        with lucid.no_grad():
            self.weight.materialize((self.out_features, self.in_features))  # type: ignore[attr-defined]
            if self.bias is not None:
                self.bias.materialize((self.out_features,))  # type: ignore[attr-defined]
            self.reset_parameters()
