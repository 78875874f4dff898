"""`state_dict` and `load_state_dict`: a module's tensors by dotted name, in PyTorch's format.

A state dict made by PyTorch for the same modules loads unchanged. Loading lists everything that is wrong in one error.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import lucid
from lucid import Tensor, errors
from lucid._warnings import warn
from lucid.nn.modules.hooks import register
from lucid.nn.parameter import Parameter, is_lazy
from lucid.utils.hooks import RemovableHandle

__all__ = [
    "StateDictMixin",
    "as_tensor",
    "register_module_load_state_dict_post_hook",
    "register_module_load_state_dict_pre_hook",
]

_EXTRA_STATE = "_extra_state"


# Hooks of every module's loading.
GLOBAL_LOAD_PRE: OrderedDict[int, Any] = OrderedDict()
GLOBAL_LOAD_POST: OrderedDict[int, Any] = OrderedDict()


def register_module_load_state_dict_pre_hook(hook: Callable[..., None]) -> RemovableHandle:
    """`Module.register_load_state_dict_pre_hook` for every module.

    Args:
        hook (Callable[..., None]): the function to call.

    Returns:
        RemovableHandle: its `remove()` takes the hook away.

    Example:
        >>> from lucid import nn
        >>> handle = nn.modules.state.register_module_load_state_dict_pre_hook(lambda *given: print("loading"))
        >>> nn.ReLU().load_state_dict({})
        loading
        <All keys matched successfully>
        >>> handle.remove()
    """
    return register(GLOBAL_LOAD_PRE, hook)


def register_module_load_state_dict_post_hook(hook: Callable[..., None]) -> RemovableHandle:
    """`Module.register_load_state_dict_post_hook` for every module.

    Args:
        hook (Callable[..., None]): the function to call.

    Returns:
        RemovableHandle: its `remove()` takes the hook away.

    Example:
        >>> from lucid import nn
        >>> handle = nn.modules.state.register_module_load_state_dict_post_hook(lambda _, keys: print(keys[0]))
        >>> nn.ReLU().load_state_dict({})
        []
        <All keys matched successfully>
        >>> handle.remove()
    """
    return register(GLOBAL_LOAD_POST, hook)


class _WithoutModule:
    """A hook that takes all arguments but the module; a class, so that it can be pickled."""

    def __init__(self, hook: Callable[..., None]) -> None:
        self.hook = hook

    def __call__(self, module: Any, *args: Any) -> None:
        self.hook(*args)


class _Keys(NamedTuple):
    missing_keys: list[str]
    unexpected_keys: list[str]


class _IncompatibleKeys(_Keys):
    """What `load_state_dict` gives back: keys the module has and the dict lacked, and the reverse."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


class StateDict(OrderedDict[str, Any]):
    """An ordered dict with the versions of the modules that wrote it, by their dotted paths, in `_metadata`."""

    _metadata: OrderedDict[str, dict[str, Any]]


