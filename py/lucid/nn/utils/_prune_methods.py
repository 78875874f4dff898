"""Pruning methods: which elements of a parameter go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, ClassVar

import lucid
from lucid import Tensor, errors
from lucid.nn.parameter import Parameter

__all__ = [
    "BasePruningMethod",
    "CustomFromMask",
    "Identity",
    "L1Unstructured",
    "LnStructured",
    "PruningContainer",
    "RandomStructured",
    "RandomUnstructured",
]


def _hooks(module: Any, name: str) -> list[int]:
    """The keys of the hooks that prune a parameter."""
    hooks = module._forward_pre_hooks.items()
    return [key for key, hook in hooks if isinstance(hook, BasePruningMethod) and hook._tensor_name == name]


class BasePruningMethod(ABC):
    """Base of the methods of pruning, and the hook that sets the pruned parameter before each call.

    A subclass defines `compute_mask` and `PRUNING_TYPE`: "unstructured" methods are shown the elements that are still
    kept as one vector, "structured" ones the slices along `dim` that are, and "global" ones the whole tensor.
    """

    PRUNING_TYPE: ClassVar[str]
    _tensor_name: str | None = None

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, str(self._tensor_name), self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask (1 to keep, 0 to prune) for importances `t`, within `default_mask`; all of one shape."""

    def apply_mask(self, module: Any) -> Tensor:
        """The parameter times its mask."""
        if self._tensor_name is None:
            raise AssertionError(f"Module {module} has to be pruned")
        original, mask = (getattr(module, self._tensor_name + end) for end in ("_orig", "_mask"))
        made: Tensor = mask.to(original.dtype) * original
        return made

    @classmethod
    def apply(
        cls, module: Any, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any
    ) -> BasePruningMethod:
        """Prunes the parameter `name` of a module; what follows goes to the class.

        Args:
            importance_scores: What to judge by, in the parameter's shape. Default: the parameter.

        Returns the hook: the method, or a container where the parameter was pruned before. Where the method raises, the
        module stays as it was.
        """
        method: BasePruningMethod = cls(*args, **kwargs)
        method._tensor_name = name
        current = getattr(module, name)
        if importance_scores is None:
            importance_scores = current
        elif importance_scores.shape != current.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as parameter {name} of {module}, got "
                f"{importance_scores.shape} vs {current.shape}"
            )
        keys = _hooks(module, name)
        if len(keys) > 1:
            raise AssertionError(
                f"Avoid adding multiple pruning hooks to the same tensor {name} of module {module}. Use a "
                "PruningContainer."
            )
        hook = method
        before = module._forward_pre_hooks[keys[0]] if keys else None
        if before is not None:
            hook = PruningContainer(*(before if isinstance(before, PruningContainer) else (before,)), method)
        kept = getattr(module, name + "_mask").detach().clone() if keys else lucid.ones_like(current).detach()
        mask = hook.compute_mask(importance_scores.detach(), default_mask=kept)
        if isinstance(before, PruningContainer):
            # All went well: the container that is there takes the method in.
            before.add_pruning_method(method)
            hook = before
        if keys:
            del module._forward_pre_hooks[keys[0]]
        else:
            module.register_parameter(name + "_orig", current)
            del module._parameters[name]
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, hook.apply_mask(module))
        module.register_forward_pre_hook(hook)
        return hook

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """A pruned copy of a tensor, by its own elements or `importance_scores`, within `default_mask`."""
        if importance_scores is None:
            importance_scores = t
        elif importance_scores.shape != t.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as tensor t, got {importance_scores.shape} vs {t.shape}"
            )
        return t * self.compute_mask(
            importance_scores.detach(), default_mask=lucid.ones_like(t) if default_mask is None else default_mask
        )

    def remove(self, module: Any) -> None:
        """Makes the pruned values the parameter for good. The hook itself stays: `prune.remove` takes it away too."""
        if self._tensor_name is None:
            raise AssertionError(f"Module {module} has to be pruned before pruning can be removed")
        name = self._tensor_name
        with lucid.no_grad():
            value = self.apply_mask(module).detach()
        if hasattr(module, name):
            delattr(module, name)
        original: Parameter = module._parameters.pop(name + "_orig")
        original.data = value
        del module._buffers[name + "_mask"]
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Methods that pruned one parameter, in their order. A new mask is that of the last within the one before.

    Args:
        args (BasePruningMethod): the methods, the first to prune first; all of one parameter.

    Raises:
        TypeError: one is no pruning method.
        ValueError: one prunes another parameter.

    Example:
        >>> from lucid.nn.utils import prune
        >>> layer = prune.random_unstructured(lucid.nn.Linear(4, 2), "weight", amount=2)
        >>> layer = prune.l1_unstructured(layer, "weight", amount=1)
        >>> [type(hook).__name__ for hook in layer._forward_pre_hooks.values()]
        ['PruningContainer']
    """

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            # Of several the first names the parameter.
            if self._tensor_name is None and isinstance(method, BasePruningMethod):
                self._tensor_name = method._tensor_name
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """Puts a method behind the others; it must prune the same parameter."""
        if not isinstance(method, BasePruningMethod):
            raise errors.TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if self._tensor_name != method._tensor_name:
            raise errors.ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, index: Any) -> Any:
        return self._pruning_methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        method = self._pruning_methods[-1]
        mask = default_mask.to(t.dtype).clone()
        index: Any
        if method.PRUNING_TYPE == "unstructured":
            index = mask == 1
        elif method.PRUNING_TYPE == "structured":
            if not hasattr(method, "dim"):
                raise AttributeError(f"structured pruning methods must have the attribute 'dim'. Found {method}")
            axis = _axis(t, method.dim)
            used = (mask != 0).any([i for i in range(t.dim()) if i != axis])
            index = (*[slice(None)] * axis, used)
        elif method.PRUNING_TYPE == "global":
            index = (slice(None),) * t.dim()
        else:
            raise errors.ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        mask[index] = method.compute_mask(t[index], default_mask=mask[index]).to(mask.dtype)
        return mask


class Identity(BasePruningMethod):
    """Pruning of nothing."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask

    @classmethod
    def apply(cls, module: Any, name: str) -> BasePruningMethod:  # type: ignore[override]
        """Gives the parameter a mask of ones."""
        return super().apply(module, name)


