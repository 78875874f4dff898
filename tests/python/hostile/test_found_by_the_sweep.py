"""What the sweep found and was mended, each with its shortest program."""

from __future__ import annotations

from collections.abc import Callable

import lucid
import pytest

from tests.python.tolerances import TABLE, within

DEVICES = ["cpu", "gpu"]
SIGNED = [lucid.int8, lucid.int16, lucid.int32, lucid.int64]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", SIGNED, ids=str)
def test_divisors_of_the_lowest_integer(dtype: lucid.dtype, device: str) -> None:
    low, high = lucid.iinfo(dtype).min, lucid.iinfo(dtype).max
    a = lucid.tensor([high, low, low, 12, 0, -6], dtype=dtype, device=device)
    b = lucid.tensor([low, -1, low, 18, 0, 4], dtype=dtype, device=device)
    assert lucid.gcd(a, b).tolist() == [1, 1, low, 6, 0, 2]
    assert lucid.lcm(a, b).tolist()[1:] == [low, low, 36, 0, 12]


@pytest.mark.parametrize("device", DEVICES)
def test_segments_of_a_number_are_refused(device: str) -> None:
    with pytest.raises(RuntimeError, match="segment_reduce"):
        lucid.segment_reduce(lucid.tensor(0.5, device=device), "mean", offsets=lucid.tensor([0], device=device))


def test_tensors_without_elements_may_have_any_other_sizes() -> None:
    x = lucid.tensor([1]).as_strided((1, 0, 2**40, 2**40, 4), (0, 0, 0, 0, 0))
    assert lucid.nn.ZeroPad2d([7, 0])(x).shape == (1, 0, 2**40, 2**40, 11)
    y = lucid.tensor([1.0]).as_strided((0, 2**40, 2**40, 4), (0, 0, 0, 0)).clone()
    assert y.shape == (0, 2**40, 2**40, 4)


def test_a_weight_of_one_number_has_a_norm() -> None:
    from lucid.nn.utils.parametrizations import scaled

    assert scaled(lucid.tensor(3.0), lucid.tensor(5.0), 0).item() == 5.0


@pytest.mark.parametrize("device", DEVICES)
def test_exponentials_of_columns_with_an_infinite_sum_end(device: str) -> None:
    huge = lucid.tensor([[3e38, 0.0], [3e38, 0.0]], device=device).matrix_exp()
    assert not huge.isfinite().all()


@pytest.mark.parametrize("device", DEVICES)
def test_a_matrix_that_is_not_finite_leaves_the_others_exponentials_alone(device: str) -> None:
    sound = lucid.tensor([[0.0, 3.0], [-2.0, 1.0]])
    both = lucid.stack([lucid.full((2, 2), float("nan")), sound]).to(device).matrix_exp().cpu()
    assert both[0].isnan().all()
    assert lucid.allclose(both[1], sound.matrix_exp(), **within("program"))


@pytest.mark.parametrize("shape", [(0, 0, 5, 0), (2, 1, 1), (3,)])
def test_a_mean_that_is_no_matrix_of_the_others_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeError, match="svd_lowrank"):
        lucid.svd_lowrank(lucid.ones(1, 1, 1), M=lucid.empty(shape))


@pytest.mark.parametrize("groups", [0, -2])
def test_groups_that_are_none_are_refused(groups: int) -> None:
    with pytest.raises(ValueError, match="num_groups"):
        lucid.nn.GroupNorm(groups, 4)
    with pytest.raises((ValueError, RuntimeError), match="group"):
        lucid.nn.functional.group_norm(lucid.ones(1, 4, 2), groups)


@pytest.mark.parametrize("pool", [lucid.nn.functional.max_pool3d, lucid.nn.functional.avg_pool3d])
def test_pools_of_no_planes_take_no_memory(pool: Callable[..., lucid.Tensor]) -> None:
    # A list of what meets in each window would take 24 GB.
    assert pool(lucid.empty(0, 2, 4, 2**31 + 1, 4), 2).shape == (0, 2, 2, 2**30, 2)


def test_rows_of_a_nested_tensor_are_narrowed_at_once() -> None:
    # A million rows took a tensor each.
    many = lucid.nested.narrow(lucid.tensor([1.0]).expand(2**20, 4), 1, 1, 2)
    assert many.values().shape == (2**21,)
    for start, length in ((3, 2), (-1, 2), (5, 0), (0, -1)):
        with pytest.raises(RuntimeError, match="narrow"):
            lucid.nested.narrow(lucid.ones(2, 4), 1, start, length)


def test_what_is_no_size_and_no_mapping_is_not_taken_apart() -> None:
    # A million tensors were made before the first was looked at, and memory ended.
    many = lucid.tensor([1]).expand(2**40, 2)
    with pytest.raises((TypeError, RuntimeError)):
        lucid.Size(many)
    with pytest.raises(TypeError, match="mapping"):
        lucid.OpSchema(many)
    assert lucid.Size(lucid.tensor([2, 3])) == (2, 3) and lucid.Size(iter([4])) == (4,)
    assert lucid.OpSchema({"name": "add"}).name == "add"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("row", [[-1.0, 0.0, 3e38, -0.0], [0.0, 1e-30, 0.0, 2e-30]])
def test_a_deviation_whose_squares_leave_float32_is_the_same_under_vmap(row: list[float], device: str) -> None:
    # Nothing under vmap was asked whether its squares had overflowed, or vanished.
    x = lucid.tensor([row, [0.0, 1.0, 2.0, 3.0]], device=device)
    batched = lucid.func.vmap(lambda r: r.std(-1))(x)
    assert batched.isfinite().all() and batched.min() > 0
    lucid.testing.assert_close(batched, lucid.stack([r.std(-1) for r in x]), rtol=TABLE["rounding"].rtol, atol=0.0)
