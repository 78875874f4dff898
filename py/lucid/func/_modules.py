"""Modules as functions of their parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from lucid import _C
from lucid._C import Tensor


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """`module(*args, **kwargs)` with the given tensors in place of its parameters and buffers of those names.

    What is not named stays the module's own, other names are plain attributes of it for the call; with `strict`, all
    must be named and nothing else (a RuntimeError). A name in a module that is not there is an AttributeError.
    Parameters that the module uses under several names are replaced together unless `tie_weights` is false. `args` that
    is no tuple is one argument.

    Args:
        module (Module): the module to call.
        parameter_and_buffer_dicts (Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]]): tensors by dotted name,
            of the shapes of the module's own; or several such dicts.
        args (object, optional): the arguments, a tuple, or the only one.
        kwargs (dict[str, Any], optional): the keyword arguments.
        tie_weights (bool, default: True): replaces all names of a shared tensor.
        strict (bool, default: False): all parameters and buffers must be named, and nothing else.

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
    if isinstance(parameter_and_buffer_dicts, Mapping):
        given = dict(parameter_and_buffer_dicts)
    elif isinstance(parameter_and_buffer_dicts, Sequence):
        if not all(isinstance(d, Mapping) for d in parameter_and_buffer_dicts):
            raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
        names = [k for d in parameter_and_buffer_dicts for k in d]
        repeated = [k for i, k in enumerate(names) if k in names[:i]]
        if repeated:
            raise ValueError(f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous")
        given = {k: v for d in parameter_and_buffer_dicts for k, v in d.items()}
    else:
        raise ValueError(
            f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
            f"{type(parameter_and_buffer_dicts)}"
        )
    call_args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _swapped(module, given, tie_weights, strict):
        return module(*call_args, **(kwargs or {}))


def _places(module: Any) -> dict[str, tuple[dict[str, Any], str]]:
    """The dict and the key where each parameter and buffer is kept, by its full name; shared ones under each name."""
    found = {}
    for prefix, owner in module.named_modules(remove_duplicate=False):
        for store in (owner._parameters, owner._buffers):
            for name in store:
                found[f"{prefix}.{name}" if prefix else name] = (store, name)
    return found


@contextmanager
def _swapped(module: Any, given: Mapping[str, Tensor], tie_weights: bool, strict: bool) -> Iterator[None]:
    places = _places(module)
    unknown = [k for k in given if k not in places]
    own = {k: store[name] for k, (store, name) in places.items()}
    if strict:
        # A tied name is there if any of its names is.
        seen = {id(own[k]) for k in given if k in own} if tie_weights else set()
        missing = [k for k, v in own.items() if k not in given and v is not None and id(v) not in seen]
        if unknown or missing:
            raise RuntimeError(
                f"Error(s) in loading state for functional_call: unexpected key(s): {unknown}; missing key(s): "
                f"{missing}"
            )
    for k in unknown:
        # A plain attribute of one of the modules, for the call alone where it is new.
        path, _, name = k.rpartition(".")
        store = vars(module.get_submodule(path))
        places[k] = (store, name)
        own[k] = store.get(name)
    values = dict(given)
    if tie_weights:
        by_tensor: dict[int, Tensor] = {}
        for k, v in given.items():
            if own[k] is None:
                continue
            if by_tensor.setdefault(id(own[k]), v) is not v:
                raise ValueError(f"functional_call got multiple values for keys tied with {k!r}")
        for k, v in own.items():
            if k not in values and id(v) in by_tensor:
                values[k] = by_tensor[id(v)]
    try:
        for k, v in values.items():
            store, name = places[k]
            store[name] = v
        yield
    finally:
        for k in values:
            store, name = places[k]
            store[name] = own[k]
            if own[k] is None and k in unknown:
                del store[name]


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters and the buffers of modules of one class, each stacked along a new first dimension.

    For `vmap` over an ensemble, with `functional_call`. Stacked parameters are leaves that require gradients, as
    theirs do.

    Args:
        models (sequence of Modules): modules of one class.

    Returns:
        tuple of dicts: parameters and buffers by name, each with a new first dimension.

    Raises:
        RuntimeError: there is no module, or they are of several classes or modes.

    Example:
        >>> from lucid import nn
        >>> params, buffers = lucid.func.stack_module_state([nn.Linear(2, 1), nn.Linear(2, 1)])
        >>> params["weight"].shape
        lucid.Size([2, 1, 2])
    """
    if len(models) == 0:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if not (all(m.training for m in models) or all(not m.training for m in models)):
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if not all(type(m) is type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")

    def stacked(named: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        out = {}
        for name in named[0]:
            tensors = [n[name] for n in named]
            if len({t.requires_grad for t in tensors}) > 1:
                raise RuntimeError(f"Expected {name} from each model to have the same .requires_grad")
            out[name] = _C.stack(tensors).detach().requires_grad_(tensors[0].requires_grad)
        return out

    return (
        stacked([dict(m.named_parameters()) for m in models]),
        stacked([dict(m.named_buffers()) for m in models]),
    )


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Takes the running statistics away from every batch norm in `root`, itself among them; gives `root` back.

    Batch norms then use the batch's own statistics, and write to no buffer, which inside of `vmap` they could not.

    Args:
        root (Module): the root of the tree, which is changed.

    Returns:
        Module: `root` itself.

    Example:
        >>> from lucid import nn
        >>> lucid.func.replace_all_batch_norm_modules_(nn.BatchNorm1d(2)).track_running_stats
        False
    """
    from lucid.nn.modules.batchnorm import _BatchNorm

    for module in root.modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
