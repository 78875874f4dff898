"""How PyTorch's functions may be called: `out=`, NumPy's names, overloads, and which kind of error refuses a call."""

from __future__ import annotations

import warnings
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python import limitations
from tests.python.parity.test_table_parity import ROWS, name_of, run_torch, to_numpy
from tests.python.samples import Sample, lucid_function, results, samples

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
            np.testing.assert_allclose(to_numpy(o), to_numpy(w), 3e-5, 1e-5, err_msg=row["name"])


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


def test_out_is_of_the_same_device() -> None:
    with pytest.raises(lucid.DeviceMismatch):
        lucid.add(lucid.ones(2), 1, out=lucid.empty(2, device="gpu"))


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
