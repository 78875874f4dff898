"""What PyTorch's own op samples (`tests.python.opinfo`) showed to differ, case by case against PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE

DEVICES = ("cpu", "gpu")


def to_lucid(t: Any, device: str) -> Any:
    """A tensor, or what holds tensors, as ours."""
    if isinstance(t, torch.Tensor):
        numbers = (t.detach().float() if t.dtype in (torch.bfloat16, torch.float16) else t.detach()).numpy()
        y = lucid.tensor(numbers, device=device).to(getattr(lucid, str(t.dtype).rsplit(".", 1)[-1]))
        return y.requires_grad_(t.requires_grad)
    return type(t)(to_lucid(x, device) for x in t) if isinstance(t, (list, tuple)) else t


def numbers_of(t: Any) -> np.ndarray[Any, Any]:
    return np.asarray(t.detach().tolist())


def agree(call: Callable[..., Any], *args: Any, device: str, rtol: float = TABLE["few ops"].rtol) -> None:
    """`call(module, *args)` and its gradients are PyTorch's."""
    ours = to_lucid(args, device)
    want, got = call(torch, *args), call(lucid, *ours)
    want, got = ([y] if isinstance(y, (torch.Tensor, lucid.Tensor)) else list(y) for y in (want, got))
    assert len(want) == len(got)
    for a, b in zip(want, got, strict=True):
        assert str(a.dtype).rsplit(".", 1)[-1] == str(b.dtype).rsplit(".", 1)[-1]
        assert tuple(a.shape) == tuple(b.shape)
        assert a.requires_grad == b.requires_grad
        np.testing.assert_allclose(numbers_of(b), numbers_of(a), rtol=rtol, atol=rtol)
    leaves = [(a, b) for a, b in zip(args, ours, strict=True) if isinstance(a, torch.Tensor) and a.requires_grad]
    if not leaves:
        return
    pairs = [(a, b) for a, b in zip(want, got, strict=True) if a.requires_grad]
    weights = [torch.cos(torch.arange(a.numel()) + i).reshape(a.shape).to(a.dtype) for i, (a, _) in enumerate(pairs)]
    asked = torch.autograd.grad([a for a, _ in pairs], [a for a, _ in leaves], weights, allow_unused=True)
    given = lucid.autograd.grad(
        [b for _, b in pairs], [b for _, b in leaves], [to_lucid(w, device) for w in weights], allow_unused=True
    )
    for a, b in zip(asked, given, strict=True):
        known = np.zeros(tuple(b.shape)) if a is None else numbers_of(a)
        np.testing.assert_allclose(numbers_of(b), known, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_sums_do_not_get_stuck(device: str, dtype: str) -> None:
    one = torch.ones(3000, dtype=getattr(torch, dtype))
    agree(lambda m, x: [x.sum(), x.reshape(3, 1000).sum(1), x.cumsum(0)[-1], x.reshape(3, 1000).sum((0, 1))], one,
          device=device)  # fmt: skip
    # Nor do they overflow on the way.
    agree(lambda m, x: x.cumsum(0), torch.tensor([6e4, 6e4, -6e4, -6e4], dtype=getattr(torch, dtype)), device=device)


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_of_expanded_biases_keep_their_digits(device: str) -> None:
    torch.manual_seed(0)
    bias = torch.zeros(1, dtype=torch.bfloat16, requires_grad=True)
    agree(lambda m, b, x: (b + x) * x, bias, torch.randn(4000).bfloat16(), device=device, rtol=TABLE["bfloat16"].rtol)


@pytest.mark.parametrize("device", DEVICES)
def test_logit_of_crossing_bounds(device: str) -> None:
    x = torch.tensor([0.1, 0.45, 0.5, 0.55, 0.7, 0.9, float("nan")])
    agree(lambda m, x: m.logit(x, 0.6), x, device=device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_scatters_of_truths(device: str, reduce: str, include_self: bool) -> None:
    x, at = torch.tensor([True, False, True, False]), torch.tensor([0, 0, 1, 3])
    src = torch.tensor([True, False, True, False])
    agree(lambda m, x, at, s: x.scatter_add(0, at, s), x, at, src, device=device)
    agree(lambda m, x, at, s: x.clone().scatter_add_(0, at, s), x, at, src, device=device)
    how = {"include_self": include_self}
    agree(lambda m, x, at, s: x.scatter_reduce(0, at, s, reduce, **how), x, at, src, device=device)
    agree(lambda m, x, at, s: x.clone().scatter_reduce_(0, at, s, reduce, **how), x, at, src, device=device)


@pytest.mark.parametrize("device", DEVICES)
def test_a_mean_of_truths_is_refused(device: str) -> None:
    x, at = lucid.tensor([True, False], device=device), lucid.tensor([0, 0], device=device)
    with pytest.raises(RuntimeError):
        x.scatter_reduce(0, at, x, "mean")
    with pytest.raises(RuntimeError):
        x.index_reduce(0, at, x, "amax")


@pytest.mark.parametrize("device", DEVICES)
def test_powers_of_one_number(device: str) -> None:
    agree(lambda m, x: m.linalg.vander(x, N=3), torch.tensor(2.0, requires_grad=True), device=device)
    with pytest.raises(RuntimeError):
        lucid.linalg.vander(lucid.tensor(2.0, device=device))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("p", [-2, -1, -0.5])
def test_norms_of_negative_order_at_zero(device: str, p: float) -> None:
    for numbers in ([0.0, 0.0, 0.0], [0.0, 1.0, -2.0], [3.0, 1.0, -2.0], [[0.0, 1.0], [2.0, 3.0]]):
        x = torch.tensor(numbers, requires_grad=True)
        agree(lambda m, x: m.linalg.vector_norm(x, p, dim=-1), x, device=device)
    agree(lambda m, x: m.linalg.vector_norm(x, p), torch.tensor([0.0, float("nan"), 1.0]), device=device)


@pytest.mark.parametrize("device", DEVICES)
def test_gradient_takes_none(device: str) -> None:
    agree(lambda m, x: m.gradient(x, spacing=None, dim=None), torch.tensor([[1.0, 4.0], [9.0, 25.0]]), device=device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_exponentials_of_16_bit_matrices(device: str, dtype: str) -> None:
    # PyTorch's own are infinite in float16, as the coefficients of its polynomial are: compared with float32.
    a = lucid.tensor([[0.5, -0.25], [1.0, 0.125]], dtype=getattr(lucid, dtype), device=device)
    want = torch.linalg.matrix_exp(torch.tensor(a.tolist()))
    for y in (lucid.linalg.matrix_exp(a), a.matrix_exp()):
        assert y.dtype == a.dtype
        np.testing.assert_allclose(numbers_of(y), numbers_of(want), rtol=TABLE["bfloat16"].rtol)


@pytest.mark.parametrize("device", DEVICES)
def test_the_sign_of_a_determinant_is_part_of_the_graph(device: str) -> None:
    agree(lambda m, a: m.linalg.slogdet(a), torch.tensor([[1.0, 2.0], [3.0, -4.0]], requires_grad=True), device=device)


def test_special_has_the_names_of_its_module() -> None:
    public = [name for name in dir(torch.special) if not name.startswith("_") and name.islower()]
    there = [name for name in public if hasattr(lucid.special, name)]
    assert set(lucid.special.__all__) <= set(public)
    assert len(there) == len(lucid.special.__all__)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", lucid.special.__all__)
def test_special_functions(device: str, name: str) -> None:
    x = torch.tensor([0.2, 0.5, 0.75, 0.9], requires_grad=True)
    y = torch.tensor([1.5, 2.5, 3.0, 4.5])
    calls: dict[str, Callable[..., Any]] = {
        **dict.fromkeys(("softmax", "log_softmax", "logsumexp"), lambda m, x, y: getattr(m.special, name)(x, 0)),
        **dict.fromkeys(("xlogy", "xlog1py"), lambda m, x, y: getattr(m.special, name)(x, y)),
        **dict.fromkeys(("gammainc", "gammaincc"), lambda m, x, y: getattr(m.special, name)(y, x)),
        "zeta": lambda m, x, y: m.special.zeta(y, x),
        "multigammaln": lambda m, x, y: m.special.multigammaln(x + y, 2),
        "polygamma": lambda m, x, y: m.special.polygamma(1, x),
        **dict.fromkeys(
            (n for n in lucid.special.__all__ if "_polynomial_" in n),
            lambda m, x, y: getattr(m.special, name)(x, 3),
        ),
    }
    if "_polynomial_" in name or name.startswith(("scaled_", "spherical_", "airy_")):
        # PyTorch has no gradients of these.
        x = x.detach()
    call = calls.get(name, lambda m, x, y: getattr(m.special, name)(x))
    agree(call, x, y, device=device, rtol=TABLE["log of tails"].rtol)


@pytest.mark.parametrize("device", DEVICES)
def test_log_ndtr_far_out(device: str) -> None:
    x = torch.tensor([-60.0, -12.0, -1.5, -1.0, -0.5, 0.0, 3.0, 9.0], requires_grad=True)
    agree(lambda m, x: [m.special.log_ndtr(x), m.special.ndtr(x)], x, device=device, rtol=TABLE["log of tails"].rtol)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "name", ["silu", "mish", "hardswish", "hardsigmoid", "relu6", "elu", "celu", "selu", "hardtanh"]
)
def test_activations_over_their_input_have_gradients(device: str, name: str) -> None:
    x = torch.tensor([-4.0, -1.5, -0.25, 0.5, 2.0, 7.0], requires_grad=True)

    def run(m: Any, x: Any) -> Any:
        start = x * 1.5
        y = getattr(m.nn.functional, name)(start, inplace=True)
        assert y is start
        return y * 2

    agree(run, x, device=device)


@pytest.mark.parametrize("device", DEVICES)
def test_in_place_results_that_do_not_fit(device: str) -> None:
    whole, truth = torch.tensor([1, 2]), torch.tensor([True, False])
    calls: list[tuple[Any, Callable[[Any], Any]]] = [
        (whole, lambda t: t.polygamma_(1)),
        (truth, lambda t: t.polygamma_(1)),
        (torch.tensor([1 + 1j]), lambda t: t.abs_()),
        (torch.tensor([1.0]).half(), lambda t: t.float_power_(2)),
    ]
    for t, call in calls:
        ours = to_lucid(t, device)
        before = ours.tolist()
        with pytest.raises(RuntimeError):
            call(t)
        with pytest.raises(RuntimeError):
            call(ours)
        assert ours.tolist() == before
    for t, call in ((torch.tensor([1.5, 0.5]), lambda t: t.polygamma_(1)), (torch.tensor([-2.0]), lambda t: t.abs_())):
        agree(lambda m, x, call=call: call(x.clone()), t, device=device)
    with pytest.raises(RuntimeError):
        torch.ones(2).float_power_(2)
    with pytest.raises(RuntimeError):
        lucid.ones(2).float_power_(2)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["uint8", "int32", "bool"])
def test_einsum_sums_one_operand_in_64_bits(device: str, dtype: str) -> None:
    for equation, shape in (("iji->j", (1, 3, 1)), ("ij->i", (2, 1)), ("ij->i", (2, 3)), ("ij->ji", (2, 3))):
        agree(lambda m, x, e=equation: m.einsum(e, x), torch.ones(shape, dtype=getattr(torch, dtype)), device=device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_of_tiny_mantissas(device: str, dtype: str) -> None:
    # 2^129, which the mantissa of 2^-130 is multiplied with, is out of range; 2^-10 of it is not.
    x = lucid.tensor([2.0**-126, 0.75, 3.0], dtype=getattr(lucid, dtype), device=device, requires_grad=True)
    (lucid.frexp(x)[0] * 2.0**-10).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(numbers_of(x.grad), [2.0**115, 2.0**-10, 2.0**-12], rtol=TABLE["few ops"].rtol)
    if device == "cpu":  # The GPU device has no numbers as small as this.
        x = lucid.tensor([2.0**-130], dtype=getattr(lucid, dtype), requires_grad=True)
        (lucid.frexp(x)[0] * 2.0**-10).sum().backward()
        assert x.grad is not None
        np.testing.assert_allclose(numbers_of(x.grad), [2.0**119], rtol=TABLE["few ops"].rtol)


def test_empty_parts_of_results_belong_to_the_graph() -> None:
    def flags(m: Any) -> list[Any]:
        made: list[Any] = []
        for shape in ((0, 0), (0, 3), (2, 0)):
            made += m.linalg.svd(m.ones(*shape, requires_grad=True), full_matrices=True)
        for driver in ("gels", "gelsy", "gelsd", "gelss"):
            for shape in ((2, 3), (3, 3), (3, 2)):
                made += m.linalg.lstsq(m.eye(*shape).requires_grad_(), m.ones(shape[0], 2), driver=driver)
        made.append(m.nn.functional.pdist(m.ones(1, 2, requires_grad=True)))
        return [(tuple(t.shape), t.requires_grad) for t in made]

    assert flags(lucid) == flags(torch)


@pytest.mark.parametrize("device", DEVICES)
def test_fractional_pools_take_samples_of_a_larger_batch(device: str) -> None:
    torch.manual_seed(0)
    samples = torch.rand(2, 4, 3)
    agree(
        lambda m, x, s: m.nn.functional.fractional_max_pool3d(x, 2, output_ratio=0.5, _random_samples=s),
        torch.randn(4, 5, 5, 5, requires_grad=True), samples, device=device,
    )  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
def test_calls_that_must_be_refused(device: str) -> None:
    F: dict[Any, Any] = {torch: torch.nn.functional, lucid: lucid.nn.functional}
    calls: list[Callable[[Any, dict[str, Any]], Any]] = [
        lambda m, k: F[m].batch_norm(m.ones(3, 2, **k), m.ones(2, **k), m.ones(2, **k), eps=-1.0),
        lambda m, k: m.special.chebyshev_polynomial_t(2, 3),
        lambda m, k: m.special.shifted_chebyshev_polynomial_w(2.0, 3),
        lambda m, k: F[m].cross_entropy(m.ones(4, 2, **k), m.ones(5, 2, **k)),
        lambda m, k: F[m].nll_loss(m.ones(4, 2, **k), m.ones(5, **k)),
        lambda m, k: m.nn.HuberLoss(delta=1j),
        # Dtypes that no kernel takes.
        lambda m, k: -m.ones(2, dtype=m.bool, **k),
        lambda m, k: m.erf(m.ones(2, dtype=m.complex64, **k)),
        lambda m, k: m.ones(2, **k) & m.ones(2, **k),
        lambda m, k: m.gcd(m.ones(2, **k), m.ones(2, **k)),
        lambda m, k: F[m].softmax(m.ones(2, dtype=m.int64, **k), 0),
    ]
    for call in calls:
        with pytest.raises((RuntimeError, TypeError, ValueError)) as wanted:
            call(torch, {})
        kind = next(k for k in wanted.type.__mro__ if k.__module__ == "builtins")
        with pytest.raises(kind):
            call(lucid, {"device": device})


def test_coordinates_in_the_largest_shape() -> None:
    agree(lambda m, i: m.unravel_index(i, (1, 2**63 - 1)), torch.tensor(5), device="cpu")


def refused(call: Callable[[Any], Any]) -> None:
    """Both frameworks refuse the call, ours with an error of PyTorch's kind."""
    with pytest.raises((RuntimeError, TypeError, ValueError, FutureWarning)) as wanted, warnings.catch_warnings():
        warnings.simplefilter("error")
        call(torch)
    kind = next(k for k in wanted.type.__mro__ if k.__module__ == "builtins")
    with pytest.raises(kind), warnings.catch_warnings():
        warnings.simplefilter("error")
        call(lucid)


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_recurrent_layers_refuse_what_pytorchs_do(name: str) -> None:
    wrong: list[dict[str, Any]] = [{"bias": 1}, {"bias": "yes"}, {"batch_first": 0}, {"batch_first": "no"}]
    wrong += [{"input_size": n} for n in (0, -1, 2.0, "3")]
    for given in wrong:
        refused(lambda m, k=given: getattr(m.nn, name)(**{"input_size": 3, "hidden_size": 2, **k}))  # type: ignore[misc]


def test_layers_refuse_what_pytorchs_do() -> None:
    for dim in (1.0, True, "0"):
        refused(lambda m, dim=dim: m.nn.Softmax(dim))  # type: ignore[misc]
        refused(lambda m, dim=dim: m.nn.LogSoftmax(dim))  # type: ignore[misc]
    for n in (1, 2, 3):
        for dims in (n, n + 3):
            refused(lambda m, n=n, d=dims: getattr(m.nn, f"CircularPad{n}d")(1)(m.ones(*[3] * d)))  # type: ignore[misc]
        for dims in (n + 1, n + 2):
            x = torch.randn(*[3] * dims)
            agree(lambda m, x, n=n: getattr(m.nn, f"CircularPad{n}d")(2)(x), x, device="cpu")


def test_optimizers_refuse_what_pytorchs_do() -> None:
    def tensors(m: Any) -> list[Any]:
        return [m.ones(2, requires_grad=True), m.zeros(2, requires_grad=True)]

    refused(lambda m: m.optim.SGD(set(tensors(m)), lr=0.1))
    refused(lambda m: m.optim.SGD([{"params": set(tensors(m))}], lr=0.1))

    def mixed(m: Any) -> None:
        a, b = tensors(m)
        m.optim.Adam([{"params": [a], "lr": 0.1}, {"params": [("b", b)]}])

    refused(mixed)
    for name in ("Adam", "AdamW", "SGD", "Adagrad"):

        def fused(m: Any, name: str = name) -> None:
            z = m.zeros(2, dtype=m.complex64, requires_grad=True)
            z.grad = m.ones_like(z)
            getattr(m.optim, name)([z], lr=0.1, fused=True).step()

        refused(fused)
    # Neither a leaf, nor with a gradient of its own.
    refused(lambda m: m.optim.SGD([tensors(m)[0] * 2], lr=0.1))
    ends = []
    for m in (torch, lucid):
        made = tensors(m)[0] * 2
        made.retain_grad()
        optimizer = m.optim.SGD([made], lr=0.1)
        (made * 3).sum().backward()
        with m.no_grad():
            optimizer.step()
        ends.append(made.tolist())
    np.testing.assert_allclose(ends[1], ends[0], rtol=TABLE["few ops"].rtol)


@pytest.mark.parametrize("device", DEVICES)
def test_fractional_pools_of_nothing(device: str) -> None:
    for n, shape in ((2, (0, 1, 4, 5)), (3, (0, 1, 4, 5, 4))):
        pool = f"fractional_max_pool{n}d"
        agree(lambda m, x, f=pool: getattr(m.nn.functional, f)(x, 2, output_size=2), torch.ones(shape), device=device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["acos", "acosh", "asin", "asinh", "atan", "atanh", "sqrt", "log"])
def test_complex_functions_of_infinite_numbers(device: str, name: str) -> None:
    ends = (float("inf"), float("-inf"), 0.5)
    x = torch.tensor([complex(re, im) for re in ends for im in ends])
    agree(lambda m, x: m.view_as_real(getattr(m, name)(x)), x, device=device)
