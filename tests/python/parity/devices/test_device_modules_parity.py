"""`cuda`, `mps`, `accelerator` and `backends`: what scripts ask and set; without a GPU the answers are PyTorch's."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import warnings
from typing import Any

import lucid
import pytest
import torch
from lucid import _gpu

#: What each framework is asked.
ASKED = """
cuda.is_available()
cuda.is_initialized()
cuda.is_bf16_supported()
cuda.device_count()
cuda.current_device()
cuda.synchronize()
cuda.synchronize("cuda")
cuda.empty_cache()
cuda.memory_allocated()
cuda.memory_allocated(0)
cuda.max_memory_allocated()
cuda.memory_reserved()
cuda.max_memory_reserved()
cuda.memory_stats()
cuda.mem_get_info()
cuda.reset_peak_memory_stats()
cuda.manual_seed(0)
cuda.manual_seed_all(0)
cuda.seed()
cuda.seed_all()
cuda.initial_seed()
cuda.get_rng_state()
cuda.get_rng_state_all()
cuda.set_rng_state_all([])
cuda.get_device_name()
cuda.get_device_capability()
cuda.get_device_properties(0)
cuda.set_device(0)
cuda.current_stream()
cuda.default_stream()
cuda.Stream()
cuda.init()
cuda.amp.GradScaler().is_enabled()
issubclass(cuda.OutOfMemoryError, RuntimeError)
issubclass(f.OutOfMemoryError, RuntimeError)
mps.is_available()
mps.device_count()
mps.synchronize()
mps.empty_cache()
mps.current_allocated_memory()
mps.driver_allocated_memory()
mps.manual_seed(0)
accelerator.is_available()
accelerator.device_count()
accelerator.current_device_index()
accelerator.set_device_index(0)
accelerator.synchronize()
accelerator.current_stream()
accelerator.empty_cache()
accelerator.memory_allocated()
accelerator.max_memory_allocated()
accelerator.memory_reserved()
accelerator.max_memory_reserved()
accelerator.memory_stats()
accelerator.current_accelerator(check_available=True)
f.Stream()
f.cpu.is_available()
f.cpu.is_initialized()
f.cpu.device_count()
f.cpu.current_device()
f.cpu.synchronize("cpu")
f.cpu.set_device(0)
f.cpu.Stream().record_event()
f.cpu.stream(f.cpu.current_stream()).__enter__()
f.cpu.Event().query()
f.get_device_module("cpu") is f.cpu
f.get_device_module(f.device("cpu")) is f.cpu
f.get_device_module("cuda") is f.cuda
f.get_device_module("cuda:0") is f.cuda
f.get_device_module("mps") is f.mps
f.get_device_module("nope")
f.get_device_module("meta")
f.get_device_module(0)
backends.mps.is_available()
backends.cudnn.enabled
backends.cudnn.benchmark
backends.cudnn.deterministic
backends.cudnn.allow_tf32
backends.cuda.matmul.allow_tf32
backends.cuda.matmul.allow_fp16_reduced_precision_reduction
backends.cuda.matmul.allow_bf16_reduced_precision_reduction
""".strip()

HERE = _gpu.kind()


def answer(f: Any, text: str) -> Any:
    names = {"f": f, **{name: getattr(f, name) for name in ("cuda", "mps", "accelerator", "backends")}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return eval(text, names)
        except RuntimeError:
            return RuntimeError


#: What goes to the device that `x.cuda()` goes to, with a warning, where PyTorch's refuses both.
STANDS_IN = {
    "cuda.current_device()": 0,
    "cuda.synchronize()": None,
    'cuda.synchronize("cuda")': None,
    "cuda.set_device(0)": None,
    **{f"cuda.{name}()": lucid.Stream for name in ("current_stream", "default_stream", "Stream")},
}


@pytest.mark.parametrize("text", ASKED.splitlines())
def test_answers(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.accelerator.is_available():
        # Where MLX has no GPU, one is played: what it would say differs, and of which kind that is does not.
        monkeypatch.setattr(_gpu, "kind", lambda: HERE or torch.accelerator.current_accelerator().type)
        assert type(answer(lucid, text)).__name__ == type(answer(torch, text)).__name__
        return
    monkeypatch.setattr(_gpu, "kind", lambda: None)
    if text == "cuda.reset_peak_memory_stats()":
        assert answer(lucid, text) is RuntimeError  # PyTorch's is one where it was not set up, too.
    if text in STANDS_IN and HERE is None:
        got, wanted = answer(lucid, text), STANDS_IN[text]
        assert isinstance(got, wanted) if isinstance(wanted, type) else got == wanted
        return
    assert answer(lucid, text) == answer(torch, text)


@pytest.mark.parametrize("name", ["cpu", "cuda", "mps", "accelerator", "cuda.amp"])
def test_parameters_have_the_names_of_pytorchs(name: str) -> None:
    def found(f: Any) -> Any:
        for part in name.split("."):
            f = getattr(f, part)
        return f

    compared = 0
    for each in found(lucid).__all__:
        if each == "run_kernel":
            # Lucid's own.
            continue
        ours, theirs = getattr(found(lucid), each), getattr(found(torch), each, None)
        assert theirs is not None, each
        if inspect.isfunction(theirs) or inspect.ismethod(ours):
            wanted = [p for p in inspect.signature(theirs).parameters.values() if p.kind is not p.POSITIONAL_ONLY]
            assert {p.name for p in wanted} <= set(inspect.signature(ours).parameters), each
            compared += 1
    assert compared >= 2


@pytest.mark.parametrize("name", ["cuda", "metal", None])
def test_the_module_of_no_device_is_the_gpus(name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gpu, "kind", lambda: name)
    assert lucid.get_device_module() is getattr(lucid, name or "cpu")


@pytest.mark.parametrize("name", ["cuda", "mps", "accelerator"])
def test_with_a_gpu_played(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gpu, "kind", lambda: "metal" if name == "mps" else "cuda")
    m = getattr(lucid, name)
    assert m.is_available() and m.device_count() == 1
    x = lucid.ones(3, device="gpu") + 1
    m.synchronize()
    m.empty_cache()
    assert x.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_seeding_with_a_gpu_played(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lucid.manual_seed(3)
    wanted, other = lucid.rand(2).tolist(), lucid.rand(2).tolist()
    monkeypatch.setattr(_gpu, "kind", lambda: "metal" if name == "mps" else "cuda")
    getattr(lucid, name).manual_seed(3)
    assert lucid.rand(2).tolist() == wanted
    # Without such a GPU nothing is seeded.
    monkeypatch.setattr(_gpu, "kind", lambda: None)
    getattr(lucid, name).manual_seed(3)
    assert lucid.rand(2).tolist() == other


@pytest.mark.filterwarnings("ignore:device")
def test_memory_streams_and_devices_with_a_gpu_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gpu, "kind", lambda: HERE or "cuda")
    cuda = lucid.accelerator if HERE == "metal" else lucid.cuda
    x = lucid.ones(1 << 18, device="gpu").eval()
    assert cuda.memory_allocated() >= 1 << 20 and cuda.memory_reserved() >= 1 << 20
    assert cuda.memory_stats()["allocated_bytes.all.peak"] >= 1 << 20
    cuda.reset_peak_memory_stats()
    start, end = lucid.Event(enable_timing=True), lucid.Event(enable_timing=True)
    stream = lucid.Stream(0)
    with stream:
        start.record()
        (x + 1).eval()
        assert stream.record_event(end) is end and end.query() and stream.query()
    assert start.elapsed_time(end) >= 0 and stream == lucid.Stream() and hash(stream) == hash(lucid.Stream())
    with pytest.raises(RuntimeError, match="enable_timing=True"):
        lucid.Event().elapsed_time(end)
    with pytest.raises(RuntimeError, match="recorded"):
        start.elapsed_time(lucid.Event(enable_timing=True))
    for wrong, kind in ((1, RuntimeError), ("cpu", ValueError), (2.5, TypeError), (True, TypeError)):
        with pytest.raises(kind, match=r"synchronize"):
            cuda.synchronize(wrong)
    total = lucid._C._gpu_info()["total_memory"]
    assert total > 1 << 28 and lucid.accelerator.get_memory_info()[1] == total
    if cuda is lucid.cuda:
        state = lucid.cuda.get_rng_state()
        one = lucid.rand(3, device="gpu").tolist()
        lucid.cuda.set_rng_state(state)
        assert lucid.rand(3, device="gpu").tolist() == one
        assert lucid.cuda.get_device_properties(0).total_memory == total
        assert len(lucid.cuda.get_device_capability()) == 2
        with lucid.cuda.device(0), lucid.cuda.device_of(x), lucid.cuda.stream(lucid.cuda.current_stream()):
            pass
        with pytest.raises(RuntimeError, match="ordinal"), lucid.cuda.device(3):
            pass


def test_a_gpu_is_named_by_its_number() -> None:
    """As programs under a launcher do: by 0, or by the rank of a process that sees one GPU."""
    code = """
