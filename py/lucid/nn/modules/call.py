"""Calling a module: forward and backward hooks, its own and every module's.

Without hooks a call costs one check. With backward hooks, inputs and outputs pass through one node each, so that a hook
sees all gradients of a call at once, as in PyTorch. What is registered (parameters, buffers, modules) has hooks too.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid._warnings import warn
from lucid.nn.modules.hooks import register
from lucid.nn.modules.locate import locate
from lucid.utils.hooks import RemovableHandle

__all__ = [
    "CallMixin",
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]

# Hooks of every module's calls.
_PRE: OrderedDict[int, Any] = OrderedDict()
_POST: OrderedDict[int, Any] = OrderedDict()
_POST_WITH_KWARGS: OrderedDict[int, bool] = OrderedDict()
_POST_ALWAYS: OrderedDict[int, bool] = OrderedDict()
_BACKWARD: OrderedDict[int, Any] = OrderedDict()
_BACKWARD_PRE: OrderedDict[int, Any] = OrderedDict()
_REGISTRATION: dict[str, OrderedDict[int, Any]] = {
    "module": OrderedDict(),
    "parameter": OrderedDict(),
    "buffer": OrderedDict(),
}


class _BackwardKind:
    """Of which kind backward hooks are: full ones, those of a node of the graph, or not known yet."""

    _is_full_backward_hook: bool | None = None

    def _backward_hooks_are(self, full: bool, where: str) -> None:
        if self._is_full_backward_hook is (not full):
            raise errors.RuntimeError(
                f"Cannot use both regular backward hooks and full backward hooks {where}. Please use only one of them."
            )
        self._is_full_backward_hook = full


_every = _BackwardKind()


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls `hook(module, args)` before every module's `forward`; what it returns, if not None, are the arguments.

    Args:
        hook (Callable[..., Any]): the function to call.

    Returns:
        RemovableHandle: its `remove()` takes the hook away.

    Example:
        >>> from lucid import nn
        >>> handle = nn.modules.module.register_module_forward_pre_hook(lambda module, _: print(type(module).__name__))
        >>> _ = nn.ReLU()(lucid.zeros(1))
        ReLU
        >>> handle.remove()
    """
    return register(_PRE, hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Calls `hook(module, args, output)` after every module's `forward`, before the module's own hooks.

    Args:
        hook (Callable[..., Any]): the function to call.
        with_kwargs (bool, default: False): calls the hook with the keyword arguments, too.
        always_call (bool, default: False): calls the hook also where `forward` raised.

    Returns:
        RemovableHandle: its `remove()` takes the hook away.

    Example:
        >>> from lucid import nn
        >>> handle = nn.modules.module.register_module_forward_hook(lambda module, args, output: print(output))
        >>> _ = nn.ReLU()(lucid.zeros(1))
        tensor([0.])
        >>> handle.remove()
    """
    flags = [_POST_WITH_KWARGS] if with_kwargs else []
    flags += [_POST_ALWAYS] if always_call else []
    return register(_POST, hook, False, flags)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`Module.register_full_backward_hook` for every module.

    Args:
        hook (Callable[..., Any]): the function to call.

    Returns:
        RemovableHandle: its `remove()` takes the hook away.

    Example:
        >>> from lucid import nn
        >>> handle = nn.modules.module.register_module_full_backward_hook(lambda module, given, made: None)
        >>> handle.remove()
    """
    _every._backward_hooks_are(True, "as a global Module hook")
    return register(_BACKWARD, hook)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`Module.register_full_backward_pre_hook` for every module.

    Args:
        hook (Callable[..., Any]): the function to call.

    Returns:
        RemovableHandle: its `remove()` takes the hook away.

    Example:
        >>> from lucid import nn
        >>> handle = nn.modules.module.register_module_full_backward_pre_hook(lambda module, made: None)
        >>> handle.remove()
    """
    return register(_BACKWARD_PRE, hook)


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Registers a hook that is called after the backward pass of every module, in the older way of PyTorch.

    Its gradients are those of the last op of `forward`; `register_module_full_backward_hook` has those of the inputs.

    Args:
        hook (callable): `hook(module, grad_input, grad_output)`; a result that is not None replaces `grad_input`.

    Returns:
        RemovableHandle: its `remove()` takes the hook away.

    Raises:
        RuntimeError: full backward hooks are registered for every module.

    Example:
        >>> from lucid.nn.modules.module import register_module_backward_hook
        >>> handle = register_module_backward_hook(lambda module, grad_input, grad_output: print(type(module).__name__))
        >>> lucid.nn.ReLU()(lucid.ones(1, requires_grad=True)).sum().backward()
        ReLU
        >>> handle.remove()
    """
    _every._backward_hooks_are(False, "as a global Module hook")
    return register(_BACKWARD, hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls `hook(module, name, submodule)` when a child is registered; what it returns, if not None, is used.

    Args:
        hook (Callable[..., Any]): the function to call.

    Returns:
        RemovableHandle: its `remove()` takes the hook away.

    Example:
        >>> from lucid import nn
        >>> handle = nn.modules.module.register_module_module_registration_hook(lambda module, name, child: print(name))
        >>> _ = nn.Sequential(nn.ReLU())
        0
        >>> handle.remove()
    """
    return register(_REGISTRATION["module"], hook)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls `hook(module, name, param)` when a parameter is registered; what it returns, if not None, is used.

    Args:
        hook (Callable[..., Any]): the function to call.

    Returns:
        RemovableHandle: its `remove()` takes the hook away.

    Example:
        >>> from lucid import nn
        >>> handle = nn.modules.module.register_module_parameter_registration_hook(lambda module, name, p: print(name))
        >>> _ = nn.Linear(1, 1)
        weight
        bias
        >>> handle.remove()
    """
    return register(_REGISTRATION["parameter"], hook)


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls `hook(module, name, buffer)` when a buffer is registered; what it returns, if not None, is used.

    Args:
        hook (Callable[..., Any]): the function to call.

    Returns:
        RemovableHandle: its `remove()` takes the hook away.

    Example:
        >>> from lucid import nn
        >>> handle = nn.modules.module.register_module_buffer_registration_hook(lambda module, name, b: print(name))
        >>> nn.Module().register_buffer("steps", lucid.zeros(1))
        steps
        >>> handle.remove()
    """
    return register(_REGISTRATION["buffer"], hook)


def _registered(kind: str, owner: Any, name: str, value: Any) -> Any:
    """What is to be registered, after the hooks of its kind. From now on the name is a quick one to find."""
    for hook in _REGISTRATION[kind].values():
        changed = hook(owner, name, value)
        if changed is not None:
            value = changed
    cls = type(owner)
    # Never on `Module` itself, whose attributes every module of the process has.
    bare = CallMixin in cls.__bases__
    if not bare and name.isidentifier() and not any(name in base.__dict__ for base in cls.__mro__):
        setattr(cls, name, _C.Registered(name))
    return value


class CallMixin(_BackwardKind):
    """The part of `Module` that is called."""

    forward: Callable[..., Any]
    _forward_pre_hooks: OrderedDict[int, Any]
    _forward_pre_hooks_with_kwargs: OrderedDict[int, bool]
    _forward_hooks: OrderedDict[int, Any]
    _forward_hooks_with_kwargs: OrderedDict[int, bool]
    _forward_hooks_always_called: OrderedDict[int, bool]
    _backward_hooks: OrderedDict[int, Any]
    _backward_pre_hooks: OrderedDict[int, Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # From the dict: an attribute of a class with `__getattr__` takes several times as long, and every layer's call
        # comes through here.
        own = self.__dict__
        try:
            hooked = (
                "_compiled_call" in own
                or own["_forward_pre_hooks"]
                or own["_forward_hooks"]
                or own["_backward_hooks"]
                or own["_backward_pre_hooks"]
                or _PRE
                or _POST
                or _BACKWARD
                or _BACKWARD_PRE
            )
        except KeyError as missing:
            raise AttributeError(f"cannot call a module before Module.__init__() call: it has no {missing}") from None
        try:
            if not hooked:
                return self.forward(*args, **kwargs)
            compiled = own.get("_compiled_call")
            return self._call_with_hooks(args, kwargs) if compiled is None else compiled.run(self, args, kwargs)
        except errors.LucidError as error:
            locate(error, self, not hooked)
            raise

    def _call_plain(self, *args: Any, **kwargs: Any) -> Any:
        """The call as it is without `compile()`."""
        return self._call_with_hooks(args, kwargs)

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        called: set[int] = set()
        result = None
        try:
            for key, hook in [*_PRE.items(), *self._forward_pre_hooks.items()]:
                if key in self._forward_pre_hooks_with_kwargs:
                    changed = hook(self, args, kwargs)
                    if changed is not None:
                        if not (isinstance(changed, tuple) and len(changed) == 2):
                            raise errors.RuntimeError(
                                f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), "
                                f"but got {changed}."
                            )
                        args, kwargs = changed
                else:
                    changed = hook(self, args)
                    if changed is not None:
                        args = changed if isinstance(changed, tuple) else (changed,)
            backward = None
            kinds = ((_every, _BACKWARD), (self, self._backward_hooks))
            full = [hook for own, hooks in kinds if own._is_full_backward_hook for hook in hooks.values()]
            others = [hook for own, hooks in kinds if not own._is_full_backward_hook for hook in hooks.values()]
            if full or self._backward_pre_hooks or _BACKWARD_PRE:
                backward = _BackwardCall(self, full, [*_BACKWARD_PRE.values(), *self._backward_pre_hooks.values()])
                args = backward.inputs(args)
            result = self.forward(*args, **kwargs)
            for key, hook in [*_POST.items(), *self._forward_hooks.items()]:
                called.add(key)
                result = self._run_forward_hook(key, hook, args, kwargs, result)
            result = result if backward is None else backward.outputs(result)
            if others:
                _watch(self, others, args, result)
            return result
        except BaseException:
            always = [
                *((key, hook) for key, hook in _POST.items() if key in _POST_ALWAYS),
                *((key, hook) for key, hook in self._forward_hooks.items() if key in self._forward_hooks_always_called),
            ]
            for key, hook in always:
                if key not in called:
                    try:
                        self._run_forward_hook(key, hook, args, kwargs, result)
                    except Exception as silenced:
                        # The first error is the one to report.
                        whose = "global module" if key in _POST else "module"
                        warn(
                            f"{whose} forward hook with ``always_call=True`` raised an exception that was silenced as "
                            f"another error was raised in forward: {silenced}"
                        )
            raise

    def _run_forward_hook(self, key: int, hook: Any, args: Any, kwargs: Any, result: Any) -> Any:
        with_kwargs = key in self._forward_hooks_with_kwargs or key in _POST_WITH_KWARGS
        changed = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
        return result if changed is None else changed

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Calls `hook(module, args)` before `forward`; what it returns, if not None, replaces the arguments.

        With `with_kwargs` it is `hook(module, args, kwargs)`, which returns None or both. `prepend` runs it first.
        """
        flags = [self._forward_pre_hooks_with_kwargs] if with_kwargs else []
        return register(self._forward_pre_hooks, hook, prepend, flags)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Calls `hook(module, args, output)` after `forward`; what it returns, if not None, replaces the output.

        With `with_kwargs` it is `hook(module, args, kwargs, output)`. `prepend` runs it before the others;
        `always_call` runs it even where `forward` raised.
        """
        flags = [self._forward_hooks_with_kwargs] if with_kwargs else []
        flags += [self._forward_hooks_always_called] if always_call else []
        return register(self._forward_hooks, hook, prepend, flags)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls `hook(module, grad_input, grad_output)` when the gradients of the module's inputs are known.

        Both are tuples by position, with None for what is no tensor or needs no gradient; keyword arguments are not
        seen. What it returns, if not None, replaces `grad_input`.
        """
        self._backward_hooks_are(True, "on a single Module")
        return register(self._backward_hooks, hook, prepend)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls `hook(module, grad_output)` when the gradients of the outputs are known; it may return others."""
        return register(self._backward_pre_hooks, hook, prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(module, grad_input, grad_output)` when the node of the graph that made the output has run.

        Of a module of several steps `grad_input` is then that of the last one, of which a FutureWarning tells: use
        `register_full_backward_hook`. A RuntimeError where the module has hooks of the other kind.
        """
        self._backward_hooks_are(False, "on a single Module")
        return register(self._backward_hooks, hook)


def _watch(module: Any, hooks: list[Any], args: Any, result: Any) -> None:
    """Puts a module's older hooks on the node of its first result, and warns of gradients that they do not see."""
    first = result
    while not isinstance(first, Tensor):
        first = next(v for v in first.values() if isinstance(v, Tensor)) if isinstance(first, dict) else first[0]
    node = first.grad_fn
    if node is None:
        return
    for hook in hooks:
        node.register_hook(functools.partial(hook, module))
    missing = _unseen(args, result, node)
    if missing is not None:
        warn(
            f"Using a non-full backward hook on a Module {missing} is deprecated: gradients are missing. Please use "
            "register_full_backward_hook.",
            FutureWarning,
        )


def _unseen(args: tuple[Any, ...], result: Any, node: Any) -> str | None:
    """Why a hook of a node does not see all gradients of a call; `None` where it does."""
    results = (result,) if isinstance(result, Tensor) else result
    if not (isinstance(results, tuple) and all(isinstance(r, Tensor) for r in results)):
        return "that does not return a single Tensor or a tuple of Tensors"
    if not all(isinstance(a, Tensor) for a in args):
        return "that does not take a single Tensor or a tuple of Tensors"
    if len({r.grad_fn for r in results if r.grad_fn is not None}) > 1:
        return "whose outputs are made by different nodes of the graph"
    if {a.grad_fn for a in args if a.grad_fn is not None} != {after for after, _ in node.next_functions}:
        return "whose forward has several nodes of the graph"
    return None


class _BackwardCall:
    """The backward hooks of one call."""

    def __init__(self, module: Any, hooks: list[Any], pre_hooks: list[Any]) -> None:
        self.module = module
        self.hooks = hooks
        self.pre_hooks = pre_hooks
        self.grad_output: tuple[Any, ...] | None = None
        self.waits_for_inputs = False

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, through a node that reports their gradients."""
        if not self.hooks:
            return args
        places = [i for i, a in enumerate(args) if isinstance(a, Tensor) and a.requires_grad]
        if not places or not lucid.is_grad_enabled():
            self.count = len(args)
            return args
        self.waits_for_inputs = True
        # A hook that held the arguments or results would keep them with the graph.
        count = len(args)

        def report(grads: list[Tensor]) -> list[Tensor] | None:
            if self.grad_output is None:
                return None
            given: tuple[Any, ...] = _spread(grads, places, count)
            for hook in self.hooks:
                changed = hook(self.module, given, self.grad_output)
                if changed is not None:
                    changed = changed if isinstance(changed, tuple) else (changed,)
                    if len(changed) != len(given):
                        raise errors.RuntimeError(
                            f"Backward hook returned an invalid number of grad_input, got {len(changed)}, "
                            f"but expected {len(given)}"
                        )
                    given = changed
            self.grad_output = None
            return [given[i] for i in places]

        made = _joined([args[i] for i in places], report)
        changed = list(args)
        for i, t in zip(places, made, strict=True):
            changed[i] = t
        return tuple(changed)

    def outputs(self, result: Any) -> Any:
        """The result, through a node that reports its gradients."""
        alone = not isinstance(result, tuple)
        items = [result] if alone else list(result)
        if not isinstance(result, (Tensor, tuple)):
            warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but received "
                f"{type(result)}"
            )
        places = [i for i, a in enumerate(items) if isinstance(a, Tensor) and a.requires_grad]
        if not places or not lucid.is_grad_enabled():
            return result
        count = len(items)

        def report(grads: list[Tensor]) -> list[Tensor]:
            given: tuple[Any, ...] = _spread(grads, places, count)
            for hook in self.pre_hooks:
                changed = hook(self.module, given)
                if changed is not None:
                    changed = changed if isinstance(changed, tuple) else (changed,)
                    if len(changed) != len(given):
                        raise errors.RuntimeError(
                            f"Backward pre hook returned an invalid number of grad_output, got {len(changed)}, "
                            f"but expected {len(given)}"
                        )
                    given = changed
            self.grad_output = given
            if self.hooks and not self.waits_for_inputs:
                warn(
                    "Full backward hook is firing when gradients are computed with respect to module outputs since no "
                    "inputs require gradients."
                )
                nothing = (None,) * self.count
                for hook in self.hooks:
                    changed = hook(self.module, nothing, given)
                    if changed is not None and not (
                        isinstance(changed, tuple) and all(grad is None for grad in changed)
                    ):
                        raise errors.RuntimeError(
                            "Backward hook for Modules where no input requires gradient should always return None or "
                            "None for all gradients."
                        )
                self.grad_output = None
            return [given[i] for i in places]

        for i, t in zip(places, _joined([items[i] for i in places], report), strict=True):
            items[i] = t
        return items[0] if alone else type(result)(items)


def _spread(grads: list[Tensor], places: list[int], count: int) -> tuple[Any, ...]:
    full: list[Any] = [None] * count
    for i, grad in zip(places, grads, strict=True):
        full[i] = grad
    return tuple(full)


def _joined(tensors: list[Tensor], report: Callable[[list[Tensor]], list[Tensor] | None]) -> list[Tensor]:
    """The same tensors, behind one node whose hook is given all of their gradients and may change them."""
    if len(tensors) == 1:
        alone = tensors[0].view(tensors[0].shape)

        def one(grad: Tensor) -> Tensor | None:
            changed = report([grad])
            return None if changed is None else changed[0]

        alone.register_hook(one)
        return [alone]
    # Only one tensor can have a hook that fires once: all of them in a row.
    flat = lucid.cat([t.reshape([-1]) for t in tensors])
    shapes, dtypes, sizes = [t.shape for t in tensors], [t.dtype for t in tensors], [t.numel() for t in tensors]

    def several(grad: Tensor) -> Tensor | None:
        pieces = grad.split(sizes)
        given = [g.reshape(s).to(d) for g, s, d in zip(pieces, shapes, dtypes, strict=True)]
        changed = report(given)
        if changed is None:
            return None
        blank = [lucid.zeros_like(g) if c is None else c for g, c in zip(given, changed, strict=True)]
        return lucid.cat([c.reshape([-1]).to(grad.dtype) for c in blank])

    flat.register_hook(several)
    return [p.reshape(s).to(d) for p, s, d in zip(flat.split(sizes), shapes, dtypes, strict=True)]
