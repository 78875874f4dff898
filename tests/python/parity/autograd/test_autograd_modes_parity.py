"""Autograd's modes, side by side: names of layers' steps, inference tensors in transforms, random numbers inside of
`vmap`, levels of forward mode, hooks on several tensors, indices that steps save."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import pytest
import torch

from tests.python.parity.autograd.test_autograd_programs_parity import DEVICES, made_of, outcome

# ---- names of steps --------------------------------------------------------------------------------------------------


def names(made: Any) -> Any:
    """The names of the steps that made one tensor, or several."""
    if isinstance(made, (tuple, list)):
        return [names(t) for t in made]
    return made.grad_fn and made.grad_fn.name().rpartition(":")[2]


def layer(kind: str, *args: Any, rows: str = "batch", **options: Any) -> Callable[[Any], Any]:
    """A recurrent layer of two features, over a batch, one sequence, or packed ones."""

    def program(m: Any) -> Any:
        dtype = options.get("dtype") and getattr(m, options["dtype"])
        own = getattr(m.nn, kind)(2, 2, *args, **options | {"dtype": dtype})
        x = m.ones(3, 2, 2, dtype=dtype)[:, : 1 if rows == "one" else 2]
        if rows == "packed":
            out, last = own(m.nn.utils.rnn.pack_padded_sequence(x, [3, 2], batch_first=False))
            return out.data, last
        return own(x[:, 0] if rows == "one" else x)

    return program


def cell(kind: str, *sizes: int) -> Callable[[Any], Any]:
    return lambda m: getattr(m.nn, kind)(2, 2)(m.ones(*sizes, 2))


def attended(batch_first: bool, need_weights: bool, *sizes: int, same: bool = False, **options: Any) -> Any:
    def program(m: Any) -> Any:
        x = made_of(*sizes, 4)(m)
        others = (x, x) if same else (made_of(*sizes, 4)(m), made_of(*sizes, 4)(m))
        out, weights = m.nn.MultiheadAttention(4, 2, batch_first=batch_first)(
            x, *others, need_weights=need_weights, **options
        )
        return (out, weights) if need_weights else out

    return program


def attention(*sizes: int, dtype: str = "float32", mask: str = "", **options: Any) -> Callable[[Any], Any]:
    def program(m: Any) -> Any:
        q, k, v = (made_of(*sizes, 3, 4)(m).to(getattr(m, dtype)) for _ in range(3))
        masks = {"": None, "plain": m.zeros(3, 3), "followed": m.zeros(3, 3, requires_grad=True)}
        return m.nn.functional.scaled_dot_product_attention(q, k, v, masks[mask], **options)

    return program


def summed(equation: str, *sizes: tuple[int, ...]) -> Callable[[Any], Any]:
    return lambda m: m.einsum(equation, *[made_of(*s)(m) for s in sizes])


def weighed(dim: int | None, old: bool) -> Callable[[Any], Any]:
    def program(m: Any) -> Any:
        utils = m.nn.utils if old else m.nn.utils.parametrizations
        return utils.weight_norm(m.nn.Conv1d(2, 3, 2), dim=dim).weight

    return program


def over(name: str, *args: float) -> Callable[[Any], Any]:
    return lambda m: getattr(m.nn.functional, name)(made_of(3)(m) * 1, *args, inplace=True)


NAMES: dict[str, Callable[[Any], Any]] = {
    **{f"{kind}, {rows}": layer(kind, rows=rows)
       for kind in ("RNN", "LSTM", "GRU") for rows in ("batch", "one", "packed")},
    **{f"{kind}, {option}": layer(kind, **{option: True})
       for kind in ("RNN", "LSTM", "GRU") for option in ("batch_first", "bidirectional")},
    "LSTM of two layers": layer("LSTM", 2),
    "LSTM with projection": layer("LSTM", proj_size=1),
    "GRU both ways, packed": layer("GRU", bidirectional=True, rows="packed"),
    **{f"{kind}, {len(s)}": cell(kind, *s) for kind in ("RNNCell", "LSTMCell", "GRUCell") for s in ((), (3,))},
    **{f"attention layer, {b}, {w}, {len(s)}": attended(b, w, *s)
       for b in (True, False) for w in (True, False) for s in ((3,), (3, 2))},
    "attention layer on itself": attended(False, True, 3, 2, same=True),
    "attention layer, all heads": attended(False, True, 3, 2, average_attn_weights=False),
    "attention layer, all heads, one sequence": attended(False, True, 3, average_attn_weights=False),
    **{f"attention, {len(s)}": attention(*s) for s in ((), (2,), (1, 1), (2, 2), (1, 1, 1))},
    **{f"attention in half, {len(s)}": attention(*s, dtype="float16") for s in ((), (2,), (1, 1))},
    "attention with a mask": attention(1, 2, mask="plain"),
    "attention with a mask that is followed": attention(1, 2, mask="followed"),
    "attention with dropout": attention(1, 2, dropout_p=0.5),
    "causal attention": attention(1, 2, is_causal=True),
    **{f"einsum {e}": summed(e, *s) for e, s in {
        "ij,jk->ik": ((2, 2), (2, 2)), "i,j->ij": ((2,), (2,)), "i,i->i": ((2,), (2,)), "i,i->": ((2,), (2,)),
        "ij->ji": ((2, 2),), "ij->i": ((2, 2),), "ii->i": ((2, 2),), "ii": ((2, 2),), "i": ((2,),),
        "ij,jk,kl->il": ((2, 2), (2, 2), (2, 2)), "ij,k->ij": ((2, 2), (2,)), "a,b,c->abc": ((2,), (2,), (2,)),
        "ij,ij->j": ((2, 2), (1, 2)), ",": ((), ())}.items()},
    **{f"instance norm of {len(s)}": lambda m, s=s: m.nn.functional.instance_norm(made_of(*s)(m))
       for s in ((2, 3, 3), (2, 3, 3, 3))},
    "instance norm by what is known": lambda m: m.nn.functional.instance_norm(
        made_of(2, 3, 3)(m), m.zeros(3), m.ones(3), use_input_stats=False),
    **{f"weight norm, {d}, {o}": weighed(d, o) for d in (0, 1, 2, None) for o in (True, False)},
    **{f"{f} over": over(f) for f in ("elu", "selu", "celu", "leaky_relu", "rrelu", "relu6", "hardtanh")},
    "threshold over": over("threshold", 0.1, 0.2),
    "bilinear": lambda m: m.nn.functional.bilinear(made_of(3, 2)(m), made_of(3, 2)(m), made_of(2, 2, 2)(m)),
}  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_names_of_steps(name: str, device: str) -> None:
    with lucid.device(device):
        assert names(NAMES[name](lucid)) == names(NAMES[name](torch))


# ---- inference tensors -----------------------------------------------------------------------------------------------


def inside(f: Callable[[Any, Any, Any], Any]) -> Callable[[Any], Any]:
    """With a captured tensor and an input that are made in inference mode, and in it."""

    def program(m: Any) -> Any:
        with m.inference_mode():
            return f(m, m.arange(1.0, 4.0), m.arange(2.0, 5.0))

    return program


def outside(f: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """With a tensor that was made in inference mode."""

    def program(m: Any) -> Any:
        with m.inference_mode():
            made = m.arange(1.0, 4.0)
        return f(m, made)

    return program


def given(t: Any, data: Any) -> Any:
    t.data = data
    return t, t.is_inference(), t.requires_grad


INFERENCE: dict[str, Callable[[Any], Any]] = {
    "grad": inside(lambda m, w, x: m.func.grad(lambda t: (t * t * w).sum())(x)),
    "hessian": inside(lambda m, w, x: m.func.hessian(lambda t: (t * t * w).sum())(x)),
    "hessian of the input alone": inside(lambda m, w, x: m.func.hessian(lambda t: (t**3).sum())(x)),
    "jacfwd": inside(lambda m, w, x: m.func.jacfwd(lambda t: t * t * w)(x)),
    "jacrev": inside(lambda m, w, x: m.func.jacrev(lambda t: t * t * w)(x)),
    "jvp": inside(lambda m, w, x: m.func.jvp(lambda t: t * t * w, (x,), (x,))),
    "vjp": inside(lambda m, w, x: m.func.vjp(lambda t: t * t * w, x)[1](w)),
    "grad of grad": inside(lambda m, w, x: m.func.grad(lambda t: m.func.grad(lambda s: (s**3 * w).sum())(t).sum())(x)),
    "per sample": inside(lambda m, w, x: m.func.vmap(m.func.grad(lambda s: (s**3 * w).sum()))(m.ones(2, 3))),
    "written": inside(lambda m, w, x: m.func.grad(lambda t: t.clone().mul_(w).sum())(x)),
    "results of grad": inside(lambda m, w, x: m.func.grad(lambda t: t.sum())(x).is_inference()),
    "results of jvp": inside(lambda m, w, x: [t.is_inference() for t in m.func.jvp(lambda t: t.sin(), (x,), (x,))]),
    "captured outside": outside(lambda m, i: m.func.grad(lambda t: (t * i).sum())(m.ones(3))),
    "hessian outside": outside(lambda m, i: m.func.hessian(lambda t: (t * t).sum())(i)),
    "others' data": outside(lambda m, i: given(i, m.zeros(3))),
    "others' data, to be followed": outside(lambda m, i: given(i, m.zeros(3))[0].requires_grad_()),
    "made inside": lambda m: m.func.grad(lambda t: (m.inference_mode()(lambda: t * t)() * t).sum())(m.ones(3)),
    "data of one": outside(lambda m, i: given(m.zeros(3), i)),
    "data of one to a leaf": outside(lambda m, i: given(m.zeros(3, requires_grad=True), i)),
    "data of one, saved": outside(lambda m, i: (given(m.zeros(3), i)[0] * made_of(3)(m)).requires_grad),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", INFERENCE)
def test_inference_tensors(name: str, device: str) -> None:
    with lucid.device(device):
        assert outcome(INFERENCE[name], lucid) == outcome(INFERENCE[name], torch)


# ---- random numbers inside of vmap -----------------------------------------------------------------------------------

DRAWS: dict[str, Callable[[Any, Any], Any]] = {
    "bernoulli": lambda m, x: m.bernoulli(x),
    "bernoulli of a number": lambda m, x: m.bernoulli(x, 0.5),
    "bernoulli of what is shared": lambda m, x: m.bernoulli(m.full((3,), 0.5)),
    "bernoulli_": lambda m, x: x.clone().bernoulli_(),
    "multinomial": lambda m, x: m.multinomial(x, 2),
    "multinomial of what is shared": lambda m, x: m.multinomial(m.full((3,), 0.5), 2),
    "normal, mean": lambda m, x: m.normal(x, 1.0),
    "normal, deviation": lambda m, x: m.normal(0.0, x),
    "normal, both": lambda m, x: m.normal(x, m.ones(3)),
    "normal_": lambda m, x: x.clone().normal_(),
    "poisson": lambda m, x: m.poisson(x),
    "binomial": lambda m, x: m.binomial(x * 4, m.full((3,), 0.5)),
    "rand_like": lambda m, x: m.rand_like(x),
    "dropout": lambda m, x: m.nn.functional.dropout(x, 0.5),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("randomness", ["same", "different", "error"])
@pytest.mark.parametrize("name", DRAWS)
def test_random_numbers_inside_of_vmap(name: str, randomness: str, device: str) -> None:
    def program(m: Any) -> Any:
        drawn = m.func.vmap(lambda x: DRAWS[name](m, x), randomness=randomness)(m.full((4, 3), 0.5))
        return list(drawn.shape), randomness == "same" and (drawn[0] == drawn[1]).all().item()

    with lucid.device(device):
        assert outcome(program, lucid) == outcome(program, torch)


# ---- levels, hooks, what is saved ------------------------------------------------------------------------------------


def at_a_level(f: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    def program(m: Any) -> Any:
        with m.autograd.forward_ad.dual_level():
            return f(m, m.autograd.forward_ad.make_dual(m.ones(3), m.full((3,), 2.0)))

    return program


def several(tensors: Callable[[Any], Any], mode: str) -> Callable[[Any], Any]:
    def program(m: Any) -> Any:
        log: list[Any] = []
        handle = m.autograd.graph.register_multi_grad_hook(tensors(m), lambda g: log.append(1), mode=mode)
        return type(handle).__name__, len(log)

    return program


def chosen(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def program(m: Any) -> Any:
        step = f(m.tensor([[3.0, 1.0, 2.0], [4.0, 6.0, 5.0]], requires_grad=True)).grad_fn
        return step._saved_indices, "_saved_indices" in dir(step)

    return program


def by_rows(enforced: bool) -> Callable[[Any], Any]:
    """The strides of the first gradient of a column-major leaf: row-major only if it is kept as it was made."""

    def program(m: Any) -> Any:
        leaf = m.ones(2, 3).t().requires_grad_()
        with m.autograd.grad_mode.enforce_grad_layout_policy(enforced):
            (leaf * m.ones(3, 2)).backward(m.ones(3, 2))
        kept = leaf.grad.stride()
        leaf.grad = None
        (leaf * m.ones(3, 2)).backward(m.ones(3, 2))
        return kept, leaf.grad.stride()

    return program


def kept(change: Callable[[Any, Any, Any], Any]) -> Callable[[Any], Any]:
    """The gradient that a result keeps, and the gradients after `change`."""

    def program(m: Any) -> Any:
        x = made_of(2, 3)(m)
        y = x * 1
        y.retain_grad()
        found = change(m, x, y)
        (y * y).sum().backward()
        return found, y.grad, x.grad

    return program


def written_view(of: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda m: of(m)[1:].mul_(2)


REST: dict[str, Callable[[Any], Any]] = {
    "kept, asked for and written": kept(lambda m, x, y: m.autograd.grad((y * 2).sum(), y)[0].mul_(5)),
    "kept, asked for twice": kept(lambda m, x, y: m.autograd.grad((y * 2).sum(), [y, x], retain_graph=True)),
    "kept, unsqueezed and squeezed": kept(lambda m, x, y: y.unsqueeze_(0).squeeze_(0).shape),
    "view of a leaf that is a view": written_view(lambda m: m.arange(6.0).reshape(2, 3).requires_grad_()),
    "view of a leaf": written_view(lambda m: m.ones(2, 3).requires_grad_()),
    "view of a result": written_view(lambda m: m.ones(2, 3).requires_grad_() * 1),
    "view of a part": written_view(lambda m: m.ones(3, 3)[1:].requires_grad_()),
    "samples of a leaf that is a view": lambda m: m.func.vmap(lambda t: t.neg_(), in_dims=1)(made_of(2, 3)(m)),
    "jvp at a level": at_a_level(lambda m, x: m.func.jvp(lambda t: t * t, (m.ones(3),), (m.ones(3),))),
    "jvp of a dual": at_a_level(lambda m, x: m.func.jvp(lambda t: t * t, (x,), (m.ones(3),))),
    "jacfwd at a level": at_a_level(lambda m, x: m.func.jacfwd(lambda t: t * t)(m.ones(3))),
    "hessian at a level": at_a_level(lambda m, x: m.func.hessian(lambda t: (t * t).sum())(m.ones(3))),
    "linearize at a level": at_a_level(lambda m, x: m.func.linearize(lambda t: t * t, m.ones(3))[0]),
    "grad at a level": at_a_level(lambda m, x: m.func.grad(lambda t: (t * t).sum())(x)),
    "vmap at a level": at_a_level(lambda m, x: m.func.vmap(lambda t: t * t)(x)),
    "levels afterwards": lambda m: (
        outcome(at_a_level(lambda m, x: m.func.jvp(lambda t: t, (x,), (x,))), m),
        m.func.jvp(lambda t: t * t, (m.ones(2),), (m.ones(2),)),
    ),
    **{f"hook on {what}, {mode}": several(tensors, mode) for mode in ("all", "any", "some") for what, tensors in {
        "leaves": lambda m: [m.ones(2, requires_grad=True)], "nothing": lambda m: [],
        "what is not followed": lambda m: [m.ones(2)],
        "both": lambda m: [m.ones(2, requires_grad=True), m.ones(2)], "a number": lambda m: [1]}.items()},
    **{f"indices of {name}": chosen(f) for name, f in {
        "sort": lambda x: x.sort()[0], "topk": lambda x: x.topk(2)[0], "msort": lambda x: x.msort(),
        "max": lambda x: x.max(1)[0], "min, kept": lambda x: x.min(1, keepdim=True)[0],
        "kthvalue": lambda x: x.kthvalue(2)[0], "mode": lambda x: x.mode(0)[0], "median": lambda x: x.median(0)[0],
        "cummax": lambda x: x.cummax(1)[0], "gather": lambda x: x.gather(0, (x.detach() * 0).long()),
        "max of all": lambda x: x.max()}.items()},
    "layout of gradients": by_rows(True),
    "layout of gradients at will": by_rows(False),
    "a step's": lambda m: (m.ones(2, requires_grad=True) * 2).grad_fn.requires_grad,
}  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", REST)
def test_levels_hooks_and_what_is_saved(name: str, device: str) -> None:
    with lucid.device(device):
        assert outcome(REST[name], lucid) == outcome(REST[name], torch)
