"""Names without documentation that packages import from PyTorch: they answer as PyTorch's."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import lucid
import numpy as np
import pytest
import torch
import torch.fx.experimental.proxy_tensor
import torch.utils.data._utils as theirs_utils
from lucid import _guards
from lucid._script_types import _TYPES

FRAMEWORKS = (lucid, torch)


def module(f: Any, name: str) -> Any:
    return importlib.import_module(f"{f.__name__}.{name}")


def seen_by_transforms(f: Any) -> list[Any]:
    seen = []

    def function(x: Any) -> Any:
        seen.append((f._C._are_functorch_transforms_active(), f._C._functorch.is_batchedtensor(x)))
        return x.sum()

    x = f.ones(3)
    function(x)
    f.func.grad(function)(x)
    f.func.vjp(function, x)
    f.func.jvp(function, (x,), (x,))
    f.vmap(function)(f.ones(2, 3))
    f.func.jacrev(function)(x)
    with f.autograd.forward_ad.dual_level():
        function(x)
    function(x)
    return seen


def test_are_transforms_active() -> None:
    assert seen_by_transforms(lucid) == seen_by_transforms(torch)
    assert seen_by_transforms(lucid)[:2] == [(False, False), (True, False)]


def test_batches_of_samples() -> None:
    def told(f: Any) -> list[Any]:
        functorch, seen = f._C._functorch, []

        def function(x: Any) -> Any:
            seen.append((functorch.maybe_get_bdim(x), functorch.maybe_get_level(x)))
            seen.append((functorch.is_functorch_wrapped_tensor(x), functorch.is_legacy_batchedtensor(x)))
            seen.append(functorch.get_unwrapped(x).tolist())
            return x * 2

        plain = f.ones(2)
        f.vmap(function)(f.arange(6).reshape(2, 3))
        seen += [functorch.maybe_get_level(plain), functorch.maybe_get_bdim(plain)]
        seen.append(functorch.is_gradtrackingtensor(plain))
        with pytest.raises(RuntimeError, match="No wrappers present"):
            functorch.get_unwrapped(plain)
        return seen

    assert told(lucid) == told(torch)
    level = lucid._C._vmap_enter(2, "error")
    try:
        functorch = lucid._C._functorch
        x = lucid.arange(6).reshape(3, 2)
        sample = functorch._add_batch_dim(x, 1, level)
        assert sample.shape == (3,)
        assert functorch._remove_batch_dim(sample * 2, level, 2, 1).tolist() == (x * 2).tolist()
        assert functorch._remove_batch_dim(lucid.ones(3), level, 2, -1).shape == (3, 2)
    finally:
        lucid._C._vmap_exit(level)


class Mode(lucid.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def traced_modes(proxy: Any, x: Any) -> list[Any]:
    inside = []

    def function(t: Any) -> Any:
        inside.append(proxy.get_proxy_mode())
        return t + 1

    proxy.make_fx(function)(x)
    return inside


def test_questions() -> None:
    for f in FRAMEWORKS:
        x = f.arange(4)
        assert f._C._is_alias_of(x, x[1:]) and not f._C._is_alias_of(x, x.clone())
        assert (f._C._get_default_device(), f._C._get_cudnn_enabled()) == ("cpu", True)
        assert not f._C._is_torch_function_mode_enabled()
        proxy = module(f, "fx.experimental.proxy_tensor")
        assert traced_modes(proxy, x)[0] is not None and proxy.get_proxy_mode() is None
        assert module(f, "_guards").detect_fake_mode((x,)) is None
        ops = module(f, "_ops")
        assert isinstance(f.ops.aten.add.Tensor, ops.OpOverload) and isinstance(f.ops.aten.add, ops.OpOverloadPacket)
        assert not isinstance(f.add, ops.OpOverload) and not isinstance(f.ops.aten.add, ops.HigherOrderOperator)
        assert f.Future is f.futures.Future.__mro__[f is torch]
        graph = f.fx.Graph()
        tracer = f.fx.proxy.GraphAppendingTracer(graph)
        out = f.fx.Proxy(graph.placeholder("x"), tracer) + 1
        graph.output(out.node)
        assert f.fx.GraphModule({}, graph)(2) == 3
    with Mode():
        assert lucid._C._is_torch_function_mode_enabled()
    assert _guards.active_fake_mode() is None
    with pytest.raises(NotImplementedError, match="custom_op"):
        lucid._ops.HigherOrderOperator("f")
    assert not any((lucid.has_cuda, lucid.has_cudnn)) or lucid.cuda.is_available()


def test_older_ops() -> None:
    for name in ("Byte", "Char", "Short", "Int", "Long", "Half", "Float", "Double"):
        ours, theirs = (getattr(f, f"_cast_{name}")(f.tensor([1.75, 3.0])) for f in FRAMEWORKS)
        assert (str(ours.dtype)[6:], ours.tolist()) == (str(theirs.dtype)[6:], theirs.tolist())
    for wide in (False, True):
        rows = [f._convert_indices_from_coo_to_csr(f.tensor([0, 0, 2, 3, 3]), 5, out_int32=wide) for f in FRAMEWORKS]
        assert (rows[0].tolist(), str(rows[0].dtype)[6:]) == (rows[1].tolist(), str(rows[1].dtype)[6:])
        for transpose in (False, True):
            both = [
                f._convert_indices_from_csr_to_coo(
                    f.tensor([0, 2, 2, 3]), f.tensor([1, 0, 2]), out_int32=wide, transpose=transpose
                )
                for f in FRAMEWORKS
            ]
            assert (both[0].tolist(), str(both[0].dtype)[6:]) == (both[1].tolist(), str(both[1].dtype)[6:])
    for kind in ("sum", "mean", "amax", "amin"):
        made = [
            f._segment_reduce(f.arange(6.0).reshape(3, 2), kind, offsets=f.tensor([0, 1, 3]), initial=0)
            for f in FRAMEWORKS
        ]
        assert made[0].tolist() == made[1].tolist()
    pinned = lucid.ones(1)
    assert lucid.ops.aten._pin_memory.default(pinned) is pinned
    buffer, sizes, strides = lucid.arange(10.0), lucid.tensor([[2, 2], [3, 2]]), lucid.tensor([[2, 1], [2, 1]])
    parts = lucid._nested_view_from_buffer(buffer, sizes, strides, lucid.tensor([0, 4])).unbind()
    theirs = torch._nested_view_from_buffer(
        torch.arange(10.0), torch.tensor(sizes.tolist()), torch.tensor(strides.tolist()), torch.tensor([0, 4])
    )
    assert [p.tolist() for p in parts] == [p.tolist() for p in theirs.unbind()]


def test_types_of_scripts_say_what_they_are_not() -> None:
    for name in _TYPES:
        kind = getattr(lucid, name)
        assert isinstance(kind, type) and isinstance(getattr(torch, name), type)
        assert not isinstance(lucid.ones(1), kind) and lucid.float32 not in (kind,)
        for call in (kind, kind.get):
            with pytest.raises(NotImplementedError, match=f"{name}: a type of PyTorch's scripts"):
                call()


def test_sparse_types() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for f in FRAMEWORKS:
            made = f.sparse.FloatTensor(f.tensor([[0, 2], [1, 0]]), f.tensor([1.0, 2.0]), (3, 2))
            assert made.to_dense().tolist() == [[0.0, 1.0], [0.0, 0.0], [2.0, 0.0]]
            assert f.sparse.LongTensor(f.tensor([[0, 2]]), f.tensor([1, 2])).to_dense().tolist() == [1, 0, 2]
            assert (f.sparse.DoubleTensor(2, 3).dtype, tuple(f.sparse.DoubleTensor(2, 3).shape)) == (f.float64, (2, 3))
            assert tuple(f.sparse.HalfTensor().shape) == (0,) and f.sparse.HalfTensor().is_sparse
            assert isinstance(made, f.sparse.FloatTensor) and not isinstance(made, f.sparse.DoubleTensor)
            assert not isinstance(made.to_dense(), f.sparse.FloatTensor)
    for wrong in ((lucid.tensor([[0]]), lucid.tensor([1])), (lucid.tensor([[0]]),)):
        with pytest.raises(TypeError, match="values"):
            lucid.sparse.FloatTensor(*wrong)
    assert lucid.cuda.sparse.FloatTensor is lucid.sparse.FloatTensor


def test_texts_of_tensors() -> None:
    def texts(f: Any) -> list[str]:
        shown = module(f, "_tensor_str")
        many = f.arange(40.0).reshape(4, 10)
        return [
            shown._tensor_str(many, 9),
            shown._tensor_str(f.ones(0), 0),
            shown._add_suffixes("Index([1, 2]", ["dim_size=3", "is_sorted=True"], 6, False),
            shown._add_suffixes("Index(" + "1, " * 25, ["dim_size=3", "is_sorted=True"], 6, False),
            shown._add_suffixes("Index([1, 2]", ["dim_size=3"], 6, True),
            shown._str_intern(f.ones(2, dtype=f.float64), tensor_contents="[one, one]").replace(f.__name__, "f"),
            shown._str(f.ones(2)),
        ]

    assert texts(lucid) == texts(torch)
    assert lucid._tensor_str.PRINT_OPTS.linewidth == torch._tensor_str.PRINT_OPTS.linewidth


# ---- loading of data -------------------------------------------------------------------------------------------------

BATCHES: dict[str, list[Any]] = {
    "collate_float_fn": [1.5, 2.0],
    "collate_int_fn": [1, 2],
    "collate_str_fn": ["a", "b"],
    "collate_numpy_array_fn": [np.ones(2, np.float32), np.zeros(2, np.float32)],
    "collate_numpy_scalar_fn": [np.float32(1.5), np.float32(2)],
}


@pytest.mark.parametrize("name", [*BATCHES, "collate_tensor_fn"])
def test_rules_of_collation(name: str) -> None:
    made = []
    for f, collate in ((lucid, lucid.utils.data._utils.collate), (torch, theirs_utils.collate)):
        batch = BATCHES.get(name) or [f.ones(2), f.zeros(2)]
        rules = collate.default_collate_fn_map
        out = getattr(collate, name)(batch, collate_fn_map=rules)
        made.append((out.tolist(), str(out.dtype).rpartition(".")[2]) if hasattr(out, "dtype") else out)
        assert collate.np_str_obj_array_pattern.search("<U3") and "{}" in collate.default_collate_err_msg_format
    assert made[0] == made[1]
    rules = lucid.utils.data._utils.collate.default_collate_fn_map
    assert rules[lucid.Tensor] is lucid.utils.data._utils.collate.collate_tensor_fn
    with pytest.raises(TypeError, match="numpy arrays"):
        lucid.utils.data._utils.collate.collate_numpy_array_fn([np.array(["a"])])


def test_parts_of_loading() -> None:
    class Pinned:
        def pin_memory(self) -> str:
            return "pinned"

    x = lucid.ones(2)
    pinned = lucid.utils.data._utils.pin_memory.pin_memory({"a": (x, "b"), "c": [Pinned(), 3], "d": range(2)})
    assert pinned["a"][0].tolist() == [1.0, 1.0] and pinned["a"][1] == "b"
    assert (pinned["c"], list(pinned["d"])) == (["pinned", 3], [0, 1])
    for fetch, worker in (
        (lucid.utils.data._utils.fetch, lucid.utils.data._utils.worker),
        (theirs_utils.fetch, theirs_utils.worker),
    ):
        assert fetch._MapDatasetFetcher([5, 6, 7], True, list, False).fetch([2, 0]) == [7, 5]
        assert fetch._IterableDatasetFetcher([5, 6, 7], True, list, False).fetch([None] * 2) == [5, 6]
        assert worker._worker_info is None
        worker._worker_info = "played"
        assert worker.get_worker_info() == "played"
        worker._worker_info = None
        assert worker.get_worker_info() is None


def test_numbers_of_files() -> None:
    for name in ("DEFAULT_PROTOCOL", "MAGIC_NUMBER", "PROTOCOL_VERSION", "STORAGE_KEY_SEPARATOR"):
        assert getattr(lucid.serialization, name) == getattr(torch.serialization, name)
    for name in ("LONG_SIZE", "INT_SIZE", "SHORT_SIZE"):
        assert getattr(lucid.serialization, name) == getattr(torch.serialization, name)


# ---- what is not there -----------------------------------------------------------------------------------------------


def test_memory_of_cuda() -> None:
    memory = lucid.cuda.memory
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        memory._record_memory_history(enabled=None)  # Nothing is recorded anyway.
    with pytest.warns(UserWarning, match="keeps no history"):
        lucid.set_warn_always(True)
        try:
            memory._record_memory_history(max_entries=10)
        finally:
            lucid.set_warn_always(False)
    for call in (memory._dump_snapshot, memory._snapshot):
        with pytest.raises(NotImplementedError, match="profile_memory"):
            call()
    for old, new in (("memory_cached", "memory_reserved"), ("max_memory_cached", "max_memory_reserved")):
        with pytest.warns(FutureWarning, match=new):
            assert getattr(memory, old)() == getattr(memory, new)()
    assert memory.get_allocator_backend() == "mlx"
    assert memory.memory_summary().startswith("Memory of the GPU device")
    assert len(memory.memory_summary().splitlines()) == 1 + len(memory.memory_stats())
    assert len(lucid.cuda.get_arch_list()) == lucid.cuda.device_count()


def test_cpu_libraries_that_are_not_used() -> None:
    mkldnn, nnpack = lucid.backends.mkldnn, lucid.backends.nnpack
    assert not any((mkldnn.is_available(), mkldnn.is_acl_available(), nnpack.is_available(), mkldnn.enabled))
    lucid.set_warn_always(True)
    try:
        with pytest.warns(UserWarning, match=r"enabled has no effect.*not oneDNN"), mkldnn.flags(enabled=True):
            assert mkldnn.enabled
        assert not mkldnn.enabled
        with pytest.warns(UserWarning, match="deterministic has no effect"):
            mkldnn.deterministic = True
        mkldnn.deterministic = False
        with pytest.warns(UserWarning, match="verbose"), mkldnn.verbose(mkldnn.VERBOSE_ON):
            pass
        with pytest.warns(UserWarning, match="NNPACK"), nnpack.flags(enabled=True):
            assert nnpack.set_flags(True) == (True,)
        assert nnpack.set_flags(False) == (False,)
    finally:
        lucid.set_warn_always(False)


def test_calls_between_processes() -> None:
    rpc = lucid.distributed.rpc
    theirs = importlib.import_module("torch.distributed.rpc")
    assert rpc.is_available() is False
    for name in rpc.__all__:
        assert hasattr(theirs, name)
        if name not in ("is_available", "BackendType"):
            with pytest.raises(NotImplementedError, match=r"functions are not called in other processes.*send_object"):
                getattr(rpc, name)("name", rank=0)
    assert rpc.BackendType.TENSORPIPE.name == theirs.BackendType.TENSORPIPE.name
    assert rpc.RRef[lucid.Tensor] is rpc.RRef
    for name in ("DEFAULT_RPC_TIMEOUT_SEC", "DEFAULT_PROCESS_GROUP_TIMEOUT", "UNSET_RPC_TIMEOUT"):
        assert getattr(rpc.constants, name) == getattr(theirs.constants, name)
    assert rpc.functions.async_execution(abs)(-2) == 2


@pytest.mark.parametrize(("base", "worker"), [(0, 0), (2**63 - 1, 7), (123456789012345, 3)])
def test_states_of_workers(base: int, worker: int) -> None:
    ours, theirs = (module(f, "utils.data._utils.worker")._generate_state(base, worker) for f in FRAMEWORKS)
    assert ours == theirs


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_steps_of_gradient_scaling(device: str) -> None:
    def told(f: Any, **k: Any) -> list[Any]:
        seen: list[Any] = []
        scale, count = f.full((), 8.0, **k), f.zeros((), dtype=f.int32, **k)
        for bad in (False, False, True, False, False, False):
            grads = [f.tensor([2.0, float("inf") if bad else 4.0], **k), f.ones(3, **k)]
            found = f.zeros((), **k)
            f._amp_foreach_non_finite_check_and_unscale_(grads, found, f.full((), 0.5, **k))
            assert f._amp_update_scale_(scale, count, found, 2.0, 0.5, 2) is scale
            seen.append((grads[0].tolist(), grads[1].tolist(), found.item(), scale.item(), count.item()))
        large = f.full((), 3e38, **k)
        f._amp_update_scale_(large, f.ones((), dtype=f.int32, **k), f.zeros((), **k), 2.0, 0.5, 2)
        f._amp_foreach_non_finite_check_and_unscale_([], found, found)
        return [*seen, large.item()]

    assert told(lucid, device=device) == told(torch)


def test_checkpoints_ask_whether_backward_may_be_called() -> None:
    def told(f: Any) -> list[bool]:
        seen: list[bool] = []
        x = f.ones(2, requires_grad=True)

        def loss() -> Any:
            y = x * 2
            y.register_hook(lambda g: seen.append(f.autograd._is_checkpoint_valid()))
            return (y * 3).sum()

        loss().backward()
        f.autograd.grad(loss(), x)
        loss().backward(inputs=[x])
        return [*seen, f.autograd._is_checkpoint_valid()]

    assert told(lucid) == told(torch)


def test_small_private_names() -> None:
    for f in FRAMEWORKS:
        pytree, dispatch = module(f, "utils._pytree"), module(f, "utils._python_dispatch")
        assert list(pytree._list_flatten([1, 2])[0]) == [1, 2] and pytree._list_unflatten((1, 2), None) == [1, 2]
        assert [str(k) for k, _ in pytree._list_flatten_with_keys([5])[0]] == ["[0]"]
        assert [str(k) for k, _ in pytree._dict_flatten_with_keys({"a": 5})[0]] == ["['a']"]

        class Plain(f.Tensor):
            pass

        class Flattened(f.Tensor):
            def __tensor_flatten__(self) -> Any:
                return [], None

            @staticmethod
            def __tensor_unflatten__(inner: Any, meta: Any, size: Any, stride: Any) -> Any:
                return None

        made = [f.ones(2).as_subclass(t) for t in (Plain, Flattened)]
        assert [dispatch.is_traceable_wrapper_subclass(t) for t in (f.ones(2), *made, 3)] == [False, False, True, False]
        parametrize = module(f, "nn.utils.parametrize")
        assert parametrize._cache_enabled == 0
        with parametrize.cached():
            assert parametrize._cache_enabled == 1
        with pytest.raises(AttributeError):
            _ = parametrize.nothing
        assert not f._C._has_xpu
    called: list[int] = []
    lucid.cuda._lazy_call(lambda: called.append(1))
    assert called == [1] * lucid.cuda.is_available()
    assert module(lucid, "distributed.distributed_c10d")._get_global_rank is lucid.distributed.get_global_rank
    with pytest.raises(NotImplementedError, match="address of its stream"):
        lucid._C._cuda_getCurrentRawStream(0)