class CustomFromMask(BasePruningMethod):
    """Pruning of what a mask of zeros and ones leaves out.

    Args:
        mask (Tensor): zeros and ones, of the shape of the parameter.

    Example:
        >>> from lucid import nn
        >>> from lucid.nn.utils import prune
        >>> prune.CustomFromMask.apply(nn.Linear(2, 1), "weight", mask=lucid.tensor([[1, 0]])).mask
        tensor([[1, 0]])
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"mask of shape {tuple(self.mask.shape)} for a parameter of shape {tuple(default_mask.shape)}"
            )
        return default_mask * self.mask.to(default_mask.dtype)

    @classmethod
    def apply(cls, module: Any, name: str, mask: Tensor) -> BasePruningMethod:  # type: ignore[override]
        """Prunes what the mask leaves out."""
        return super().apply(module, name, mask=mask)


def _checked(amount: Any) -> Any:
    """An amount of pruning: a share as a float, or a number as an integer."""
    if not isinstance(amount, Real):
        raise errors.TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if amount < 0 or (not isinstance(amount, Integral) and not amount <= 1):
        raise errors.ValueError(
            f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer"
        )
    return amount


def _count(amount: Any, size: int) -> int:
    """How many of `size` an amount is."""
    if not isinstance(amount, Integral):
        return round(float(amount) * size)
    if int(amount) > size:
        raise errors.ValueError(f"amount={amount} should be smaller than the number of parameters to prune={size}")
    return int(amount)


def _axis(t: Tensor, dim: int) -> int:
    """The dimension of the slices, from 0."""
    if t.dim() <= 1:
        raise errors.ValueError(
            "Structured pruning can only be applied to multidimensional tensors. Found tensor of shape "
            f"{tuple(t.shape)} with {t.dim()} dims"
        )
    if not -t.dim() <= dim < t.dim():
        raise errors.IndexError(f"Invalid index {dim} for tensor of size {tuple(t.shape)}")
    return dim % t.dim()


def _without_lowest(scores: Tensor, count: int) -> Tensor:
    """Ones, but zeros at the `count` lowest of a vector of scores."""
    lowest = scores.argsort(stable=True)[:count]
    return lucid.ones_like(scores).scatter(0, lowest, 0.0)


class _Unstructured(BasePruningMethod):
    """Prunes the elements of the lowest scores; `amount` is their number, or their share as a float."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: float) -> None:
        self.amount = _checked(amount)

    @abstractmethod
    def _scores(self, t: Tensor) -> Tensor: ...

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _count(self.amount, t.numel())
        if count == 0:
            return default_mask.clone()
        return _without_lowest(self._scores(t).reshape(-1), count).reshape(t.shape) * default_mask.to(t.dtype)