import os, sys, warnings
import lucid
from lucid import nn
warnings.simplefilter("ignore")
x = lucid.ones(2)
assert x.to(0).device == lucid.device("gpu") == lucid.device("gpu", 0) == lucid.device("gpu:0") == lucid.device(0)
assert x.cuda(0).device == x.cuda("cuda:0", non_blocking=True).device == lucid.ones(2, device=0).device
assert nn.Linear(2, 2).to(0).weight.device.type == x.to(0).device.type and lucid._C._gpu_index() == 0
def refused(call):
    try:
        call()
    except RuntimeError as e:
        return str(e)
    sys.exit("no error")
calls = [lambda: x.to(1), lambda: x.cuda(1), lambda: lucid.device("gpu:1"), lambda: lucid.device("gpu", 1)]
calls += [lambda: lucid.cuda.set_device(1), lambda: lucid.ones(2, device=1)]
assert all("invalid device ordinal" in refused(call) for call in calls)
os.environ["LOCAL_RANK"] = "1"
assert [x.to(1).device, x.cuda(1).device, lucid.device("gpu:1")] == [lucid.device("gpu")] * 3
lucid.cuda.set_device(1)
assert "ordinal" in refused(lambda: x.to(2)) and "ordinal" in refused(lambda: lucid.cuda.set_device(2))
for wrong in (lambda: lucid.device("cpu", 1), lambda: lucid.device("gpu", -1), lambda: x.to(-1), lambda: x.cuda("cpu")):
    refused(wrong)
