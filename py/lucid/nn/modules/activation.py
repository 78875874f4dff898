"""Element-wise activations, softmax, and attention."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.nn import functional as F
from lucid.nn import init
from lucid.nn.modules.activation_piecewise import Hardshrink, Hardtanh, ReLU6, Softshrink, Threshold

# Annotations of MultiheadAttention are looked up where it says that it is.
from lucid.nn.modules.linear import NonDynamicallyQuantizableLinear as NonDynamicallyQuantizableLinear
from lucid.nn.modules.module import Module
from lucid.nn.modules.multihead import MultiheadAttention
from lucid.nn.parameter import Parameter

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "SELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "MultiheadAttention",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmax2d",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]


class _InPlace(Module):
    """An activation whose one option is whether to write over the input."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class ReLU(_InPlace):
    """`max(x, 0)`. `inplace` writes over the input.

    Args:
        inplace (bool, default: False): writes the result over the input.

    Example:
        >>> from lucid import nn
        >>> nn.ReLU()(lucid.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, self.inplace)


class SiLU(_InPlace):
    """`x · sigmoid(x)`. `inplace` writes over the input.

    Args:
        inplace (bool, default: False): writes the result over the input.

    Example:
        >>> from lucid import nn
        >>> nn.SiLU()(lucid.tensor([-1.0, 2.0]))
        tensor([-0.2689,  1.7616])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input, self.inplace)


class GELU(Module):
    """`x Φ(x)`; `approximate="tanh"` takes the usual approximation. Default: "none".

    Args:
        approximate (str, default: "none"): "none", or "tanh" for `x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))`.

    Example:
        >>> from lucid import nn
        >>> nn.GELU()(lucid.tensor([-1.0, 2.0]))
        tensor([-0.1587,  1.9545])
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Tanh(Module):
    """`tanh(x)`."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return F.tanh(input)


class Sigmoid(Module):
    """`1 / (1 + exp(-x))`."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return F.sigmoid(input)


class LeakyReLU(Module):
    """`x` above 0, `negative_slope · x` below. Default slope: 0.01. `inplace` writes over the input.

    Args:
        negative_slope (float, default: 0.01): the slope below 0.
        inplace (bool, default: False): writes the result over the input.

    Example:
        >>> from lucid import nn
        >>> nn.LeakyReLU()(lucid.tensor([-1.0, 2.0]))
        tensor([-0.0100,  2.0000])
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}{', inplace=True' if self.inplace else ''}"


