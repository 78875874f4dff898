"""The `Tensor` class: making, reading, converting, operators, attributes, copies."""

from __future__ import annotations

import array
import copy
import gc
import pickle
import weakref
from typing import Any

import lucid
import numpy as np
import pytest

from tests.python.samples import lucid_dtypes

DEVICES = ("cpu", "gpu")
DTYPES = lucid_dtypes()


@pytest.mark.parametrize(
    ("data", "dtype", "shape"),
    [
        (1, "int64", ()),
        (True, "bool", ()),
        (1.5, "float32", ()),
        (2j, "complex64", ()),
        ([], "float32", (0,)),
        ([[], []], "float32", (2, 0)),
        ([1, 2], "int64", (2,)),
        ([True, False], "bool", (2,)),
        ([True, 2], "int64", (2,)),
        ([1, 2.5], "float32", (2,)),
        ([1, 2.5, 1j], "complex64", (3,)),
        (((1, 2), (3, 4)), "int64", (2, 2)),
        (range(3), "int64", (3,)),
        (np.arange(4), "int64", (4,)),
        (np.ones((2, 3)), "float64", (2, 3)),
        (np.float32(1), "float32", ()),
        (np.array([True]), "bool", (1,)),
        (np.array([1j], dtype=np.complex64), "complex64", (1,)),
        (np.array([1j]), "complex128", (1,)),
        (np.arange(6).reshape(2, 3).T, "int64", (3, 2)),
        (np.arange(3, dtype=">i4"), "int32", (3,)),
        (array.array("d", [1, 2]), "float32", (2,)),
        (memoryview(b"abc"), "int64", (3,)),
        (bytearray(b"ab"), "int64", (2,)),
        ([lucid.tensor(1.5), 2], "float32", (2,)),
        ([lucid.tensor([1, 2]), [3, 4]], "int64", (2, 2)),
        ([np.array([1.0, 2.0]), np.array([3.0, 4.0])], "float64", (2, 2)),
    ],
)
def test_tensor_takes_its_dtype_and_shape_from_the_data(data: Any, dtype: str, shape: tuple[int, ...]) -> None:
    t = lucid.tensor(data)
    assert (t.dtype, t.shape) == (getattr(lucid, dtype), shape)
    if not isinstance(data, list) and hasattr(data, "__array__"):
        assert t.tolist() == data.tolist()


@pytest.mark.parametrize(
    ("dtype", "device"), [(t, d) for t in DTYPES for d in DEVICES if d == "cpu" or t not in ("float64", "complex128")]
)
def test_numbers_survive_the_way_in_and_out(dtype: str, device: str) -> None:
    values = [[True, False]] if dtype == "bool" else [[1, 2, 3], [4, 5, 100]]
    t = lucid.tensor(values, dtype=getattr(lucid, dtype), device=device)
    assert t.tolist() == values
    assert t.device == lucid.device(device)
    assert t[0, 0].item() == values[0][0]
    assert (
        type(t[0, 0].item())
        is {"b": bool, "i": int, "u": int, "f": float, "c": complex}["f" if dtype == "bfloat16" else dtype[0]]
    )


def test_values_are_cast_when_a_dtype_is_given() -> None:
    assert lucid.tensor([1.9, -1.9], dtype=lucid.int32).tolist() == [1, -1]
    assert lucid.tensor([0, 2, -1], dtype=lucid.bool).tolist() == [False, True, True]
    assert lucid.tensor(-1, dtype=lucid.uint8).item() == 255
    assert lucid.tensor(2**62 + 1).item() == 2**62 + 1
    assert lucid.tensor(1e40).item() == float("inf")


@pytest.mark.parametrize("device", DEVICES)
def test_tensors_and_arrays_are_copied(device: str) -> None:
    t = lucid.ones(3, device=device)
    copied = lucid.tensor(t)
    t.zero_()
    assert copied.tolist() == [1, 1, 1]
    assert copied.device == t.device
    a = np.ones(3, dtype=np.float32)
    made = lucid.tensor(a, device=device)
    a[0] = 5
    assert made.tolist() == [1, 1, 1]


