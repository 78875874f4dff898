"""`Optimizer`: parameter groups, state, hooks, and state dicts in PyTorch's format.

A subclass puts its defaults in the groups and its tensors in `state`, and steps each group in one engine call.
"""

from __future__ import annotations

import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeAlias, TypeVar

import lucid
from lucid import _C, Tensor, errors
from lucid._absent import teller
from lucid._public_names import NamedInErrors, named_by_class
from lucid._warnings import warn
from lucid.nn.modules.hooks import register
from lucid.nn.modules.state import as_tensor
from lucid.utils.hooks import RemovableHandle

__all__ = ["Optimizer"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: What an optimizer takes: parameters, groups of them, or pairs of name and parameter.
ParamsT: TypeAlias = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]


_params_t: TypeAlias = ParamsT


class _RequiredParameter:
    """Marks a default that each group must give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _RequiredParameter()


def _use_grad_for_differentiable(func: Callable[_P, _T]) -> Callable[_P, _T]:
    """A step of an optimizer, whose first argument it is, that is recorded where the option `differentiable` is on."""

    @functools.wraps(func)
    def step(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        optimizer: Any = args[0]
        with lucid.set_grad_enabled(optimizer.defaults["differentiable"]):
            return func(*args, **kwargs)

    return step


def _default_to_fused_or_foreach(
    params: list[Tensor], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Which of PyTorch's ways to step many parameters applies: fused, by lists. Each optimizer here is one call."""
    if differentiable:
        return False, False
    fused = use_fused and all(p is None or p.is_floating_point() for p in params)
    return fused, not fused


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """The devices on which PyTorch records a step into a graph of CUDA's calls."""
    return ["cuda", "xpu", "hpu", *(["xla"] if supports_xla else [])]


def _get_value(x: Any) -> Any:
    """The number that a tensor of one element has; other values as they are."""
    return x.item() if isinstance(x, Tensor) else x


def _view_as_real(params: list[Tensor], *state_and_grads: list[Tensor]) -> None:
    """Puts views as pairs of real numbers in the place of complex parameters, and of what belongs to each of them."""
    for i, param in enumerate(params):
        if param.is_complex():
            for tensors in (params, *state_and_grads):
                tensors[i] = lucid.view_as_real(tensors[i])


