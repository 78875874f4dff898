"""The crossing from Python: what arguments are taken, and what is said about others."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import lucid
import numpy as np
import pytest
from lucid import errors

from tests.python.tolerances import TABLE

x = lucid.ones(2, 3)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: lucid.add(x), TypeError, ["add", "other"]),
        (lambda: lucid.add(x, "a"), TypeError, ["add", "other", "Tensor or a number", "str"]),
        (lambda: x.add("a"), TypeError, ["add", "other", "str"]),
        (lambda: lucid.add("a", x), TypeError, ["add", "input", "Tensor", "str"]),
        (lambda: x.sum("a"), TypeError, ["sum", "dim", "str"]),
        (lambda: x.sum(1.0), TypeError, ["sum", "dim", "float"]),
        (lambda: x.sum(True), TypeError, ["sum", "dim", "bool"]),
        (lambda: x.sum(0, keepdim=1), TypeError, ["sum", "keepdim", "bool", "int"]),
        (lambda: x.sum(0, unknown=1), TypeError, ["sum", "unknown"]),
        (lambda: x.reshape("a"), TypeError, ["reshape", "shape", "str"]),
        (lambda: x.reshape(2.0), TypeError, ["reshape", "shape", "float"]),
        (lambda: x.reshape((2, "a")), TypeError, ["reshape", "shape"]),
        (lambda: x.reshape(), TypeError, ["reshape", "shape"]),
        (lambda: x.reshape(6, shape=(6,)), TypeError, ["reshape", "shape", "multiple"]),
        (lambda: lucid.zeros(2, "a"), TypeError, ["zeros", "size", "str"]),
        (lambda: lucid.zeros(2, dtype="float32"), TypeError, ["zeros", "dtype", "str"]),
        (lambda: lucid.zeros(2, device=1.5), TypeError, ["zeros", "device", "float"]),
        (lambda: lucid.zeros(2, device="nowhere"), RuntimeError, ["nowhere"]),
        (lambda: lucid.zeros(2, device="gpu:300"), RuntimeError, ["device", "ordinal", "300"]),
        (lambda: lucid.full((2,), "a"), TypeError, ["full", "fill_value", "str"]),
        (lambda: lucid.full((2,), 2**70), OverflowError, ["full", "fill_value"]),
        (lambda: lucid.zeros(2**70), ValueError, ["zeros", "size"]),
        (lambda: x + 2**70, OverflowError, ["add"]),
        (lambda: lucid.cat([1, 2]), TypeError, ["cat", "tensors", "int"]),
        (lambda: lucid.cat("ab"), TypeError, ["cat", "tensors", "str"]),
        (lambda: lucid.cat(5), TypeError, ["cat", "tensors", "int"]),
        (lambda: lucid.rand(2, generator=1), TypeError, ["rand", "generator", "int"]),
        (lambda: x.div(2, rounding_mode=3), TypeError, ["div", "rounding_mode", "int"]),
        (lambda: x.div(2, rounding_mode="up"), RuntimeError, ["rounding_mode", "up"]),
        (lambda: x.to(500), RuntimeError, ["device", "ordinal", "500"]),
        (lambda: x.to(5.0), TypeError, ["to", "float"]),
        (lambda: x.fill_("a"), TypeError, ["fill_", "value", "str"]),
        (lambda: x.max(1, True, 3), TypeError, ["max"]),
        (lambda: x.max(x, dim=1), TypeError, ["max", "dim"]),
        (lambda: x + "a", TypeError, ["+"]),
        (lambda: x < None, TypeError, ["<"]),
        (lambda: x @ 2, TypeError, ["matmul"]),
        (lambda: lucid.manual_seed("a"), TypeError, ["seed", "str"]),
        (lambda: lucid.tensor("a"), TypeError, ["str"]),
        (lambda: lucid.tensor({}), RuntimeError, ["dict"]),
        (lambda: lucid.tensor(object()), RuntimeError, ["object"]),
        (lambda: lucid.tensor([1, [2]]), TypeError, ["sequence"]),
        (lambda: lucid.tensor([[1], 2]), TypeError, ["dim 1"]),
        (lambda: lucid.tensor([[1, 2], [3]]), ValueError, ["length 2", "dim 1", "got 1"]),
        (lambda: lucid.tensor(2**70), ValueError, ["64 bits"]),
        (lambda: lucid.tensor(300, dtype=lucid.uint8), RuntimeError, ["uint8", "overflow"]),
        (lambda: lucid.tensor(float("nan"), dtype=lucid.int32), RuntimeError, ["int32"]),
        (lambda: lucid.set_num_threads(0), RuntimeError, ["positive"]),
        (lambda: lucid.set_num_threads(2**31), ValueError, ["32 bits"]),
        (lambda: lucid.set_default_dtype(lucid.int32), TypeError, ["int32"]),
        (lambda: lucid.finfo(lucid.int32), TypeError, ["int32"]),
        (lambda: lucid.iinfo(lucid.float32), TypeError, ["float32"]),
    ],
)
def test_wrong_arguments_say_what_was_expected(call: Any, kind: type[Exception], words: list[str]) -> None:
    with pytest.raises(kind) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("call", "kind", "base"),
    [
        (lambda: lucid.ones(2) + lucid.ones(3), errors.ShapeMismatch, RuntimeError),
        (lambda: lucid.ones(2) @ lucid.ones(2, dtype=lucid.float64), errors.DtypeMismatch, RuntimeError),
        (lambda: lucid.ones(2) + lucid.ones(2, device="gpu"), errors.DeviceMismatch, RuntimeError),
        (lambda: lucid.ones(2, 3).sum(5), errors.IndexError, IndexError),
        (lambda: lucid.ones(2)[5], errors.IndexError, IndexError),
        (lambda: lucid.ones(2, dtype=lucid.float64, device="gpu"), errors.DtypeMismatch, RuntimeError),
        (lambda: lucid.cat([]), errors.ValueError, ValueError),
        (lambda: lucid.load_safetensors("/nowhere/%s%n"), errors.FileNotFoundError, FileNotFoundError),
    ],
)
def test_errors_are_typed_and_derive_from_the_builtin(call: Any, kind: type[Exception], base: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, base)
    assert isinstance(caught.value, lucid.LucidError)


def test_errors_carry_what_they_name() -> None:
    with pytest.raises(errors.ShapeMismatch) as caught:
        lucid.ones(2) + lucid.ones(3)
    assert caught.value.op == "add"
    assert caught.value.shapes == [(2,), (3,)]
    with pytest.raises(errors.DeviceMismatch) as caught:
        lucid.ones(2) + lucid.ones(2, device="gpu")
    assert caught.value.devices == ["cpu", str(lucid.device("gpu"))]


def test_numbers_of_every_kind_are_operands() -> None:
    t = lucid.ones(2, dtype=lucid.int64)
    assert (t + 1).dtype is lucid.int64
    assert (t + True).dtype is lucid.int64
    assert (t + 1.0).dtype is lucid.float32
    assert (t + 1j).dtype is lucid.complex64
    assert (t + np.int32(1)).dtype is lucid.int64
    assert (t + np.float32(1)).dtype is lucid.float32
    assert (t + np.float64(1)).dtype is lucid.float32
    assert (t + np.bool_(True)).dtype is lucid.int64
    assert lucid.zeros(np.int64(2), lucid.tensor(3)).shape == (2, 3)
    assert t.sum(np.int64(0)).shape == ()


def test_sizes_may_be_listed_or_given_as_one() -> None:
    t = lucid.arange(6)
    for made in (
        t.reshape(2, 3),
        t.reshape((2, 3)),
        t.reshape([2, 3]),
        t.reshape(shape=(2, 3)),
        t.view(2, -1),
        t.reshape(lucid.Size([2, 3])),
    ):
        assert made.shape == (2, 3)
    assert lucid.zeros(2, 3).shape == lucid.zeros((2, 3)).shape == lucid.zeros(size=(2, 3)).shape == (2, 3)
    assert lucid.zeros(()).shape == ()
    assert t.reshape(2, 3).permute(1, 0).shape == t.reshape(2, 3).permute((1, 0)).shape == (3, 2)
    assert lucid.permute(t.reshape(2, 3), (1, 0)).shape == (3, 2)
    assert lucid.ones(1, 3).expand(2, -1).shape == (2, 3)
    assert lucid.ones(2).repeat(2, 2).shape == (2, 4)


def test_keywords_and_defaults_are_those_of_the_table() -> None:
    t = lucid.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert lucid.sum(input=t, dim=1, keepdim=True).tolist() == [[3.0], [7.0]]
    assert t.add(t, alpha=2).tolist() == [[3.0, 6.0], [9.0, 12.0]]
    assert t.clamp(min=2, max=3).tolist() == [[2.0, 2.0], [3.0, 3.0]]
    assert t.sort(descending=True).values.tolist() == [[2.0, 1.0], [4.0, 3.0]]
    assert lucid.nn.functional.cross_entropy(t, lucid.tensor([0, 1]), reduction="sum").ndim == 0


def test_every_public_row_has_its_function_method_and_in_place_form() -> None:
    from lucid import _C

    for row in lucid.op_schemas():
        alone = row.in_place and hasattr(lucid.Tensor, row.name + "_")
        assert hasattr(_C, row.name) or (row.method and hasattr(lucid.Tensor, row.name)) or alone, row.name
        assert not row.method or hasattr(lucid.Tensor, row.name), row.name
        assert not row.in_place or hasattr(lucid.Tensor, row.name + "_"), row.name
        if row.torch.startswith("nn.functional."):
            assert hasattr(lucid.nn.functional, row.name), row.name
            assert row.name not in lucid.__all__
    for internal in ("max_pool", "index_put_dims", "search_rows", "max_dim"):
        assert hasattr(_C, internal)
        assert not hasattr(lucid, internal)


def test_functions_have_pytorchs_signatures() -> None:
    assert [(p.name, p.kind is p.KEYWORD_ONLY) for p in inspect.signature(lucid.add).parameters.values()] == [
        ("input", False),
        ("other", False),
        ("alpha", True),
        ("out", True),
    ]
    own = ["self", "dim", "keepdim", "dtype", "axis", "keepdims"]
    assert list(inspect.signature(lucid.Tensor.sum).parameters) == own
    assert lucid.exp.__doc__ and "e" in lucid.exp.__doc__


def test_aliases_are_the_same_function() -> None:
    assert lucid.concat is lucid.cat
    assert lucid.Tensor.absolute is lucid.Tensor.abs
    assert lucid.Tensor.clip_ is lucid.Tensor.clamp_
    t = lucid.tensor([1.0])
    assert lucid.clone(t).tolist() == [1.0]
    assert not t.clone()._shares_storage(t)


def test_in_place_forms_give_the_tensor_itself() -> None:
    t = lucid.tensor([1.0, -2.0])
    assert t.add_(1) is t
    assert t.relu_() is t
    assert t.copy_(lucid.zeros(2)) is t
    assert t.fill_(3) is t
    assert t.zero_() is t
    before = t
    t += 2
    assert t is before
    assert t.tolist() == [2.0, 2.0]


def test_ops_that_change_nothing_give_the_tensor_itself() -> None:
    t = lucid.ones(2, 3)
    assert t.contiguous() is t
    assert t.to(lucid.float32) is t
    assert t.to("cpu") is t
    assert t.float() is t
    assert t.cpu() is t
    assert lucid.as_tensor(t) is t
    assert t.to(lucid.float32, copy=True) is not t


def test_dtypes_are_one_object_each() -> None:
    assert lucid.float is lucid.float32
    assert pickle.loads(pickle.dumps(lucid.bfloat16)) is lucid.bfloat16
    assert repr(lucid.int64) == "lucid.int64"
    assert lucid.zeros(1, dtype=float).dtype is lucid.float64
    assert lucid.zeros(1, dtype=int).dtype is lucid.int64
    assert lucid.zeros(1, dtype=bool).dtype is lucid.bool
    assert (lucid.float16.itemsize, lucid.float16.is_floating_point, lucid.uint8.is_signed) == (2, True, False)
    assert lucid.promote_types(lucid.uint8, lucid.int8) is lucid.int16
    assert lucid.result_type(lucid.ones(1, dtype=lucid.int32), 1.5) is lucid.float32
    assert lucid.can_cast(lucid.int32, lucid.float16)
    assert not lucid.can_cast(lucid.float32, lucid.int32)


def test_devices() -> None:
    cpu, gpu = lucid.device("cpu"), lucid.device("gpu")
    assert (cpu.type, str(cpu), repr(cpu), cpu.index) == ("cpu", "cpu", "device(type='cpu')", None)
    assert gpu.type in ("metal", "cuda", "mlx")
    assert cpu == lucid.device("cpu") != gpu
    assert len({cpu, lucid.device("cpu:0"), gpu, lucid.device(gpu)}) == 2
    assert lucid.device("cpu", 0) == cpu
    assert pickle.loads(pickle.dumps(gpu)) == gpu
    assert lucid.ones(1, device=gpu).device == gpu
    lucid.set_default_device("gpu")
    try:
        assert lucid.zeros(2).device == gpu
        assert lucid.tensor([1.0]).device == gpu
        assert lucid.get_default_device() == gpu
    finally:
        lucid.set_default_device("cpu")


def test_limits_of_dtypes() -> None:
    for name in ("float16", "float32", "float64"):
        ours, theirs = lucid.finfo(getattr(lucid, name)), np.finfo(name)
        assert (ours.max, ours.eps, ours.tiny, ours.bits) == (theirs.max, theirs.eps, theirs.tiny, theirs.bits)
        assert ours.resolution == pytest.approx(float(theirs.resolution), rel=TABLE["resolution"].rtol)
    for name in ("uint8", "int8", "int16", "int32", "int64"):
        ours, theirs = lucid.iinfo(getattr(lucid, name)), np.iinfo(name)
        assert (ours.min, ours.max, ours.bits) == (theirs.min, theirs.max, theirs.bits)
    assert lucid.finfo(lucid.bfloat16).eps == 2**-7
    assert lucid.finfo().dtype == "float32"


def test_default_dtype_is_what_new_tensors_get() -> None:
    lucid.set_default_dtype(lucid.float64)
    try:
        assert lucid.zeros(1).dtype is lucid.tensor([1.0]).dtype is lucid.get_default_dtype() is lucid.float64
    finally:
        lucid.set_default_dtype(lucid.float32)
    assert lucid.tensor([1.0]).dtype is lucid.float32


def test_profile_counts_ops() -> None:
    a = lucid.ones(3, device="gpu")
    with lucid.profile() as p:
        (a + a).relu().sum().item()
    assert p.ops["add"]["calls"] == 1
    assert p.ops["relu"]["calls"] == 1
    assert p.total["calls"] >= 3
    assert p.total["evaluations"] >= 1
    assert "relu" in str(p)


def test_schemas_are_rows_with_attributes() -> None:
    rows = {row.name: row for row in lucid.op_schemas()}
    assert len(rows) >= 120
    add = rows["add"]
    assert add["family"] == add.family == "binary"
    assert [p["name"] for p in add.params] == ["input", "other", "alpha"]
    assert add.in_place and add.method and add.differentiable and add.primitive
    assert lucid.float32 in add.dtypes
    assert rows["where"].torch == "where"
    assert all(row.doc for row in rows.values())


def test_threads_are_so_many_at_most() -> None:
    before = lucid.get_num_threads()
    try:
        lucid.set_num_threads(2**31 - 1)
        assert lucid.get_num_threads() == 1024
        assert lucid.ones(100_000).sum().item() == 100_000
    finally:
        lucid.set_num_threads(before)
