"""`__torch_function__` and `lucid.overrides` side by side with PyTorch: who is asked, and with what."""

from __future__ import annotations

import gc
import operator
import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn.functional
import lucid.overrides
import pytest
import torch
import torch.overrides

from tests.python.parity.api.subclasses import DEVICES, PLAIN, LucidOther, LucidPlain, outcome, same, tensor
from tests.python.parity.api.test_subclass_parity import RESULTS

# ---- who is asked ----------------------------------------------------------------------------------------------------


def loud(L: Any) -> tuple[Any, list[Any]]:
    """A class that writes down what it is asked."""
    log: list[Any] = []

    class Loud(L.Tensor):  # type: ignore[misc, name-defined]
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            owner = getattr(getattr(func, "__self__", None), "__name__", None)
            name = getattr(func, "__name__", "?")
            name = {"__rdiv__": "__rtruediv__"}.get(name, name)
            prop = owner if name.startswith("__") and owner not in (None, "lucid._C") else None
            given = [type(a).__name__ for a in args]
            # Where PyTorch's operator is Python it names `Tensor` among the classes, too.
            asked = [t.__name__ for t in types if t is not L.Tensor]
            log.append((name, prop, given, sorted(kwargs or {}), asked))
            return super().__torch_function__(func, types, args, kwargs)

    return Loud, log


# What PyTorch hands to its own code in other ways is not here: `repr`, `backward`, `split`, pickling.
ASKED: dict[str, Callable[[Any, Any, Any], Any]] = {
    name: RESULTS[name]
    for name in [
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "radd",
        "rsub",
        "rmul",
        "rtruediv",
        "rfloordiv",
        "rmod",
        "rpow",
        "req",
        "rne",
        "rlt",
        "rle",
        "rgt",
        "rge",
        "nadd",
        "nsub",
        "nmul",
        "ntruediv",
        "nfloordiv",
        "nmod",
        "npow",
        "neq",
        "nne",
        "nlt",
        "nle",
        "ngt",
        "nge",
        "iadd",
        "isub",
        "imul",
        "itruediv",
        "ifloordiv",
        "imod",
        "ipow",
        "neg",
        "pos",
        "abs",
        "matmul",
        "rmatmul",
        "invert",
        "and",
        "rand",
        "shift",
        "rshift",
        "index",
        "setitem",
        "method",
        "function",
        "list",
        "views",
        "like",
        "new",
        "data",
        "values",
        "numbers",
        "contains",
        "out",
        "reversed",
        "in_place",
    ]
    if name in RESULTS
} | {
    "properties": lambda L, x, y: [
        x.shape,
        x.dtype,
        x.device,
        x.grad,
        x.grad_fn,
        x.is_leaf,
        x.requires_grad,
        x.T,
        x.data,
        x.layout,
        x._version,
        x.ndim,
        x.is_cuda,
    ],
    "setters": lambda L, x, y: [setattr(x, "requires_grad", True), setattr(x, "grad", None), setattr(x, "data", y)],
    "hash": lambda L, x, y: hash(x) == 0,
    "keywords": lambda L, x, y: [
        L.sum(x, dim=1),
        x.sum(dim=1, keepdim=True),
        L.add(y, other=x),
        L.add(input=y, other=x),
        x.sum(axis=0),
    ],
    "linalg": lambda L, x, y: [L.linalg.inv(x @ x.T), L.einsum("ij->ji", x), L.linalg.norm(y), L.stack([y, x])],
    "own attributes": lambda L, x, y: [setattr(x, "note", 1), x.note, x.__class__.__name__, x.__dict__],
    "exempt": lambda L, x, y: [L.is_tensor(x), x.as_subclass(L.Tensor), L.tensor([1.0]), isinstance(x, L.Tensor)],
    "hook": lambda L, x, y: [
        x.requires_grad_(),
        x.is_floating_point(),
        x.data_ptr() == 0,
        x.item() if x.numel() == 1 else 0,
    ],
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ASKED)
def test_what_is_asked(name: str, device: str) -> None:
    def act(L: Any, device: str) -> Any:
        Loud, log = loud(L)
        x, y = Loud(tensor(L, device)), tensor(L, device)
        log.clear()
        made = outcome(L, lambda: ASKED[name](L, x, y))
        told = list(log)
        return [[(n, p or "", *rest) for n, p, *rest in told], made if isinstance(made, str) else ""]

    def comparable(found: Any) -> Any:
        return [[tuple(e) for e in found[0]], found[1]]

    ours, theirs = [act(L, device) for L in (lucid, torch)]
    assert comparable(ours) == comparable(theirs)


