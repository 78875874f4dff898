"""Modules of few names: monitor, `__future__`, swapped tensors, and those that say what is not there."""

from __future__ import annotations

import copy
import datetime
import gc
import importlib
from typing import Any

import lucid
import numpy as np
import pytest
import torch
import torch.monitor

from tests.python.tolerances import within


def logged(framework: Any) -> list[tuple[str, dict[str, Any]]]:
    monitor, seen = framework.monitor, []
    handle = monitor.register_event_handler(lambda event: seen.append((event.name, dict(event.data))))
    monitor.log_event(monitor.Event("epoch", datetime.datetime.now(), {"loss": 0.5, "n": 3, "best": True, "tag": "a"}))
    kinds = [monitor.SUM, monitor.MEAN, monitor.COUNT, monitor.MIN, monitor.MAX]
    full = monitor.Stat("full", kinds, datetime.timedelta(hours=9), 3)
    assert set(full.get().values()) == {0.0}
    for number in (2, -1.5, 4.0, 100.0):
        full.add(number)
    assert full.count == 0 and full.name == "full"
    seen.append(("get", {str(k).rpartition(".")[2].split(":")[0]: v for k, v in full.get().items()}))
    rest = monitor.Stat("rest", [monitor.SUM], datetime.timedelta(hours=9))
    rest.add(7)
    del rest
    gc.collect()
    monitor.unregister_event_handler(handle)
    monitor.log_event(monitor.Event("unseen", datetime.datetime.now(), {}))
    return seen


def test_events_and_statistics() -> None:
    ours = logged(lucid)
    assert ours == logged(torch)
    assert [name for name, _ in ours] == ["epoch", "torch.monitor.Stat", "get", "torch.monitor.Stat"]
    last = lucid.monitor.Stat("last", [lucid.monitor.VALUE], datetime.timedelta(hours=9), 2)  # PyTorch leaves it out
    last.add(2)
    last.add(3)
    assert last.get() == {lucid.monitor.VALUE: 3.0}
    for framework in (lucid, torch):
        with pytest.raises(TypeError):
            framework.monitor.Event("a", datetime.datetime.now(), {"x": [1]})
        with pytest.raises(TypeError):
            framework.monitor.Event("a", 1.0, {})


def swapped(framework: Any) -> list[Any]:
    layer = framework.nn.Linear(2, 1)
    with framework.no_grad():
        layer.weight.fill_(2.0)
    other = framework.nn.Parameter(framework.full((3, 4), 5.0, dtype=framework.float64), requires_grad=False)
    weight, other.note = layer.weight, "seen"
    layer(framework.ones(1, 2)).sum().backward()
    framework.utils.swap_tensors(weight, other)
    facts = [weight.tolist(), weight.grad, weight.requires_grad, weight.note, hasattr(other, "note")]
    facts += [other.tolist(), other.grad.tolist(), other.requires_grad, layer.weight is weight]
    return facts


def test_swapped_tensors() -> None:
    assert swapped(lucid) == swapped(torch)


def converted(framework: Any, kind: str) -> list[Any]:
    future = framework.__future__
    setter = getattr(future, f"set_{kind}_module_params_on_conversion")
    layer = framework.nn.Linear(2, 1)
    layer(framework.ones(1, 2)).sum().backward()
    before = layer.weight
    setter(True)
    try:
        layer.double()
        assert getattr(future, f"get_{kind}_module_params_on_conversion")()
    finally:
        setter(False)
    after = layer.weight
    dtypes = [str(t.dtype)[-7:] for t in (after, before, after.grad)]
    return [after is before, *dtypes, after.requires_grad]


@pytest.mark.parametrize("kind", ["overwrite", "swap"])
def test_conversions_of_modules(kind: str) -> None:
    assert converted(lucid, kind) == converted(torch, kind)


def test_what_is_not_there_says_so() -> None:
    with pytest.raises(NotImplementedError, match="custom_op"):
        lucid.utils.cpp_extension.load(name="a", sources=["a.cpp"])
    assert lucid.utils.cpp_extension.CUDA_HOME is None
    with pytest.raises(NotImplementedError, match=r"export\.save"):
        lucid.package.PackageImporter("model.pt")
    with pytest.raises(RuntimeError, match=r"my[.]Stack"):
        _ = lucid.classes.my.Stack
    with pytest.raises(OSError, match="custom_op"):
        lucid.classes.load_library("libmy.so")
    assert lucid.utils.deterministic.fill_uninitialized_memory


