"""Layers over arrays: small models whose parameters are arrays and whose gradients are asked for by `backward`.

A layer takes and gives what the ops do: an array for an array, a tensor for a tensor. Its arithmetic is the engine's;
`backward` differentiates the layer's own forward.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from lucid import _C, errors
from lucid._grad_mode import enable_grad, no_grad
from lucid.lightning import _arrays
from lucid.lightning._arrays import given, number, sizes

__all__ = ["GELU", "SGD", "Conv2d", "Embedding", "LayerNorm", "Linear", "Parameter", "ReLU", "Sequential"]

Tensor = _C.Tensor


class Parameter:
    """A layer's parameter: `data`, a NumPy array that may be written to in place, and `grad`, an array or None.

    Args:
        tensor (Tensor): the values, of any shape; made contiguous where they are not.

    Example:
        >>> import lucid.lightning as lc
        >>> weight = lc.Linear(2, 3).weight
        >>> weight.shape, weight.grad
        ((2, 3), None)
        >>> weight.data[:] = 0.0
    """

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor.contiguous()
        self.grad: Any = None

    @property
    def data(self) -> Any:
        """The values, as an array that shows their memory."""
        return self._tensor.numpy()

    @data.setter
    def data(self, values: Any) -> None:
        operand = given("Parameter.data", "values", values)
        self._tensor.copy_(_arrays.shaped("Parameter.data", "values", operand, tuple(self._tensor.shape)))

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""
        return tuple(self._tensor.shape)

    def __repr__(self) -> str:
        return f"Parameter(shape={self.shape})"


def _uniform(shape: tuple[int, ...], bound: float) -> Parameter:
    return Parameter((_C.rand(*shape) * 2 - 1) * bound)


class Layer:
    """The base of layers: calls `_forward` on the engine's tensors, and differentiates it for `backward`."""

    _input: Tensor | None = None

    def parameters(self) -> list[Parameter]:
        """The parameters, in order."""
        return [p for p in vars(self).values() if isinstance(p, Parameter)]

    def _forward(self, x: Tensor, parameters: list[Tensor]) -> Tensor:
        raise NotImplementedError

    def _operand(self, x: Any) -> tuple[Tensor, str]:
        operand = given(f"{type(self).__name__}()", "x", x)
        return operand.tensor, operand.kind

    def _run(self, x: Tensor) -> Tensor:
        self._input = x
        with no_grad():
            return self._forward(x, [p._tensor if x.is_cpu else p._tensor.to(x.device) for p in self.parameters()])

    def __call__(self, x: Any) -> Any:
        """The layer's result for `x`, of its kind."""
        tensor, kind = self._operand(x)
        return _arrays.result(kind, self._run(tensor))

    def _back(self, grad: Tensor) -> Tensor | None:
        """Adds to the parameters' gradients; gives the input's."""
        x = self._input
        if x is None:
            raise errors.RuntimeError(f"{type(self).__name__}.backward(): call the layer first")
        parameters = self.parameters()
        with enable_grad():
            leaf = x.detach().requires_grad_(True) if x.is_floating_point() else x
            leaves = [p._tensor.to(x.device).detach().requires_grad_(True) for p in parameters]
            y = self._forward(leaf, leaves)
            if y.shape != grad.shape:
                raise errors.ShapeMismatch(
                    f"{type(self).__name__}.backward(): the gradient must have the result's shape {tuple(y.shape)}, "
                    f"got {tuple(grad.shape)}"
                )
            y.backward(grad.to(x.device))
        for parameter, tensor in zip(parameters, leaves, strict=True):
            if tensor.grad is not None:
                fresh = tensor.grad.cpu().contiguous().numpy()
                parameter.grad = fresh.copy() if parameter.grad is None else parameter.grad + fresh
        return leaf.grad if x.is_floating_point() else None

    def backward(self, grad: Any) -> Any:
        """Adds the gradients of the last call's parameters, given the gradient of its result.

        Returns:
            The gradient of the input, of `grad`'s kind; `None` where the input is no floating-point tensor.
        """
        operand = given(f"{type(self).__name__}.backward()", "grad", grad)
        back = self._back(operand.tensor)
        return None if back is None else _arrays.result(operand.kind, back)