class Optimizer(NamedInErrors):
    """Base class of all optimizers.

    Args:
        params (ParamsT): Tensors, pairs of name and tensor, or dicts with "params" and options of that group.
        defaults (dict[str, Any]): The options, for groups that do not give them.

    Raises:
        TypeError: `params` are no parameters.
        ValueError: there are none, or one is listed twice.

    Example:
        >>> class Descent(lucid.optim.Optimizer):
        ...     def __init__(self, params, lr=0.1):
        ...         super().__init__(params, {"lr": lr})
        ...     @lucid.no_grad()
        ...     def step(self, closure=None):
        ...         for group in self.param_groups:
        ...             for p in group["params"]:
        ...                 p.add_(p.grad, alpha=-group["lr"])
        >>> x = lucid.ones(1, requires_grad=True)
        >>> optimizer = Descent([x])
        >>> (x * x).sum().backward()
        >>> optimizer.step()
        >>> x.detach()
        tensor([0.8000])
    """

    # State that counts rather than belonging to the parameter's elements: 0-d float32 on the CPU.
    _counts: ClassVar[tuple[str, ...]] = ("step",)

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self._step_pre_hooks: OrderedDict[int, Any] = OrderedDict()
        self._step_post_hooks: OrderedDict[int, Any] = OrderedDict()
        self._state_dict_pre_hooks: OrderedDict[int, Any] = OrderedDict()
        self._state_dict_post_hooks: OrderedDict[int, Any] = OrderedDict()
        self._load_state_dict_pre_hooks: OrderedDict[int, Any] = OrderedDict()
        self._load_state_dict_post_hooks: OrderedDict[int, Any] = OrderedDict()
        if isinstance(params, Tensor):
            raise errors.TypeError(
                f"params argument given to the optimizer should be an iterable of Tensors or dicts, "
                f"but got {_typename(params)}"
            )
        if isinstance(params, set):
            warn(
                "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets "
                "will change between runs. Please use a list instead. This will be an error in a future release.",
                FutureWarning,
            )
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups: list[Any] = list(params)
        if not groups:
            raise errors.ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.__dict__["step"])  # type: ignore[method-assign]

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name in ("step_pre", "step_post"):
            self.__dict__.setdefault(f"_{name}_hooks", OrderedDict())
        for name in ("state_dict_pre", "state_dict_post", "load_state_dict_pre", "load_state_dict_post"):
            self.__dict__.setdefault(f"_{name}_hooks", OrderedDict())
        for group in self.param_groups:
            for name, default in self.defaults.items():
                group.setdefault(name, default)

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for i, group in enumerate(self.param_groups):
            options = (f"    {name}: {group[name]}\n" for name in sorted(group) if name != "params")
            text += f"\nParameter Group {i}\n{''.join(options)}"
        return f"{text})"

    # ---- groups ------------------------------------------------------------------------------------------------------

    @named_by_class
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters with options of their own: a dict with "params" and options."""
        if not isinstance(param_group, dict):
            raise errors.TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise errors.TypeError(
                "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets "
                "will change between runs. Please use a list instead."
            )
        params = list(params)
        if any(isinstance(p, tuple) for p in params):
            if not all(isinstance(p, tuple) for p in params):
                raise errors.ValueError(
                    "all optimizer params should be with/without names. Some param names are missing"
                )
            param_group["param_names"] = [name for name, _ in params]
            params = [p for _, p in params]
        param_group["params"] = params
        for param in params:
            if not isinstance(param, Tensor):
                raise errors.TypeError(
                    f"optimizer can only optimize Tensors, but one of the params is {_typename(param)}"
                )
            if not (param.is_leaf or param.retains_grad or self.defaults.get("differentiable")):
                raise errors.ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise errors.ValueError(
                    f"parameter group didn't specify a value of required optimization parameter {name}"
                )
            param_group.setdefault(name, default)
        ids = [id(p) for p in params]
        if len(ids) != len(set(ids)):
            warn("optimizer contains a parameter group with duplicate parameters; in future, this will cause an error")
        for group in self.param_groups:
            if ("param_names" in param_group) != ("param_names" in group):
                raise errors.ValueError(
                    "all optimizer param groups should be with/without names. cannot add param group "
                    f"{'with' if 'param_names' in param_group else 'without'} names to the optimizer"
                )
        taken = {id(p) for group in self.param_groups for p in group["params"]}
        if not taken.isdisjoint(ids):
            raise errors.ValueError("some parameters appear in more than one parameter group")
        self._check_group(param_group)
        self.param_groups.append(param_group)

    def _check_group(self, group: dict[str, Any]) -> None:
        """Refuses options that make no sense; for subclasses."""

    # ---- steps -------------------------------------------------------------------------------------------------------

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Removes the gradients of all parameters, or zeroes them in place."""
        for group in self.param_groups:
            for param in group["params"]:
                if set_to_none:
                    param.grad = None
                elif param.grad is not None:
                    param.grad.detach().zero_()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates the parameters by their gradients. `closure` computes the loss again, which is then returned."""
        raise NotImplementedError

    @staticmethod
    def _evaluate(closure: Callable[[], Any] | None) -> Any:
        if closure is None:
            return None
        with lucid.enable_grad():
            return closure()

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(optimizer, args, kwargs)` before each step, with the optimizer in `args` too; may return both."""
        return register(self._step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Calls `hook(optimizer, args, kwargs)` after each step."""
        return register(self._step_post_hooks, hook)

    # ---- state dicts -------------------------------------------------------------------------------------------------

    def register_state_dict_pre_hook(self, hook: Callable[..., None], prepend: bool = False) -> RemovableHandle:
        """Calls `hook(optimizer)` before `state_dict`."""
        return register(self._state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls `hook(optimizer, state_dict)` after `state_dict`; what it returns, if not None, replaces the dict."""
        return register(self._state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls `hook(optimizer, state_dict)` before loading; what it returns, if not None, is loaded instead."""
        return register(self._load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., None], prepend: bool = False) -> RemovableHandle:
        """Calls `hook(optimizer)` after loading."""
        return register(self._load_state_dict_post_hooks, hook, prepend)

    def state_dict(self) -> dict[str, Any]:
        """The state per parameter and the groups, in PyTorch's format: parameters are numbered through all groups."""
        for hook in self._state_dict_pre_hooks.values():
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for param in group["params"]:
                numbers.setdefault(id(param), len(numbers))
            packed = {name: value for name, value in group.items() if name != "params"}
            packed["params"] = [numbers[id(param)] for param in group["params"]]
            groups.append(packed)
        state = {numbers[id(key)] if isinstance(key, Tensor) else key: value for key, value in self.state.items()}
        made: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in self._state_dict_post_hooks.values():
            replaced = hook(self, made)
            if replaced is not None:
                made = replaced
        return made

    @named_by_class
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over a state dict, also one that PyTorch made: parameters match by their order.

        Raises:
            ValueError: where the groups, or their numbers of parameters, differ.
        """
        given = dict(state_dict)
        for hook in self._load_state_dict_pre_hooks.values():
            replaced = hook(self, given)
            if replaced is not None:
                given = replaced
        saved = [dict(group) for group in given["param_groups"]]
        if len(saved) != len(self.param_groups):
            raise errors.ValueError("loaded state dict has a different number of parameter groups")
        if any(len(a["params"]) != len(b["params"]) for a, b in zip(self.param_groups, saved, strict=True)):
            raise errors.ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
            )
        params = [p for group in self.param_groups for p in group["params"]]
        by_number = dict(zip((n for group in saved for n in group["params"]), params, strict=True))
        state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        for key, value in given["state"].items():
            if key in by_number:
                param = by_number[key]
                state[param] = {name: _fitted(name, item, param, self._counts) for name, item in value.items()}
            else:
                state[key] = value
        groups = []
        for own, group in zip(self.param_groups, saved, strict=True):
            merged = {name: deepcopy(value) for name, value in group.items() if name != "params"}
            merged["params"] = own["params"]
            if "param_names" in own and "param_names" not in merged:
                merged["param_names"] = own["param_names"]
            groups.append(merged)
        self.__setstate__({"state": state, "param_groups": groups})
        for hook in self._load_state_dict_post_hooks.values():
            hook(self)


def _fitted(name: str, value: Any, param: Tensor, counts: tuple[str, ...]) -> Any:
    """A copy of a piece of loaded state, with the parameter's dtype and device; counts stay as they are, on the CPU."""
    if isinstance(value, Mapping):
        return {key: _fitted(name, item, param, counts) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_fitted(name, item, param, counts) for item in value)
    if not (isinstance(value, Tensor) or hasattr(value, "detach")):
        return deepcopy(value)
    tensor = as_tensor(value).detach().clone()
    if name in counts:
        return tensor.to("cpu", lucid.float32)
    return tensor.to(param.device, param.dtype) if param.is_floating_point() else tensor.to(param.device)


_STEP_PRE_HOOKS: OrderedDict[int, Any] = OrderedDict()
_STEP_POST_HOOKS: OrderedDict[int, Any] = OrderedDict()


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls `hook(optimizer, args, kwargs)` before each step of every optimizer, ahead of its own hooks; it may return
    both."""
    return register(_STEP_PRE_HOOKS, hook)


def register_optimizer_step_post_hook(hook: Callable[..., None]) -> RemovableHandle:
    """Calls `hook(optimizer, args, kwargs)` after each step of every optimizer, after its own hooks."""
    return register(_STEP_POST_HOOKS, hook)


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step method that runs the optimizer's hooks around itself."""
    if getattr(step, "_hooked", False):
        return step

    @functools.wraps(step)
    def hooked(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if "_step_pre_hooks" not in self.__dict__:
            # A wrapper around another optimizer, which was not made as one itself and has no hooks.
            return step(self, *args, **kwargs)
        if _C._graph_recording():
            from lucid.compiler import _trace

            if args or kwargs:
                _trace.outside("an optimizer's step is called with a closure")
            elif _trace.tracer() is not None:
                return _trace.host_call(lambda: hooked_step(self), lambda: self.step())
        return hooked_step(self, *args, **kwargs)

    def hooked_step(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        # As in PyTorch, hooks see the optimizer among the arguments.
        args = (self, *args)
        for hook in [*_STEP_PRE_HOOKS.values(), *self._step_pre_hooks.values()]:
            changed = hook(self, args, kwargs)
            if changed is not None:
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise errors.RuntimeError(
                        f"{hook} must return None or a tuple of (new_args, new_kwargs), but got {changed}."
                    )
                args, kwargs = changed
        result = step(*args, **kwargs)
        for hook in [*self._step_post_hooks.values(), *_STEP_POST_HOOKS.values()]:
            hook(self, args, kwargs)
        return result

    hooked._hooked = True  # type: ignore[attr-defined]
    return hooked


def _typename(value: object) -> str:
    cls = type(value)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


if not TYPE_CHECKING:
    __getattr__ = teller(__name__)
