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
from tests.python.parity.test_table_parity import ROWS, name_of, run_torch, to_numpy
from tests.python.samples import UP_TO_SIGN, Sample, lucid_function, results, samples

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
        if row["family"] == "create":
            kwargs["device"] = device
        got = results(lucid_function(row)(*args, **kwargs, out=outs[0] if len(outs) == 1 else tuple(outs)))
        for g, o, w in zip(got, outs, wanted, strict=True):
            assert g is o, f"{row['name']}({sample.text})"
            mine, theirs = to_numpy(o), to_numpy(w)
            if row["name"] in UP_TO_SIGN:
                mine, theirs = np.abs(mine), np.abs(theirs)
            np.testing.assert_allclose(mine, theirs, 3e-5, 1e-5, err_msg=row["name"])


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


# Where the dtypes that `out=` takes depend on the arguments in PyTorch: ours cast, or take the result's own only.
OUT_BY_ARGUMENTS = {
    "lerp": "casts where the weight is a number",
    "clamp_min": "casts where the limit is a tensor",
    "clamp_max": "casts where the limit is a tensor",
    "clamp": "casts where the limits are tensors",
    "abs": "casts of complex numbers",
    "var": "refuses complex numbers over some dimensions",
    "std": "refuses complex numbers over some dimensions",
    "nansum": "refuses complex numbers, and of integers takes all",
    "nanmean": "refuses complex numbers",
    "mean": "of complex numbers over some dimensions takes real ones",
    "logsumexp": "of complex numbers takes real ones",
    "any": "takes uint8",
    "all": "takes uint8",
    "diff": "takes the input's own where nothing is subtracted",
    "inner": "casts where one is a number",
    "chain_matmul": "takes all for one matrix",
    "matrix_power": "casts for the exponents 0 and 1",
    "linspace": "refuses by the numbers what the dtype cannot hold",
    "logspace": "refuses by the numbers what the dtype cannot hold",
    "lu": "copies into tensors of any dtype, truths too",
}
OUT_BY_ROW = [r for r in ROWS if r["family"] not in ("random", "pool") and r["name"] not in OUT_BY_ARGUMENTS]
OUT_DTYPES = ("bool", "uint8", "int64", "float16", "float32", "float64", "complex64")


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
                assert lucid_takes(row, sample, kind, ours) == torch_takes(row, sample, kind, theirs), where


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
