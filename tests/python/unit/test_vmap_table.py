"""`vmap` over every row of the op table, against a loop: values, gradients through it and inside of it, nesting."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import lucid
import numpy as np
import pytest
from lucid import func

from tests.python import limitations, tolerances
from tests.python.samples import (
    Data,
    DType,
    Sample,
    fits_in_place,
    lucid_function,
    makers,
    of_complex_alone,
    results,
    rows,
    single,
)
from tests.python.unit.test_table import numbers

# A Python bool is no result that could be batched.
ROWS = [r for r in rows() if r["family"] not in ("create", "random") and r["returns"] != "Truth"]
DEVICES = ["cpu", "gpu"]


def name_of(row: Any) -> str:
    return str(row["name"])


def variants(row: Any, text: str, count: int) -> list[Sample]:
    """One sample's arguments, drawn several times."""
    found = []
    for i in range(count):
        rng = np.random.default_rng(zlib.crc32(f"{row['name']}({text}){i}".encode()))
        args, kwargs = eval(f"(lambda *a, **k: (a, k))({text})", makers(rng, False))
        sample = Sample(text, args, kwargs)
        if of_complex_alone(row):

            def turned(d: Data, sample: Sample = sample) -> Data:
                return Data((d.values * (1 + 0.5j)).astype(np.complex64)) if single(row, sample, d) != "float32" else d

            args, kwargs = sample.map(turned)
            sample = Sample(text, tuple(args), kwargs)
        found.append(sample)
    return found


def tensor(d: Data, values: np.ndarray, device: str) -> lucid.Tensor:
    if values.dtype == np.float64:
        values = values.astype(np.float32)
    return lucid.tensor(values, device=device)


def called(row: Any, sample: Sample, tensors: list[Any]) -> list[Any]:
    """The row's results with these in place of the sample's tensors."""
    queue = list(tensors)
    args, kwargs = sample.map(lambda d: queue.pop(0))
    args = [getattr(lucid, a.name) if isinstance(a, DType) else a for a in args]
    kwargs = {k: getattr(lucid, v.name) if isinstance(v, DType) else v for k, v in kwargs.items()}
    return results(lucid_function(row)(*args, **kwargs))


def cases(row: Any, device: str, count: int) -> Iterator[list[Sample]]:
    if limitations.known(row["name"], device, "*"):
        return
    for text in row["samples"]:
        drawn = variants(row, text, count)
        if drawn[0].fits(device) and drawn[0].tensors():
            yield drawn


def allowed(row: Any, device: str, count: int) -> Iterator[list[Sample]]:
    """The cases that `vmap` does not refuse."""
    for drawn in cases(row, device, count):
        if not limitations.vmap_refuses(row["name"], drawn[0].text) and any(widest(row, drawn)):
            yield drawn


def widest(row: Any, drawn: list[Sample]) -> tuple[bool, ...]:
    """All tensor arguments that may be batched at once: all but those that must be shared."""
    n = len(drawn[0].tensors())
    own = limitations.VMAP_SHARED.get(row["name"], (n, ""))[0]
    return tuple(i < own for i in range(n))


def masks(n: int) -> list[tuple[bool, ...]]:
    """Each alone, and all."""
    alone = [tuple(i == j for j in range(n)) for i in range(n)]
    return alone if n == 1 else [*alone, (True,) * n]


def stacked(drawn: list[Sample], mask: tuple[bool, ...], device: str, dim: int) -> list[lucid.Tensor]:
    """The tensor arguments: of all draws along `dim` where the mask says so, else of the first draw."""
    of_each = [s.tensors() for s in drawn]
    out = []
    for i, batched in enumerate(mask):
        d = of_each[0][i]
        values = np.stack([t[i].values for t in of_each], axis=dim) if batched else d.values
        out.append(tensor(d, values, device))
    return out


def differentiable(drawn: list[Sample], tensors: list[Any]) -> list[int]:
    """The places of the arguments that may require gradients."""
    return [
        i
        for i, (d, t) in enumerate(zip(drawn[0].tensors(), tensors, strict=True))
        if d.varies and d.gradient and (t.is_floating_point() or t.is_complex())
    ]


def loop(row: Any, drawn: list[Sample], tensors: list[Any], mask: tuple[bool, ...], dim: int) -> list[Any]:
    """What `vmap` should give, one sample at a time."""
    runs = []
    for b, sample in enumerate(drawn):
        # Copies: a sample's memory is its own.
        own = [t.select(dim, b).clone() if batched else t for t, batched in zip(tensors, mask, strict=True)]
        runs.append(called(row, sample, own))
    return [lucid.stack(list(r)) if isinstance(r[0], lucid.Tensor) else r for r in zip(*runs, strict=True)]


