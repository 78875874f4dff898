"""`weight_norm` and `spectral_norm` in their older form: by a hook before each call, with PyTorch's parameter names."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor, errors
from lucid._warnings import warn
from lucid.nn import functional as F
from lucid.nn.parameter import Parameter

__all__ = ["remove_spectral_norm", "remove_weight_norm", "spectral_norm", "weight_norm"]


class WeightNorm:
    """The hook that sets `name` to `name_g · name_v / ‖name_v‖`."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = None if dim == -1 else dim

    def compute_weight(self, module: Any) -> Tensor:
        """The weight, from its length and direction."""
        from lucid.nn.utils.parametrizations import scaled

        return scaled(getattr(module, self.name + "_v"), getattr(module, self.name + "_g"), self.dim)

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def _found(module: Any, kind: type[Any], name: str) -> int | None:
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, kind) and hook.name == name:
            return int(key)
    return None


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Makes a weight the product of a length per index of `dim` (`weight_g`) and a direction (`weight_v`)."""
    from lucid.nn.utils.parametrizations import norm_except

    warn("`nn.utils.weight_norm` is deprecated in favor of `nn.utils.parametrizations.weight_norm`.", FutureWarning)
    if _found(module, WeightNorm, name) is not None:
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
    return module


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """Makes the weight an ordinary parameter again."""
    key = _found(module, WeightNorm, name)
    if key is None:
        raise errors.ValueError(f"weight_norm of '{name}' not found in {module}")
    weight = module._forward_pre_hooks.pop(key).compute_weight(module).detach()
    delattr(module, name)
    del module._parameters[name + "_g"], module._parameters[name + "_v"]
    setattr(module, name, Parameter(weight))
    return module


class SpectralNorm:
    """The hook that sets `name` to `name_orig` divided by its largest singular value."""

    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float) -> None:
        if n_power_iterations <= 0:
            raise errors.ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.name = name
        self.n_power_iterations = n_power_iterations
        self.dim = dim
        self.eps = eps

    def matrix(self, weight: Tensor) -> Tensor:
        """The weight with its outputs as rows."""
        if self.dim != 0:
            weight = weight.permute([self.dim, *(d for d in range(weight.dim()) if d != self.dim)])
        return weight.reshape([weight.shape[0], -1])

    def compute_weight(self, module: Any, iterate: bool) -> Tensor:
        """The weight over its largest singular value, after a few steps of power iteration in training."""
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = self.matrix(weight)
        if iterate:
            with lucid.no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(matrix.detach().t().mv(u), dim=0, eps=self.eps))
                    u.copy_(F.normalize(matrix.detach().mv(v), dim=0, eps=self.eps))
            # Backward keeps these; the next call's steps are in place.
            u, v = u.clone(), v.clone()
        made: Tensor = weight / u.dot(matrix.mv(v))
        return made

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))


def spectral_norm(
    module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Any:
    """Divides a weight by its largest singular value before each call (Miyato et al., 2018).

    Arguments as in `parametrizations.spectral_norm`. The weight lives on as `weight_orig`, with buffers `weight_u` and
    `weight_v`.
    """
    if _found(module, SpectralNorm, name) is not None:
        raise errors.RuntimeError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
    if dim is None:
        dim = 1 if getattr(module, "transposed", False) else 0
    hook = SpectralNorm(name, n_power_iterations, dim, eps)
    weight = module._parameters[name]
    if weight is None:
        raise errors.ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
    with lucid.no_grad():
        rows, columns = hook.matrix(weight.detach()).shape
        u, v = (
            F.normalize(lucid.randn(n, dtype=weight.dtype, device=weight.device), dim=0, eps=eps)
            for n in (rows, columns)
        )
    del module._parameters[name]
    module.register_parameter(name + "_orig", weight)
    setattr(module, name, weight.detach())
    module.register_buffer(name + "_u", u)
    module.register_buffer(name + "_v", v)
    module.register_forward_pre_hook(hook)
    return module


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Makes the weight an ordinary parameter again, with its present value."""
    key = _found(module, SpectralNorm, name)
    if key is None:
        raise errors.ValueError(f"spectral_norm of '{name}' not found in {module}")
    with lucid.no_grad():
        weight = module._forward_pre_hooks.pop(key).compute_weight(module, False).detach()
    delattr(module, name)
    for suffix in ("_u", "_v", "_orig"):
        delattr(module, name + suffix)
    module.register_parameter(name, Parameter(weight))
    return module
