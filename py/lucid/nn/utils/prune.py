"""Pruning: masks that hold parts of a parameter at zero, set before each call.

A pruned parameter lives on as `name_orig`, its mask as the buffer `name_mask`; a hook before `forward` sets `name` to
their product. A method of pruning is a class, which says what to keep (`compute_mask`), and the functions apply it.
Pruning again goes on from the mask that is there: a `PruningContainer` holds the methods in their order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from numbers import Integral, Real
from typing import Any, ClassVar

import lucid
from lucid import Tensor, errors
from lucid._public_names import named
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
    "custom_from_mask",
    "global_unstructured",
    "identity",
    "is_pruned",
    "l1_unstructured",
    "ln_structured",
    "random_structured",
    "random_unstructured",
    "remove",
]


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
    """Methods that pruned one parameter, in their order. A new mask is that of the last within the one before."""

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
    """Pruning of what a mask of zeros and ones leaves out."""

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
    """Prunes the elements that are smallest in size; `amount` is their number, or their share as a float."""

    def _scores(self, t: Tensor) -> Tensor:
        return t.abs()

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Any, name: str, amount: float, importance_scores: Tensor | None = None
    ) -> BasePruningMethod:
        """Prunes the smallest elements of a parameter."""
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class RandomUnstructured(_Unstructured):
    """Prunes random elements; `amount` is their number, or their share as a float."""

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
        amount: Their number, or their share as a float.
        n: A number, infinity, or "fro", "nuc" for slices that are matrices.
        dim: Default: -1.
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
    """Prunes random slices along `dim`; `amount` is their number, or their share as a float."""

    def _scores(self, t: Tensor, axis: int) -> Tensor:
        return lucid.rand(t.shape[axis], dtype=t.dtype, device=t.device)

    @classmethod
    def apply(cls, module: Any, name: str, amount: float, dim: int = -1) -> BasePruningMethod:  # type: ignore[override]
        """Prunes random slices of a parameter."""
        return super().apply(module, name, amount=amount, dim=dim)


def _hooks(module: Any, name: str) -> list[int]:
    """The keys of the hooks that prune a parameter."""
    hooks = module._forward_pre_hooks.items()
    return [key for key, hook in hooks if isinstance(hook, BasePruningMethod) and hook._tensor_name == name]


@named
def identity(module: Any, name: str) -> Any:
    """Pruning of nothing."""
    Identity.apply(module, name)
    return module


@named
def random_unstructured(module: Any, name: str, amount: float) -> Any:
    """Prunes random elements; `amount` is their number, or their share as a float."""
    RandomUnstructured.apply(module, name, amount)
    return module


@named
def l1_unstructured(module: Any, name: str, amount: float, importance_scores: Tensor | None = None) -> Any:
    """Prunes the elements that are smallest in size; `amount` is their number, or their share as a float."""
    L1Unstructured.apply(module, name, amount, importance_scores)
    return module


@named
def random_structured(module: Any, name: str, amount: float, dim: int) -> Any:
    """Prunes random slices along `dim`."""
    RandomStructured.apply(module, name, amount, dim)
    return module


@named
def ln_structured(
    module: Any, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None
) -> Any:
    """Prunes whole slices along `dim`: those whose norm of order `n` is smallest."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores)
    return module


@named
def custom_from_mask(module: Any, name: str, mask: Tensor) -> Any:
    """Prunes what the mask (zeros and ones) leaves out, besides what is pruned already."""
    CustomFromMask.apply(module, name, mask)
    return module


@named
def global_unstructured(
    parameters: Iterable[tuple[Any, str]],
    pruning_method: Any,
    importance_scores: dict[tuple[Any, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prunes elements of several parameters, compared with each other, by an unstructured method's class.

    Args:
        parameters: Pairs of a module and a parameter's name.
        pruning_method: `L1Unstructured`, `RandomUnstructured`, or a class of one's own.
        importance_scores: What to judge by, by pair. Default: the parameters.
        kwargs: For the class.

    Raises:
        TypeError: for a method that is not unstructured.
    """
    if not isinstance(parameters, Iterable):
        raise errors.TypeError("global_unstructured(): parameters is not an Iterable")
    if importance_scores is not None and not isinstance(importance_scores, dict):
        raise errors.TypeError("global_unstructured(): importance_scores must be of type dict")
    pairs = list(parameters)
    given = importance_scores or {}
    tensors = [getattr(module, name).detach() for module, name in pairs]
    scores = [given.get(pair, tensor).detach() for pair, tensor in zip(pairs, tensors, strict=True)]
    method = pruning_method(**kwargs)
    if getattr(method, "PRUNING_TYPE", None) != "unstructured":
        raise errors.TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {getattr(method, 'PRUNING_TYPE', None)}"
        )
    kept = [
        getattr(module, name + "_mask", lucid.ones_like(tensor))
        for (module, name), tensor in zip(pairs, tensors, strict=True)
    ]
    flat, masks = (lucid.cat([x.reshape(-1) for x in parts]) for parts in (scores, kept))
    mask = PruningContainer(method).compute_mask(flat, masks)
    sizes = [tensor.numel() for tensor in tensors]
    for (module, name), part, tensor in zip(pairs, mask.split(sizes), tensors, strict=True):
        custom_from_mask(module, name, part.reshape(tensor.shape))


@named
def remove(module: Any, name: str) -> Any:
    """Makes the pruned values the parameter for good."""
    for key in _hooks(module, name):
        module._forward_pre_hooks.pop(key).remove(module)
        return module
    raise errors.ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module: Any) -> bool:
    """Is any parameter of the tree pruned?"""
    return any(isinstance(h, BasePruningMethod) for m in module.modules() for h in m._forward_pre_hooks.values())
