"""Unsigned integers of 16 bits and more and floats of 8 bits: conversions, limits, promotion, files, and what ops do
with them, as PyTorch does. Where PyTorch has no kernel and Lucid has one, the result is of the dtype it computes in."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.samples import STORED, lucid_dtypes, plain
from tests.python.tolerances import within

DEVICES = ("cpu", "gpu")
UNSIGNED, FLOAT8 = STORED[:3], STORED[3:]
CLOSE = within("few ops")
NUMBERS = {name: [1, 2, 3] if name in UNSIGNED else [1.0, -2.5, 3.0] for name in STORED}
WIDE = {**dict.fromkeys(UNSIGNED, "int64"), **dict.fromkeys(FLOAT8, "float32")}


def ours_of(theirs: torch.Tensor, device: str = "cpu") -> lucid.Tensor:
    """The same bits."""
    bits = {1: (torch.uint8, lucid.uint8), 2: (torch.int16, lucid.int16), 4: (torch.int32, lucid.int32)}
    there, here = bits.get(theirs.itemsize, (torch.int64, lucid.int64))
    made = lucid.tensor(theirs.contiguous().view(there).numpy().copy(), dtype=here)
    return made.view(getattr(lucid, plain(theirs.dtype))).to(device)


def bits_of(t: Any) -> list[int]:
    module = lucid if isinstance(t, lucid.Tensor) else torch
    return list(t.cpu().contiguous().reshape(-1).view(module.uint8).tolist())


def agree(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, (tuple, list)):
        return len(ours) == len(theirs) and all(map(agree, ours, theirs))
    if not isinstance(theirs, torch.Tensor):
        return bool(ours == theirs)
    if plain(ours.dtype) != plain(theirs.dtype) or tuple(ours.shape) != tuple(theirs.shape):
        return False
    if theirs.is_floating_point() and theirs.itemsize > 1:
        return np.allclose(ours.cpu().double().tolist(), theirs.double().tolist(), **CLOSE, equal_nan=True)
    return bits_of(ours) == bits_of(theirs)


EDGES = [0.0, -0.0, 0.4, 1.5, -1.5, 448.0, 464.0, 464.5, 500.0, 57344.0, 61439.0, 61440.0, 1e9, 2.0**-9, 2.0**-10, 3e-6]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", FLOAT8)
def test_floats_of_8_bits_round_as_in_pytorch(name: str, device: str) -> None:
    theirs, ours = getattr(torch, name), getattr(lucid, name)
    every = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(theirs)
    for to in ("float32", "float16", "bfloat16", "float64", "bool"):
        if device == "gpu" and to == "float64":
            continue
        want = every.to(getattr(torch, to)).double()
        got = ours_of(every, device).to(getattr(lucid, to)).cpu().double()
        np.testing.assert_array_equal(got.tolist(), want.tolist())
    # Every float16 number, and what is between the 8-bit ones.
    x = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(torch.float16).float()
    x = torch.cat([x[x == x], x[x.isfinite()] * 1.00001, torch.tensor([*EDGES, float("inf"), -float("inf")])])
    got = lucid.tensor(x.numpy().copy(), device=device).to(ours)
    assert bits_of(got) == bits_of(x.to(theirs))
    assert got.cpu().isnan().sum().item() == 0 and lucid.tensor(float("nan"), device=device).to(ours).isnan().item()
    whole = torch.tensor([0, 1, -3, 17, 449, 70000, -500])
    assert bits_of(lucid.tensor(whole.tolist(), device=device).to(ours)) == bits_of(whole.to(theirs))
    assert bits_of(lucid.full((3,), 300.0, dtype=ours, device=device)) == bits_of(torch.full((3,), 300.0, dtype=theirs))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", UNSIGNED)
def test_unsigned_integers_convert(name: str, device: str) -> None:
    theirs, ours = getattr(torch, name), getattr(lucid, name)
    whole = torch.tensor([0, 1, 255, 65535, 65536, 2**32 - 1, 2**40 + 5, -1, -(2**63), 2**63 - 1])
    u, v = whole.to(theirs), lucid.tensor(whole.tolist(), device=device).to(ours)
    assert bits_of(v) == bits_of(u) and v.tolist() == u.tolist()
    for to in ("int64", "int32", "int16", "uint8", "float32", "float64", "bool", *UNSIGNED):
        if device == "gpu" and to == "float64":
            continue
        assert agree(v.to(getattr(lucid, to)), u.to(getattr(torch, to))), to
    x = torch.tensor([0.0, 1.7, 200.9, 65535.0])
    assert bits_of(lucid.tensor(x.tolist(), device=device).to(ours)) == bits_of(x.to(theirs))
    if name == "uint64":
        big = torch.tensor([2.0**63, 1.5 * 2.0**63])
        assert bits_of(lucid.tensor(big.tolist(), device=device).to(ours)) == bits_of(big.to(theirs))
        assert lucid.tensor([2**64 - 1], dtype=ours, device=device)[0].item() == 2**64 - 1


def test_every_pair_converts() -> None:
    for a in (*lucid_dtypes(), *STORED):
        for b in (*lucid_dtypes(), *STORED):
            t = torch.tensor([0, 1, 1, 0]).to(getattr(torch, a)).to(getattr(torch, b))
            u = lucid.tensor([0, 1, 1, 0]).to(getattr(lucid, a)).to(getattr(lucid, b))
            assert u.int().tolist() == t.int().tolist() and plain(u.dtype) == b, (a, b)


def test_promotion_and_limits() -> None:
    for a in STORED:
        for b in (*lucid_dtypes(), *STORED):
            ours, theirs = ((getattr(m, a), getattr(m, b)) for m in (lucid, torch))
            assert lucid.can_cast(*ours) == torch.can_cast(*theirs), (a, b)
            assert lucid.can_cast(*ours[::-1]) == torch.can_cast(*theirs[::-1]), (a, b)
            try:
                want = plain(torch.promote_types(*theirs))
            except RuntimeError as refused:
                with pytest.raises(RuntimeError, match=str(refused).split(",")[0]):
                    lucid.promote_types(*ours)
            else:
                assert plain(lucid.promote_types(*ours)) == plain(lucid.promote_types(*ours[::-1])) == want
        dtype, other = getattr(lucid, a), getattr(torch, a)
        info, wanted = (m.finfo(d) if a in FLOAT8 else m.iinfo(d) for m, d in ((lucid, dtype), (torch, other)))
        for key in ("min", "max", "bits", *(("eps", "tiny", "smallest_normal", "resolution") if a in FLOAT8 else ())):
            assert getattr(info, key) == getattr(wanted, key), (a, key)
        kinds = ("is_floating_point", "is_complex", "is_signed", "itemsize")
        assert [getattr(dtype, k) for k in kinds] == [getattr(other, k) for k in kinds]
        with pytest.raises(TypeError):
            lucid.set_default_dtype(dtype)


MASK = "m.tensor([True, False, True], device=d)"
AT = "m.tensor([0, 2], device=d)"
CALLS = f"""x + x; x + 1; x + 1.5; x - x; x * x; x * 2; x / x; x // x; x % x; x ** 2; -x; x.abs(); x == x; x != 2; x == 1.5; x < x; x >= 2
x & x; x | x; x ^ x; ~x; x << 1; x.sum(); x.sum(0); x.mean(); x.prod(); x.max(); x.amax(); x.argmax(); x.sort(); x.sort(descending=True)
x.argsort(); x.msort(); x.topk(1); x.unique(); x.cumsum(0); x.cumprod(0); m.where({MASK}, x, x); m.where({MASK}, x, 1); x.masked_fill({MASK}, 1)
x.masked_select({MASK}); x.nonzero(); x.index_select(0, {AT}); x.gather(0, {AT}); x[{AT}]; x[{MASK}]; x[1:]; x[None, ::2]
x.scatter(0, {AT}, 1); x.scatter_add(0, {AT}, x); x.index_copy(0, {AT}, x[:2]); x.take({AT}); m.cat([x, x]); m.stack([x, x]); x.flip(0)
x.roll(1); x.repeat(2); x.tile(2); x.expand(3, 3).tril(); x.diag(); x.diag_embed(); m.nn.functional.pad(x, (1, 1)); x.clone()
x.expand(2, 3).contiguous(); x.clone().copy_(m.ones(3, device=d)); x.clone().fill_(3); x.clone().zero_(); m.zeros_like(x); m.full_like(x, 3)
m.ones(2, dtype=x.dtype, device=d); m.eye(2, dtype=x.dtype, device=d); x[0].item(); x.tolist(); m.equal(x, x); m.allclose(x, x); x.any(); x.all()
bool(x[0]); x.clamp(1, 2); m.maximum(x, x); m.minimum(x, x); x.sqrt(); x.exp(); x.relu(); x.sign(); x @ x; x.isnan(); x.isfinite(); x.floor()
x.round(); m.gcd(x, x); m.isin(x, x); x.unfold(0, 2, 1); x.as_strided((2,), (1,)); x.view(m.uint8); x.logical_not(); x + m.ones(3, device=d)
x == m.ones(3, dtype=m.int64, device=d); x + m.tensor(1.5, device=d); x.norm(); x.square(); x.reciprocal(); x.nan_to_num(); x.signbit()
x.count_nonzero(); x.aminmax(); x.split(2); int(x[0]); x.to(m.float32); x.reshape(3, 1).t(); x.chunk(2); m.outer(x, x); x.bincount()
x.bitwise_and(3); x.median(); m.atan2(x, x); m.arange(10)[x]""".replace("\n", "; ").split("; ")  # noqa: E501

#: What PyTorch has no kernel for and Lucid has: it moves elements, compares them with zero or each other, or is of the
#: ops that have kernels for other shapes.
MORE = {"m.where", "x.masked_fill", "x.masked_select", "x.gather", "x.scatter", "x.index_copy", "x.take", "x.flip"}
MORE |= {"x.nonzero", "x.count_nonzero", "x.expand", "m.eye", "m.equal", "x * 2", "x @ x"}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", STORED)
def test_calls_give_what_they_give_in_pytorch(name: str, device: str) -> None:
    wrong = []
    for text in CALLS:
        call: Callable[..., Any] = eval(f"lambda m, x, d: {text}")
        x = torch.tensor(NUMBERS[name]).to(getattr(torch, name))
        theirs: Any = None
        refused: Exception | None = None
        try:
            theirs = call(torch, x, "cpu")
        except (RuntimeError, TypeError, IndexError) as e:
            refused = e
        try:
            ours = call(lucid, ours_of(x, device), device)
        except (RuntimeError, TypeError, IndexError) as e:
            kind = next(k for k in type(refused).__mro__ if k.__module__ == "builtins")
            if refused is None or not isinstance(e, kind):
                wrong.append((text, repr(e), repr(refused)))
            continue
        if refused is None:
            if not agree(ours, theirs):
                wrong.append((text, ours, theirs))
        elif text.split("(")[0] in MORE:
            want = call(torch, x.to(getattr(torch, WIDE[name])), "cpu")
            moved = isinstance(want, torch.Tensor) and want.dtype != torch.bool and "nonzero" not in text
            if not agree(ours, want.to(x.dtype) if moved else want):
                wrong.append((text, ours, want))
        else:
            wrong.append((text, "not refused", repr(refused)))
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("device", DEVICES)
def test_elements_are_written_in_place(device: str) -> None:
    for name in STORED:
        x = lucid.tensor([1, 2, 3, 4], device=device).to(getattr(lucid, name))
        view = x[1:3]
        view[0] = 7
        x[lucid.tensor([0, 3], device=device)] = lucid.tensor([5, 6], device=device).to(x.dtype)
        x[lucid.tensor([False, False, True, False], device=device)] = 8
        assert x.tolist() == [5, 7, 8, 6] and view.tolist() == [7, 8]
        x.index_put_((lucid.tensor([0, 0], device=device),), x[:2].clone(), accumulate=True)
        # 17 is between two floats of 8 bits.
        assert x[0].item() == {"float8_e4m3fn": 16, "float8_e5m2": 16}.get(name, 17)
        x.copy_(lucid.tensor([1.0, 2.0, 0.0, 3.0], device=device))
        assert x.int().tolist() == [1, 2, 0, 3]


def test_refusals_name_the_dtype() -> None:
    for name in FLOAT8:
        x, y = ours_of(torch.ones(2).to(getattr(torch, name))), torch.ones(2).to(getattr(torch, name))
        with pytest.raises(TypeError) as theirs:
            y.numpy()
        with pytest.raises(TypeError, match=str(theirs.value)):
            x.numpy()
    for number, kind in ((-1, OverflowError), (1.5, TypeError), (2**64, OverflowError)):
        for module in (torch, lucid):
            with pytest.raises(kind):
                module.tensor([number], dtype=module.uint64)


def test_text_and_bytes() -> None:
    for name in STORED:
        x = torch.tensor([[1, 2, 300], [4, 5, 6]]).to(getattr(torch, name))
        assert repr(ours_of(x)) == repr(x).replace("torch.", "lucid.")
        assert bits_of(ours_of(x).t()[1:]) == bits_of(x.t()[1:])
    top = torch.tensor([2**64 - 1, 0], dtype=torch.uint64)
    assert repr(ours_of(top)) == repr(top).replace("torch.", "lucid.")


@pytest.mark.parametrize("name", UNSIGNED)
def test_arrays_of_numpy_share_memory(name: str) -> None:
    array = np.array([[1, 2], [3, np.iinfo(name).max]], dtype=name)
    x = lucid.from_numpy(array)
    array[0, 0] = 9
    assert plain(x.dtype) == name and x.tolist() == [[9, 2], [3, np.iinfo(name).max]]
    back = x.numpy()
    back[0, 1] = 8
    assert array[0, 1] == 8 and back.dtype == array.dtype and np.array_equal(lucid.tensor(array).numpy(), array)
    assert lucid.frombuffer(bytearray(array.tobytes()), dtype=x.dtype).tolist() == array.ravel().tolist()


@pytest.mark.parametrize("name", STORED)
def test_files_and_exchange(name: str, tmp_path: Path) -> None:
    import safetensors.torch

    theirs = torch.tensor([[1, 2, 3], [4, 5, 240]]).to(getattr(torch, name))
    ours = ours_of(theirs)
    file = io.BytesIO()
    torch.save({"x": theirs, "v": theirs.t()[1:]}, file)
    file.seek(0)
    read = lucid.load(file)
    assert agree(read["x"], theirs) and bits_of(read["v"]) == bits_of(theirs.t()[1:])
    assert read["v"]._shares_storage(read["x"])
    file = io.BytesIO()
    lucid.save({"x": ours, "v": ours.t()[1:]}, file)
    file.seek(0)
    back = torch.load(file, weights_only=True)
    assert back["x"].dtype == theirs.dtype and bits_of(back["x"]) == bits_of(ours)
    assert back["v"].untyped_storage().data_ptr() == back["x"].untyped_storage().data_ptr()
    path = tmp_path / "x.safetensors"
    safetensors.torch.save_file({"x": theirs}, path)
    assert agree(lucid.load(path)["x"], theirs)
    lucid.save_safetensors({"x": ours}, path)
    assert bits_of(safetensors.torch.load_file(path)["x"]) == bits_of(ours)
    import copy
    import pickle

    for made in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):
        assert agree(made, theirs)
    if name in UNSIGNED:
        assert agree(lucid.from_dlpack(theirs), theirs) and bits_of(torch.from_dlpack(ours)) == bits_of(ours)


@pytest.mark.parametrize("device", DEVICES)
def test_drawn_numbers(device: str) -> None:
    for name in STORED:
        x = lucid.testing.make_tensor(50, dtype=getattr(lucid, name), device=device)
        assert plain(x.dtype) == name and x.float().abs().max().item() <= 9 and x.float().std().item() > 1
    for name in UNSIGNED:
        x = lucid.randint(3, 60000, (500,), dtype=getattr(lucid, name), device=device)
        assert plain(x.dtype) == name and min(x.tolist()) >= 3 and max(x.tolist()) > 50000


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", FLOAT8)
def test_scaled_products(name: str, device: str) -> None:
    numbers = torch.linspace(-3, 3, 6 * 16).reshape(6, 16)
    a, b = numbers.to(getattr(torch, name)), numbers.flip(0).t().to(getattr(torch, name))
    scales = torch.tensor(2.0), torch.tensor(0.25)
    given = [ours_of(a, device), ours_of(b, device), *(lucid.tensor(s.item(), device=device) for s in scales)]
    for out in (None, "float32", "bfloat16"):
        want = torch._scaled_mm(a, b, *scales, out_dtype=getattr(torch, out) if out else None)
        got = lucid._scaled_mm(*given, out_dtype=getattr(lucid, out) if out else None)
        assert plain(got.dtype) == plain(want.dtype)
        apart = within("bfloat16" if out else "float8")
        np.testing.assert_allclose(got.cpu().float().tolist(), want.float().tolist(), **apart)
    rows = lucid.ones(6, 1, device=device), lucid.full((1, 6), 0.5, device=device)
    each = lucid._scaled_mm(*given[:2], *rows, bias=lucid.ones(6, device=device), out_dtype=lucid.float32)
    np.testing.assert_allclose(each.cpu().tolist(), (a.float() @ b.float() / 2 + 1).tolist(), **CLOSE)
    square = a @ b
    for options in ({}, {"beta": 0.5, "alpha": 2}, {"beta": 0}):
        want = torch.addmm(square, a, b, **options)
        got = lucid.addmm(ours_of(square, device), given[0], given[1], **options)
        assert plain(got.dtype) == name
        np.testing.assert_allclose(got.cpu().float().tolist(), want.float().tolist(), **within("float8"))
    with pytest.raises(RuntimeError, match="Float8"):
        lucid._scaled_mm(given[0].float(), *given[1:])
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        lucid._scaled_mm(given[0], given[0], *given[2:])


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_pass_conversions_to_8_bits(device: str) -> None:
    x = lucid.tensor([0.3, 1.7, -2.2], device=device, requires_grad=True)
    (x.to(lucid.float8_e4m3fn).float() * lucid.tensor([1.0, 2.0, 4.0], device=device)).sum().backward()
    y = torch.tensor([0.3, 1.7, -2.2], requires_grad=True)
    (y.to(torch.float8_e4m3fn).float() * torch.tensor([1.0, 2.0, 4.0])).sum().backward()
    assert x.grad is not None and x.grad.tolist() == y.grad.tolist()