def weighted(outputs: list[Any]) -> Any:
    total = None
    for out in outputs:
        if isinstance(out, lucid.Tensor) and out.requires_grad:
            out = lucid.view_as_real(out) if out.is_complex() else out
            weights = lucid.arange(1, out.numel() + 1, device=out.device).to(out.dtype).reshape(out.shape) / 7
            term = (out * weights).sum()
            total = term if total is None else total + term
    return total


def grads_of(outputs: list[Any], leaves: list[Any]) -> list[np.ndarray]:
    total = weighted(outputs)
    if total is None:
        return []
    found = lucid.autograd.grad(total, leaves, allow_unused=True)
    return [numbers(lucid.zeros(x.shape) if g is None else g) for g, x in zip(found, leaves, strict=True)]


def agree(
    got: list[Any],
    wanted: list[Any],
    where: str,
    tolerance: Callable[[str], tuple[float, float]],
    large: bool = False,
) -> None:
    """Where terms are `large`, as those of words of many bits, sums of them are as exact as the terms."""
    assert len(got) == len(wanted), where
    for g, w in zip(got, wanted, strict=True):
        if isinstance(w, lucid.Tensor):
            assert (g.shape, g.dtype, g.device) == (w.shape, w.dtype, w.device), where
        rtol, atol = tolerance(
            "float32" if not isinstance(w, lucid.Tensor) or w.is_floating_point() or w.is_complex() else "int64"
        )
        want = numbers(w)
        atol = max(atol, tolerances.SUMS * np.abs(want).max(initial=0)) if large else atol
        np.testing.assert_allclose(numbers(g), want, rtol, atol, err_msg=where)


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # What ops warn users of, once in a process, and that there is no batching rule.
        warnings.simplefilter("ignore", UserWarning)
        yield


@pytest.mark.parametrize("row", ROWS, ids=name_of)
@pytest.mark.parametrize("device", DEVICES)
def test_vmap_agrees_with_a_loop(row: Any, device: str) -> None:
    for drawn in cases(row, device, 3):
        for mask in masks(len(drawn[0].tensors())):
            for dim in (0,) if row["name"] in limitations.VMAP_BY_MEMORY else (0, -1):
                where = f"vmap({row['name']})({drawn[0].text}) mask={mask} dim={dim} {device}"
                leaves = stacked(drawn, mask, device, dim)
                at = differentiable(drawn, leaves) if row["differentiable"] else []
                for i in at:
                    leaves[i].requires_grad_()
                in_dims = tuple(dim if batched else None for batched in mask)

                def run(*given: Any, drawn: list[Sample] = drawn) -> Any:
                    return tuple(called(row, drawn[0], list(given)))

                mapped = func.vmap(run, in_dims=in_dims)
                if not limitations.vmap_takes(row["name"], mask):
                    with pytest.raises(NotImplementedError, match="vmap has no batching rule"):
                        mapped(*leaves)
                    continue
                if limitations.vmap_refuses(row["name"], drawn[0].text):
                    # Where what decides is shared, by one mask for all, say, it is no question of values.
                    if all(mask) and all(leaf.numel() for leaf in leaves):
                        with pytest.raises((RuntimeError, ValueError), match="vmap"):
                            mapped(*leaves)
                        continue
                    try:
                        mapped(*leaves)
                    except (RuntimeError, ValueError) as refused:
                        assert "vmap" in str(refused), where
                        continue
                got, wanted = list(mapped(*leaves)), loop(row, drawn, leaves, mask, dim)
                agree(got, wanted, where, tolerances.forward, row["family"] == "quantized")
                if at:
                    grads = [grads_of(outs, [leaves[i] for i in at]) for outs in (got, wanted)]
                    agree(*grads, f"gradient of {where}", tolerances.backward)


@pytest.mark.parametrize("row", [r for r in ROWS if r["differentiable"]], ids=name_of)
@pytest.mark.parametrize("device", DEVICES)
def test_gradients_inside_of_vmap(row: Any, device: str) -> None:
    """`vmap(grad(f))` against `grad(f)` of each sample: gradients per sample, of shared arguments too."""
    for drawn in allowed(row, device, 3):
        for mask in masks(len(drawn[0].tensors())):
            if not limitations.vmap_takes(row["name"], mask):
                continue
            where = f"vmap(grad({row['name']}))({drawn[0].text}) mask={mask} {device}"
            leaves = stacked(drawn, mask, device, 0)
            at = tuple(differentiable(drawn, leaves))
            if not at:
                continue

            def total(*given: Any, drawn: list[Sample] = drawn) -> Any:
                outs = weighted(called(row, drawn[0], list(given)))
                return outs if outs is not None else sum(g.sum() * 0 for g in given if g.is_floating_point())

            gradient = func.grad(total, argnums=at)
            in_dims = tuple(0 if batched else None for batched in mask)
            got = func.vmap(gradient, in_dims=in_dims)(*leaves)
            runs = [
                gradient(*[t[b].clone() if batched else t for t, batched in zip(leaves, mask, strict=True)])
                for b in range(len(drawn))
            ]
            wanted = [lucid.stack(list(g)) for g in zip(*runs, strict=True)]
            agree(list(got), wanted, where, tolerances.backward)