class Linear(Layer):
    """A layer: `x @ weight + bias`, with `weight` of shape `(in_features, out_features)`.

    Args:
        in_features (int): the input's last size.
        out_features (int): the result's last size.
        bias (bool, optional): whether a bias of shape `(out_features,)` is added. Default: True.

    Example:
        >>> import lucid.lightning as lc
        >>> layer = lc.Linear(2, 1)
        >>> layer.weight.data[:], layer.bias.data[:] = [[1.0], [2.0]], [0.5]
        >>> layer([[1.0, 1.0]])
        [[3.5]]
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        inner, outer = sizes("Linear()", in_features=in_features, out_features=out_features)
        bound = 1 / math.sqrt(inner)
        self.weight = _uniform((inner, outer), bound)
        if bias:
            self.bias = _uniform((outer,), bound)

    def _forward(self, x: Tensor, parameters: list[Tensor]) -> Tensor:
        if x.shape[-1] != parameters[0].shape[0]:
            raise errors.ShapeMismatch(
                f"Linear(): the last size must be {parameters[0].shape[0]}, got shape {tuple(x.shape)}"
            )
        y = _C.matmul(x, parameters[0])
        return y if len(parameters) == 1 else (y + parameters[1] if y.requires_grad else y.add_(parameters[1]))


class ReLU(Layer):
    """`max(x, 0)`."""

    def _forward(self, x: Tensor, parameters: list[Tensor]) -> Tensor:
        return x.relu()


class GELU(Layer):
    """A layer: `x Φ(x)`, with Φ the normal distribution's cumulative function.

    Args:
        approximate (str, optional): `"none"`, or `"tanh"` for the approximation by tanh. Default: `"none"`.

    Raises:
        ValueError: `approximate` is neither.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.GELU()([0.0])
        [0.0]
    """

    def __init__(self, approximate: str = "none") -> None:
        if approximate not in ("none", "tanh"):
            raise errors.ValueError(f'GELU(): approximate must be "none" or "tanh", got {approximate!r}')
        self.approximate = approximate

    def _forward(self, x: Tensor, parameters: list[Tensor]) -> Tensor:
        return _C.gelu(x, approximate=self.approximate)


class LayerNorm(Layer):
    """A layer: `weight * (x - mean) / sqrt(var + eps) + bias` over the last dimension.

    Args:
        features (int): the last dimension's size.
        eps (float, optional): added to the variance. Default: 1e-5.

    Example:
        >>> import lucid.lightning as lc
        >>> [round(v, 3) for v in lc.LayerNorm(2)([1.0, 3.0])]
        [-1.0, 1.0]
    """

    def __init__(self, features: int, eps: float = 1e-5) -> None:
        (size,) = sizes("LayerNorm()", features=features)
        self.eps = number("LayerNorm()", "eps", eps, least=0.0)
        self.weight = Parameter(_C.ones(size))
        self.bias = Parameter(_C.zeros(size))

    def _forward(self, x: Tensor, parameters: list[Tensor]) -> Tensor:
        return _C.layer_norm(x, tuple(parameters[0].shape), parameters[0], parameters[1], self.eps)


class Embedding(Layer):
    """A layer: rows of `weight`, of shape `(count, features)`, by integer indices.

    Args:
        count (int): how many rows there are.
        features (int): the size of a row.

    Example:
        >>> import lucid.lightning as lc
        >>> layer = lc.Embedding(3, 2)
        >>> layer.weight.data[:] = [[0, 0], [1, 1], [2, 2]]
        >>> layer([2, 1])
        [[2.0, 2.0], [1.0, 1.0]]
    """

    def __init__(self, count: int, features: int) -> None:
        shape = sizes("Embedding()", count=count, features=features)
        self.weight = Parameter(_C.randn(*shape))

    def _operand(self, x: Any) -> tuple[Tensor, str]:
        ndarray = _arrays._ndarray()
        if isinstance(x, Tensor):
            tensor, kind = x, "tensor"
        elif ndarray is not None and isinstance(x, ndarray):
            from lucid._convert import from_numpy

            tensor, kind = from_numpy(x.copy()), "numpy"
        else:
            tensor, kind = _C.tensor(x), "list"
        if tensor.is_floating_point() or tensor.dtype is _C.bool:
            raise errors.DtypeMismatch(f"Embedding(): indices must be integers, got {tensor.dtype}")
        return tensor.long(), kind

    def _forward(self, x: Tensor, parameters: list[Tensor]) -> Tensor:
        return _C.embedding(x, parameters[0])


class Conv2d(Layer):
    """A layer: a convolution of images (n, c, h, w), with `weight` of shape `(out_channels, in_channels, k, k)`.

    Args:
        in_channels (int): the input's channels.
        out_channels (int): the result's channels.
        kernel_size (int): rows and columns of a kernel.
        stride (int, optional): rows and columns between windows. Default: 1.
        padding (int, optional): rows and columns of zeros on each side. Default: 0.
        bias (bool, optional): whether a bias of shape `(out_channels,)` is added. Default: True.

    Example:
        >>> import lucid.lightning as lc
        >>> layer = lc.Conv2d(1, 1, 1, bias=False)
        >>> layer.weight.data[:] = 3.0
        >>> layer([[[[1.0, 2.0]]]])
        [[[[3.0, 6.0]]]]
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        bias: bool = True,
    ) -> None:
        inner, outer, k, step = sizes(
            "Conv2d()", in_channels=in_channels, out_channels=out_channels, kernel_size=kernel_size, stride=stride
        )
        bound = 1 / math.sqrt(inner * k * k)
        self.stride, self.padding = step, padding
        self.weight = _uniform((outer, inner, k, k), bound)
        if bias:
            self.bias = _uniform((outer,), bound)

    def _forward(self, x: Tensor, parameters: list[Tensor]) -> Tensor:
        bias = parameters[1] if len(parameters) > 1 else None
        return _C.conv2d(x, parameters[0], bias, (self.stride, self.stride), (self.padding, self.padding))


