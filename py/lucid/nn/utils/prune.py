"""Pruning: masks that hold parts of a parameter at zero, set before each call.

A pruned parameter lives on as `name_orig`, its mask as the buffer `name_mask`; a hook before `forward` sets `name` to
their product. A method of pruning is a class, which says what to keep (`compute_mask`), and the functions apply it.
Pruning again goes on from the mask that is there: a `PruningContainer` holds the methods in their order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid._public_names import named
from lucid.nn.utils._prune_methods import (
    BasePruningMethod,
    CustomFromMask,
    Identity,
    L1Unstructured,
    LnStructured,
    PruningContainer,
    RandomStructured,
    RandomUnstructured,
    _hooks,
)

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


@named
def identity(module: Any, name: str) -> Any:
    """Pruning of nothing.

    Args:
        module (Module): the module with the parameter.
        name (str): the name of the parameter.

    Returns:
        Module: `module` itself.

    Example:
        >>> from lucid import nn
        >>> nn.utils.prune.is_pruned(nn.utils.prune.identity(nn.Linear(4, 1), "weight"))
        True
    """
    Identity.apply(module, name)
    return module


@named
def random_unstructured(module: Any, name: str, amount: float) -> Any:
    """Prunes random elements; `amount` is their number, or their share as a float.

    Args:
        module (Module): the module with the parameter.
        name (str): the name of the parameter.
        amount (float): how many elements to prune: their number, or their share as a float.

    Returns:
        Module: `module` itself.

    Example:
        >>> from lucid import nn
        >>> layer = nn.utils.prune.random_unstructured(nn.Linear(4, 1), "weight", 2)
        >>> int((layer.weight == 0).sum())
        2
    """
    RandomUnstructured.apply(module, name, amount)
    return module


@named
def l1_unstructured(module: Any, name: str, amount: float, importance_scores: Tensor | None = None) -> Any:
    """Prunes the elements that are smallest in size; `amount` is their number, or their share as a float.

    Args:
        module (Module): the module with the parameter.
        name (str): the name of the parameter.
        amount (float): how many elements to prune: their number, or their share as a float.
        importance_scores (Tensor, optional): what is compared in the place of the elements, of the parameter's
            shape.

    Returns:
        Module: `module` itself.

    Example:
        >>> from lucid import nn
        >>> layer = nn.utils.prune.l1_unstructured(nn.Linear(4, 1), "weight", 2)
        >>> int((layer.weight == 0).sum())
        2
    """
    L1Unstructured.apply(module, name, amount, importance_scores)
    return module


@named
def random_structured(module: Any, name: str, amount: float, dim: int) -> Any:
    """Prunes random slices along `dim`.

    Args:
        module (Module): the module with the parameter.
        name (str): the name of the parameter.
        amount (float): how many elements to prune: their number, or their share as a float.
        dim (int): the dimension of the slices.

    Returns:
        Module: `module` itself.

    Example:
        >>> from lucid import nn
        >>> layer = nn.utils.prune.random_structured(nn.Linear(4, 2), "weight", 1, dim=0)
        >>> int((layer.weight == 0).sum())
        4
    """
    RandomStructured.apply(module, name, amount, dim)
    return module


@named
def ln_structured(
    module: Any, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None
) -> Any:
    """Prunes whole slices along `dim`: those whose norm of order `n` is smallest.

    Args:
        module (Module): the module with the parameter.
        name (str): the name of the parameter.
        amount (float): how many elements to prune: their number, or their share as a float.
        n (number or str): the order of the norm.
        dim (int): the dimension of the slices.
        importance_scores (Tensor, optional): what is compared in the place of the elements, of the parameter's
            shape.

    Returns:
        Module: `module` itself.

    Example:
        >>> from lucid import nn
        >>> layer = nn.utils.prune.ln_structured(nn.Linear(4, 2), "weight", 1, n=2, dim=0)
        >>> int((layer.weight == 0).sum())
        4
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores)
    return module


@named
def custom_from_mask(module: Any, name: str, mask: Tensor) -> Any:
    """Prunes what the mask (zeros and ones) leaves out, besides what is pruned already.

    Args:
        module (Module): the module with the parameter.
        name (str): the name of the parameter.
        mask (Tensor): zeros and ones, of the shape of the parameter.

    Returns:
        Module: `module` itself.

    Example:
        >>> from lucid import nn
        >>> layer = nn.utils.prune.custom_from_mask(nn.Linear(2, 1), "weight", lucid.tensor([[1, 0]]))
        >>> int((layer.weight == 0).sum())
        1
    """
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
        parameters (Iterable[tuple[Any, str]]): Pairs of a module and a parameter's name.
        pruning_method (type): `L1Unstructured`, `RandomUnstructured`, or a class of one's own.
        importance_scores (dict[tuple[Any, str], Tensor], optional): What to judge by, by pair.
        **kwargs (object): For the class.

    Raises:
        TypeError: for a method that is not unstructured.

    Example:
        >>> from lucid import nn
        >>> a, b = nn.Linear(4, 1), nn.Linear(4, 1)
        >>> pairs = [(a, "weight"), (b, "weight")]
        >>> nn.utils.prune.global_unstructured(pairs, nn.utils.prune.L1Unstructured, amount=4)
        >>> int((a.weight == 0).sum() + (b.weight == 0).sum())
        4
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
    """Makes the pruned values the parameter for good.

    Args:
        module (Module): the module with the parameter.
        name (str): the name of the parameter.

    Returns:
        Module: `module` itself.

    Raises:
        ValueError: the parameter is not pruned.

    Example:
        >>> from lucid import nn
        >>> layer = nn.utils.prune.l1_unstructured(nn.Linear(4, 1), "weight", 2)
        >>> sorted(nn.utils.prune.remove(layer, "weight").state_dict())
        ['bias', 'weight']
    """
    for key in _hooks(module, name):
        module._forward_pre_hooks.pop(key).remove(module)
        return module
    raise errors.ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module: Any) -> bool:
    """Is any parameter of the tree pruned?

    Args:
        module (Module): the root of the tree.

    Returns:
        bool: whether one is.

    Example:
        >>> from lucid import nn
        >>> nn.utils.prune.is_pruned(nn.Linear(4, 1))
        False
    """
    return any(isinstance(h, BasePruningMethod) for m in module.modules() for h in m._forward_pre_hooks.values())
