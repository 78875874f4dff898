"""How PyTorch's functions may be called: `out=`, NumPy's names, overloads, and which kind of error refuses a call."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python import limitations
from tests.python.parity.ops.test_table_parity import ROWS, name_of, run_torch, to_numpy
from tests.python.samples import UP_TO_SIGN, Sample, lucid_function, results, samples
from tests.python.tolerances import within

DEVICES = ["cpu", "gpu"]


def with_out(row: Any, sample: Sample, outs: list[torch.Tensor]) -> bool:
    """Does PyTorch write this call's results to `outs`?"""
    given = Sample(sample.text, sample.args, {**sample.kwargs, "out": outs[0] if len(outs) == 1 else tuple(outs)})
    try:
        run_torch(row, given, "float32", "contiguous", False)
    except (TypeError, RuntimeError):
        return False
    return True


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_out_is_taken_wherever_pytorch_takes_it(row: Any, device: str) -> None:
    if row["family"] == "random" or "." in row["torch"] or limitations.known(row["name"], device, "float32"):
        return
    if "float32" not in row["dtypes"]:
        return
    for sample in samples(row, device):
        wanted, _ = run_torch(row, sample, "float32", "contiguous", False)
        if not all(isinstance(w, torch.Tensor) for w in wanted):
            continue
        if not with_out(row, sample, [torch.empty(0, dtype=w.dtype) for w in wanted]):
            continue

        def convert(d: Any) -> Any:
            t = lucid.tensor(d.values.astype(np.float32) if d.values.dtype == np.float64 else d.values, device=device)
            return t.to(lucid.float32) if d.varies else t

        args, kwargs = sample.map(convert)
        args = [getattr(lucid, a.name) if hasattr(a, "name") and not callable(a) else a for a in args]
        kwargs = {k: getattr(lucid, v.name) if hasattr(v, "name") else v for k, v in kwargs.items()}
        outs = [lucid.empty(0, dtype=getattr(lucid, str(w.dtype)[6:]), device=device) for w in wanted]
        if row["name"] in limitations.NO_OUT:
            with pytest.raises(TypeError, match="unexpected keyword argument 'out'"):
                lucid_function(row)(*args, **kwargs, out=outs[0])
            continue
        if row["family"] == "create":
            kwargs["device"] = device
        got = results(lucid_function(row)(*args, **kwargs, out=outs[0] if len(outs) == 1 else tuple(outs)))
        for g, o, w in zip(got, outs, wanted, strict=True):
            assert g is o, f"{row['name']}({sample.text})"
            mine, theirs = to_numpy(o), to_numpy(w)
            if row["name"] in UP_TO_SIGN:
                mine, theirs = np.abs(mine), np.abs(theirs)
            np.testing.assert_allclose(mine, theirs, **within("program"), err_msg=row["name"])


@pytest.mark.parametrize("device", DEVICES)
def test_out_is_cast_resized_and_refused_as_in_pytorch(device: str) -> None:
    for module, kind in ((lucid, {"device": device}), (torch, {})):
        m: Any = module
        x = m.ones(2, 3, **kind)
        out = m.empty(2, 3, dtype=m.float16, **kind)
        assert m.add(x, 1, out=out) is out and out.tolist() == [[2.0] * 3] * 2
        shown = out[0]
        m.mul(x, 3, out=out)
        assert shown.tolist() == [3.0, 3.0, 3.0]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            none = m.empty(0, **kind)
            assert tuple(m.sum(x, 1, out=none).shape) == (2,)
        with pytest.warns(UserWarning, match="was resized"):
            assert tuple(m.sum(x, 1, out=m.empty(5, **kind)).shape) == (2,)
        with pytest.raises(RuntimeError, match="can't be cast"):
            m.add(x, 0.5, out=m.empty(2, 3, dtype=m.int64, **kind))
        with pytest.raises(RuntimeError, match="automatic differentiation"):
            m.add(m.ones(2, 3, requires_grad=True, **kind), 1, out=out)
        with pytest.raises(RuntimeError, match="automatic differentiation"):
            m.add(x, 1, out=m.ones(2, 3, requires_grad=True, **kind))
        with pytest.raises(TypeError):
            m.exp(x, out=3)
        with pytest.raises(TypeError):
            m.sort(x, out=out)
        assert m.add(x, 1, out=None).tolist() == [[2.0] * 3] * 2
        assert m.add(x, 1, out=x) is x and x.tolist() == [[2.0] * 3] * 2


