"""`weight_norm` in its older form: by a hook before each call, with PyTorch's parameter names."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor, errors
from lucid._warnings import warn
from lucid.nn.parameter import Parameter
from lucid.nn.utils._hooks import found

__all__ = ["WeightNorm", "remove_weight_norm", "weight_norm"]


class WeightNorm:
    """The hook that sets `name` to `name_g · name_v / ‖name_v‖`.

    Args:
        name (str): the name of the weight.
        dim (int, optional): the dimension whose indices have a length each.

    Example:
        >>> from lucid.nn.utils.weight_norm import WeightNorm
        >>> WeightNorm("weight", 0).dim
        0
    """

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = None if dim == -1 else dim

    def compute_weight(self, module: Any) -> Tensor:
        """The weight, from its length and direction."""
        from lucid.nn.utils.parametrizations import scaled

        return scaled(getattr(module, self.name + "_v"), getattr(module, self.name + "_g"), self.dim)

    @staticmethod
    def apply(module: Any, name: str, dim: int | None) -> WeightNorm:
        """Makes a module's parameter the hook's, and gives the hook."""
        from lucid.nn.utils.parametrizations import norm_except

        if found(module, WeightNorm, name) is not None:
            raise errors.RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
        hook = WeightNorm(name, dim)
        weight = getattr(module, name)
        del module._parameters[name]
        with lucid.no_grad():
            length = norm_except(weight.detach(), hook.dim)
        module.register_parameter(name + "_g", Parameter(length))
        module.register_parameter(name + "_v", Parameter(weight.detach()))
        setattr(module, name, hook.compute_weight(module))
        module.register_forward_pre_hook(hook)
        return hook

    def remove(self, module: Any) -> None:
        """Makes the weight an ordinary parameter again; the hook itself stays."""
        weight = self.compute_weight(module).detach()
        delattr(module, self.name)
        del module._parameters[self.name + "_g"], module._parameters[self.name + "_v"]
        setattr(module, self.name, Parameter(weight))

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Makes a weight the product of a length per index of `dim` (`weight_g`) and a direction (`weight_v`).

    Args:
        module (Module): the module with the weight.
        name (str, default: "weight"): the name of the weight.
        dim (int, default: 0): the dimension whose indices have a length each; None is one length for all.

    Returns:
        Module: `module` itself.

    Example:
        >>> from lucid import nn
        >>> layer = nn.utils.weight_norm(nn.Linear(3, 2))
        >>> sorted(layer.state_dict())
        ['bias', 'weight_g', 'weight_v']
    """
    warn("`nn.utils.weight_norm` is deprecated in favor of `nn.utils.parametrizations.weight_norm`.", FutureWarning)
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """Makes the weight an ordinary parameter again.

    Args:
        module (Module): the module with the weight.
        name (str, default: "weight"): the name of the weight.

    Returns:
        Module: `module` itself.

    Raises:
        ValueError: the weight has no weight norm.

    Example:
        >>> from lucid import nn
        >>> layer = nn.utils.remove_weight_norm(nn.utils.weight_norm(nn.Linear(3, 2)))
        >>> sorted(layer.state_dict())
        ['bias', 'weight']
    """
    key = found(module, WeightNorm, name)
    if key is None:
        raise errors.ValueError(f"weight_norm of '{name}' not found in {module}")
    module._forward_pre_hooks.pop(key).remove(module)
    return module