@pytest.mark.parametrize("strategy", ["auto", "greedy", "optimal"])
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_orders_of_einsum(strategy: str, device: str) -> None:
    einsum = lucid.backends.opt_einsum
    assert (einsum.is_available(), einsum.enabled, einsum.strategy) == (True, False, "auto")
    with pytest.raises(ValueError, match="not enabled"):
        einsum.strategy = strategy
    with pytest.raises(ValueError, match="must be one of"), einsum.flags(True, "none"):
        pass
    rng = np.random.default_rng(0)
    for equation, shapes in (
        ("ij,jk,kl->il", [(4, 30), (30, 20), (20, 1)]),
        ("abc,cd,de,b->ae", [(2, 3, 4), (4, 5), (5, 6), (3,)]),
        ("i,j,ij,k,k->", [(3,), (4,), (3, 4), (2,), (2,)]),
        ("...i,ij,...j,->...", [(2, 1, 3), (3, 4), (5, 4), ()]),
    ):
        arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
        ours = [lucid.from_numpy(a).to(device).requires_grad_() for a in arrays]
        theirs = [torch.from_numpy(a).requires_grad_() for a in arrays]
        with einsum.flags(True, strategy):
            made = lucid.einsum(equation, *ours)
            (made * made).sum().backward()
        expected = torch.einsum(equation, *theirs)
        (expected * expected).sum().backward()
        pairs = [(made, expected), *((a.grad, b.grad) for a, b in zip(ours, theirs, strict=True))]
        for a, b in pairs:
            np.testing.assert_allclose(a.detach().cpu().numpy(), b.detach().numpy(), **within("training"))
    assert (einsum.enabled, einsum.strategy) == (False, "auto")


def traced(framework: Any) -> Any:
    def program(x: Any) -> Any:
        framework.bernoulli(x)
        return x + 1

    return framework.fx.symbolic_trace(program).graph


def test_arguments_that_once_did_nothing() -> None:
    for framework in (lucid, torch):
        graph = traced(framework)
        drawn = next(n for n in graph.nodes if n.name == "bernoulli")
        assert (drawn.is_impure(), drawn.is_impure(impure_random=False)) == (True, True)
        library = framework.library.Library("small_modules", "DEF")
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")
        with pytest.raises(RuntimeError):
            library.impl("twice", lambda x: x * 3, "CPU", allow_override=False)
        library.impl("twice", lambda x: x * 4, "CPU")
        assert framework.ops.small_modules.twice(framework.ones(1)).item() == 4.0
        library._destroy()


def _weak(f: Any) -> list[Any]:
    """What weak references to tensors and dictionaries of them tell."""
    weak, told = importlib.import_module(f"{f.__name__}.utils.weak"), []
    x, y, gone = f.ones(2), f.ones(2), f.ones(3)
    told.append((weak.TensorWeakRef(x)() is x, weak.WeakIdRef(x)() is x, hash(weak.WeakIdRef(x)) == id(x)))
    told.append((weak.WeakIdRef(x) == weak.WeakIdRef(x), weak.WeakIdRef(x) == weak.WeakIdRef(y)))
    table = weak.WeakTensorKeyDictionary({x: "x", gone: "gone"})
    table[y] = "y"
    told.append((len(table), table[x], x in table, f.ones(2) in table, 3 in table, table.get(f.ones(2), "none")))
    called: list[Any] = []
    ref, other = weak.WeakIdRef(gone, called.append), weak.TensorWeakRef(gone)
    table.keyrefs()
    for key in table:
        if key is gone:
            del key, gone
            gc.collect()
            break
    gc.collect()
    told.append((len(table), sorted(table.values()), ref(), other(), len(called), ref == ref))
    told.append([value for key, value in table.items() if key is x or key is y])
    told.append((table == {x: "x", y: "y"}, table == {x: "x"}, table == {f.ones(2): "x", y: "y"}, table == 3))
    copied, deep = table.copy(), copy.deepcopy(table)
    copied[x] = "other"
    told.append((table[x], copied[x], deep[x], len(deep), type(deep).__name__))
    told.append((len(table | {f.ones(1): 1}), len({x: 2, (z := f.ones(1)): 1} | table), len(table | copied)))
    table |= {z: "z"}
    told.append((table.pop(z), table.pop(z, None), table.setdefault(z, "new"), table.popitem()[1], len(table)))
    del table[x]
    told.append((x in table, len(table), repr(table).startswith("<WeakIdKeyDictionary at")))
    for bad in (lambda: table[x], lambda: table.__delitem__(x), lambda: table.update({3: 4}), lambda: hash(table)):
        try:
            told.append(bad())
        except (KeyError, TypeError) as e:
            told.append(type(e).__name__)
    for bad in (lambda: weak.TensorWeakRef(3), lambda: weak.WeakIdKeyDictionary().popitem()):
        try:
            told.append(bad())
        except (AssertionError, KeyError) as e:
            told.append(type(e).__name__)
    return told


def test_weak_references_to_tensors() -> None:
    assert _weak(lucid) == _weak(torch)
    # An entry that goes while others are read does no harm.
    from lucid.utils.weak import WeakIdKeyDictionary, _WeakHashRef

    class Named:
        def __hash__(self) -> int:
            return 7

    a, b = Named(), Named()
    assert _WeakHashRef(a) == _WeakHashRef(b) and len(WeakIdKeyDictionary({a: 1, b: 2}, _WeakHashRef)) == 1
    assert len(WeakIdKeyDictionary({a: 1, b: 2})) == 2
    kept = [lucid.ones(1) for _ in range(3)]
    table = WeakIdKeyDictionary({t: i for i, t in enumerate(kept)})
    for _ in table.values():
        kept.clear()
    assert len(table) == 0 and table.keyrefs() == []