OUT_BY_ROW = [r for r in ROWS if r["family"] not in ("random", "pool")]
OUT_DTYPES = ("bool", "uint8", "int64", "float16", "float32", "float64", "complex64", "complex128")


def torch_takes(row: Any, sample: Sample, kind: str, outs: list[torch.Tensor]) -> bool:
    given = Sample(sample.text, sample.args, {**sample.kwargs, "out": outs[0] if len(outs) == 1 else tuple(outs)})
    try:
        run_torch(row, given, kind, "contiguous", False)
    except (TypeError, RuntimeError):
        return False
    return True


def lucid_takes(row: Any, sample: Sample, kind: str, outs: list[lucid.Tensor]) -> bool:
    def convert(d: Any) -> Any:
        t = lucid.tensor(d.values)
        return t.to(getattr(lucid, kind)) if d.varies else t.float() if t.dtype == lucid.float64 else t

    args, kwargs = sample.map(convert)
    args = [getattr(lucid, a.name) if hasattr(a, "name") and not callable(a) else a for a in args]
    kwargs = {k: getattr(lucid, v.name) if hasattr(v, "name") else v for k, v in kwargs.items()}
    try:
        lucid_function(row)(*args, **kwargs, out=outs[0] if len(outs) == 1 else tuple(outs))
    except (TypeError, RuntimeError):
        return False
    return True


@pytest.mark.parametrize("row", OUT_BY_ROW, ids=name_of)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_out_takes_the_dtypes_that_pytorchs_takes(row: Any) -> None:
    differ, more, none = False, row["name"] in limitations.OUT_DTYPES, row["name"] in limitations.NO_OUT
    for kind in ("float32", "int64", "complex64"):
        if kind not in row["dtypes"]:
            continue
        for sample in samples(row, "cpu"):
            try:
                wanted, _ = run_torch(row, sample, kind, "contiguous", False)
            except (TypeError, RuntimeError, NotImplementedError):
                continue
            if not all(isinstance(w, torch.Tensor) and hasattr(lucid, str(w.dtype)[6:]) for w in wanted):
                continue
            if not torch_takes(row, sample, kind, [torch.empty_like(w) for w in wanted]):
                continue
            for i, name in itertools.product(range(len(wanted)), OUT_DTYPES):
                names = [name if i == j else str(w.dtype)[6:] for j, w in enumerate(wanted)]
                theirs = [torch.empty(w.shape, dtype=getattr(torch, n)) for w, n in zip(wanted, names, strict=True)]
                ours = [lucid.empty(w.shape, dtype=getattr(lucid, n)) for w, n in zip(wanted, names, strict=True)]
                where = f"{row['name']}({sample.text}) of {kind} to {names}"
                takes, wanted_to = lucid_takes(row, sample, kind, ours), torch_takes(row, sample, kind, theirs)
                differ |= takes != wanted_to
                assert takes == wanted_to or (takes and more) or (not takes and none), where
    assert differ == (more or none), f"{row['name']} needs no exception"