class L1Unstructured(_Unstructured):
    """Prunes the elements that are smallest in size; `amount` is their number, or their share as a float.

    Args:
        amount (float): how many elements to prune: their number, or their share as a float.

    Example:
        >>> from lucid import nn
        >>> from lucid.nn.utils import prune
        >>> layer = nn.Linear(4, 1)
        >>> _ = prune.L1Unstructured.apply(layer, "weight", amount=2)
        >>> int((layer.weight == 0).sum())
        2
    """

    def _scores(self, t: Tensor) -> Tensor:
        return t.abs()

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Any, name: str, amount: float, importance_scores: Tensor | None = None
    ) -> BasePruningMethod:
        """Prunes the smallest elements of a parameter."""
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class RandomUnstructured(_Unstructured):
    """Prunes random elements; `amount` is their number, or their share as a float.

    Args:
        amount (float): how many elements to prune: their number, or their share as a float.

    Example:
        >>> from lucid import nn
        >>> from lucid.nn.utils import prune
        >>> layer = nn.Linear(4, 1)
        >>> _ = prune.RandomUnstructured.apply(layer, "weight", amount=2)
        >>> int((layer.weight == 0).sum())
        2
    """

    def _scores(self, t: Tensor) -> Tensor:
        return lucid.rand_like(t)

    @classmethod
    def apply(cls, module: Any, name: str, amount: float) -> BasePruningMethod:  # type: ignore[override]
        """Prunes random elements of a parameter."""
        return super().apply(module, name, amount=amount)


class _Structured(BasePruningMethod):
    """Prunes the slices along `dim` of the lowest scores; `amount` is their number, or their share as a float."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        self.amount = _checked(amount)
        self.dim = dim

    @abstractmethod
    def _scores(self, t: Tensor, axis: int) -> Tensor: ...

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        axis = _axis(t, self.dim)
        count = _count(self.amount, t.shape[axis])
        if count == 0:
            return default_mask
        view = [-1 if i == axis else 1 for i in range(t.dim())]
        return _without_lowest(self._scores(t, axis), count).reshape(view) * default_mask.to(t.dtype)


class LnStructured(_Structured):
    """Prunes whole slices along `dim`: those whose norm of order `n` is smallest.

    Args:
        amount (float): Their number, or their share as a float.
        n (number or str): A number, infinity, or "fro", "nuc" for slices that are matrices.
        dim (int, default: -1): the dimension of the slices.

    Example:
        >>> from lucid import nn
        >>> from lucid.nn.utils import prune
        >>> layer = nn.Linear(4, 2)
        >>> _ = prune.LnStructured.apply(layer, "weight", amount=1, n=2, dim=0)
        >>> int((layer.weight == 0).sum())
        4
    """

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, t: Tensor, axis: int) -> Tensor:
        others = [i for i in range(t.dim()) if i != axis]
        if self.n == "nuc" or (self.n == "fro" and len(others) == 2):
            made: Tensor = lucid.linalg.matrix_norm(t, self.n, others if len(others) == 2 else (-2, -1))
            return made
        return lucid.linalg.vector_norm(t, 2 if self.n == "fro" else self.n, others)

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Any, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None
    ) -> BasePruningMethod:
        """Prunes the slices of a parameter that are smallest in norm."""
        return super().apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)


class RandomStructured(_Structured):
    """Prunes random slices along `dim`; `amount` is their number, or their share as a float.

    Args:
        amount (float): how many elements to prune: their number, or their share as a float.
        dim (int, default: -1): the dimension of the slices.

    Example:
        >>> from lucid import nn
        >>> from lucid.nn.utils import prune
        >>> layer = nn.Linear(4, 2)
        >>> _ = prune.RandomStructured.apply(layer, "weight", amount=1, dim=0)
        >>> int((layer.weight == 0).sum())
        4
    """

    def _scores(self, t: Tensor, axis: int) -> Tensor:
        return lucid.rand(t.shape[axis], dtype=t.dtype, device=t.device)

    @classmethod
    def apply(cls, module: Any, name: str, amount: float, dim: int = -1) -> BasePruningMethod:  # type: ignore[override]
        """Prunes random slices of a parameter."""
        return super().apply(module, name, amount=amount, dim=dim)


# Programs look for these classes in `prune`, which is where PyTorch has them.
for _method in (
    BasePruningMethod,
    PruningContainer,
    Identity,
    CustomFromMask,
    L1Unstructured,
    RandomUnstructured,
    LnStructured,
    RandomStructured,
):
    _method.__module__ = "lucid.nn.utils.prune"