try:
    lucid.ones(2, device=True)
except TypeError:
    print("ok")
"""
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("ok"), done.stderr[-2000:]


def test_amp_under_cudas_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("autocast", "GradScaler"):
        monkeypatch.setattr(_gpu, "kind", lambda: None)
        with pytest.warns(FutureWarning), pytest.warns(UserWarning, match="is enabled, but CUDA is not available"):
            getattr(lucid.cuda.amp, name)()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", FutureWarning)
        assert not lucid.cuda.amp.GradScaler(enabled=False).is_enabled()
        lucid.cuda.amp.autocast(enabled=False)


def test_the_switches_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for f in (lucid, torch):
        cudnn, matmul = f.backends.cudnn, f.backends.cuda.matmul
        with cudnn.flags(enabled=True, benchmark=True, deterministic=True):
            assert cudnn.benchmark and cudnn.deterministic
        assert not cudnn.benchmark and not cudnn.deterministic
        former = f.get_float32_matmul_precision()
        matmul.allow_tf32 = True
        assert f.get_float32_matmul_precision() == "high" and matmul.allow_tf32
        matmul.allow_tf32 = False
        assert f.get_float32_matmul_precision() == "highest"
        f.set_float32_matmul_precision(former)
        with pytest.raises(AttributeError):
            matmul.allow_tf23 = True
    assert not any(getattr(lucid.backends, name).is_available() for name in ("mkl", "mkldnn", "openmp"))


def test_mps_is_metal() -> None:
    # In a process of its own: that another GPU is used is said once.
    code = """
