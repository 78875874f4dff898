"""`lucid.metal`: its names, its errors where there is no Metal, and what it does where there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import pytest
from lucid import _gpu, metal

HERE = metal.is_available()
X = lucid.arange(6, dtype=lucid.float32)
SOURCE = """
kernel void scale(device const float* x, constant float& by, device float* y, uint i [[thread_position_in_grid]]) {
    y[i] = x[i] * by;
}
"""

# Every public name but is_available, with arguments that are right where there is Metal.
CALLS: dict[str, Callable[[], Any]] = {
    "synchronize": metal.synchronize,
    "empty_cache": metal.empty_cache,
    "manual_seed": lambda: metal.manual_seed(7),
    "memory_allocated": metal.memory_allocated,
    "max_memory_allocated": metal.max_memory_allocated,
    "reset_peak_memory_stats": metal.reset_peak_memory_stats,
    "get_cache_memory": metal.get_cache_memory,
    "get_device_name": metal.get_device_name,
    "MetalStream": metal.MetalStream,
    "MetalEvent": metal.MetalEvent,
    "run_kernel": lambda: metal.run_kernel(SOURCE, "scale", [X, X[1]], X.shape),
    "shared_tensor": lambda: metal.shared_tensor(2, 3),
    "to_shared": lambda: metal.to_shared(X),
    "is_shared": lambda: metal.is_shared(X),
}


def test_all_names_are_covered() -> None:
    assert {*CALLS, "is_available"} == set(metal.__all__)
    assert lucid.metal is metal
    assert metal.is_available() == (lucid.device("gpu").type == "metal")


@pytest.mark.parametrize("name", CALLS)
def test_without_metal_each_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where Metal is, its absence is played, so that the message is tested there too.
    monkeypatch.setattr(_gpu, "kind", lambda: None)
    with pytest.raises(lucid.errors.GpuNotAvailable, match=rf"{name}: the installed MLX has no Metal device"):
        CALLS[name]()
    with pytest.raises(RuntimeError, match="is_available"):
        CALLS[name]()


def test_the_engine_itself_refuses_too() -> None:
    if HERE:
        launch([X.to("gpu")])
    else:
        with pytest.raises(lucid.errors.GpuNotAvailable, match="has no Metal device"):
            launch([X.to("gpu")])


def launch(inputs: list[lucid.Tensor]) -> lucid.Tensor:
    source = SOURCE.replace("constant float& by, ", "").replace("by", "2.0f")
    return lucid._C._metal_run_kernel(source, "scale", inputs, [6], lucid.float32, None, None)


def test_kernels_have_no_gradient() -> None:
    x = X.to("gpu").requires_grad_()
    with pytest.raises(ValueError, match=r"run_kernel.*has no gradient"):
        launch([x])


if HERE:

    def test_a_kernel_runs() -> None:
        x = lucid.arange(1000, dtype=lucid.float32, device="metal")
        by = lucid.tensor(3.0, device="metal")
        y = metal.run_kernel(SOURCE, "scale", [x, by], x.shape)
        assert y.device.type == "metal" and y.tolist() == [3.0 * i for i in range(1000)]
        few = metal.run_kernel(SOURCE, "scale", [x[:3], by], [3], grid=3, thread_group=[1])
        assert few.tolist() == [0.0, 3.0, 6.0]
        with pytest.raises(ValueError, match="takes 2 inputs"):
            metal.run_kernel(SOURCE, "scale", [x], x.shape)

    def test_memory_is_counted_and_shared() -> None:
        metal.reset_peak_memory_stats()
        before = metal.memory_allocated()
        x = metal.shared_tensor(1 << 20)
        x.eval()
        assert metal.memory_allocated() >= before + (4 << 20) and metal.max_memory_allocated() >= before + (4 << 20)
        assert metal.is_shared(x) and not metal.is_shared(X) and metal.is_shared(metal.to_shared(X))
        assert metal.get_device_name() and metal.get_cache_memory() >= 0
        start, end = metal.MetalEvent(), metal.MetalEvent()
        with metal.MetalStream() as stream:
            start.record()
            (x + 1).eval()
            stream.record_event(end)
        assert start.query() and start.elapsed_time(end) >= 0