@pytest.mark.parametrize("L", [lucid, torch], ids=["lucid", "torch"])
def test_functions_are_the_public_ones(L: Any) -> None:
    found: list[Any] = []

    class Keeps(L.Tensor):  # type: ignore[misc, name-defined]
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found.append(func)
            return super().__torch_function__(func, types, args, kwargs)

    x = L.ones(2, 3).as_subclass(Keeps)
    F = L.nn.functional
    L.add(x, 1), x.add(1), x + 1, x.shape, x.sum(), L.sum(x), x[0], L.cat([x]), L.linalg.norm(x), L.exp(x), x.exp_()
    F.mse_loss(x, x), F.linear(x, x), F.normalize(x), 1 - x, x @ x.T
    F.dropout(x), F.conv1d(x, L.ones(1, 2, 1)), F.leaky_relu(x), F.elu(x), F.silu(x), F.mish(x), F.hardtanh(x)
    T = L.Tensor
    wanted = [L.add, T.add, T.add, T.shape.__get__, T.sum, L.sum, T.__getitem__, L.cat, L.linalg.norm, L.exp, T.exp_]
    wanted += [F.mse_loss, F.linear, F.normalize, T.__rsub__, T.T.__get__, T.matmul]
    wanted += [F.dropout, L.conv1d, F.leaky_relu, F.elu, F.silu, F.mish, F.hardtanh]
    assert len(found) == len(wanted)
    for f, w in zip(found, wanted, strict=True):
        assert f == w and hash(f) == hash(w), (f, w)


#: Activations are functions of their own in `nn.functional`, beside the engine's of the same names.
ACTIVATIONS = (
    "relu(x)", "relu(x, True)", "relu6(x)", "relu6(x, inplace=True)", "softmax(x, 1)", "log_softmax(x, dim=0)",
    "selu(x)", "selu(x, inplace=True)", "selu_(x)", "celu(x)", "celu(x, 2.0, True)", "celu_(x, 2.0)",
    "elu(x, 2.0, True)", "elu_(x)", "leaky_relu(x, 0.1, True)", "leaky_relu_(x)",
    "hardtanh(x, inplace=True)", "hardtanh_(x)",
    "threshold(x, 1.0, 2.0)", "threshold(x, 1.0, 2.0, True)", "threshold_(x, 1.0, 2.0)", "silu(x, True)",
    "mish(x, inplace=True)", "hardswish(x, True)", "hardsigmoid(x, True)", "dropout(x, inplace=True)", "rrelu_(x)",
)  # fmt: skip


