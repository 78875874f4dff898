"""`spectral_norm` in its older form: by a hook before each call, with PyTorch's parameter names."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.nn import functional as F
from lucid.nn.parameter import Parameter
from lucid.nn.utils._hooks import found

__all__ = ["SpectralNorm", "remove_spectral_norm", "spectral_norm"]


class SpectralNorm:
    """The hook that sets `name` to `name_orig` divided by its largest singular value.

    Args:
        name (str, default: "weight"): the name of the weight.
        n_power_iterations (int, default: 1): the number of power iterations at each call in training.
        dim (int, default: 0): the dimension of the outputs.
        eps (float, default: 1e-12): the smallest norm.

    Raises:
        ValueError: `n_power_iterations` is not positive.

    Example:
        >>> from lucid import nn
        >>> nn.utils.spectral_norm.__module__
        'lucid.nn.utils.spectral_norm'
    """

    def __init__(self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        if n_power_iterations <= 0:
            raise errors.ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.name = name
        self.n_power_iterations = n_power_iterations
        self.dim = dim
        self.eps = eps

    def reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        """The weight with its outputs as rows."""
        if self.dim != 0:
            weight = weight.permute([self.dim, *(d for d in range(weight.dim()) if d != self.dim)])
        return weight.reshape([weight.shape[0], -1])

    def compute_weight(self, module: Any, do_power_iteration: bool) -> Tensor:
        """The weight over its largest singular value, after a few steps of power iteration in training."""
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            with lucid.no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(matrix.detach().t().mv(u), dim=0, eps=self.eps))
                    u.copy_(F.normalize(matrix.detach().mv(v), dim=0, eps=self.eps))
            # Backward keeps these; the next call's steps are in place.
            u, v = u.clone(), v.clone()
        made: Tensor = weight / u.dot(matrix.mv(v))
        return made

    @staticmethod
    def apply(module: Any, name: str, n_power_iterations: int, dim: int, eps: float) -> SpectralNorm:
        """Makes a module's parameter the hook's, and gives the hook."""
        if found(module, SpectralNorm, name) is not None:
            raise errors.RuntimeError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
        hook = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise errors.ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        with lucid.no_grad():
            u, v = (
                F.normalize(lucid.randn(n, dtype=weight.dtype, device=weight.device), dim=0, eps=eps)
                for n in hook.reshape_weight_to_matrix(weight.detach()).shape
            )
        del module._parameters[name]
        module.register_parameter(name + "_orig", weight)
        setattr(module, name, weight.detach())
        module.register_buffer(name + "_u", u)
        module.register_buffer(name + "_v", v)
        module.register_forward_pre_hook(hook)
        return hook

    def remove(self, module: Any) -> None:
        """Makes the weight an ordinary parameter again, with its present value; the hook itself stays."""
        with lucid.no_grad():
            weight = self.compute_weight(module, False).detach()
        delattr(module, self.name)
        for suffix in ("_u", "_v", "_orig"):
            delattr(module, self.name + suffix)
        module.register_parameter(self.name, Parameter(weight))

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))


def spectral_norm(
    module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Any:
    """Divides a weight by its largest singular value before each call (Miyato et al., 2018).

    Arguments as in `parametrizations.spectral_norm`. The weight lives on as `weight_orig`, with buffers `weight_u` and
    `weight_v`.

    Args:
        module (Module): the module with the weight.
        name (str, default: "weight"): the name of the weight.
        n_power_iterations (int, default: 1): the number of power iterations at each call in training.
        eps (float, default: 1e-12): the smallest norm.
        dim (int, optional): the dimension of the outputs; 1 for transposed convolutions, else 0, by default.

    Returns:
        Module: `module` itself.

    Example:
        >>> from lucid import nn
        >>> layer = nn.utils.spectral_norm(nn.Linear(3, 2))
        >>> sorted(layer.state_dict())
        ['bias', 'weight_orig', 'weight_u', 'weight_v']
    """
    if dim is None:
        dim = 1 if getattr(module, "transposed", False) else 0
    SpectralNorm.apply(module, name, n_power_iterations, dim, eps)
    return module


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Makes the weight an ordinary parameter again, with its present value.

    Args:
        module (Module): the module with the weight.
        name (str, default: "weight"): the name of the weight.

    Returns:
        Module: `module` itself.

    Raises:
        ValueError: the weight has no spectral norm.

    Example:
        >>> from lucid import nn
        >>> layer = nn.utils.remove_spectral_norm(nn.utils.spectral_norm(nn.Linear(3, 2)))
        >>> sorted(layer.state_dict())
        ['bias', 'weight']
    """
    key = found(module, SpectralNorm, name)
    if key is None:
        raise errors.ValueError(f"spectral_norm of '{name}' not found in {module}")
    module._forward_pre_hooks.pop(key).remove(module)
    return module
