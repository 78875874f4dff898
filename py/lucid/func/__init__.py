"""Functions of functions: batching, gradients, Jacobians, with PyTorch's names (`torch.func`).

Each takes a function and gives one; they nest in any way. Functions should be pure: what they are given they may read,
and what they compute they return.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lucid._absent import teller
from lucid.einops import rearrange as rearrange
from lucid.func._functionalize import functionalize as functionalize
from lucid.func._grad import grad as grad
from lucid.func._grad import grad_and_value as grad_and_value
from lucid.func._grad import jvp as jvp
from lucid.func._grad import linearize as linearize
from lucid.func._grad import vjp as vjp
from lucid.func._jacobian import hessian as hessian
from lucid.func._jacobian import jacfwd as jacfwd
from lucid.func._jacobian import jacrev as jacrev
from lucid.func._modules import functional_call as functional_call
from lucid.func._modules import replace_all_batch_norm_modules_ as replace_all_batch_norm_modules_
from lucid.func._modules import stack_module_state as stack_module_state
from lucid.func._vmap import debug_unwrap as debug_unwrap
from lucid.func._vmap import vmap as vmap

__all__ = [
    "debug_unwrap",
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "rearrange",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vjp",
    "vmap",
]

if not TYPE_CHECKING:
    __getattr__ = teller(__name__)