import lucid
print(lucid.device("mps") == lucid.device("metal") == lucid.device("mps:0"), lucid.ones(2, device="mps").device.type)
try:
    lucid.device("mpx")
except RuntimeError as e:
    print("metal (or mps)" in str(e))
"""
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", lucid.device("gpu").type, "True"]


def test_where_a_tensor_is() -> None:
    for ours, theirs in ((lucid.ones(2), torch.ones(2)), (lucid.ones(2, device="gpu"), None)):
        for name in ("is_cuda", "is_mps", "is_xpu", "is_xla", "is_cpu"):
            want = (
                getattr(theirs, name)
                if theirs is not None
                else name == {"cuda": "is_cuda", "metal": "is_mps"}.get(HERE)
            )
            assert getattr(ours, name) is want, name
    assert lucid.ones(2, device="gpu").record_stream(None) is None


def test_switches_may_be_set_as_before() -> None:
    for f in (lucid, torch):
        # A name with two underscores, which MONAI calls.
        with getattr(f.backends, "__allow_nonbracketed_mutation")():
            assert not f.backends.flags_frozen()
        assert not f.backends.flags_frozen()


def test_names_of_the_allocator_and_the_runtime() -> None:
    for f in (lucid, torch):
        cuda: Any = f.cuda
        assert cuda.memory_stats_as_nested_dict() == {} or cuda.is_available()
        assert cuda.check_error(cuda.cudaStatus.SUCCESS) is None and issubclass(cuda.CudaError, RuntimeError)
        assert cuda.memory.caching_allocator_disabled() in (False, None) or f is torch
        for fraction, kind in (("1", TypeError), (1, TypeError), (2.0, ValueError), (-0.5, ValueError)):
            if f is lucid or cuda.is_available():
                with pytest.raises(kind):
                    cuda.set_per_process_memory_fraction(fraction)
    with pytest.raises(lucid.cuda.CudaError, match="34"):
        lucid.cuda.check_error(lucid.cuda.cudaStatus.ERROR_NOT_READY)
    memory = lucid.cuda.memory
    for name in torch.cuda.memory.__all__:
        assert callable(getattr(memory, name)), name
    for refused in (
        lambda: memory.caching_allocator_alloc(8),
        lambda: memory.caching_allocator_delete(0),
        lambda: memory.caching_allocator_enable(False),
        lambda: memory.change_current_allocator(None),
        lambda: memory.CUDAPluggableAllocator("a.so", "a", "b"),
        lambda: memory.MemPool(),
        lambda: memory.use_mem_pool(None),
        lambda: memory.memory_snapshot(),
        lambda: memory.list_gpu_processes(),
        lambda: lucid.cuda._runtime._Runtime().cudaProfilerStart(),
    ):
        with pytest.raises(NotImplementedError, match=r"^cuda\..*: .*MLX"):
            refused()
    memory.caching_allocator_enable()
    memory.reset_peak_host_memory_stats()
    memory.reset_accumulated_host_memory_stats()
    assert memory.host_memory_stats() == {} and memory.host_memory_stats_as_nested_dict() == {}
    assert lucid.cuda._allocator._nested({"a.b.c": 1, "a.b.d": 2, "e": 3}) == {"a": {"b": {"c": 1, "d": 2}}, "e": 3}
    with pytest.raises(AttributeError):
        _ = lucid.cuda._runtime._Runtime().nothing
    if not lucid.cuda.is_available():
        for needs in (
            lucid.cuda.cudart,
            memory.get_per_process_memory_fraction,
            lambda: memory.set_per_process_memory_fraction(0.5),
            memory.reset_accumulated_memory_stats,
        ):
            with pytest.raises(RuntimeError, match="no CUDA device"):
                needs()
