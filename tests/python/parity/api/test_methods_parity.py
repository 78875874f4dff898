"""Methods of tensors that look at memory, or make something else of a tensor."""

from __future__ import annotations

from typing import Any

import lucid
import pytest
import torch

DEVICES = ["cpu", "gpu"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.filterwarnings("ignore")
def test_storage_in_elements(device: str) -> None:
    def run(m: Any, d: str) -> Any:
        x = m.arange(12.0, device=d).reshape(3, 4)
        s = x[1:].storage()
        seen = [len(s), s.size(), s.nbytes(), s.element_size(), s[5], s.tolist(), list(s), s.dtype == m.float32]
        s[2] = 9.0
        s[0:2] = 7.0
        seen += [x.tolist(), s.untyped().nbytes(), s.clone().tolist() == s.tolist(), s.fill_(3)[1], x.sum().item()]
        seen += [s.copy_(m.arange(12.0, device=d).storage()).tolist(), x[2, 3].item(), s.cpu().tolist()]
        with pytest.raises((RuntimeError, IndexError)):
            s["a"]
        return seen

    assert run(lucid, device) == run(torch, "cpu")
    x = lucid.ones(3)
    assert x.storage() == x[1:].storage() and x.storage() != x.clone().storage()


@pytest.mark.parametrize("device", DEVICES)
def test_is_set_to(device: str) -> None:
    def run(m: Any, d: str) -> Any:
        x = m.arange(12.0, device=d).reshape(3, 4)
        others = [x, x.view(3, 4), x.t(), x.clone(), x[:2], x[0:3], x.detach()]
        with pytest.raises(TypeError):
            x.is_set_to(3)
        return [x.is_set_to(o) for o in others], x.is_meta, x.is_quantized, x.is_nested

    assert run(lucid, device) == run(torch, "cpu")


def test_map2() -> None:
    def run(m: Any) -> Any:
        x = m.arange(6.0).reshape(2, 3)
        assert x.map2_(m.ones(3), x.clone(), lambda a, b, c: a + 10 * b + c) is x
        for bad in (lambda: x.map2_(x, 3, max), lambda: x.map2_(x, x, 3)):
            with pytest.raises(TypeError):
                bad()
        with pytest.raises(RuntimeError):
            x.requires_grad_().map2_(x, x, max)
        return x.tolist()

    assert run(lucid) == run(torch)
    with pytest.raises(TypeError):
        lucid.ones(2, device="gpu").map2_(lucid.ones(2), lucid.ones(2), max)


@pytest.mark.parametrize("device", DEVICES)
def test_as_subclass(device: str) -> None:
    def run(m: Any, d: str) -> Any:
        class Own(m.Tensor):  # type: ignore[misc, name-defined]
            pass

        x = m.ones(3, device=d, requires_grad=True)
        y = (x * 2).as_subclass(Own)
        p = m.ones(2, device=d).as_subclass(m.nn.Parameter)
        seen = [type(y) is Own, isinstance(p, m.nn.Parameter), y.requires_grad, y.is_leaf, p.requires_grad]
        (y * 3).sum().backward()
        z = m.zeros(2, device=d)
        z.as_subclass(Own).fill_(4)
        for bad in (int, 3):
            with pytest.raises(TypeError):
                x.as_subclass(bad)
        return [*seen, x.grad.tolist(), z.tolist()]

    assert run(lucid, device) == run(torch, "cpu")


@pytest.mark.parametrize("device", DEVICES)
def test_module_load(device: str) -> None:
    def run(m: Any, d: str) -> Any:
        x, y = m.zeros(2, device=d), m.ones(2, device=d, requires_grad=True)
        loaded, assigned = x.module_load(y.detach()), x.module_load(y, assign=True)
        return loaded.tolist(), x.tolist(), assigned.requires_grad, assigned.data_ptr() == y.data_ptr(), loaded is x

    assert run(lucid, device) == run(torch, "cpu")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.parametrize("initial", [None, 1.5])
def test_segments_extrema_send_the_gradient_to_nan(reduce: str, initial: float | None, device: str) -> None:
    nan = float("nan")

    def run(m: Any, d: str) -> Any:
        x = m.tensor([1.0, nan, 2.0, 3.0, nan, nan, 2.0, 2.0], device=d, requires_grad=True)
        lengths = m.tensor([2, 4, 2], device=d)
        y = m.segment_reduce(x, reduce, lengths=lengths, initial=initial)
        (y * m.tensor([1.0, 2.0, 4.0], device=d)).sum().backward()
        return [str(v) for v in y.tolist()], x.grad.tolist()

    assert run(lucid, device) == run(torch, "cpu")


@pytest.mark.parametrize("device", DEVICES)
def test_batch_norm_refuses_what_pytorchs_refuses(device: str) -> None:
    for module, kind in ((lucid, {"device": device}), (torch, {})):
        m: Any = module
        norm, x = m.nn.functional.batch_norm, m.ones(2, 3, **kind)
        for bad in (x[0], x[0, 0]):
            with pytest.raises(IndexError):
                norm(bad, None, None, training=True)
        for eps in (0.0, -1.0):
            with pytest.raises(ValueError, match="eps"):
                norm(x, None, None, training=True, eps=eps)
        assert norm(x, m.zeros(3, **kind), m.ones(3, **kind), eps=0.0).tolist() == [[1.0] * 3] * 2
        for pool, ndim in (("adaptive_avg_pool1d", 3), ("adaptive_max_pool2d", 4), ("adaptive_avg_pool3d", 5)):
            with pytest.raises(NotImplementedError):
                getattr(m.nn.functional, pool)(m.ones([4] * ndim, dtype=m.int64, **kind), 2)


def kind(m: Any, call: Any) -> Any:
    try:
        return call(m)
    except (TypeError, IndexError) as e:
        return TypeError if isinstance(e, TypeError) else IndexError
    except RuntimeError:
        return RuntimeError


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("of", ["1", "0, dtype=m.uint8", "-1", "-4", "3", "4", "[1]", "1.0", "True", "[]"])
@pytest.mark.parametrize("length", [0, 1, 2])
def test_narrow_begins_at_a_tensor(of: str, length: int, device: str) -> None:
    def run(m: Any, d: str) -> Any:
        x = m.arange(6.0, device=d).reshape(3, 2)
        start = eval(f"m.tensor({of})", {"m": m}).to(d)
        return kind(m, lambda m: x.narrow(0, start, length).tolist()), kind(
            m, lambda m: m.narrow(x, dim=0, start=start, length=length).tolist()
        )

    assert run(lucid, device) == run(torch, "cpu")


DIM_CALLS: dict[str, Any] = {
    "cumsum": lambda x, t: x.cumsum(t).tolist(),
    "unsqueeze": lambda x, t: x.unsqueeze(t).tolist(),
    "select": lambda x, t: x.select(t, 0).tolist(),
    "softmax": lambda x, t: tuple(x.softmax(t).shape),
    "transpose": lambda x, t: x.transpose(t, 1).tolist(),
    "unbind": lambda x, t: [p.tolist() for p in x.unbind(t)],
    "argmax": lambda x, t: x.argmax(t).tolist(),
    "flatten": lambda x, t: x.flatten(t).tolist(),
    "sort": lambda x, t: x.sort(t)[0].tolist(),
    "narrow": lambda x, t: x.narrow(t, 0, 1).tolist(),
}


@pytest.mark.parametrize("of", ["0", "1, dtype=m.int8", "-1", "[0]", "0.0", "True", "[0, 1]", "5"])
@pytest.mark.parametrize("name", DIM_CALLS)
def test_a_dimension_is_an_integer_tensor_without_dimensions(name: str, of: str) -> None:
    def run(m: Any) -> Any:
        x = m.arange(6.0).reshape(2, 3)
        return kind(m, lambda m: DIM_CALLS[name](x, eval(f"m.tensor({of})", {"m": m})))

    assert run(lucid) == run(torch)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_means_of_windows_of_integers(n: int, negative: bool, device: str) -> None:
    def run(m: Any, d: str) -> Any:
        x = (m.arange(2 * 5**n, device=d) - (60 if negative else 0)).reshape(1, 2, *[5] * n)
        pool = getattr(m.nn.functional, f"avg_pool{n}d")
        options: list[dict[str, Any]] = [
            {},
            {"stride": 1},
            {"stride": 3},
            {"padding": 1},
            {"ceil_mode": True},
            {"padding": 1, "count_include_pad": False},
            {"padding": 1, "count_include_pad": False, "ceil_mode": True, "stride": 3},
        ]
        made = [pool(x, 2, **o) for o in options] + [pool(x[0], 3, 2)]
        if n > 1:
            made += [pool(x, 2, divisor_override=o) for o in (1, 3, -3)]
        assert all(y.dtype == m.int64 for y in made)
        lp = m.nn.functional.lp_pool1d(x, 2, 2).tolist() if n == 1 else None
        return [y.tolist() for y in made], lp and [round(v, 3) for row in lp[0] for v in row]

    assert run(lucid, device) == run(torch, "cpu")
    with pytest.raises(RuntimeError):
        getattr(lucid.nn.functional, f"avg_pool{n}d")(lucid.ones([4] * (n + 2), dtype=lucid.int32, device=device), 2)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", [2**40, 2**62])
def test_padding_that_no_memory_holds_is_refused(size: int, device: str) -> None:
    with pytest.raises(RuntimeError):
        lucid.nn.ZeroPad1d(size)(lucid.ones(1, 2, 3, device=device))