def test_numpy_gives_a_writable_array_of_the_same_elements() -> None:
    for dtype in DTYPES:
        if dtype == "bfloat16":
            continue
        t = lucid.tensor([[1, 0, 1], [0, 1, 0]], dtype=getattr(lucid, dtype))
        a = t.T.numpy()
        assert (a.dtype, a.shape) == (np.dtype(dtype), (3, 2))
        assert a.tolist() == t.T.tolist()
        a[0, 0] = 0
    assert np.asarray(lucid.arange(3)).tolist() == [0, 1, 2]
    assert np.array(lucid.arange(3), dtype=np.float32).dtype == np.float32
    with pytest.raises(RuntimeError, match="requires grad"):
        lucid.ones(1, requires_grad=True).numpy()
    # A copy on the host, where PyTorch refuses.
    assert lucid.ones(1, device="gpu").numpy().tolist() == [1]
    with pytest.raises(TypeError, match="BFloat16"):
        lucid.ones(1, dtype=lucid.bfloat16).numpy()
    assert lucid.ones(1, device="gpu", requires_grad=True).numpy(force=True).tolist() == [1]


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")
def test_buffers() -> None:
    raw = np.arange(4, dtype=np.float32).tobytes()
    assert lucid.frombuffer(raw, dtype=lucid.float32).tolist() == [0, 1, 2, 3]
    assert lucid.frombuffer(raw, dtype=lucid.float32, offset=4, count=2).tolist() == [1, 2]
    for wrong in ({"offset": 3}, {"count": 9}, {"offset": 100}):
        with pytest.raises(ValueError):
            lucid.frombuffer(raw, dtype=lucid.float32, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", DEVICES)
def test_operators_in_all_their_forms(device: str) -> None:
    a = lucid.tensor([7, -3], device=device)
    b = lucid.tensor([2, 2], device=device)
    assert (a + b).tolist() == [9, -1] and (1 + a).tolist() == [8, -2]
    assert (a - b).tolist() == [5, -5] and (1 - a).tolist() == [-6, 4]
    assert (a * b).tolist() == [14, -6] and (2 * a).tolist() == [14, -6]
    assert (a / b).tolist() == [3.5, -1.5] and (1 / b).tolist() == [0.5, 0.5]
    assert (a // b).tolist() == [3, -2] and (9 // a).tolist() == [1, -3]
    assert (a % b).tolist() == [1, 1] and (9 % a).tolist() == [2, 0]
    assert (a**2).tolist() == [49, 9] and (2**b).tolist() == [4, 4]
    assert (
        (a & b).tolist() == [2, 0]
        and (a | 1).tolist() == [7, -3]
        and (a ^ b).tolist() == [5, -1]
        and (6 & a).tolist() == [6, 4]
    )
    assert (a << 1).tolist() == [14, -6] and (a >> 1).tolist() == [3, -2] and (1 << b).tolist() == [4, 4]
    assert (-a).tolist() == [-7, 3] and (+a) is a and abs(a).tolist() == [7, 3] and (~a).tolist() == [-8, 2]
    assert (a @ b).item() == 8
    assert (
        (a < b).tolist() == [False, True] and (a >= 7).tolist() == [True, False] and (a < 3).tolist() == [False, True]
    )
    assert (a == b).tolist() == [False, False] and (a != 7).tolist() == [False, True]
    assert 7 in a and 8 not in a
    for op, want in [
        ("+=", [9, -1]),
        ("-=", [5, -5]),
        ("*=", [14, -6]),
        ("//=", [3, -2]),
        ("%=", [1, 1]),
        ("**=", [49, 9]),
        ("&=", [2, 0]),
        ("|=", [7, -1]),
        ("^=", [5, -1]),
        ("<<=", [28, -12]),
        (">>=", [1, -1]),
    ]:
        scope = {"t": a.clone(), "b": b}
        before = scope["t"]
        exec(f"t {op} b", scope)
        assert scope["t"] is before, op
        assert scope["t"].tolist() == want, op
    f = lucid.tensor([3.0], device=device)
    f /= 2
    assert f.tolist() == [1.5]


def test_comparison_with_what_is_no_number() -> None:
    t = lucid.ones(2)
    assert (t == None) is False  # noqa: E711
    assert (t != "a") is True
    assert t in [t]
    assert len({t, t.clone(), t}) == 2


@pytest.mark.parametrize("device", DEVICES)
def test_conversions_to_python_numbers(device: str) -> None:
    one = lucid.tensor([2.75], device=device)
    assert (float(one), int(one), bool(one), complex(one)) == (2.75, 2, True, 2.75 + 0j)
    assert [10, 20, 30][lucid.tensor(2, device=device)] == 30
    assert f"{one[0]:.1f}" == "2.8"
    assert len(lucid.ones(3, 2, device=device)) == 3
    assert [r.tolist() for r in lucid.arange(4, device=device).reshape(2, 2)] == [[0, 1], [2, 3]]
    for bad, kind in [
        (lambda: float(lucid.ones(2, device=device)), ValueError),
        (lambda: bool(lucid.ones(2, device=device)), RuntimeError),
        (lambda: bool(lucid.ones(0, device=device)), RuntimeError),
        (lambda: lucid.ones(2, device=device).item(), RuntimeError),
        (lambda: len(lucid.tensor(1, device=device)), TypeError),
        (lambda: iter(lucid.tensor(1, device=device)), TypeError),
        (lambda: [1][one], TypeError),
        (lambda: int(lucid.tensor(float("nan"), device=device)), ValueError),
        (lambda: int(lucid.tensor(float("inf"), device=device)), OverflowError),
    ]:
        with pytest.raises(kind):
            bad()


def test_shapes_strides_and_counts() -> None:
    t = lucid.zeros(2, 3, 4).transpose(0, 2)
    assert t.shape == t.size() == (4, 3, 2)
    assert isinstance(t.shape, lucid.Size) and isinstance(t.shape[1:], lucid.Size) and t.shape.numel() == 24
    assert repr(t.shape) == "lucid.Size([4, 3, 2])"
    assert t.shape + (1,) == lucid.Size([4, 3, 2, 1])  # noqa: RUF005 (the operator is what is tested)
    assert (t.size(-1), t.stride(), t.stride(0), t.ndim, t.dim(), t.numel()) == (2, (1, 4, 12), 1, 3, 3, 24)
    assert not t.is_contiguous() and t.contiguous().is_contiguous()
    assert (t.element_size(), t.nbytes, t[1:].storage_offset()) == (4, 96, 1)
    with pytest.raises(IndexError):
        t.size(3)
    with pytest.raises(IndexError):
        lucid.tensor(1).stride(0)


@pytest.mark.parametrize("to", DTYPES)
def test_elements_are_cast_alike_on_both_devices(to: str) -> None:
    for name in DTYPES:
        x = lucid.tensor([0, 1, 3], dtype=getattr(lucid, name))
        try:
            there = x.to("gpu").to(getattr(lucid, to))
        except lucid.errors.DtypeMismatch:
            assert {"float64", "complex128"} & {name, to}
            continue
        assert there.tolist() == x.to(getattr(lucid, to)).tolist(), f"{name} to {to}"
    try:
        eye = lucid.eye(2, 3, dtype=getattr(lucid, to), device="gpu")
    except lucid.errors.DtypeMismatch:
        assert to in ("float64", "complex128")
    else:
        assert eye.tolist() == lucid.eye(2, 3, dtype=getattr(lucid, to)).tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_to_in_all_its_forms(device: str) -> None:
    t = lucid.ones(2)
    other = lucid.ones(1, dtype=lucid.float16, device=device)
    place = lucid.device(device)
    for made, dtype, where in [
        (t.to(lucid.int32), lucid.int32, lucid.device("cpu")),
        (t.to(device), lucid.float32, place),
        (t.to(place), lucid.float32, place),
        (t.to(device, lucid.int64), lucid.int64, place),
        (t.to(other), lucid.float16, place),
        (t.to(dtype=lucid.bool, device=device), lucid.bool, place),
        (t.to(device, non_blocking=True), lucid.float32, place),
        (t.type(lucid.int16), lucid.int16, lucid.device("cpu")),
        (t.type_as(other), lucid.float16, place),
    ]:
        assert (made.dtype, made.device) == (dtype, where)
    shorts = {
        "float": "float32",
        "double": "float64",
        "half": "float16",
        "bfloat16": "bfloat16",
        "int": "int32",
        "long": "int64",
        "short": "int16",
        "byte": "uint8",
        "char": "int8",
        "bool": "bool",
        "cfloat": "complex64",
        "cdouble": "complex128",
    }
    for name, dtype in shorts.items():
        assert getattr(t, name)().dtype is getattr(lucid, dtype)
    assert t.gpu().device == lucid.device("gpu") and t.gpu().cpu().is_cpu
    assert t.type() == "lucid.FloatTensor"


@pytest.mark.parametrize("device", DEVICES)
def test_new_tensors_like_one(device: str) -> None:
    t = lucid.ones(2, dtype=lucid.float16, device=device)
    for made in (t.new_zeros(3, 2), t.new_ones((3, 2)), t.new_empty([3, 2]), t.new_full((3, 2), 7)):
        assert (made.shape, made.dtype, made.device) == ((3, 2), t.dtype, t.device)
    assert t.new_tensor([1, 2]).dtype is lucid.float16
    assert t.new_zeros(2, dtype=lucid.int32, requires_grad=False).dtype is lucid.int32
    assert t.new_ones(2, dtype=lucid.float32, requires_grad=True).requires_grad


def test_views_like_another_and_transposes() -> None:
    t = lucid.arange(6)
    assert t.view_as(lucid.zeros(2, 3)).shape == t.reshape_as(lucid.zeros(2, 3)).shape == (2, 3)
    assert lucid.ones(1, 3).expand_as(lucid.zeros(2, 3)).shape == (2, 3)
    m = t.reshape(2, 3)
    assert m.T.tolist() == m.mT.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert lucid.zeros(2, 3, 4).T.shape == (4, 3, 2) and lucid.zeros(2, 3, 4).mT.shape == (2, 4, 3)
    assert lucid.tensor([[1j]]).H.tolist() == [[-1j]]
    assert m.ravel()._shares_storage(m)
    with pytest.raises(RuntimeError):
        t.mT  # noqa: B018


@pytest.mark.parametrize("device", DEVICES)
def test_max_min_and_where_in_their_forms(device: str) -> None:
    t = lucid.tensor([[1.0, 5.0], [4.0, 2.0]], device=device)
    assert (t.max().item(), t.min().item(), lucid.max(t).item()) == (5, 1, 5)
    values, indices = t.max(1)
    assert (values.tolist(), indices.tolist()) == ([5, 4], [1, 0])
    assert t.min(dim=0, keepdim=True).values.tolist() == [[1, 2]]
    assert type(lucid.max(t, 0)).__name__ == "max" and t.sort().indices.tolist() == [[0, 1], [1, 0]]
    assert lucid.max(t, t.T).tolist() == t.max(other=t.T).tolist() == [[1, 5], [5, 2]]
    assert t.where(t > 2, 0).tolist() == lucid.where(t > 2, t, 0.0).tolist() == [[0, 5], [4, 0]]
    assert [i.tolist() for i in lucid.where(t > 2)] == [[0, 1], [1, 0]]
    assert t.nonzero().shape == (4, 2) and len(t.nonzero(as_tuple=True)) == 2
    with pytest.raises(RuntimeError, match="dim"):
        lucid.zeros(0, device=device).max()
    with pytest.raises(IndexError):
        lucid.zeros(0, 2, device=device).max(0)


@pytest.mark.parametrize("device", DEVICES)
def test_filling(device: str) -> None:
    t = lucid.empty(1000, device=device)
    g = lucid.Generator().manual_seed(3)
    t.uniform_(2, 3, generator=g)
    assert t.min().item() >= 2 and t.max().item() < 3
    t.normal_(10, 0.1)
    assert abs(t.mean().item() - 10) < 0.1
    assert t.fill_(lucid.tensor(4, device=device)).sum().item() == 4000
    assert t.copy_(lucid.ones(1, dtype=lucid.int64)).sum().item() == 1000


@pytest.mark.parametrize("dtype", [lucid.float32, lucid.bfloat16, lucid.int64, lucid.bool, lucid.complex64])
def test_copying_from_the_gpu_writes_in_place(dtype: lucid.dtype) -> None:
    want = (lucid.arange(24).reshape(4, 6) % 5).to(dtype)
    x = want.to("gpu")
    for target, value in (
        (lucid.zeros(4, 6, dtype=dtype), want),
        (lucid.zeros(6, 6, dtype=dtype)[1:5], want),
        (lucid.zeros(6, 4, dtype=dtype).t(), want),
        (lucid.zeros(2, 4, 6, dtype=dtype)[1], want.flip(0)),
    ):
        # Of a temporary, of a view, of what is not computed yet.
        before, address = target._version, target.data_ptr()
        assert target.copy_(x.flip(0).flip(0) if value is want else x.flip(0)) is target
        assert lucid.equal(target, value) and target._version == before + 1 and target.data_ptr() == address
        target.copy_(x.t().t())
        assert lucid.equal(target, want)
    # Memory that both devices have; its other reader keeps what it was.
    large = lucid.ones(1 << 16, dtype=dtype)
    there = large.to("gpu")
    large.copy_(lucid.zeros(1 << 16, dtype=dtype, device="gpu"))
    assert not large.any() and there.all().item()
    large.copy_(there)
    assert large.all()
    for wrong in (lambda: large.copy_(x), lambda: lucid.zeros(4, 1, dtype=dtype).expand(4, 6).copy_(x)):
        with pytest.raises(RuntimeError):
            wrong()


def test_copying_from_the_gpu_has_gradients_and_refuses_leaves() -> None:
    x = lucid.ones(2, 3, device="gpu", requires_grad=True)
    y = lucid.zeros(2, 3)
    y.copy_(x * 2)
    (y * 3).sum().backward()
    assert x.grad.tolist() == [[6.0] * 3] * 2
    leaf = lucid.zeros(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        leaf.copy_(lucid.ones(3, device="gpu"))
    with lucid.no_grad():
        leaf.copy_(lucid.ones(3, device="gpu"))
    assert leaf.tolist() == [1.0] * 3
    saved = lucid.ones(3, requires_grad=True) * 2
    out = saved.exp()
    with lucid.no_grad():
        out.copy_(lucid.zeros(3, device="gpu"))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.parametrize("device", DEVICES)
def test_random_numbers_follow_the_seed(device: str) -> None:
    lucid.manual_seed(5)
    a = lucid.rand(4, device=device)
    state = lucid.get_rng_state()
    b = lucid.rand(4, device=device)
    lucid.manual_seed(5)
    assert lucid.rand(4).tolist() == a.tolist()
    lucid.set_rng_state(state)
    assert lucid.rand(4).tolist() == b.tolist() != a.tolist()
    g = lucid.Generator().manual_seed(-1)
    assert g.initial_seed() == 2**64 - 1
    h = pickle.loads(pickle.dumps(g))
    assert lucid.rand(3, generator=g, device=device).tolist() == lucid.rand(3, generator=h).tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_pickles_and_copies(device: str) -> None:
    t = lucid.tensor([[1.0, 2.0], [3.0, 4.0]], device=device).T.requires_grad_()
    t.note = "kept"  # type: ignore[attr-defined]
    t.grad = lucid.ones(2, 2, device=device)
    for made in (pickle.loads(pickle.dumps(t)), copy.deepcopy(t)):
        assert made.tolist() == t.tolist() and made.requires_grad and made.device == t.device
        assert made.note == "kept"
        assert not made._shares_storage(t)
    deep = copy.deepcopy([t, t])
    assert deep[0] is deep[1] and deep[0].grad is not None
    p = lucid.nn.Parameter(lucid.ones(2, device=device))
    assert type(copy.deepcopy(p)) is type(pickle.loads(pickle.dumps(p))) is lucid.nn.Parameter
    with pytest.raises(RuntimeError, match="leaves"):
        copy.deepcopy(t * 2)


def test_instances_take_attributes_weak_references_and_subclasses() -> None:
    t = lucid.ones(2)
    t.note = 3  # type: ignore[attr-defined]
    assert t.__dict__ == {"note": 3}
    ref = weakref.ref(t)
    t.own = t  # type: ignore[attr-defined]
    del t
    gc.collect()
    assert ref() is None

    class Mine(lucid.Tensor):
        pass

    m = Mine([1.0, 2.0])
    assert isinstance(m, lucid.Tensor) and m.tolist() == [1, 2]
    assert type(m + 1) is Mine
    assert repr(m) == "Mine([1., 2.])"
    assert lucid.Tensor(2, 3).shape == (2, 3) and lucid.Tensor([1, 2]).dtype is lucid.float32


@pytest.mark.parametrize("device", DEVICES)
def test_data_puts_other_elements_into_the_same_object(device: str) -> None:
    p = lucid.nn.Parameter(lucid.ones(2))
    alias = p.data
    alias.fill_(3)
    assert p.tolist() == [3, 3]
    p.data = lucid.zeros(5, device=device)
    assert (p.shape, p.device, p.requires_grad, p.is_leaf) == ((5,), lucid.device(device), True, True)
    (p * 2).sum().backward()
    assert p.grad is not None and p.grad.tolist() == [2] * 5
    assert type(p) is lucid.nn.Parameter


def test_evaluation_takes_nested_collections() -> None:
    a = lucid.ones(2, device="gpu") + 1
    lucid.eval(a, [a * 2, (a * 3,)], {"x": a}, None, lucid.nn.Linear(2, 2).to("gpu"))
    lucid.eval(a, wait=False)
    lucid.synchronize()
    assert a.eval() is a
    with pytest.raises(TypeError, match="int"):
        lucid.eval(3)


def test_memory_is_counted_per_device() -> None:
    for device in DEVICES:
        before = lucid.memory_stats(device)["current"]
        t = lucid.ones(1 << 16, device=device).eval()
        assert lucid.memory_stats(device)["current"] - before >= 1 << 18
        assert lucid.memory_stats(device)["peak"] >= 1 << 18
        del t


def test_files(tmp_path: Any) -> None:
    path = tmp_path / "100%s.safetensors"
    lucid.save_safetensors({"a": lucid.ones(2, 3), "b": lucid.arange(3, device="gpu")}, path)
    back = lucid.load_safetensors(str(path))
    assert back["a"].tolist() == [[1.0] * 3] * 2 and back["b"].tolist() == [0, 1, 2]
    assert lucid.load_safetensors(path, device="gpu")["b"].device == lucid.device("gpu")
    path.write_bytes(b"no such format")
    with pytest.raises(OSError, match="100%s"):
        lucid.load_safetensors(path)
    with pytest.raises(TypeError):
        lucid.save_safetensors({"a": 1}, path)  # type: ignore[dict-item]
    with pytest.raises(TypeError):
        lucid.load_safetensors(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.filterwarnings("ignore:.*is deprecated on 0-D tensors")
def test_transposes_of_one_number_are_the_tensor_itself(device: str) -> None:
    x = lucid.tensor(2.0, device=device, requires_grad=True)
    assert x.mT is x and x.mH is x and x.H is x
    y = x * 1
    y.mT.register_hook(lambda g: 3 * g)
    (y + y.mT).backward()
    assert x.grad is not None and x.grad.item() == 6.0
    z = lucid.tensor(1 + 2j, device=device)
    assert z.mT is z and z.mH.item() == z.H.item() == 1 - 2j