class _Exponential(Module):
    """An activation that goes to `-alpha`."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}{', inplace=True' if self.inplace else ''}"


class ELU(_Exponential):
    """`x` above 0, `alpha · (exp(x) - 1)` below. Default alpha: 1. `inplace` writes over the input.

    Args:
        alpha (float, default: 1.0): the limit far below 0, negated.
        inplace (bool, default: False): writes the result over the input.

    Example:
        >>> from lucid import nn
        >>> nn.ELU()(lucid.tensor([-1.0, 2.0]))
        tensor([-0.6321,  2.0000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.elu(input, self.alpha, self.inplace)


class Softplus(Module):
    """`log(1 + exp(beta x)) / beta`; `x` itself where `beta x > threshold`. Defaults: beta 1, threshold 20.

    Args:
        beta (float, default: 1.0): the sharpness at 0.
        threshold (float, default: 20.0): above it the result is `x` itself.

    Example:
        >>> from lucid import nn
        >>> nn.Softplus()(lucid.tensor([-1.0, 2.0]))
        tensor([0.3133, 2.1269])
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


def _refuse_dim(dim: Any) -> None:
    if dim is not None and (not isinstance(dim, int) or isinstance(dim, bool)):
        raise errors.TypeError(f"dim must be an int or None, got {type(dim)}")


class _AlongDim(Module):
    """A softmax along `dim`."""

    def __init__(self, dim: int | None = None) -> None:
        _refuse_dim(dim)
        super().__init__()
        self.dim = dim

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("dim", None)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_AlongDim):
    """`exp(x) / sum(exp(x))` along `dim`.

    Args:
        dim (int, optional): the dimension along which the result sums to 1.

    Example:
        >>> from lucid import nn
        >>> nn.Softmax(dim=0)(lucid.tensor([0.0, 1.0]))
        tensor([0.2689, 0.7311])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim, _stacklevel=5)


class LogSoftmax(_AlongDim):
    """`log(softmax(x))` along `dim`, without overflow.

    Args:
        dim (int, optional): the dimension along which the exponentials of the result sum to 1.

    Example:
        >>> from lucid import nn
        >>> nn.LogSoftmax(dim=0)(lucid.tensor([0.0, 1.0]))
        tensor([-1.3133, -0.3133])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim, _stacklevel=5)


class SELU(_InPlace):
    """`scale · (max(x, 0) + min(0, alpha · (exp(x) - 1)))` with selu's constants. `inplace` writes over the input.

    Args:
        inplace (bool, default: False): writes the result over the input.

    Example:
        >>> from lucid import nn
        >>> nn.SELU()(lucid.tensor([-1.0, 2.0]))
        tensor([-1.1113,  2.1014])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.selu(input, self.inplace)


class Mish(_InPlace):
    """`x · tanh(softplus(x))`. `inplace` writes over the input.

    Args:
        inplace (bool, default: False): writes the result over the input.

    Example:
        >>> from lucid import nn
        >>> nn.Mish()(lucid.tensor([-1.0, 2.0]))
        tensor([-0.3034,  1.9440])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.mish(input, self.inplace)


class Hardswish(_InPlace):
    """`x · relu6(x + 3) / 6`. `inplace` writes over the input.

    Args:
        inplace (bool, default: False): writes the result over the input.

    Example:
        >>> from lucid import nn
        >>> nn.Hardswish()(lucid.tensor([-1.0, 2.0]))
        tensor([-0.3333,  1.6667])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.hardswish(input, self.inplace)

    def extra_repr(self) -> str:
        return ""


class Hardsigmoid(_InPlace):
    """`relu6(x + 3) / 6`. `inplace` writes over the input.

    Args:
        inplace (bool, default: False): writes the result over the input.

    Example:
        >>> from lucid import nn
        >>> nn.Hardsigmoid()(lucid.tensor([-1.0, 2.0]))
        tensor([0.3333, 0.8333])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.hardsigmoid(input, self.inplace)

    def extra_repr(self) -> str:
        return ""


class CELU(_Exponential):
    """`max(x, 0) + min(0, alpha · (exp(x / alpha) - 1))`. Default alpha: 1. `inplace` writes over the input.

    Args:
        alpha (float, default: 1.0): the scale of the exponential, not 0.
        inplace (bool, default: False): writes the result over the input.

    Example:
        >>> from lucid import nn
        >>> nn.CELU()(lucid.tensor([-1.0, 2.0]))
        tensor([-0.6321,  2.0000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.celu(input, self.alpha, self.inplace)


class LogSigmoid(Module):
    """`log(1 / (1 + exp(-x)))`, without overflow."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return F.logsigmoid(input)


class Softsign(Module):
    """`x / (1 + |x|)`."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return F.softsign(input)


class Tanhshrink(Module):
    """`x - tanh(x)`."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return F.tanhshrink(input)


class PReLU(Module):
    """`x` above 0, `weight · x` below, with a learned weight for all channels or one each (He et al., 2015).

    Args:
        num_parameters (int, default: 1): 1, or the number of channels.
        init (float, default: 0.25): The first weight.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Example:
        >>> from lucid import nn
        >>> nn.PReLU()(lucid.tensor([-1.0, 2.0])).tolist()
        [-0.25, 2.0]
    """

    weight: Parameter

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(lucid.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the weight to its first value."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class RReLU(Module):
    """`x` above 0, `a x` below; `a` is random from `lower` (1/8) to `upper` (1/3) in training, else their mean.

    Args:
        lower (float, default: 0.125): the smallest slope below 0.
        upper (float, default: 0.3333333333333333): the largest slope below 0.
        inplace (bool, default: False): writes the result over the input.

    Example:
        >>> from lucid import nn
        >>> nn.RReLU().eval()(lucid.tensor([-1.0, 2.0]))
        tensor([-0.2292,  2.0000])
    """

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}{', inplace=True' if self.inplace else ''}"


class GLU(Module):
    """The first half along `dim` (default: -1) times the sigmoid of the second.

    Args:
        dim (int, default: -1): the dimension that is halved.

    Example:
        >>> from lucid import nn
        >>> nn.GLU()(lucid.tensor([1.0, 2.0, 0.0, 0.0]))
        tensor([0.5000, 1.0000])
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmin(_AlongDim):
    """`softmax(-x)` along `dim`.

    Args:
        dim (int, optional): the dimension along which the result sums to 1.

    Example:
        >>> from lucid import nn
        >>> nn.Softmin(dim=0)(lucid.tensor([0.0, 1.0]))
        tensor([0.7311, 0.2689])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.dim, _stacklevel=5)


class Softmax2d(Module):
    """`softmax` over the channels of (N, C, H, W) or (C, H, W)."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (3, 4):
            raise errors.ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return F.softmax(input, -3, _stacklevel=5)