class StateDictMixin:
    """The half of `Module` that saves and loads."""

    _version: int
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    # Reached through the package, so that `typing.get_type_hints` finds it in classes of other modules.
    _modules: dict[str, lucid.nn.Module | None]
    _non_persistent_buffers_set: set[str]
    _forward_pre_hooks: OrderedDict[int, Any]
    _forward_pre_hooks_with_kwargs: OrderedDict[int, bool]
    _forward_hooks: OrderedDict[int, Any]
    _forward_hooks_with_kwargs: OrderedDict[int, bool]
    _forward_hooks_always_called: OrderedDict[int, bool]
    _state_dict_hooks: OrderedDict[int, Any]
    _state_dict_pre_hooks: OrderedDict[int, Any]
    _load_state_dict_pre_hooks: OrderedDict[int, Any]
    _load_state_dict_post_hooks: OrderedDict[int, Any]

    # ---- saving ------------------------------------------------------------------------------------------------------

    def get_extra_state(self) -> Any:
        """Anything besides tensors that the state dict shall carry; for subclasses, with `set_extra_state`."""
        raise errors.RuntimeError("Reached a code path in Module.get_extra_state() that should never be called.")

    def set_extra_state(self, state: Any) -> None:
        """Takes back what `get_extra_state` gave."""
        raise errors.RuntimeError("Reached a code path in Module.set_extra_state() that should never be called.")

    def _has_extra_state(self, method: str) -> bool:
        return getattr(type(self), method) is not getattr(StateDictMixin, method)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Writes this module's own entries; subclasses may extend it."""
        for name, param in self._parameters.items():
            if param is not None:
                destination[prefix + name] = param if keep_vars or is_lazy(param) else param.detach()
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = buffer if keep_vars or is_lazy(buffer) else buffer.detach()
        if self._has_extra_state("get_extra_state"):
            destination[prefix + _EXTRA_STATE] = self.get_extra_state()

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """All parameters and persistent buffers by dotted name, sharing storage with the module.

        Args:
            destination: A mapping to write into; a new one by default.
            prefix: Put before every name.
            keep_vars: Give the parameters themselves instead of detached tensors.

        By position they are deprecated, with a warning.
        """
        if args:
            warn("Arguments of state_dict by position are deprecated, use their names instead.", FutureWarning)
            older = dict(zip(("destination", "prefix", "keep_vars"), args, strict=False))
            destination = older.get("destination") if destination is None else destination
            prefix = older.get("prefix", "") if prefix == "" else prefix
            keep_vars = older.get("keep_vars", False) if keep_vars is False else keep_vars
        if destination is None:
            destination = StateDict()
            destination._metadata = OrderedDict()
        metadata: dict[str, Any] = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            replaced = hook(self, destination, prefix, metadata)
            if replaced is not None:
                destination = replaced
        made: dict[str, Any] = destination
        return made

    def register_state_dict_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Calls `hook(module, prefix, keep_vars)` before the module's state is gathered."""
        return register(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Calls `hook(module, state_dict, prefix, metadata)` after the module's state was gathered."""
        return register(self._state_dict_hooks, hook)

    # ---- loading -----------------------------------------------------------------------------------------------------

    def register_load_state_dict_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Calls `hook(module, state_dict, prefix, metadata, strict, missing, unexpected, errors)` before loading."""
        return register(self._load_state_dict_pre_hooks, hook)

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """`register_state_dict_post_hook` whose hook may also give back another dict to go on with."""
        return register(self._state_dict_hooks, hook)

    def _register_load_state_dict_pre_hook(self, hook: Callable[..., None], with_module: bool = False) -> Any:
        """`register_load_state_dict_pre_hook` whose hook is not given the module unless `with_module`."""
        return self.register_load_state_dict_pre_hook(hook if with_module else _WithoutModule(hook))

    def register_load_state_dict_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Calls `hook(module, incompatible_keys)` after loading; it may change the lists of keys in place."""
        return register(self._load_state_dict_post_hooks, hook)

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Reads this module's own entries; subclasses may extend it."""
        for hook in (*GLOBAL_LOAD_PRE.values(), *self._load_state_dict_pre_hooks.values()):
            hook(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        assign = bool(local_metadata.get("assign_to_params_buffers", False))
        members: list[tuple[str, Tensor | None, Any]] = []
        members += [(name, param, self._parameters) for name, param in self._parameters.items()]
        members += [
            (name, buffer, self._buffers)
            for name, buffer in self._buffers.items()
            if name not in self._non_persistent_buffers_set
        ]
        own = {name for name, _, _ in members}
        for name, member, place in members:
            if member is None:
                own.discard(name)
                continue
            key = prefix + name
            if key not in state_dict:
                if strict:
                    missing_keys.append(key)
                continue
            self._load_one(key, name, state_dict[key], member, place, assign, error_msgs)
        extra = prefix + _EXTRA_STATE
        if self._has_extra_state("set_extra_state"):
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        elif strict and extra in state_dict:
            unexpected_keys.append(extra)
        if strict:
            for key in state_dict:
                if key.startswith(prefix) and key != extra:
                    head, *rest = key[len(prefix) :].split(".", 1)
                    if (rest and head not in self._modules) or (not rest and head not in own):
                        unexpected_keys.append(key)

    def _load_one(
        self, key: str, name: str, value: Any, member: Tensor, place: Any, assign: bool, error_msgs: list[str]
    ) -> None:
        if is_lazy(value):
            if not is_lazy(member):
                error_msgs.append(
                    f'While copying the parameter named "{key}", an uninitialized parameter cannot be loaded into an '
                    f"initialized one."
                )
            return
        try:
            value = as_tensor(value)
        except Exception:
            error_msgs.append(
                f'While copying the parameter named "{key}", expected a Tensor or Tensor-like object from checkpoint '
                f"but received {type(value)}"
            )
            return
        # Checkpoints of old wrote 0-d tensors with one dimension.
        if member.dim() == 0 and tuple(value.shape) == (1,):
            value = value.reshape([])
        if is_lazy(member):
            # What has no shape yet takes the checkpoint's.
            with lucid.no_grad():
                member.materialize(tuple(value.shape))  # type: ignore[attr-defined]
        if tuple(value.shape) != tuple(member.shape):
            error_msgs.append(
                f"size mismatch for {key}: copying a param with shape {_shape(value)} from checkpoint, "
                f"the shape in current model is {_shape(member)}."
            )
            return
        try:
            with lucid.no_grad():
                if member.is_meta and not value.is_meta and not assign:
                    warn(
                        f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the "
                        f"current model, which is a no-op. (Did you mean to pass `assign=True` to assign items in the "
                        f"state dictionary to their corresponding key in the module instead of copying them in place?)"
                    )
                if assign:
                    place[name] = Parameter(value, member.requires_grad) if isinstance(member, Parameter) else value
                else:
                    member.copy_(value.to(member.device, member.dtype))
        except Exception as error:
            error_msgs.append(
                f'While copying the parameter named "{key}", whose dimensions in the model are {_shape(member)} and '
                f"whose dimensions in the checkpoint are {_shape(value)}, an exception occurred : {error.args}."
            )

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> _IncompatibleKeys:
        """Copies tensors into the parameters and buffers of the same names.

        Args:
            state_dict: Tensors by dotted name. Anything that `lucid.tensor` takes counts as one, so a PyTorch model's
                state dict may be given as it is.
            strict: Whether missing and unexpected keys are errors. Default: True.
            assign: Take the given tensors themselves, with their dtype and device, instead of copying. Default: False.

        Returns the missing and unexpected keys.

        Raises:
            RuntimeError: one that lists every missing key, unexpected key and wrong shape.
        """
        if not isinstance(state_dict, Mapping):
            raise errors.TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing: list[str] = []
        unexpected: list[str] = []
        wrong: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        state = OrderedDict(state_dict)

        def load(module: Any, entries: Mapping[str, Any], prefix: str) -> None:
            local = dict({} if metadata is None else metadata.get(prefix[:-1], {}))
            if assign:
                local["assign_to_params_buffers"] = True
            module._load_from_state_dict(entries, prefix, local, True, missing, unexpected, wrong)
            # After the hooks of the module itself, which may rename keys.
            parts = _by_child(entries, prefix)
            for name, child in module._modules.items():
                if child is not None:
                    below = f"{prefix}{name}."
                    # PyTorch lets no name of a child have a dot; who put one there anyway is served, if slowly.
                    part = (
                        OrderedDict((k, v) for k, v in entries.items() if k.startswith(below))
                        if "." in name
                        else parts.get(name, OrderedDict())
                    )
                    load(child, part, below)
            keys = _IncompatibleKeys(missing, unexpected)
            for hook in (*GLOBAL_LOAD_POST.values(), *module._load_state_dict_post_hooks.values()):
                if hook(module, keys) is not None:
                    raise AssertionError(
                        "Hooks registered with register_load_state_dict_post_hook are not expected to return new values"
                    )

        load(self, state, "")
        if strict:
            if unexpected:
                wrong.insert(0, f"Unexpected key(s) in state_dict: {_quoted(unexpected)}. ")
            if missing:
                wrong.insert(0, f"Missing key(s) in state_dict: {_quoted(missing)}. ")
        if wrong:
            listed = "\n\t".join(wrong)
            raise errors.RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{listed}")
        return _IncompatibleKeys(missing, unexpected)


def _by_child(entries: Mapping[str, Any], prefix: str) -> dict[str, OrderedDict[str, Any]]:
    """The entries below each child of the module at `prefix`, found in one pass: a container may have thousands."""
    parts: dict[str, OrderedDict[str, Any]] = {}
    start = len(prefix)
    for key, value in entries.items():
        end = key.find(".", start)
        if end >= 0 and key.startswith(prefix):
            parts.setdefault(key[start:end], OrderedDict())[key] = value
    return parts


def _quoted(keys: list[str]) -> str:
    return ", ".join(f'"{key}"' for key in keys)


def _shape(tensor: Tensor) -> str:
    return f"lucid.Size({list(tensor.shape)})"


def as_tensor(value: Any) -> Tensor:
    """A tensor from what a state dict may hold: a tensor of ours or of PyTorch's, an array, numbers.

    Args:
        value (object): what a state dict holds.

    Returns:
        Tensor: of the shape of `value`.

    Raises:
        TypeError: what is no tensor, array or number.

    Example:
        >>> from lucid import nn
        >>> nn.modules.state.as_tensor([1.0, 2.0])
        tensor([1., 2.])
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (str, bytes)) or value is None:
        raise errors.TypeError("no tensor")
    if hasattr(value, "detach"):
        # A tensor of PyTorch's, which gives its numbers away only when cut off from its tape and on the CPU.
        value = value.detach().cpu()
    return lucid.tensor(value)
