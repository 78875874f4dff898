"""`FullyShardedDataParallel`: the older way to `fully_shard`, as a module around another."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid._warnings import warn_once, warn_without_effect
from lucid.distributed import _collectives as base
from lucid.distributed._groups import get_world_size
from lucid.distributed._state import ProcessGroup, default_group
from lucid.distributed._work import ReduceOp
from lucid.distributed.device_mesh import DeviceMesh
from lucid.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, api, fully_shard
from lucid.distributed.tensor import DTensor
from lucid.nn.modules.module import Module

_PREFIX = "_fsdp_wrapped_module."


def _clean(name: str) -> str:
    return name.replace(_PREFIX, "")


def _as_dtensor(value: Any) -> DTensor | None:
    return DTensor.of(value) if isinstance(value, Tensor) and getattr(value, "_sharding", None) is not None else None


def _wrap(module: Module, policy: Callable[..., bool], ignored: set[int], shard: Callable[[Module], Any]) -> int:
    """Shards the modules below one that the policy names. How many elements none has taken."""
    left = sum(p.numel() for p in module.parameters() if id(p) not in ignored)
    if not policy(module=module, recurse=True, nonwrapped_numel=left):
        return left
    for child in module.children():
        before = sum(p.numel() for p in child.parameters() if id(p) not in ignored)
        rest = _wrap(child, policy, ignored, shard)
        if rest and policy(module=child, recurse=False, nonwrapped_numel=rest):
            shard(child)
            rest = 0
        left -= before - rest
    return left


class FullyShardedDataParallel(Module):
    """A module whose parameters, gradients and optimizer state are in shards, one for each process.

    Its inputs and outputs are those of the module that it wraps.

    Differences from PyTorch: parameters are ordinary ones that hold the shard (as with `use_orig_params=True`), split
    along their first dimension; modules below that a policy names become `FSDPModule`s in place and keep their names;
    gradients are averaged in every backward pass.

    Args:
        module (Module): the module, built alike on every process; rank 0's parameters count.
        process_group (ProcessGroup, optional): must hold all processes; for a part of them give `device_mesh`.
        sharding_strategy (ShardingStrategy, optional): FULL_SHARD (the default) or SHARD_GRAD_OP.
        cpu_offload (CPUOffload, optional): None, or one that keeps the shards where they are.
        auto_wrap_policy (callable, optional): which modules below are sharded by themselves (`fsdp.wrap`), so that only
            their parameters are whole while they run. Default: None, all parameters travel at once.
        backward_prefetch (BackwardPrefetch, optional): without effect; BACKWARD_POST gives one warning:
            parameters are gathered when they are needed.
        mixed_precision (MixedPrecision, optional): the dtypes to gather and reduce in. Default: the parameters' own.
        ignored_modules (iterable of Module, optional): modules whose parameters stay whole, and whose gradients stay
            each process's own.
        param_init_fn (callable, optional): must be None: call `to_empty()` and initialize the module before.
        device_id (device or int, optional): a device to move the module to first.
        sync_module_states (bool, optional): whether buffers are copied from rank 0, too. Default: False.
        forward_prefetch (bool, optional): without effect; True gives one warning.
        limit_all_gathers (bool, optional): without effect; False gives one warning.
        use_orig_params (bool, optional): parameters keep their names and their number; False gives one warning.
        ignored_states (iterable of Parameter or Module, optional): parameters that stay whole.
        device_mesh (DeviceMesh, optional): a mesh of one dimension. Default: all processes of the job.

    Raises:
        NotImplementedError: another strategy, offloading, a group of some of the processes, `param_init_fn`, or
            parameters on the meta device.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.fsdp import FullyShardedDataParallel
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> model = FullyShardedDataParallel(lucid.nn.Linear(4, 2))
        >>> optimizer = lucid.optim.SGD(model.parameters(), lr=0.1)
        >>> model(lucid.ones(3, 4)).sum().backward()
        >>> optimizer.step()
        >>> model(lucid.ones(3, 4)).shape
        lucid.Size([3, 2])
        >>> dist.destroy_process_group()

    Reference:
        Zhao et al., PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel, 2023.
    """

    _fsdp_wrapped_module: Module

    def __init__(
        self,
        module: Module,
        process_group: Any = None,
        sharding_strategy: api.ShardingStrategy | None = None,
        cpu_offload: api.CPUOffload | None = None,
        auto_wrap_policy: Callable[..., bool] | None = None,
        backward_prefetch: api.BackwardPrefetch | None = api.BackwardPrefetch.BACKWARD_PRE,
        mixed_precision: api.MixedPrecision | None = None,
        ignored_modules: Iterable[Module] | None = None,
        param_init_fn: Callable[[Module], None] | None = None,
        device_id: Any = None,
        sync_module_states: bool = False,
        forward_prefetch: bool = False,
        limit_all_gathers: bool = True,
        use_orig_params: bool = True,
        ignored_states: Iterable[Any] | None = None,
        device_mesh: DeviceMesh | None = None,
    ) -> None:
        warn_without_effect(
            "FullyShardedDataParallel",
            "parameters are gathered when they are needed, not before",
            forward_prefetch=forward_prefetch,
            backward_prefetch=backward_prefetch not in (None, api.BackwardPrefetch.BACKWARD_PRE),
            limit_all_gathers=not limit_all_gathers,
        )
        warn_without_effect(
            "FullyShardedDataParallel",
            "parameters keep their names and their number",
            use_orig_params=not use_orig_params
        )
        name = "FullyShardedDataParallel"
        super().__init__()
        strategy = sharding_strategy or api.ShardingStrategy.FULL_SHARD
        if strategy is api.ShardingStrategy.NO_SHARD:
            raise errors.NotImplementedError(f"{name}: NO_SHARD is nn.parallel.DistributedDataParallel")
        if strategy not in (api.ShardingStrategy.FULL_SHARD, api.ShardingStrategy.SHARD_GRAD_OP):
            raise errors.NotImplementedError(f"{name}: meshes of two dimensions are not there; use FULL_SHARD")
        if cpu_offload is not None and cpu_offload.offload_params:
            raise errors.NotImplementedError(f"{name}: shards stay where they are; leave cpu_offload out")
        if param_init_fn is not None or any(p.is_meta for p in module.parameters()):
            raise errors.NotImplementedError(f"{name}: call module.to_empty() and initialize it before it is sharded")
        if device_mesh is None:
            if process_group is not None and process_group.size() != get_world_size():
                raise errors.NotImplementedError(f"{name}: for some of the processes give device_mesh, not a group")
            device_mesh = DeviceMesh("cpu", list(range(default_group(name).size())))
        if device_id is not None:
            module = module.to(device_id)
        ignored = {id(p) for m in ignored_modules or () for p in m.parameters()}
        for state in ignored_states or ():
            ignored |= {id(p) for p in state.parameters()} if isinstance(state, Module) else {id(state)}
        left_out: Any = {p for p in module.parameters() if id(p) in ignored}
        mixed = mixed_precision or api.MixedPrecision()
        policy = MixedPrecisionPolicy(
            mixed.param_dtype, mixed.reduce_dtype, cast_forward_inputs=mixed.cast_forward_inputs
        )
        if mixed.buffer_dtype is not None:
            for buffer in module.buffers():
                if buffer.is_floating_point():
                    buffer.data = buffer.data.to(mixed.buffer_dtype)

        def shard(m: Module) -> None:
            fully_shard(
                m,
                mesh=device_mesh,
                reshard_after_forward=strategy is api.ShardingStrategy.FULL_SHARD,
                mp_policy=policy,
                ignored_params=left_out,
            )

        if auto_wrap_policy is not None:
            _wrap(module, auto_wrap_policy, ignored, shard)
        if sync_module_states:
            group = device_mesh.get_group()
            for buffer in module.buffers():
                base.broadcast(buffer.detach(), group=group, group_src=0)
        shard(module)
        self._fsdp_wrapped_module = module
        self.__dict__["_mesh"] = device_mesh
        self.__dict__["_settings"] = api.StateDictSettings(
            api.StateDictType.FULL_STATE_DICT, api.FullStateDictConfig(), api.FullOptimStateDictConfig()
        )
        self.sharding_strategy = strategy

    @property
    def module(self) -> Module:
        """The module inside."""
        inner: Module = self._modules["_fsdp_wrapped_module"]  # type: ignore[assignment]
        return inner

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.module, name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module inside."""
        return self.module(*args, **kwargs)

    def _group(self) -> ProcessGroup:
        mesh: DeviceMesh = self.__dict__["_mesh"]
        return mesh.get_group()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside of the block keep whole gradients here; the next one outside sums them all."""
        units = [m._unit for m in self.modules() if isinstance(m, FSDPModule)]
        before = [unit.sync for unit in units]
        for unit in units:
            unit.sync = False
        try:
            yield
        finally:
            for unit, sync in zip(units, before, strict=True):
                unit.sync = sync

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Scales the gradients so that the norm of all of them, on all processes, is at most `max_norm`.

        Every process calls it.

        Args:
            max_norm: The largest norm.
            norm_type: The order, `inf` for the largest absolute value.

        Returns:
            The norm before.
        """
        sharded = [p.grad for p in self.parameters() if p.grad is not None and _as_dtensor(p) is not None]
        alike = [p.grad for p in self.parameters() if p.grad is not None and _as_dtensor(p) is None]
        order, largest = float(norm_type), float(norm_type) == float("inf")
        device = next(iter([*sharded, *alike]), lucid.zeros(0)).device

        def share(grads: list[Tensor]) -> Tensor:
            norms = [lucid.linalg.vector_norm(g.detach().float(), order) for g in grads if g.numel()]
            if not norms:
                return lucid.zeros((), device=device)
            total = lucid.stack(norms)
            return total.max() if largest else (total**order).sum()

        with lucid.no_grad():
            total = share(sharded)
            base.all_reduce(total, ReduceOp.MAX if largest else ReduceOp.SUM, group=self._group())
            total = lucid.maximum(total, share(alike)) if largest else (total + share(alike)) ** (1.0 / order)
            scale = (max_norm / (total + 1e-6)).clamp(max=1.0)
            for g in [*sharded, *alike]:
                g.mul_(scale.to(g.dtype))
        return total

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """The module's state, as `set_state_dict_type` says: whole tensors at first. Every process calls it."""
        warn_without_effect("state_dict", "tensors are given without their history", keep_vars=keep_vars)
        settings: api.StateDictSettings = self.__dict__["_settings"]
        kind, config = settings.state_dict_type, settings.state_dict_config
        out = {} if destination is None else destination
        drop = isinstance(config, api.FullStateDictConfig) and config.rank0_only and self._group().rank() != 0
        parameters = dict(self.module.named_parameters(remove_duplicate=False))
        for name, value in self.module.state_dict().items():
            held = _as_dtensor(parameters.get(name, value))
            shown: Any = value
            if held is not None and kind is api.StateDictType.FULL_STATE_DICT:
                with lucid.no_grad():
                    shown = held.full_tensor().detach()
            elif held is not None and kind is api.StateDictType.SHARDED_STATE_DICT:
                shown = held
            if drop:
                continue
            if config.offload_to_cpu and isinstance(shown, Tensor):
                shown = shown.cpu()
            out[prefix + _clean(name)] = shown
        return out

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """Loads what `state_dict` gave, of whatever kind; of whole tensors each process takes its part."""
        if assign:
            raise errors.NotImplementedError("FullyShardedDataParallel.load_state_dict: assign=True is not there")
        parameters = dict(self.module.named_parameters(remove_duplicate=False))
        local: dict[str, Any] = {}
        for name, value in state_dict.items():
            held = _as_dtensor(parameters.get(name))
            if isinstance(value, DTensor):
                value = value.to_local()
            elif held is not None and tuple(value.shape) == held.shape:
                mesh, (dim, at) = held.device_mesh, held.shard_of()
                begin, length = held.range_of(mesh.get_local_rank(at))
                value = value.narrow(dim, begin, length)
            local[name] = value
        return self.module.load_state_dict(local, strict=strict)

    # --- as PyTorch's static methods

    @staticmethod
    def fsdp_modules(module: Module, root_only: bool = False) -> list[FullyShardedDataParallel]:
        """The wrappers among a module and those below it."""
        found = [m for m in module.modules() if isinstance(m, FullyShardedDataParallel)]
        return found[:1] if root_only else found

    @staticmethod
    def set_state_dict_type(
        module: Module,
        state_dict_type: api.StateDictType,
        state_dict_config: api.StateDictConfig | None = None,
        optim_state_dict_config: api.OptimStateDictConfig | None = None,
    ) -> api.StateDictSettings:
        """Sets what `state_dict` of the wrappers below a module gives. Returns what it was."""
        plain: dict[api.StateDictType, tuple[Any, Any]] = {
            api.StateDictType.FULL_STATE_DICT: (api.FullStateDictConfig, api.FullOptimStateDictConfig),
            api.StateDictType.LOCAL_STATE_DICT: (api.LocalStateDictConfig, api.LocalOptimStateDictConfig),
            api.StateDictType.SHARDED_STATE_DICT: (api.ShardedStateDictConfig, api.ShardedOptimStateDictConfig),
        }
        model_config, optim_config = plain[state_dict_type]
        wrappers = FullyShardedDataParallel.fsdp_modules(module)
        if not wrappers:
            raise errors.ValueError("set_state_dict_type: the module has no FullyShardedDataParallel")
        if state_dict_config is not None and not isinstance(state_dict_config, model_config):
            raise errors.ValueError(
                f"set_state_dict_type: {type(state_dict_config).__name__} is none of {state_dict_type}"
            )
        former: api.StateDictSettings = wrappers[0].__dict__["_settings"]
        made = api.StateDictSettings(
            state_dict_type, state_dict_config or model_config(), optim_state_dict_config or optim_config()
        )
        for w in wrappers:
            w.__dict__["_settings"] = made
        return former

    @staticmethod
    @contextlib.contextmanager
    def state_dict_type(
        module: Module,
        state_dict_type: api.StateDictType,
        state_dict_config: api.StateDictConfig | None = None,
        optim_state_dict_config: api.OptimStateDictConfig | None = None,
    ) -> Iterator[None]:
        """`set_state_dict_type` for a `with` block."""
        former = FullyShardedDataParallel.set_state_dict_type(
            module, state_dict_type, state_dict_config, optim_state_dict_config
        )
        try:
            yield
        finally:
            for w in FullyShardedDataParallel.fsdp_modules(module):
                w.__dict__["_settings"] = former

    @staticmethod
    def get_state_dict_type(module: Module) -> api.StateDictSettings:
        """What `set_state_dict_type` has set."""
        settings: api.StateDictSettings = FullyShardedDataParallel.fsdp_modules(module)[0].__dict__["_settings"]
        return settings

    @staticmethod
    @contextlib.contextmanager
    def summon_full_params(
        module: Module,
        recurse: bool = True,
        writeback: bool = True,
        rank0_only: bool = False,
        offload_to_cpu: bool = False,
        with_grads: bool = False,
    ) -> Iterator[None]:
        """Whole parameters in the place of the shards for a `with` block, outside of forward and backward passes.

        Args:
            module: The wrapper, or what has one.
            recurse: Whether this is for wrappers inside of it, too.
            rank0_only: No effect beyond one warning: every process has the whole parameters.
            offload_to_cpu: No effect beyond one warning: they stay on their device.
            writeback: Whether what is written to them is kept; every process has to write the same.
        """
        if with_grads:
            raise errors.NotImplementedError("summon_full_params: gradients stay in shards")
        for name, given in (("rank0_only", rank0_only), ("offload_to_cpu", offload_to_cpu)):
            if given:
                warn_once(f"fsdp {name}", f"summon_full_params: {name} has no effect: each process has all of them")
        own = [module, getattr(module, "_fsdp_wrapped_module", None)]
        units = [m._unit for m in (module.modules() if recurse else own) if isinstance(m, FSDPModule)]
        with contextlib.ExitStack() as stack:
            for unit in units:
                stack.enter_context(_summoned(unit, writeback))
            yield

    @staticmethod
    def optim_state_dict(model: Module, optim: Any, optim_state_dict: Any = None, group: Any = None) -> dict[str, Any]:
        """An optimizer's state by names of parameters, sharded tensors whole unless `SHARDED_STATE_DICT` is set.

        Every process calls it.
        """
        if optim_state_dict is not None:
            raise errors.NotImplementedError("optim_state_dict: the optimizer's own state is taken; leave it out")
        settings = FullyShardedDataParallel.get_state_dict_type(model)
        names = {id(p): _clean(n) for n, p in model.named_parameters()}
        config = settings.optim_state_dict_config
        state: dict[str, Any] = {}
        for p, values in optim.state.items():
            held = _as_dtensor(p)
            mine = state[names[id(p)]] = {}
            for key, value in values.items():
                if held is not None and isinstance(value, Tensor) and value.ndim and value.shape == p.shape:
                    value = DTensor(value, held._spec)
                    if settings.state_dict_type is api.StateDictType.FULL_STATE_DICT:
                        with lucid.no_grad():
                            value = value.full_tensor()
                if config.offload_to_cpu and isinstance(value, Tensor):
                    value = value.cpu()
                mine[key] = value
        groups = [{**g, "params": [names[id(p)] for p in g["params"]]} for g in optim.param_groups]
        rank0 = isinstance(config, api.FullOptimStateDictConfig) and config.rank0_only
        if rank0 and FullyShardedDataParallel.fsdp_modules(model)[0]._group().rank() != 0:
            return {}
        return {"state": state, "param_groups": groups}

    full_optim_state_dict = optim_state_dict

    @staticmethod
    def optim_state_dict_to_load(
        model: Module, optim: Any, optim_state_dict: dict[str, Any], *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        """What `optim.load_state_dict` takes, of what `optim_state_dict` gave: the own parts, by number."""
        named = {_clean(n): p for n, p in model.named_parameters()}
        numbers: dict[str, int] = {}
        groups = []
        for g in optim_state_dict["param_groups"]:
            for name in g["params"]:
                numbers.setdefault(name, len(numbers))
            groups.append({**g, "params": [numbers[name] for name in g["params"]]})
        state: dict[int, Any] = {}
        for name, values in optim_state_dict["state"].items():
            held = _as_dtensor(named[name])
            mine = state[numbers[name]] = {}
            for key, value in values.items():
                if isinstance(value, DTensor):
                    value = value.to_local()
                elif held is not None and isinstance(value, Tensor) and value.ndim:
                    dim, at = held.shard_of()
                    begin, length = held.range_of(held.device_mesh.get_local_rank(at))
                    value = value.narrow(dim, begin, length)
                mine[key] = value
        return {"state": state, "param_groups": groups}


@contextlib.contextmanager
def _summoned(unit: Any, writeback: bool) -> Iterator[None]:
    shards = unit.parameters()
    with lucid.no_grad():
        whole = [DTensor.of(p).full_tensor().detach().clone() for p in shards]
    for (module, name), p, w in zip(unit.places, shards, whole, strict=True):
        module._parameters[name] = lucid.nn.Parameter(w, requires_grad=p.requires_grad)
    try:
        yield
    finally:
        for (module, name), p in zip(unit.places, shards, strict=True):
            changed = module._parameters[name].detach()
            module._parameters[name] = p
            if writeback:
                held = DTensor.of(p)
                dim, at = held.shard_of()
                begin, length = held.range_of(held.device_mesh.get_local_rank(at))
                p.detach().copy_(changed.narrow(dim, begin, length))
