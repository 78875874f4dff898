"""Which tensors may be written in place, and what is written, where memory overlaps or the tape was off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import pytest
import torch

DEVICES = ["cpu", "gpu"]


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except IndexError:
        return "IndexError"
    except RuntimeError:
        return "RuntimeError"


# ---- memory that a tensor shows several times ------------------------------------------------------------------------


def rows_of_one(m: Any, d: str) -> Any:
    b = m.arange(1.0, 4.0, device=d)
    return b, b.expand(2, 3)


def columns_of_one(m: Any, d: str) -> Any:
    b = m.arange(1.0, 4.0, device=d).reshape(3, 1)
    return b, b.expand(3, 2)


def one_row(m: Any, d: str) -> Any:
    b = m.arange(1.0, 4.0, device=d).reshape(1, 3)
    return b, b.expand(1, 3)


def windows(m: Any, d: str) -> Any:
    b = m.arange(1.0, 7.0, device=d)
    return b, b.unfold(0, 3, 1)


def strided_windows(m: Any, d: str) -> Any:
    b = m.arange(1.0, 7.0, device=d)
    return b, b.as_strided((2, 3), (1, 1))


def apart(m: Any, d: str) -> Any:
    b = m.arange(1.0, 13.0, device=d)
    return b, b.as_strided((2, 3), (2, 3), 1)


def all_one(m: Any, d: str) -> Any:
    b = m.arange(1.0, 7.0, device=d)
    return b, b.as_strided((2, 2), (0, 0), 2)


VIEWS = [rows_of_one, columns_of_one, one_row, windows, strided_windows, apart, all_one]


def even(m: Any, v: Any, d: str) -> Any:
    return m.arange(v.numel(), device=d).reshape(v.shape) % 2 == 0


#: Writes whose result does not depend on which element is written first.
WRITES: dict[str, Callable[[Any, Any, str], Any]] = {
    "fill_": lambda m, v, d: v.fill_(9),
    "zero_": lambda m, v, d: v.zero_(),
    "copy_": lambda m, v, d: v.copy_(m.zeros(v.shape, device=d)),
    "clamp_": lambda m, v, d: v.clamp_(0, 1),
    "relu_": lambda m, v, d: v.relu_(),
    "masked_fill_": lambda m, v, d: v.masked_fill_(even(m, v, d), 9.0),
    "masked_fill_ of a tensor": lambda m, v, d: v.masked_fill_(even(m, v, d), m.tensor(9.0, device=d)),
    "masked_fill_ of a row": lambda m, v, d: v.masked_fill_(even(m, v[0], d), 9.0),
    "masked_fill_ of none": lambda m, v, d: v.masked_fill_(m.zeros(v.shape, device=d) > 0, 9.0),
    "masked_scatter_": lambda m, v, d: v.masked_scatter_(even(m, v, d), m.ones(50, device=d)),
    "index_put_": lambda m, v, d: v.index_put_(
        (m.tensor([0, 1], device=d), m.tensor([0, 1], device=d)), m.tensor([7.0, 8.0], device=d)
    ),
    "index_put_ accumulate": lambda m, v, d: v.index_put_(
        (m.tensor([0, 1], device=d), m.tensor([0, 1], device=d)), m.tensor([7.0, 8.0], device=d), accumulate=True
    ),
    "x[index] = 5": lambda m, v, d: v.__setitem__(m.tensor([0], device=d), 5.0),
    "x[0] = 5": lambda m, v, d: v.__setitem__(0, 5.0),
    "x[0, 0] = 5": lambda m, v, d: v.__setitem__((0, 0), 5.0),
    "x[...] = 5": lambda m, v, d: v.__setitem__(Ellipsis, 5.0),
    "x[mask] = 5": lambda m, v, d: v.__setitem__(even(m, v, d), 5.0),
    "tril_": lambda m, v, d: v.tril_(),
    "tril_ -1": lambda m, v, d: v.tril_(-1),
    "triu_": lambda m, v, d: v.triu_(),
    "triu_ 1": lambda m, v, d: v.triu_(1),
    "fill_diagonal_": lambda m, v, d: v.fill_diagonal_(3.0),
    "index_fill_": lambda m, v, d: v.index_fill_(0, m.tensor([0], device=d), 3.0),
    "index_add_": lambda m, v, d: v.index_add_(0, m.tensor([0], device=d), m.ones(1, v.shape[1], device=d)),
    "index_copy_": lambda m, v, d: v.index_copy_(0, m.tensor([0], device=d), m.zeros(1, v.shape[1], device=d)),
    "index_reduce_": lambda m, v, d: v.index_reduce_(
        0, m.tensor([0], device=d), m.full((1, v.shape[1]), 9.0, device=d), "amax"
    ),
    "scatter_": lambda m, v, d: v.scatter_(0, m.zeros(1, 2, dtype=m.int64, device=d), m.zeros(1, 2, device=d)),
    "scatter_ number": lambda m, v, d: v.scatter_(0, m.zeros(1, 2, dtype=m.int64, device=d), 4.0),
    "scatter_add_": lambda m, v, d: v.scatter_add_(0, m.zeros(1, 2, dtype=m.int64, device=d), m.ones(1, 2, device=d)),
    "scatter_reduce_": lambda m, v, d: v.scatter_reduce_(
        0, m.zeros(1, 2, dtype=m.int64, device=d), m.ones(1, 2, device=d), "sum"
    ),
    "put_": lambda m, v, d: v.put_(m.tensor([0], device=d), m.tensor([5.0], device=d)),
    "add to out": lambda m, v, d: m.add(m.ones(v.shape, device=d), 1, out=v),
    "uniform_": lambda m, v, d: v.uniform_() and None,
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("view", VIEWS, ids=lambda v: str(v.__name__))
@pytest.mark.parametrize("name", WRITES)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_memory_shown_several_times_is_written_or_refused(name: str, view: Any, device: str) -> None:
    def run(m: Any, d: str) -> Any:
        base, v = view(m, d)
        if name == "uniform_":
            v.uniform_()
            return bool(((v >= 0) & (v < 1)).all())
        WRITES[name](m, v, d)
        return base.tolist()

    assert outcome(lambda: run(lucid, device)) == outcome(lambda: run(torch, "cpu"))


@pytest.mark.parametrize("device", DEVICES)
def test_values_that_meet_leave_one_and_on_the_cpu_the_last(device: str) -> None:
    b = lucid.zeros(4, device=device)
    b.unfold(0, 2, 1).copy_(lucid.arange(1.0, 7.0, device=device).reshape(3, 2))
    written = b.tolist()
    assert all(v in meet for v, meet in zip(written, ([1.0], [2.0, 3.0], [4.0, 5.0], [6.0]), strict=True))
    t = torch.zeros(4)
    t.unfold(0, 2, 1).copy_(torch.arange(1.0, 7.0).reshape(3, 2))
    assert device == "gpu" or written == t.tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_the_tape_follows_writes_to_windows(device: str) -> None:
    def run(m: Any, d: str) -> Any:
        x = m.arange(1.0, 7.0, device=d).requires_grad_()
        c = m.tensor([1.0, 2.0, 4.0], device=d).requires_grad_()
        b = x * 1
        b.as_strided((2, 3), (3, 1)).mul_(c)
        b.unfold(0, 2, 3).copy_(c[:2])
        b.sum().backward()
        return b.tolist(), x.grad.tolist(), c.grad.tolist()

    assert run(lucid, device) == run(torch, "cpu")


# ---- views that were made while nothing was recorded -----------------------------------------------------------------


def leaf(m: Any, d: str) -> Any:
    return m.ones(4, 4, device=d, requires_grad=True)


def recorded(m: Any, d: str) -> Any:
    return m.ones(4, 4, device=d, requires_grad=True) * 1


def plain(m: Any, d: str) -> Any:
    return m.ones(4, 4, device=d)


SHOWN: dict[str, Callable[[Any], Any]] = {
    "select": lambda b: b[0],
    "view": lambda b: b.view(16),
    "t": lambda b: b.t(),
    "narrow": lambda b: b.narrow(0, 0, 1),
    "expand": lambda b: b.expand(1, 4, 4),
    "unbind": lambda b: b.unbind(0)[0],
    "split": lambda b: b.split(2)[1],
    "view of a view": lambda b: b[0][:2],
    "view as another dtype": lambda b: b.view(lucid.int32 if isinstance(b, lucid.Tensor) else torch.int32),
    "detach": lambda b: b.detach(),
    "clone": lambda b: b.clone(),
    "index": lambda b: b[b > 0],
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
@pytest.mark.parametrize("base", [leaf, recorded, plain], ids=lambda f: str(f.__name__))
@pytest.mark.parametrize("name", SHOWN)
def test_views_made_without_recording(name: str, base: Any, mode: str, device: str) -> None:
    def run(m: Any, d: str) -> Any:
        b = base(m, d)
        with getattr(m, mode)():
            v = SHOWN[name](b)
        seen = [v.requires_grad, v.is_leaf, v.grad_fn is None, v.is_inference(), v.shape]
        if not v.is_floating_point():
            return seen
        if mode == "no_grad":
            made = v * 2
            seen += [made.requires_grad, made.tolist()]
            with m.no_grad():
                v.mul_(3)
            seen += [v.tolist(), b.tolist(), b.requires_grad]
        seen.append(outcome(lambda: v.add_(1) is None))
        return seen

    assert run(lucid, device) == run(torch, "cpu")


@pytest.mark.parametrize("device", DEVICES)
def test_no_gradient_goes_through_a_view_made_without_recording(device: str) -> None:
    for m, d in ((lucid, device), (torch, "cpu")):
        x: Any = m.ones(4, device=d, requires_grad=True)
        with m.no_grad():
            v = x[:2]
        y = (v * 2).sum()
        assert y.requires_grad
        y.backward()
        assert x.grad is None and v.grad is None
        ((v * 2).sum() + (x * 3).sum()).backward()
        assert x.grad.tolist() == [3.0] * 4
        x.requires_grad_(False)
        assert not v.requires_grad
        v.requires_grad_()
        (v * 2).sum().backward()
        assert v.grad.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("form", ["threshold_", "threshold", "Threshold"])
def test_thresholds_are_written_to_expanded_tensors(form: str, device: str) -> None:
    def run(m: Any, d: str) -> Any:
        x = m.tensor([[0.0], [float("nan")], [3.0]], device=d)
        v = x.expand(3, 2)
        if form == "threshold":
            m.nn.functional.threshold(v, 2, 5, inplace=True)
        elif form == "threshold_":
            m.nn.functional.threshold_(v, 2, 5)
        else:
            m.nn.Threshold(2, 5, inplace=True)(v)
        return str(x.tolist()), str(v.tolist())

    assert run(lucid, device) == run(torch, "cpu")


def test_functions_see_what_they_wrote_where_elements_meet() -> None:
    def run(m: Any) -> Any:
        a, b, c = m.ones(3, 1), m.arange(6.0), m.arange(6.0)
        a.expand(3, 2).apply_(lambda v: v + 1)
        b.as_strided((3, 2), (1, 1)).apply_(lambda v: 2 * v + 1)
        c.unfold(0, 3, 1).map_(m.arange(12.0).reshape(4, 3), lambda v, w: v + w)
        i = (
            m.zeros(2, dtype=m.int64)
            .as_strided((2, 2), (1, 0))
            .map2_(m.ones(2, 2, dtype=m.int64), m.tensor(3), lambda v, w, x: v + w + x)
        )
        return a.tolist(), b.tolist(), c.tolist(), i.tolist()

    assert run(lucid) == run(torch)
    for module in (lucid, torch):
        m: Any = module
        for bad in (
            lambda m=m: m.ones(3).apply_(lambda v: None),
            lambda m=m: m.ones(3).map_(m.ones(3, dtype=m.int64), max),
            lambda m=m: m.ones(3).map2_(m.ones(3), m.ones(3, dtype=m.float64), max),
        ):
            with pytest.raises(TypeError):
                bad()


def lost(how: str, m: Any, d: str) -> Any:
    """A view that the tape cannot follow any more, and the leaf that was written into its base."""
    y, w = m.ones(4, device=d), m.ones(4, device=d, requires_grad=True)
    if how == "unbind":
        y = m.stack([y, y])
        v = y.unbind(0)[0]
    elif how == "unbind of a recorded tensor":
        y = m.stack([w * 1, w * 1])
        v = y.unbind(0)[0]
    elif how == "split":
        v = y.split(2)[0]
    elif how == "no_grad":
        with m.no_grad():
            v = y[:2]
    elif how == "no_grad of a recorded tensor":
        y = w * 1
        with m.no_grad():
            v = y[:2]
    elif how == "a view of one":
        y = w * 1
        with m.no_grad():
            v = y[:2]
        v = v.view(2, 1)
    else:
        v = y[:2]
    y.mul_(w)
    return v, w


#: What needs to know where the view stands on the tape, and what does not.
USES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "grad_fn": lambda m, v, w: v.grad_fn is None,
    "is_leaf": lambda m, v, w: v.is_leaf,
    "an op": lambda m, v, w: (v * 2).requires_grad,
    "a view and an op": lambda m, v, w: (v.view(-1) * 2).requires_grad,
    "clone": lambda m, v, w: v.clone().tolist(),
    "backward": lambda m, v, w: v.sum().backward() or w.grad.tolist(),
    "backward with a gradient": lambda m, v, w: v.backward(m.ones_like(v)) or w.grad.tolist(),
    "grad": lambda m, v, w: m.autograd.grad(v, w, m.ones_like(v))[0].tolist(),
    "register_hook": lambda m, v, w: v.register_hook(lambda g: g) is None,
    "added to another": lambda m, v, w: m.zeros(v.shape, device=v.device).add_(v).requires_grad,
    "detach": lambda m, v, w: v.detach().tolist(),
    "tolist": lambda m, v, w: v.tolist(),
    "requires_grad": lambda m, v, w: v.requires_grad,
    "repr": lambda m, v, w: "grad_fn=<Invalid>" in repr(v),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    "how",
    [
        "no_grad",
        "no_grad of a recorded tensor",
        "a view of one",
        "unbind",
        "unbind of a recorded tensor",
        "split",
        "slice",
    ],
)
def test_a_view_that_the_tape_lost_is_refused(how: str, use: str, device: str) -> None:
    def run(m: Any, d: str) -> Any:
        v, w = lost(how, m, d)
        return USES[use](m, v, w)

    assert outcome(lambda: run(lucid, device)) == outcome(lambda: run(torch, "cpu"))


@pytest.mark.parametrize("device", DEVICES)
def test_a_view_that_the_tape_lost_may_be_read_without_it(device: str) -> None:
    def run(m: Any, d: str) -> Any:
        v, _ = lost("no_grad", m, d)
        with m.no_grad():
            return (v * 2).tolist(), v[0].item()

    assert run(lucid, device) == run(torch, "cpu")


@pytest.mark.parametrize("device", DEVICES)
def test_the_first_error_of_a_view_that_the_tape_lost(device: str) -> None:
    def run(m: Any, d: str, made: str) -> Any:
        x = m.arange(3.0, device=d).requires_grad_()
        with m.no_grad():
            alias = x.view_as(x)
        piece = alias if made == "alias" else x.chunk(2)[1]
        with m.no_grad():
            x.add_(1)
        found = []
        for use in (lambda: piece[m.tensor([0, 7], device=d)], lambda: piece.retain_grad()):
            try:
                found.append(use())
            except Exception as e:
                found.append(next(c.__name__ for c in type(e).__mro__ if c.__module__ == "builtins"))
        return found

    for made in ("alias", "chunk"):
        assert run(lucid, device, made) == run(torch, "cpu", made), made


# ---- writes that no gradient passes    ----------------------------------------------------------------------------

FILLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "fill_": lambda m, w, y: w.fill_(2.0),
    "zero_": lambda m, w, y: w.zero_(),
    "fill a part": lambda m, w, y: w[0].fill_(2.0),
    "fill a row": lambda m, w, y: w[:, 0].fill_(2.0),
    "put a number": lambda m, w, y: put(w, 0, 3.0),
    "put a number in all": lambda m, w, y: put(w, ..., 3.0),
    "put itself": lambda m, w, y: put(w, ..., y),
    "put what it is of": lambda m, w, y: put(w, ..., y.detach()),
    "index_fill_": lambda m, w, y: w.index_fill_(0, m.tensor([0], device=w.device), 1.0),
    "index_fill_ of rows": lambda m, w, y: w.index_fill_(1, m.tensor([1], device=w.device), 1.0),
}


def put(x: Any, place: Any, value: Any) -> None:
    x[place] = value


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("made", ["recorded", "plain", "constant"])
@pytest.mark.parametrize("name", FILLS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gradients_of_writes_to_expanded_tensors(name: str, made: str, device: str) -> None:
    def run(m: Any, d: str) -> Any:
        x = m.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=d).requires_grad_()
        y = {"recorded": lambda: x * 1, "plain": lambda: x.detach().clone(), "constant": lambda: x[0] * 0 + 1}[made]()
        w = y.expand(2, *y.shape)
        FILLS[name](m, w, y)
        found = [w.tolist(), w._version, w.requires_grad, y.requires_grad]
        for t in (w, y):
            try:
                found.append(m.autograd.grad((t * t).sum() + x.sum(), x, retain_graph=True)[0].tolist())
            except RuntimeError as e:
                assert "single memory location" in str(e), e
                found.append("refused")
        return found

    assert run(lucid, device) == run(torch, "cpu")


def fill_items(
    key: Callable[[Any, Any], Any], value: Callable[[Any], Any] = lambda m: 0.25
) -> Callable[[Any, Any], Any]:
    return lambda m, v: v.__setitem__(key(m, v.detach()), value(m))


#: Writes to elements that are chosen: PyTorch does them in the memory, also where an element of it is shown twice.
CHOSEN: dict[str, Callable[[Any, Any], Any]] = {
    "masked_fill_": lambda m, v: v.masked_fill_(v.detach() > 0.5, 0.3),
    "masked_fill_ with a tensor": lambda m, v: v.masked_fill_(v.detach() > 0.5, m.tensor(0.3)),
    "a mask": fill_items(lambda m, v: v > 0.5),
    "a mask and a tensor": fill_items(lambda m, v: v > 0.5, lambda m: m.tensor(0.25)),
    "a mask of rows": fill_items(lambda m, v: v[:, 0] > 0.5),
    "a mask of the first row": fill_items(lambda m, v: m.tensor([True, False])),
    "indices": fill_items(lambda m, v: m.tensor([0, 1])),
    "index_put_": lambda m, v: v.index_put_((m.tensor([0]),), m.tensor(3.0)),
    "index_put_ that adds": lambda m, v: v.index_put_((m.tensor([0]),), m.tensor(3.0), accumulate=True),
    "tril_": lambda m, v: v.tril_(),
    "triu_": lambda m, v: v.triu_(1),
}
MEETING: dict[str, Callable[[Any], Any]] = {
    "rows": lambda b: b.expand(2, 3),
    "columns": lambda b: b.reshape(3, 1)[:2].expand(2, 3),
    "one element": lambda b: b[:1].expand(2, 3),
    "windows": lambda b: b.as_strided((2, 2), (1, 1)),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shown", MEETING)
@pytest.mark.parametrize("name", CHOSEN)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_chosen_elements_of_recorded_tensors_that_meet(name: str, shown: str, device: str) -> None:
    """An expanded one is written, and no gradient goes through that; windows have one."""

    def run(m: Any) -> Any:
        x = m.tensor([1.0, -2.0, 3.0], requires_grad=True)
        b = x * 1
        v = MEETING[shown](b)
        CHOSEN[name](m, v)
        seen = [v.detach().tolist(), b.detach().tolist(), v.requires_grad]
        total = (v * m.arange(1.0, v.numel() + 1).reshape(v.shape)).sum() + (b * b).sum()
        return seen, outcome(lambda: m.autograd.grad(total, x)[0].tolist())

    with lucid.device(device):
        ours = run(lucid)
    assert ours == (theirs := run(torch))
    assert (theirs[1] == "RuntimeError") == (shown != "windows")


@pytest.mark.parametrize("device", DEVICES)
def test_index_fill_takes_an_element_of_the_tensor_itself(device: str) -> None:
    def run(m: Any) -> Any:
        x = m.tensor([0.5, 1.5, 2.0])
        return x.index_fill_(0, m.tensor([0, 1]), x[2]).tolist()

    with lucid.device(device):
        assert run(lucid) == run(torch) == [2.0, 2.0, 2.0]