@pytest.mark.parametrize("call", ACTIVATIONS)
def test_activations_are_functions_of_their_own(call: str) -> None:
    def run(L: Any) -> list[Any]:
        seen: list[Any] = []
        F = L.nn.functional

        class Duck:
            @classmethod
            def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                own = getattr(F, call.partition("(")[0])
                seen.append((func == own, [t.__name__ for t in types], (kwargs or {}).get("inplace")))
                return "answered"

        class Mode(L.overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                seen.append(func == getattr(F, call.partition("(")[0]))
                return func(*args, **(kwargs or {}))

        answer = eval(f"F.{call}", {"F": F, "x": Duck()})
        x = tensor(L, "cpu")
        with Mode():
            made = eval(f"F.{call}", {"F": F, "x": x})
        return [*seen, answer, made is x, isinstance(made, L.Tensor)]

    assert run(lucid) == run(torch)


@pytest.mark.parametrize("device", DEVICES)
def test_objects_that_are_no_tensors(device: str) -> None:
    def act(L: Any, device: str) -> Any:
        handled: dict[Any, Any] = {}

        class Scalar:
            def __init__(self, value: float) -> None:
                self.value = value

            @classmethod
            def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                if func not in handled or not all(issubclass(t, L.Tensor | Scalar) for t in types):
                    return NotImplemented
                return handled[func](*args, **(kwargs or {}))

        def value(x: Any) -> Any:
            return x.value if isinstance(x, Scalar) else x

        handled[L.add] = lambda a, b: Scalar(value(a) + value(b))
        handled[L.Tensor.add] = lambda a, b: ["method", value(b)]
        handled[L.mean] = lambda a: a.value
        handled[L.cat] = lambda parts, dim=0: [type(p).__name__ for p in parts] + [dim]
        handled[L.nn.functional.mse_loss] = lambda a, b, **k: "mse"
        s, x = Scalar(3), tensor(L, device)
        answers = [
            L.add(s, 1).value,
            L.mean(s),
            x + s,
            x.add(s),
            L.cat([x, s], dim=1),
            L.cat((s,)),
            L.nn.functional.mse_loss(s, x),
        ]
        refused = [
            outcome(L, f)
            for f in (lambda: L.sum(s), lambda: x * s, lambda: s * x, lambda: x.sub_(s), lambda: L.stack([s]))
        ]
        return [*answers, *refused]

    same(act, device)


def test_a_refusal_names_function_and_classes() -> None:
    class Refuses:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return NotImplemented

    for L in (lucid, torch):
        with pytest.raises(TypeError) as caught:
            L.add(Refuses(), 1)
        text = str(caught.value)
        assert f"'{L.__name__}.add'" in text and "Refuses" in text and "returned NotImplemented" in text


def test_subclasses_are_asked_before_their_bases() -> None:
    def act(L: Any, device: str) -> Any:
        order: list[str] = []

        class Base(L.Tensor):  # type: ignore[misc, name-defined]
            @classmethod
            def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                order.append(cls.__name__ + ":" + ",".join(t.__name__ for t in types))
                return NotImplemented

        class Left(Base):
            pass

        class Right(Base):
            pass

        x = L.ones(2)
        made = [Base(x), Left(x), Right(x), Left(x), x]
        refused = outcome(L, lambda: L.stack(made))
        return [order, refused]

    same(act, "cpu")


def test_errors_of_handlers_come_through() -> None:
    def act(L: Any, device: str) -> Any:
        class Raises(L.Tensor):  # type: ignore[misc, name-defined]
            @classmethod
            def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                raise IndexError("no")

        x = L.ones(2).as_subclass(Raises)
        acts = [
            lambda: L.add(x, 1),
            lambda: x + 1,
            lambda: x.shape,
            lambda: len(x),
            lambda: x.sum(),
            lambda: x[0],
            lambda: bool(x),
        ]
        return [
            outcome(L, f)
            for f in [*acts, lambda: setattr(x, "data", x), lambda: operator.iadd(x, 1), lambda: x.__repr__()]
        ]

    same(act, "cpu")


def test_results_of_any_kind() -> None:
    def act(L: Any, device: str) -> Any:
        class Says(L.Tensor):  # type: ignore[misc, name-defined]
            @classmethod
            def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return "said"

        x = L.ones(2).as_subclass(Says)
        return [
            L.add(x, 1),
            x + 1,
            1 + x,
            x.shape,
            x.sum(),
            x[0],
            x == 1,
            -x,
            x.T,
            L.nn.functional.mse_loss(x, x),
            L.ones(2) + x,
        ]

    same(act, "cpu")


# ---- lucid.overrides -------------------------------------------------------------------------------------------------


def test_guards_turn_handlers_off() -> None:
    def act(L: Any, device: str) -> Any:
        Loud, log = loud(L)
        x = L.ones(2).as_subclass(Loud)
        log.clear()
        with L._C.DisableTorchFunctionSubclass():
            plain = type(x + 1).__name__
            inside = L.overrides.has_torch_function((x,))
            with L._C.DisableTorchFunction():
                twice = type(x * 1).__name__
            still = type(x + 1).__name__
        return [plain, twice, still, inside, len(log), type(x + 1).__name__, L.overrides.has_torch_function((x,))]

    same(act, "cpu")


def test_modes() -> None:
    def act(L: Any, device: str) -> Any:
        log: list[str] = []

        class Mode(L.overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
            def __init__(self, name: str) -> None:
                super().__init__()
                self.name = name

            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                log.append(f"{self.name} {func.__name__}")
                return func(*args, **(kwargs or {}))

        class Skips(Mode):
            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                log.append(f"{self.name} skips")
                return NotImplemented

        x, y = L.ones(2), L.ones(2).as_subclass(PLAIN[L])
        with Mode("outer") as outer:
            L.add(x, 1)
            with Mode("inner"):
                L.zeros(2)
                x + 1
            x.exp()
            with L._C.DisableTorchFunctionSubclass():
                L.neg(x)
            with L._C.DisableTorchFunction():
                L.sin(x)
            made = type(y + 1).__name__.replace("Lucid", "").replace("Torch", "")
            other: list[int] = []
            thread = threading.Thread(target=lambda: other.append(len(log) - (L.cos(x), len(log))[1]))
            thread.start()
            thread.join()
        count = len(log)
        L.cos(x)
        with Skips("a"):
            refused = outcome(L, lambda: L.add(y, 1))
        return [log[:count], len(log) - count, isinstance(outer, Mode), made, other, refused]

    same(act, "cpu")


def test_helpers() -> None:
    def act(L: Any, device: str) -> Any:
        over, T = L.overrides, L.Tensor

        class Duck:
            @classmethod
            def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return func.__name__, [t.__name__ for t in types], len(args), sorted(kwargs or {})

        @over.wrap_torch_function(lambda a, b=None, scale=1: (a, b))
        def mine(a: Any, b: Any = None, scale: int = 1) -> Any:
            return "plain"

        x, p, d = L.ones(2), L.nn.Parameter(L.ones(2)), Duck()
        has = [over.has_torch_function((v,)) for v in (x, p, d, 1, "s", PLAIN[L](x))]
        has += [
            over.has_torch_function_unary(d),
            over.has_torch_function_variadic(x, d),
            over.has_torch_function_variadic(x, p),
        ]
        like = [over.is_tensor_like(v) for v in (x, p, d, 1, [x])]
        members = [over.is_tensor_method_or_property(f) for f in (T.add, T.shape.__get__, L.add, len)]
        resolved = [
            over.resolve_name(f).split(".", 1)[1] for f in (T.add, L.add, T.shape.__get__, L.nn.functional.mse_loss)
        ]
        called = [mine(x), mine(d, scale=2), mine(x, d), over.handle_torch_function(L.add, (d,), d, 1)]
        kept = (
            T.grad.__get__ in over.get_default_nowrap_functions()
            and T._base.__get__ in over.get_default_nowrap_functions()
        )
        return [has, like, members, resolved, called, kept]

    same(act, "cpu")


# ---- what must not be ------------------------------------------------------------------------------------------------


def test_nothing_is_kept() -> None:
    x = lucid.ones(2).as_subclass(LucidPlain)
    for _ in range(3):
        (x + 1).sum().item(), x.shape, lucid.cat([x, x]), lucid.add(x, other=x)
    gc.collect()
    counts = [sys.getrefcount(o) for o in (x, LucidPlain, lucid.add, lucid.Tensor.add)]
    for _ in range(100):
        (x + 1).sum().item(), x.shape, lucid.cat([x, x]), lucid.add(x, other=x)
        with pytest.raises(TypeError):
            x + lucid.ones(2).as_subclass(LucidOther)
    gc.collect()
    after = [sys.getrefcount(o) for o in (x, LucidPlain, lucid.add, lucid.Tensor.add)]
    assert all(b - a < 20 for a, b in zip(counts, after, strict=True)), (counts, after)


def test_functions_are_still_described() -> None:
    for function, name in ((lucid.add, "add"), (lucid.Tensor.add, "add"), (lucid.Tensor.numel, "numel")):
        assert function.__name__ == name and function.__doc__ and function.__text_signature__
    assert lucid.Tensor.shape.__doc__ and lucid.Tensor.add.__objclass__ is lucid.Tensor
    assert pickle.loads(pickle.dumps(lucid.add)) is lucid.add
    assert lucid.absolute is lucid.abs and lucid.Tensor.absolute is lucid.Tensor.abs


def test_pytorchs_tensors_are_not_asked() -> None:
    with pytest.raises(TypeError):
        lucid.add(lucid.ones(2), torch.ones(2))  # type: ignore[arg-type]
    assert lucid.as_tensor(torch.ones(2)).tolist() == [1, 1]