#: Calls whose `out=` takes other dtypes for other arguments: what PyTorch copies it casts, what it computes not.
OUT_CALLS: dict[str, Any] = {
    "lerp by a number": lambda m, t, o: m.lerp(t, t, 0.5, out=o),
    "lerp by a tensor": lambda m, t, o: m.lerp(t, t, t, out=o),
    "lerp by a 0-d tensor": lambda m, t, o: m.lerp(t, t, t[0, 0], out=o),
    "clamp_min": lambda m, t, o: m.clamp_min(t, 1, out=o),
    "clamp_min by a tensor": lambda m, t, o: m.clamp_min(t, t, out=o),
    "clamp_max": lambda m, t, o: m.clamp_max(t, 1, out=o),
    "clamp_max by a tensor": lambda m, t, o: m.clamp_max(t, t, out=o),
    "clamp": lambda m, t, o: m.clamp(t, 1, 2, out=o),
    "clamp by tensors": lambda m, t, o: m.clamp(t, t, t, out=o),
    "clamp by one tensor": lambda m, t, o: m.clamp(t, min=t, out=o),
    "abs": lambda m, t, o: m.abs(t, out=o),
    "var of columns": lambda m, t, o: m.var(t, 0, out=o),
    "var of all": lambda m, t, o: m.var(t, None, out=o),
    "var of both": lambda m, t, o: m.var(t, (0, 1), out=o),
    "var, keepdim": lambda m, t, o: m.var(t, 0, keepdim=True, out=o),
    "std of columns": lambda m, t, o: m.std(t, 0, out=o),
    "std of all": lambda m, t, o: m.std(t, None, out=o),
    "nansum of columns": lambda m, t, o: m.nansum(t, 0, out=o),
    "nansum": lambda m, t, o: m.nansum(t, out=o),
    "nanmean of columns": lambda m, t, o: m.nanmean(t, 0, out=o),
    "mean of columns": lambda m, t, o: m.mean(t, 0, out=o),
    "mean": lambda m, t, o: m.mean(t, out=o),
    "mean of both": lambda m, t, o: m.mean(t, (0, 1), out=o),
    "mean as float32": lambda m, t, o: m.mean(t, 0, dtype=m.float32, out=o),
    "logsumexp": lambda m, t, o: m.logsumexp(t, 0, out=o),
    "any of columns": lambda m, t, o: m.any(t, 0, out=o),
    "any": lambda m, t, o: m.any(t, out=o),
    "all of columns": lambda m, t, o: m.all(t, 0, out=o),
    "diff": lambda m, t, o: m.diff(t, out=o),
    "diff of nothing": lambda m, t, o: m.diff(t, n=0, out=o),
    "diff twice": lambda m, t, o: m.diff(t, n=2, out=o),
    "diff after more": lambda m, t, o: m.diff(t, prepend=t, out=o),
    "inner": lambda m, t, o: m.inner(t, t, out=o),
    "inner with a number": lambda m, t, o: m.inner(t, t[0, 0], out=o),
    "inner of numbers": lambda m, t, o: m.inner(t[0, 0], t[0, 0], out=o),
    "chain of one": lambda m, t, o: m.chain_matmul(t, out=o),
    "chain of two": lambda m, t, o: m.chain_matmul(t, t, out=o),
    "linspace": lambda m, t, o: m.linspace(0, 2, 3, out=o),
    "linspace below zero": lambda m, t, o: m.linspace(-1, 2, 3, out=o),
    "linspace below zero by a half": lambda m, t, o: m.linspace(-1.5, 2, 3, out=o),
    "linspace beyond bytes": lambda m, t, o: m.linspace(0, 300, 3, out=o),
    "linspace beyond half": lambda m, t, o: m.linspace(0, 1e10, 3, out=o),
    "linspace of complex": lambda m, t, o: m.linspace(1j, 2, 3, out=o),
    "linspace of one": lambda m, t, o: m.linspace(0.5, 300, 1, out=o),
    "linspace from a tensor": lambda m, t, o: m.linspace(m.tensor(0.5, device=o.device), 3, 4, out=o),
    "logspace": lambda m, t, o: m.logspace(0, 2, 3, out=o),
    "logspace beyond bytes": lambda m, t, o: m.logspace(0, 300, 3, out=o),
} | {
    f"{name} {n}": (lambda m, t, o, n=n, name=name: getattr(m, name)(t, n, out=o))
    for name in ("matrix_power",)
    for n in (0, 1, 2, 3, 4, 5, 8, -1)
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", OUT_CALLS)
@pytest.mark.filterwarnings("ignore")
def test_out_takes_the_dtypes_that_pytorchs_takes_for_these_arguments(name: str, device: str) -> None:
    def run(m: Any, d: str, kind: str, out: str) -> Any:
        t = m.tensor([[1, 2], [3, 5]], device=d).to(getattr(m, kind))
        try:
            o = m.empty(0, dtype=getattr(m, out), device=d)
            OUT_CALLS[name](m, t, o)
        except (TypeError, RuntimeError):
            return None
        return to_numpy(o)

    for kind, out in itertools.product(("float32", "int64", "complex64", "float16"), OUT_DTYPES):
        if (device == "gpu" and out in ("float64", "complex128")) or (kind == "float16" and "var" in name + "std"):
            continue
        own = "float32" if kind == "int64" else kind
        if run(torch, "cpu", kind, own) is None and run(torch, "cpu", kind, kind) is None:
            continue  # Not for this dtype there, or here.
        ours, theirs = run(lucid, device, kind, out), run(torch, "cpu", kind, out)
        if ours is None and run(lucid, device, kind, own) is None and run(lucid, device, kind, kind) is None:
            continue
        where = f"{name} of {kind} to {out}"
        assert (ours is None) == (theirs is None), where
        if ours is not None and np.isfinite(theirs).all() and (np.abs(theirs.astype(np.complex128)) < 2.0**63).all():
            np.testing.assert_allclose(ours, theirs, **within("complex functions"), err_msg=where)


@pytest.mark.parametrize("device", DEVICES)
def test_ends_of_spaced_numbers_may_be_tensors(device: str) -> None:
    for module, kind in ((lucid, {"device": device}), (torch, {})):
        m: Any = module
        start, end = m.tensor(1, **kind), m.tensor(3.0, requires_grad=True, **kind)
        for made in (m.linspace(start, 2, 3, **kind), m.linspace(1, end - 1, 3, **kind)):
            assert made.dtype == m.float32 and not made.requires_grad and made.tolist() == [1.0, 1.5, 2.0]
        assert m.logspace(start, end, 3, **kind).tolist() == [10.0, 100.0, 1000.0]
        assert m.linspace(m.tensor(1j, **kind), 2, 2, **kind).dtype == m.complex64
        for bad in (m.tensor([0.0], **kind), m.tensor([0.0, 1.0], **kind)):
            with pytest.raises(RuntimeError):
                m.linspace(bad, 1, 3, **kind)
            with pytest.raises(RuntimeError):
                m.logspace(0, bad, 3, **kind)
        with pytest.raises(RuntimeError):
            m.linspace(0, 300, 3, dtype=m.uint8, **kind)
        with pytest.raises(RuntimeError):
            m.linspace(0, 3, 3, dtype=m.bool, **kind)
        assert m.linspace(0.5, 3, 1, dtype=m.bool, **kind).tolist() == [True]


@pytest.mark.parametrize("device", DEVICES)
def test_out_says_the_dtype_of_sums_and_of_what_is_made(device: str) -> None:
    for module, kind in ((lucid, {"device": device}), (torch, {})):
        m: Any = module
        x = m.tensor([0.5, 0.75, 2.5], **kind)
        assert m.sum(x, 0, out=m.empty((), dtype=m.int64, **kind)).item() == 2
        assert m.cumsum(x, 0, out=m.empty(3, dtype=m.int32, **kind)).tolist() == [0, 0, 2]
        assert m.full((2,), 2.5, out=m.empty(2, dtype=m.int32, **kind), **kind).tolist() == [2, 2]
        assert m.arange(3, out=m.empty(3, dtype=m.float16, **kind), **kind).tolist() == [0.0, 1.0, 2.0]
        pair = (m.empty((), dtype=m.float16, **kind), m.empty((), dtype=m.int64, **kind))
        for call in (
            lambda m=m, x=x, kind=kind: m.sum(x, 0, dtype=m.float16, out=m.empty((), **kind)),
            lambda m=m, kind=kind: m.zeros(2, dtype=m.float16, out=m.empty(2, **kind), **kind),
            lambda m=m, x=x, kind=kind: m.cumsum(x, 0, dtype=m.bool),
            lambda m=m, x=x, kind=kind: m.mean(x, 0, out=m.empty((), dtype=m.int64, **kind)),
            lambda m=m, x=x, pair=pair: m.max(x, 0, out=pair),
        ):
            with pytest.raises(RuntimeError):
                call()
        assert m.max(x, out=m.empty((), dtype=m.float16, **kind)).item() == 2.5
        assert m.maximum(x, x, out=m.empty(3, dtype=m.float16, **kind)).tolist() == [0.5, 0.75, 2.5]


def test_out_is_of_the_same_device() -> None:
    with pytest.raises(lucid.DeviceMismatch):
        lucid.add(lucid.ones(2), 1, out=lucid.empty(2, device="gpu"))


#: What joins tensors in `out`, which may be none of them.
JOINED: dict[str, Any] = {
    "integers of floats": lambda m, x: m.cat([x, x], out=m.empty(4, dtype=m.int64, device=x.device)),
    "truths of floats": lambda m, x: m.cat([x], out=m.empty(2, dtype=m.bool, device=x.device)),
    "floats of complex": lambda m, x: m.cat([x * 1j], out=m.empty(2, device=x.device)),
    "halves of floats": lambda m, x: m.cat([x], out=m.empty(2, dtype=m.float16, device=x.device)),
    "integers of longer ones": lambda m, x: m.cat([x.long()], out=m.empty(2, dtype=m.int32, device=x.device)),
    "itself": lambda m, x: m.cat([x, x], out=x),
    "itself alone": lambda m, x: m.cat([x], out=x),
    "its halves": lambda m, x: m.cat([x[:1], x[1:]], out=x),
    "apart from it": lambda m, x: (lambda y: m.cat([y[:2], y[:2]], out=y[2:]))(m.zeros(6, device=x.device)),
    "stack of itself": lambda m, x: m.stack([x, x], out=x),
    "stack to integers": lambda m, x: m.stack([x, x], out=m.empty(2, 2, dtype=m.int64, device=x.device)),
    "hstack of itself": lambda m, x: m.hstack([x, x], out=x),
    "hstack to integers": lambda m, x: m.hstack([x, x], out=m.empty(4, dtype=m.int64, device=x.device)),
    "vstack of itself": lambda m, x: m.vstack([x, x], out=x),
    "column_stack to truths": lambda m, x: m.column_stack([x, x], out=m.empty(2, 2, dtype=m.bool, device=x.device)),
    "nothing": lambda m, x: m.cat([x[:0], x[:0]], out=m.empty(0, device=x.device)),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", JOINED)
def test_tensors_are_joined_where_and_in_which_dtype_pytorch_joins_them(name: str, device: str) -> None:
    def run(m: Any, d: str) -> Any:
        try:
            return JOINED[name](m, m.ones(2, device=d)).tolist()
        except TypeError:
            return "TypeError"
        except RuntimeError:
            return "RuntimeError"

    assert run(lucid, device) == run(torch, "cpu")


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_made_for_out_is_made_on_its_device(device: str) -> None:
    def run(m: Any, d: str) -> Any:
        def out(dtype: Any = m.float32) -> Any:
            return m.empty(0, dtype=dtype, device=d)

        made = [
            m.arange(3, out=out()),
            m.arange(0, 1, 0.3, out=out(m.int64)),
            m.arange(-2, 2, out=out(m.uint8)),
            m.range(0, 2, out=out()),
            m.linspace(0, 1, 3, out=out()),
            m.logspace(0, 1, 3, out=out()),
            m.zeros(2, out=out()),
            m.ones((2, 1), out=out(m.int32)),
            m.full((2,), 3, out=out()),
            m.eye(2, out=out()),
        ]
        assert all(t.device == out().device for t in made)
        return [(str(t.dtype).split(".")[-1], [round(v, 4) for v in t.flatten().tolist()]) for t in made]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert run(lucid, device) == run(torch, "cpu")


FIRST = """eq ne lt le gt ge greater less not_equal logical_and logical_or logical_xor fmod clamp_min clamp_max copysign
rsub add sub mul div remainder pow floor_divide true_divide xlogy float_power maximum hypot atan2 fmax"""


@pytest.mark.parametrize("name", FIRST.split())
def test_a_number_comes_before_a_tensor_where_pytorch_has_it(name: str) -> None:
    def run(m: Any) -> Any:
        try:
            return [round(v, 5) for v in getattr(m, name)(2, m.tensor([0.5, 2.0, 3.0])).tolist()]
        except TypeError:
            return "TypeError"

    assert run(lucid) == run(torch)


@pytest.mark.parametrize("device", DEVICES)
def test_kinds_of_errors_of_values_that_do_not_fit(device: str) -> None:
    for module, kind in ((lucid, {"device": device}), (torch, {})):
        m: Any = module
        x, mask = m.zeros(2, 2, **kind), m.ones(2, 2, **kind) > 0
        for text in ("a", b"a"):
            with pytest.raises(TypeError):
                x[text]
        with pytest.raises(RuntimeError):
            x.masked_fill(mask, m.tensor(1j, **kind))
        assert m.nn.functional.batch_norm(m.zeros(0, 3, **kind), None, None, training=True).shape == (0, 3)
        running = m.full((3,), 2.0, **kind)
        m.nn.functional.batch_norm(m.zeros(0, 3, 4, **kind), running, running, training=True)
        assert running.tolist() == [2.0] * 3
        with pytest.raises(ValueError, match="more than 1 value"):
            m.nn.functional.batch_norm(m.zeros(1, 3, **kind), None, None, training=True)
        z = m.full((50,), 1 + 2j, **kind)
        kept = m.nn.functional.dropout(z, 0.5)
        assert kept.dtype == m.complex64 and {complex(v) for v in kept.tolist()} == {0j, 2 + 4j}


def test_numpys_names() -> None:
    x = [[1.0, 4.0, 2.0], [0.0, -1.0, 5.0]]
    calls = [
        lambda m, t: m.sum(t, axis=1),
        lambda m, t: m.sum(t, axis=(0, 1), keepdims=True),
        lambda m, t: t.sum(axis=-1),
        lambda m, t: m.cumsum(t, axis=0),
        lambda m, t: t.cumsum(axis=0),
        lambda m, t: m.argmax(t, axis=1, keepdims=True),
        lambda m, t: m.cat([t, t], axis=1),
        lambda m, t: m.sort(t, axis=0)[1],
        lambda m, t: t.mean(axis=0, keepdims=True),
        lambda m, t: m.squeeze(t.unsqueeze(0), axis=0),
        lambda m, t: m.any(t > 0, axis=1),
    ]
    for call in calls:
        np.testing.assert_allclose(to_numpy(call(lucid, lucid.tensor(x))), to_numpy(call(torch, torch.tensor(x))))
    for bad in (lambda m, t: m.sum(t, dim=1, axis=1), lambda m, t: m.add(t, 1, axis=1), lambda m, t: m.cumsum(t)):
        for m in (lucid, torch):
            with pytest.raises(TypeError):
                bad(m, m.tensor(x))
