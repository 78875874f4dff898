"""Names that fairscale, torchtune, tensordict and nnsight import, beside PyTorch's."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib
from pathlib import Path
from typing import Any

import lucid
import pytest
import torch

from tests.python.tolerances import near

FRAMEWORKS = (lucid, torch)


def module(f: Any, name: str) -> Any:
    return importlib.import_module(f"{f.__name__}.{name}")


@pytest.mark.parametrize(
    "name",
    ["Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"],
)
def test_optimizers_of_many_tensors(name: str) -> None:
    stepped = []
    for f in FRAMEWORKS:
        x = f.ones(3, requires_grad=True)
        made = getattr(module(f, "optim._multi_tensor"), name)([x], lr=0.1)
        assert isinstance(made, getattr(f.optim, name)) and made.defaults["foreach"] is True
        (x * x).sum().backward()
        made.step()
        stepped.append(x.tolist())
    assert stepped[0] == pytest.approx(stepped[1], **near("few ops"))


def test_tensor_types_of_the_gpu() -> None:
    assert repr(lucid.cuda.FloatTensor) == "<class 'lucid.cuda.FloatTensor'>"
    x = lucid.cuda.HalfTensor([1.0, 2.0])
    assert x.dtype is lucid.float16 and x.device == lucid.device("gpu") and x.tolist() == [1.0, 2.0]
    assert isinstance(x, lucid.cuda.HalfTensor) and not isinstance(x, lucid.HalfTensor | lucid.cuda.FloatTensor)
    assert not isinstance(lucid.ones(1), lucid.cuda.FloatTensor) and isinstance(lucid.ones(1), lucid.FloatTensor)
    assert lucid.cuda.IntTensor(2, 3).shape == (2, 3)
    assert lucid.cuda.HalfTensor(x).equal(x) and lucid.ones(2).type(lucid.cuda.LongTensor).device == x.device
    with pytest.raises(TypeError, match="one of cpu"):
        lucid.cuda.FloatTensor(lucid.ones(2))


def test_generators_and_versions_of_cuda() -> None:
    assert len(lucid.cuda.default_generators) == lucid.cuda.device_count()
    assert all(g is lucid.default_generator for g in lucid.cuda.default_generators)
    nccl = module(lucid, "cuda.nccl")
    try:
        major, minor, patch = nccl.version()
        assert major >= 2 and minor >= 0 and patch >= 0
    except lucid.errors.RuntimeError as e:
        assert "libnccl" in str(e)
    assert nccl.is_available([lucid.ones(1)]) is False
    with pytest.raises(AttributeError, match="one GPU"):
        nccl.all_reduce([])


def test_modules_of_other_processes() -> None:
    from lucid.distributed.nn import RemoteModule

    assert not isinstance(lucid.nn.Linear(1, 1), RemoteModule)
    with pytest.raises(lucid.errors.NotImplementedError, match="other processes"):
        RemoteModule("worker1/cpu", lucid.nn.Linear, (1, 1))


def test_places_of_sharded_tensors() -> None:
    from lucid.distributed._composable.fsdp import CPUOffloadPolicy, OffloadPolicy
    from lucid.distributed._tensor.placement_types import DTensorSpec, Replicate, Shard, TensorMeta
    from lucid.distributed.tensor.parallel import style

    assert issubclass(style.ColwiseParallel, style.ParallelStyle) and issubclass(CPUOffloadPolicy, OffloadPolicy)
    mesh: Any = None
    meta = TensorMeta(lucid.Size([4, 2]), (2, 1), lucid.float32)
    spec: Any = DTensorSpec(mesh, (Shard(0),), meta)
    assert spec.shape == (4, 2) and spec.stride == (2, 1) and spec.ndim == 2
    assert spec.is_sharded() and not spec.is_replicated()
    with pytest.raises(lucid.errors.ValueError, match="tensor_meta"):
        _ = DTensorSpec(mesh, (Replicate(),)).shape


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad"])
def test_states_of_optimizers_are_made(name: str) -> None:
    for f in FRAMEWORKS:
        x = f.nn.Parameter(f.ones(2))
        optim = getattr(f.optim, name)([x], lr=0.1)
        module(f, "distributed.checkpoint.state_dict")._init_optim_state(optim)
        assert x.tolist() == [1.0, 1.0] and x.grad is None and optim.param_groups[0]["lr"] == 0.1
        assert bool(optim.state[x]) == (name != "SGD")


def test_the_launcher_takes_arguments_as_attributes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from lucid.distributed.run import run

    program = tmp_path / "program.py"
    program.write_text("import os, sys\nprint('rank', os.environ['RANK'], sys.argv[1:])\nsys.exit(sys.argv[1] == 'no')")
    given = argparse.Namespace(
        training_script=str(program), training_script_args=["a"], nproc_per_node="2", module=False
    )
    assert run(given) == 0
    said = capfd.readouterr().out
    assert "rank 0 ['a']" in said and "rank 1 ['a']" in said
    with pytest.raises(SystemExit):
        run(argparse.Namespace(training_script=str(program), training_script_args=["no"], standalone=True))
    for wrong in ({}, {"training_script": "x", "nproc_per_node": "none"}):
        with pytest.raises(SystemExit):
            run(argparse.Namespace(**wrong))


def test_parts_of_vmap() -> None:
    said = []
    for f in FRAMEWORKS:
        parts, lines = module(f, "_functorch.vmap"), []
        lines.append([parts._get_name(f.sin), parts._get_name(functools.partial(f.sin, 1))])

        def function(x: Any, parts: Any = parts, lines: list[Any] = lines) -> Any:
            for value in (x, 3):
                try:
                    lines.append(parts._maybe_remove_batch_dim("f", value, 1, 2, None))
                except ValueError as e:
                    lines.append(str(e))
            with pytest.raises(ValueError, match="must only return"):
                parts._maybe_remove_batch_dim("f", 3, 1, 2, 0)
            return x

        f.vmap(function)(f.arange(6).view(2, 3))
        leaves, spec = parts.tree_flatten({"a": [1, 2]})
        lines += [leaves, parts.tree_unflatten(leaves, spec), parts._broadcast_to_and_flatten(0, spec)]
        said.append(str(lines))
    assert said[0] == said[1]
    level = lucid._C._vmap_enter(2, "error")
    try:
        parts, x = module(lucid, "_functorch.vmap"), lucid.arange(6).reshape(3, 2)
        sample = parts._add_batch_dim(x, 1, level)
        assert parts._maybe_remove_batch_dim("f", sample * 2, level, 2, 1).tolist() == (x * 2).tolist()
    finally:
        lucid._C._vmap_exit(level)


@pytest.mark.parametrize("change", [lambda t: t, lambda t: t.t(), lambda t: t[1:], lambda t: t.double()])
def test_attributes_for_caches(change: Any) -> None:
    told = []
    for f in FRAMEWORKS:
        extract = module(f, "_inductor.codecache").extract_tensor_metadata_for_cache_key
        x = change(f.ones(3, 2))
        assert extract(x) == extract(change(f.zeros(3, 2)))
        assert extract(x) != extract(change(f.ones(3, 3)))
        made = {k: str(v).replace("lucid.", "torch.") for k, v in dataclasses.asdict(extract(x)).items()}
        made["shape"] = str(tuple(x.shape))
        told.append(made)
    assert {k: v for k, v in told[1].items() if k in told[0]} == told[0]


def test_storages_and_environments_of_sizes() -> None:
    from lucid._subclasses.fake_tensor import FakeTensorMode
    from lucid.fx.experimental.symbolic_shapes import ShapeEnv

    for f in FRAMEWORKS:
        assert isinstance(f.ones(1).untyped_storage(), f.StorageBase)
        assert not isinstance(f.ones(1), f.StorageBase)
    assert ShapeEnv(duck_shape=False).duck_shape is False
    with pytest.raises(AttributeError, match="numbers"):
        _ = ShapeEnv().create_symbol
    with pytest.warns(UserWarning, match="numbers"):
        FakeTensorMode(shape_env=ShapeEnv())


def test_groups_by_name() -> None:
    import lucid.distributed as dist
    from lucid.distributed.distributed_c10d import GroupName, _resolve_process_group

    dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
    try:
        world, other = dist.group.WORLD, dist.new_group([0])
        assert world is not None
        assert _resolve_process_group(world.group_name) is world and _resolve_process_group(other.group_name) is other
        with pytest.raises(lucid.errors.RuntimeError, match="Could not resolve"):
            _resolve_process_group(GroupName("nobody's"))
    finally:
        dist.destroy_process_group()


SCHEMA = "aten::f.over(Tensor self, int[] x=[1, 2], float? s=None, *, bool b=False) -> (Tensor, Tensor)"


@pytest.mark.parametrize(
    "new",
    [
        SCHEMA,
        SCHEMA.replace(") ->", ", int z=1) ->"),
        SCHEMA.replace(") ->", ", int z) ->"),
        SCHEMA.replace("bool b=False", "bool b=True"),
        SCHEMA.replace("float? s=None", "str? s=None"),
        SCHEMA.replace("Tensor self", "Tensor? self"),
        SCHEMA.replace("float? s=None", "*, float? s=None").replace("None, *,", "None,"),
        SCHEMA.replace("*, bool b=False", "bool b=False"),
        SCHEMA.replace("f.over", "g.over"),
        SCHEMA.replace("-> (Tensor, Tensor)", "-> Tensor"),
        "aten::f.over(Tensor self) -> (Tensor, Tensor)",
    ],
)
def test_schemas_are_read_and_compared(new: str) -> None:
    told = []
    for f in FRAMEWORKS:
        old, other = f._C.parse_schema(SCHEMA), f._C.parse_schema(new)
        arguments = [(a.name, a.default_value, a.kwarg_only, a.has_default_value()) for a in other.arguments]
        parts = other.name, other.overload_name, arguments, len(other.returns), other.is_mutable, str(other)
        told.append((parts, other.is_backward_compatible_with(old), old.is_backward_compatible_with(other)))
        with pytest.raises(RuntimeError):
            f._C.parse_schema("f(Tensor")
    assert told[0] == told[1]


def test_classes_of_results_and_gradients() -> None:
    for f in FRAMEWORKS:

        class Own(f.Tensor):  # type: ignore[name-defined, misc]
            pass

        convert = module(f, "_tensor")._convert
        made = convert([f.ones(1), (f.ones(2), 3)], Own)
        assert type(made[0]) is Own and type(made[1][0]) is Own and made[1][1] == 3
        x = f.ones(1)
        assert convert(x, f.Tensor) is x
        x.requires_grad_()
        (x * 3).sum().backward()
        assert x._grad.tolist() == [3.0] and callable(f.Tensor._grad.__get__)


def test_a_guard_keeps_modes_from_being_asked() -> None:
    for f in FRAMEWORKS:
        seen: list[str] = []

        class Seen(module(f, "utils._python_dispatch").TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None, seen: list[str] = seen
            ) -> Any:
                seen.append(str(func))
                return func(*args, **(kwargs or {}))

        x = f.ones(1)
        with Seen():
            x.add(1)
            guard = f._C._DisableTorchDispatch()
            x.mul(1)
            del guard
            x.sub(1)
        assert [name.split(".")[1] for name in seen] == ["add", "sub"]


def test_files_of_timing_profiling_and_libraries() -> None:
    common = lucid.utils.benchmark.utils.common
    assert common.TaskSpec is lucid.utils.benchmark.TaskSpec
    assert module(lucid, "profiler.profiler").profile is lucid.profiler.profile
    assert lucid.backends.cusparselt.is_available() is False and lucid.backends.cusparselt.version() is None
    assert not hasattr(module(lucid, "cuda._memory_viz"), "trace_plot")
    with pytest.raises(lucid.errors.NotImplementedError, match="events of its own"):
        lucid._C._autograd._KinetoEvent()
    for call, text in (
        (lucid.nn.attention._get_flash_version, "no library"),
        (lambda: module(lucid, "distributed._symmetric_memory").get_symm_mem_workspace("0", 1), "each other's memory"),
        (lucid.cuda.profiler.start, "cuda"),
        (lambda: lucid.cuda.profiler.profile().__enter__(), "cuda"),
    ):
        with pytest.raises((lucid.errors.NotImplementedError, lucid.errors.GpuNotAvailable), match=text):
            call()
    version = module(lucid, "_vendor.packaging.version")
    assert version.parse("2.10") > version.parse("2.9")


def test_tensors_are_sent_as_handles() -> None:
    x = lucid.arange(3)
    function, args = module(lucid, "multiprocessing.reductions").reduce_tensor(x)
    y = function(*args)
    y[0] = 7
    assert x.tolist() == [7, 1, 2]


def test_what_ops_say_of_themselves() -> None:
    told = []
    for f in FRAMEWORKS:
        lines: dict[str, Any] = {}
        names = module(f, "testing._internal.composite_compliance")
        rules = names.is_view_fn, names.is_inplace_view_fn, names.is_inplace

        class Seen(module(f, "utils._python_dispatch").TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None, of: Any = (f, lines, rules)
            ) -> Any:
                f, lines, rules = of
                tags = [tag in func.tags for tag in (f.Tag.nondeterministic_seeded, f.Tag.inplace_view)]
                views = [rule(func) for rule in rules]
                lines[str(func).rpartition(".")[0]] = (tags, views)
                return func(*args, **(kwargs or {}))

        x = f.ones(3, 2)
        with Seen():
            f.rand(3), f.randn(2), f.randint(0, 3, (2,)), f.randperm(3)
            f.zeros(2, 3).uniform_().normal_().bernoulli_(0.5).unsqueeze_(0).squeeze_().t_().transpose_(0, 1)
            f.bernoulli(x), f.multinomial(x, 1), f.poisson(x)
            x.view(6), x.t(), x.select(0, 1), x.unsqueeze(0), x.add_(1), x.mul(2), x.sum(), x.clone(), x.detach()
            f.rand_like(x), f.randn_like(x), f.zeros(1).random_(3).exponential_()
        told.append(lines)
    assert told[0] == told[1] and len(told[0]) > 25
    for f in FRAMEWORKS:
        assert f.Tag.nondeterministic_seeded in f.ops.aten.rand.default.tags
        assert f.Tag.nondeterministic_seeded not in f.ops.aten.add.Tensor.tags
