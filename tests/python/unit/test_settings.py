"""Process-wide switches, typing names, and element-wise Python functions."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import lucid
import pytest

from tests.python.tolerances import TABLE


@pytest.fixture
def deterministic() -> Any:
    yield
    lucid.use_deterministic_algorithms(False)


def test_deterministic_mode(deterministic: Any) -> None:
    def scatter(device: str) -> lucid.Tensor:
        x, index = lucid.zeros(3, device=device), lucid.tensor([0, 1], device=device)
        return x.scatter_add(0, index, lucid.ones(2, device=device))

    assert not lucid.are_deterministic_algorithms_enabled()
    lucid.use_deterministic_algorithms(True)
    assert lucid.are_deterministic_algorithms_enabled()
    assert scatter("cpu").tolist() == [1.0, 1.0, 0.0]
    with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
        scatter("gpu")
    lucid.use_deterministic_algorithms(True, warn_only=True)
    assert lucid.is_deterministic_algorithms_warn_only_enabled()
    with pytest.warns(UserWarning, match="deterministic"):
        assert scatter("gpu").tolist() == [1.0, 1.0, 0.0]
    lucid.use_deterministic_algorithms(False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scatter("gpu")
    with pytest.raises(TypeError):
        lucid.use_deterministic_algorithms(1)  # type: ignore[arg-type]


def test_interop_threads() -> None:
    before = lucid.get_num_interop_threads()
    lucid.set_num_interop_threads(3)
    assert lucid.get_num_interop_threads() == 3
    lucid.set_num_interop_threads(before)
    for bad, error in ((0, RuntimeError), ("a", TypeError), (True, TypeError)):
        with pytest.raises(error):
            lucid.set_num_interop_threads(bad)  # type: ignore[arg-type]


def test_tensors_beyond_memory_are_refused() -> None:
    if not sys.platform.startswith("linux"):
        return  # Elsewhere memory is promised without end.
    # On a GPU it is the GPU's memory that counts, which no limit of the process bounds.
    devices = ["cpu", "gpu"] if lucid.device("gpu").type == "mlx" else ["cpu"]
    program = f"""
import resource
import lucid

shape, refused = (40000, 40000), []
for device in {devices}:
    lucid.ones(2, device=device).add_(1).eval()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 30), used + (4 << 30)))
for device in {devices}:
    for make in (
        lambda: lucid.zeros(shape, device=device).eval(),
        lambda: lucid.eye(shape[0], device=device).eval(),
        lambda: lucid.arange(shape[0] * shape[1], device=device).eval(),
        lambda: lucid.linspace(0, 1, shape[0] * shape[1], device=device).eval(),
        lambda: lucid.ones(3, 2, device=device).diagflat(shape[0]).eval(),
        lambda: lucid.ones(1, device=device).expand(shape).cumsum(0).eval(),
    ):
        try:
            make()
        except MemoryError:
            refused.append(device)
    assert lucid.ones(2, device=device).sum().item() == 2
print(len(refused))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 6 * len(devices)


def test_typing_names() -> None:
    x = lucid.ones(2)
    assert isinstance(x, lucid.HasShape) and isinstance(x, lucid.SupportsGrad)
    assert isinstance(x, lucid.SupportsNumpyConversion) and isinstance(x, lucid.TensorLikeProtocol)
    assert not isinstance(3, lucid.HasShape)
    assert len(lucid.dtypes) == len(set(lucid.dtypes)) == 17
    for name in ("Scalar", "TensorLike", "DeviceLike", "DTypeLike", "ShapeLike", "StateDict", "TensorOrScalar"):
        assert getattr(lucid, name) is not None


def test_python_functions_over_elements() -> None:
    x = lucid.arange(6.0).reshape(2, 3).T
    assert x.apply_(lambda v: v + 1) is x
    assert x.tolist() == [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]
    assert x.map_(lucid.tensor([10.0, 20.0]), lambda a, b: a * b).tolist()[0] == [10.0, 80.0]
    with pytest.raises(ZeroDivisionError):
        x.apply_(lambda v: 1 / 0)
    with pytest.raises(TypeError):
        lucid.ones(2, device="gpu").apply_(lambda v: v)
    with pytest.raises(RuntimeError):
        lucid.ones(2, requires_grad=True).apply_(lambda v: v)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_std_of_large_and_small_numbers(device: str) -> None:
    for scale in (1e38, 1e20, 1e-30):
        x = lucid.tensor([scale, -scale, scale], device=device)
        assert lucid.std(x).item() == pytest.approx(scale * 1.1547005, rel=TABLE["few ops"].rtol)
    half = lucid.tensor([300.0, -300.0, 300.0], dtype=lucid.float16, device=device)
    assert lucid.std(half).item() == pytest.approx(346.4, rel=TABLE["float16 rounding"].rtol)
    assert lucid.std(lucid.tensor([2.0, 2.0], device=device)).item() == 0


def test_var_does_not_overflow_before_its_result_does() -> None:
    x = lucid.tensor([1.5e19, -1.5e19] * 4)
    assert lucid.var(x, correction=0).item() == pytest.approx(2.25e38, rel=TABLE["few ops"].rtol)


def test_switches_of_other_compilers_and_kernels_say_that_they_change_nothing() -> None:
    script = """
import warnings
import lucid
with warnings.catch_warnings(record=True) as given:
    warnings.simplefilter("always")
    lucid._inductor.config.coordinate_descent_tuning = True
    lucid._inductor.config.triton.unique_kernel_names = True
    with lucid.backends.cuda.sdp_kernel(enable_flash=False, enable_math=True):
        on = lucid.backends.cuda.flash_sdp_enabled(), lucid.backends.cuda.math_sdp_enabled()
assert on == (False, True) and lucid._inductor.config.coordinate_descent_tuning is True
assert [w.category.__name__ for w in given] == ["UserWarning", "FutureWarning", "UserWarning"], given
assert lucid.nn.attention.flex_attention.flex_attention and lucid.utils.data._utils.collate.default_collate
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