@pytest.mark.parametrize("row", ROWS, ids=name_of)
@pytest.mark.parametrize("device", DEVICES)
def test_nested_vmap(row: Any, device: str) -> None:
    """Two levels: every argument at both, and the first at one and the others at the other."""
    outer, inner = 2, 3
    for drawn in allowed(row, device, outer * inner):
        n, mask = len(drawn[0].tensors()), widest(row, drawn)
        everything = stacked(drawn, mask, device, 0)
        in_dims = tuple(0 if batched else None for batched in mask)
        grids = [
            t.reshape((outer, inner, *t.shape[1:])) if batched else t
            for t, batched in zip(everything, mask, strict=True)
        ]

        def run(*given: Any, drawn: list[Sample] = drawn) -> Any:
            return tuple(called(row, drawn[0], list(given)))

        where = f"vmap(vmap({row['name']}))({drawn[0].text}) {device}"
        got = func.vmap(func.vmap(run, in_dims=in_dims, out_dims=-1), in_dims=in_dims)(*grids)
        for g, w in zip(got, loop(row, drawn, everything, mask, 0), strict=True):
            shown = g.movedim(-1, 1)
            each = [w.reshape((outer, inner, *w.shape[1:]))]
            agree([shown], each, where, tolerances.forward, row["family"] == "quantized")
        if n == 1 or not all(mask):
            continue
        first, rest = grids[0][:, 0], [g[0] for g in grids[1:]]
        got = func.vmap(
            lambda x, *r: func.vmap(run, in_dims=(None, *[0] * len(r)))(x, *r), in_dims=(0, *[None] * (n - 1))
        )(first, *rest)
        for i in range(outer):
            wanted = loop(row, drawn[:inner], [first[i], *rest], (False, *[True] * (n - 1)), 0)
            agree([g[i] for g in got], wanted, f"{where}, apart", tolerances.forward)


@pytest.mark.parametrize("row", [r for r in ROWS if r["in_place"]], ids=name_of)
@pytest.mark.parametrize("device", DEVICES)
def test_in_place_forms(row: Any, device: str) -> None:
    for drawn in allowed(row, device, 3):
        n = len(drawn[0].tensors())
        leaves = stacked(drawn, (True,) * n, device, 0)

        def run(*given: Any, drawn: list[Sample] = drawn) -> Any:
            x = given[0].clone()
            queue = [x, *given[1:]]
            args, kwargs = drawn[0].map(lambda d: queue.pop(0))
            assert getattr(x, row["name"] + "_")(*args[1:], **kwargs) is x
            return x

        wanted = loop(row, drawn, leaves, (True,) * n, 0)[0]
        if row["family"] == "view":
            agree([func.vmap(run)(*leaves)], [wanted], row["name"], tolerances.forward)
            continue
        if not fits_in_place(row, wanted, leaves[0]):
            with pytest.raises(RuntimeError):
                func.vmap(run)(*leaves)
            continue
        agree([func.vmap(run)(*leaves)], [wanted.to(leaves[0].dtype)], row["name"], tolerances.forward)
        if n > 1 and not isinstance(drawn[0].args[0], list):
            # What one sample has no room for: a batched value into a tensor that all share.
            with pytest.raises(RuntimeError, match="vmap: inplace arithmetic"):
                func.vmap(run, in_dims=(None, *[0] * (n - 1)))(leaves[0][0], *leaves[1:])


def test_what_has_no_batching_rule_is_listed() -> None:
    """Runs every row once, forward and backward: the primitives that ran sample by sample are those listed."""
    for row in ROWS:
        for drawn in allowed(row, "cpu", 2):
            mask = widest(row, drawn)
            leaves = stacked(drawn, mask, "cpu", 0)
            at = tuple(differentiable(drawn, leaves)) if row["differentiable"] else ()

            def total(*given: Any, row: Any = row, drawn: list[Sample] = drawn) -> Any:
                outs = called(row, drawn[0], list(given))
                value = weighted(outs)
                return value if value is not None else sum(g.sum() * 0 for g in given if g.is_floating_point())

            def run(*given: Any, row: Any = row, drawn: list[Sample] = drawn) -> Any:
                return tuple(called(row, drawn[0], list(given)))

            in_dims = tuple(0 if batched else None for batched in mask)
            func.vmap(func.grad(total, argnums=at) if at else run, in_dims=in_dims)(*leaves)
    assert set(lucid._C._vmap_fallbacks(True)) == set(limitations.VMAP_FALLBACKS)