class Sequential(Layer):
    """Layers one after the other, in `layers`.

    Args:
        layers (Layer): the layers, the first to compute first.

    Raises:
        TypeError: one is no layer.

    Example:
        >>> import lucid.lightning as lc
        >>> model = lc.Sequential(lc.Linear(3, 4), lc.ReLU(), lc.Linear(4, 2))
        >>> len(model([[1.0, 2.0, 3.0]])[0])
        2
    """

    def __init__(self, *layers: Layer) -> None:
        for layer in layers:
            if not isinstance(layer, Layer):
                raise errors.TypeError(f"Sequential(): expected layers, got {type(layer).__name__}")
        self.layers = list(layers)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    def parameters(self) -> list[Parameter]:
        return [parameter for layer in self.layers for parameter in layer.parameters()]

    def _operand(self, x: Any) -> tuple[Tensor, str]:
        return self.layers[0]._operand(x) if self.layers else super()._operand(x)

    def _run(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer._run(x)
        return x

    def _back(self, grad: Tensor) -> Tensor | None:
        back: Tensor | None = grad
        for layer in reversed(self.layers):
            if back is None:
                raise errors.RuntimeError("Sequential.backward(): a layer of integers is not the first")
            back = layer._back(back)
        return back


class SGD:
    """Gradient descent: `parameter -= lr * grad`.

    Args:
        parameters (iterable of Parameter): what `layer.parameters()` gives.
        lr (float, optional): the learning rate, from 0 on. Default: 0.001.

    Raises:
        TypeError: one is no parameter of a layer.

    Example:
        >>> import lucid.lightning as lc
        >>> layer = lc.Linear(1, 1, bias=False)
        >>> layer.weight.data[:] = 1.0
        >>> _ = layer([[2.0]])
        >>> _ = layer.backward([[1.0]])
        >>> lc.SGD(layer.parameters(), lr=0.25).step()
        >>> layer.weight.data
        array([[0.5]], dtype=float32)
    """

    def __init__(self, parameters: Iterable[Parameter], lr: float = 1e-3) -> None:
        self.parameters = list(parameters)
        self.lr = number("SGD()", "lr", lr, least=0.0)
        for parameter in self.parameters:
            if not isinstance(parameter, Parameter):
                raise errors.TypeError(f"SGD(): expected parameters of layers, got {type(parameter).__name__}")

    def zero_grad(self) -> None:
        """Forgets the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def step(self) -> None:
        """Updates the parameters that have gradients."""
        for parameter in self.parameters:
            if parameter.grad is not None:
                gradient = given("SGD.step()", "grad", parameter.grad).tensor
                parameter._tensor.sub_(gradient, alpha=self.lr)
