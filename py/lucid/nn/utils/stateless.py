"""Calling a module with other parameters and buffers than its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from lucid import Tensor, errors
from lucid._warnings import warn

__all__ = ["functional_call"]


@contextmanager
def _replaced(module: Any, given: Mapping[str, Tensor], tie_weights: bool) -> Iterator[None]:
    """The module with the named members exchanged for the given tensors."""
    places: dict[str, tuple[dict[str, Any], str]] = {}
    shared: dict[int, list[str]] = {}
    for path, owner in module.named_modules(remove_duplicate=False):
        for members in (owner._parameters, owner._buffers):
            for name, member in members.items():
                if member is not None:
                    full = f"{path}.{name}" if path else name
                    places[full] = (members, name)
                    shared.setdefault(id(member), []).append(full)
    wanted = dict(given)
    if tie_weights:
        for names in shared.values():
            first = next((given[n] for n in names if n in given), None)
            if first is not None:
                wanted |= {n: first for n in names if n not in given}
    unknown = [name for name in wanted if name not in places]
    if unknown:
        raise AttributeError(f"{type(module).__name__} has no parameter or buffer `{unknown[0]}`")
    before = []
    try:
        for full, tensor in wanted.items():
            members, name = places[full]
            before.append((members, name, members[name]))
            members[name] = tensor
        yield
    finally:
        for members, name, old in reversed(before):
            members[name] = old


def functional_call(
    module: Any,
    parameters_and_buffers: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Calls `module` with the named parameters and buffers in place of its own.

    Args:
        module (Module): What to call.
        parameters_and_buffers (Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]]): Tensors by dotted name, or
            several such dicts of different names.
        args (tuple, optional): The arguments, a tuple, or the only one.
        kwargs (dict[str, Any], optional): Keyword arguments.
        tie_weights (bool, default: True): Whether a tensor given under one name of a shared parameter counts for
            all.
        strict (bool, default: False): Whether every member must be given.

    Returns:
        object: what the module's `forward` returns.

    Raises:
        RuntimeError: a name that the module does not have, with `strict`.

    Example:
        >>> from lucid import nn
        >>> layer = nn.Linear(2, 1, bias=False)
        >>> lucid.func.functional_call(layer, {"weight": lucid.ones(1, 2)}, (lucid.ones(1, 2),))
        tensor([[2.]])
    """
    older = "`nn.utils.stateless.functional_call` is deprecated. Use `func.functional_call` instead."
    warn(older, FutureWarning)
    dicts = [parameters_and_buffers] if isinstance(parameters_and_buffers, Mapping) else list(parameters_and_buffers)
    given: dict[str, Tensor] = {}
    for part in dicts:
        for name, tensor in part.items():
            if name in given:
                raise errors.ValueError(
                    f"{name} appears in multiple dictionaries; behavior of functional call is ambiguous"
                )
            given[name] = tensor
    if strict:
        own = {n for n, _ in (*module.named_parameters(), *module.named_buffers())}
        if own != set(given):
            missing, extra = sorted(own - set(given)), sorted(set(given) - own)
            raise errors.RuntimeError(f"Error(s): Missing key(s): {missing}. Unexpected key(s): {extra}.")
    call = () if args is None else args if isinstance(args, tuple) else (args,)
    with _replaced(module, given, tie_weights):
        return module(*call, **(kwargs or {}))
