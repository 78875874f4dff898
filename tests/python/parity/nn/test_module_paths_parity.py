"""The files of `nn.modules`, `nn.utils` and `optim` by PyTorch's names, and the helpers in them that packages use."""

from __future__ import annotations

import importlib
import inspect
import itertools
import pkgutil
import types
import typing
import warnings
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn.common_types
import pytest
import torch
import torch.nn.common_types
from torch.optim.optimizer import ParamsT

from tests.python.absent import COMPARED, MODULES, public
from tests.python.tolerances import TABLE

PACKAGES = ("nn.modules", "nn.utils", "optim", "cuda.amp")


def files(package: str) -> list[str]:
    """The public files of one of PyTorch's packages."""
    found = importlib.import_module(f"torch.{package}")
    return [f"{package}.{m.name}" for m in pkgutil.iter_modules(found.__path__) if not m.name.startswith("_")]


FILES = [name for package in PACKAGES for name in files(package) if name not in MODULES]


def test_every_file_is_compared_or_listed() -> None:
    """The comparison of names (test_absent_names_parity.py) leaves none of the files out."""
    assert len(FILES) > 40
    assert not set(FILES) - set(COMPARED)


@pytest.mark.parametrize("path", FILES)
def test_a_files_names_are_the_packages_objects(path: str) -> None:
    """What is imported from a file is what the package shows under the same name."""
    package, _, _ = path.rpartition(".")
    here, shown = importlib.import_module(f"lucid.{path}"), importlib.import_module(f"lucid.{package}")
    theirs, theirs_shown = importlib.import_module(f"torch.{path}"), importlib.import_module(f"torch.{package}")
    for name in public(torch, path):
        if not hasattr(here, name):
            continue
        own = getattr(here, name)
        assert inspect.isclass(own) == inspect.isclass(getattr(theirs, name)), name
        if getattr(theirs, name) is getattr(theirs_shown, name, None):
            assert own is getattr(shown, name), name


def test_names_that_are_a_file_and_a_function() -> None:
    from lucid.nn.utils.spectral_norm import SpectralNorm, spectral_norm
    from lucid.nn.utils.weight_norm import WeightNorm, weight_norm

    assert isinstance(lucid.nn.utils.spectral_norm, types.FunctionType)
    assert lucid.nn.utils.spectral_norm is spectral_norm
    assert lucid.nn.utils.weight_norm is weight_norm
    assert inspect.isclass(SpectralNorm)
    assert inspect.isclass(WeightNorm)


@pytest.mark.parametrize("kind", ["spectral", "weight"])
def test_hooks_of_norms(kind: str) -> None:
    """The hook's class is found among a module's hooks, as programs look for it; it can be put on and off."""

    def told(m: Any) -> list[Any]:
        file = importlib.import_module(f"{m.__name__}.nn.utils.{kind}_norm")
        cls = getattr(file, f"{kind.title()}Norm")
        layer = m.nn.Linear(3, 2)
        args = (layer, "weight", 2, 0, 1e-12) if kind == "spectral" else (layer, "weight", 0)
        hook = cls.apply(*args)
        seen = [[type(h) is cls and h.name for h in layer._forward_pre_hooks.values()], sorted(layer.state_dict())]
        if kind == "spectral":
            seen.append(tuple(cls("weight", dim=1).reshape_weight_to_matrix(m.zeros(2, 3, 4)).shape))
            with pytest.raises(ValueError, match="n_power_iterations"):
                cls(n_power_iterations=0)
        with pytest.raises(RuntimeError, match="Cannot register two"):
            cls.apply(*args)
        hook.remove(layer)
        return [*seen, sorted(layer.state_dict()), len(layer._forward_pre_hooks)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert told(lucid) == told(torch)


# Which classes of layers are of which other.


def layers(m: Any) -> dict[str, type[Any]]:
    shown = {n: getattr(m.nn, n) for n in dir(m.nn)}
    return {n: c for n, c in shown.items() if inspect.isclass(c) and issubclass(c, m.nn.Module)}


def bases(m: Any) -> dict[str, type[Any]]:
    """The classes of the files that are not public, by path."""
    found = {}
    for path in files("nn.modules"):
        if path not in MODULES:
            file = importlib.import_module(f"{m.__name__}.{path}")
            own = {n: c for n, c in vars(file).items() if n.startswith("_") and inspect.isclass(c)}
            found |= {f"{path}.{n}": c for n, c in own.items() if c.__module__ == file.__name__}
    return found


BASES = sorted(set(bases(lucid)) & set(bases(torch)))
LAYERS = sorted(set(layers(lucid)) & set(layers(torch)))
NEEDED = {
    "batchnorm": ("_NormBase", "_BatchNorm", "_LazyNormBase"),
    "conv": ("_ConvNd", "_ConvTransposeNd", "_LazyConvXdMixin"),
    "dropout": ("_DropoutNd",),
    "instancenorm": ("_InstanceNorm",),
    "loss": ("_Loss", "_WeightedLoss"),
    "padding": ("_CircularPadNd", "_ConstantPadNd", "_ReflectionPadNd", "_ReplicationPadNd"),
    "pooling": (
        *("_MaxPoolNd", "_MaxUnpoolNd", "_AvgPoolNd", "_LPPoolNd", "_AdaptiveMaxPoolNd", "_AdaptiveAvgPoolNd"),
    ),
}


def test_the_bases_are_there() -> None:
    needed = {f"nn.modules.{file}.{name}" for file, names in NEEDED.items() for name in names}
    assert not needed - set(BASES)
    assert len(LAYERS) > 150


@pytest.mark.parametrize("base", BASES)
def test_layers_of_a_base(base: str) -> None:
    ours, theirs = bases(lucid)[base], bases(torch)[base]
    assert [n for n in LAYERS if issubclass(layers(lucid)[n], ours)] == [
        n for n in LAYERS if issubclass(layers(torch)[n], theirs)
    ]


def test_bases_of_bases() -> None:
    def told(m: Any) -> list[tuple[str, str]]:
        found = bases(m)
        return [(a, b) for a, b in itertools.permutations(BASES, 2) if issubclass(found[a], found[b])]

    assert told(lucid) == told(torch)


def test_layers_of_layers() -> None:
    """`isinstance(layer, nn.ReLU)` answers as in PyTorch: no layer is another's kind for sharing its code."""

    def told(m: Any) -> list[tuple[str, str]]:
        found = layers(m)
        return [(a, b) for a, b in itertools.permutations(LAYERS, 2) if issubclass(found[a], found[b])]

    assert told(lucid) == told(torch)


def test_lazy_layers_become_the_others() -> None:
    def told(m: Any) -> list[tuple[str, bool]]:
        seen = []
        for n in "123":
            for kind in ("BatchNorm", "InstanceNorm", "Conv", "ConvTranspose"):
                args = (4, 2) if "Conv" in kind else ()
                layer = getattr(m.nn, f"Lazy{kind}{n}d")(*args)
                layer(m.zeros([2, 4, *([5] * int(n))]))
                seen.append((type(layer).__name__, isinstance(layer, m.nn.modules.lazy.LazyModuleMixin)))
                with pytest.raises((ValueError, RuntimeError)):
                    getattr(m.nn, f"Lazy{kind}{n}d")(*args)(m.zeros([1] * 7))
        return seen

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert told(lucid) == told(torch)


# Layers that others derive from the bases.


def made_batch_norm(m: Any) -> Any:
    class Any2d(m.nn.modules.batchnorm._BatchNorm):  # type: ignore[misc]
        def _check_input_dim(self, input: Any) -> None:
            if input.dim() == 3:
                raise ValueError("3")

    layer = Any2d(2)
    layer(m.arange(16.0).reshape(2, 2, 4, 1))
    return [layer.running_mean.tolist(), isinstance(layer, m.nn.BatchNorm2d)]


def made_unchecked(m: Any) -> Any:
    return m.nn.modules.batchnorm._BatchNorm(2)(m.zeros(2, 2, 2))


def made_instance_norm(m: Any) -> Any:
    class Sequences(m.nn.modules.instancenorm._InstanceNorm):  # type: ignore[misc]
        def _get_no_batch_dim(self) -> int:
            return 2

        def _check_input_dim(self, input: Any) -> None:
            pass

    return [Sequences(2)(m.arange(8.0).reshape(shape)).abs().mean().item() for shape in ((2, 4), (1, 2, 4))]


def made_convolution(m: Any) -> Any:
    pair = m.nn.modules.utils._pair

    class Shifted(m.nn.modules.conv._ConvNd):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(1, 1, pair(3), pair(1), pair(1), pair(1), False, pair(0), 1, True, "zeros")

        def forward(self, x: Any) -> Any:
            return m.nn.functional.conv2d(x, m.ones_like(self.weight), None, self.stride, self.padding)

    layer = Shifted()
    return [repr(layer), layer(m.ones(1, 1, 3, 3)).tolist(), tuple(layer.weight.shape), tuple(layer.bias.shape)]


def made_with_own_weight(m: Any) -> Any:
    """As mixed-precision models do: the convolution by another weight than the layer's."""
    seen = []
    for n in (1, 2, 3):

        class Ones(getattr(m.nn, f"Conv{n}d")):  # type: ignore[misc]
            def _conv_forward(self, input: Any, weight: Any, bias: Any) -> Any:
                return super()._conv_forward(input, m.ones_like(weight), None)

        for mode in ("zeros", "circular"):
            layer = Ones(1, 1, 3, padding=1, padding_mode=mode)
            seen.append(layer(m.arange(3.0**n).reshape([1, 1, *([3] * n)])).tolist())
    return seen


def padding_of_convolutions(m: Any) -> Any:
    made = [
        *(m.nn.Conv1d(1, 1, 3, padding=p, dilation=d) for p in (0, 2, "same", "valid") for d in (1, 3)),
        *(m.nn.Conv2d(1, 1, (2, 5), padding=p) for p in ((1, 3), "same")),
        m.nn.ConvTranspose3d(1, 1, 2, padding=(1, 2, 3)),
    ]
    return [list(layer._reversed_padding_repeated_twice) for layer in made]


def made_dropout(m: Any) -> Any:
    class None_(m.nn.modules.dropout._DropoutNd):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x

    return [repr(None_(0.3)), None_(0.3, True).inplace, None_(p=1.5)]


def made_sync(m: Any) -> Any:
    made = m.nn.SyncBatchNorm.convert_sync_batchnorm(m.nn.Sequential(m.nn.BatchNorm2d(2), m.nn.InstanceNorm2d(2)))
    return [type(layer).__name__ for layer in made]


def container(m: Any) -> Any:
    made = m.nn.modules.container.Container(a=m.nn.Linear(1, 2), b=m.nn.ReLU())
    return [repr(made), [n for n, _ in made.named_children()]]


def derived_container(m: Any) -> Any:
    class Mine(m.nn.Container):  # type: ignore[misc]
        pass

    return repr(Mine(a=m.nn.ReLU()))


def sixths(m: Any) -> Any:
    layer = m.nn.ReLU6(True)
    return [repr(layer), layer.min_val, layer.max_val, layer.inplace, layer(m.arange(-2.0, 9.0)).tolist()]


def zero_pad(m: Any) -> Any:
    made = [cls(p) for cls, p in ((m.nn.ZeroPad1d, 1), (m.nn.ZeroPad2d, (1, 0, 2, 1)), (m.nn.ZeroPad3d, 1))]
    seen = [(repr(layer), layer.value, layer.padding, layer(m.ones(1, 1, 2, 2)).tolist()) for layer in made]
    return [*seen, m.nn.ZeroPad2d(1, 2)]


def permuted(m: Any) -> Any:
    return m.nn.modules.rnn.apply_permutation(m.arange(6).reshape(2, 3), m.tensor([2, 0, 1])).tolist()


def keys(m: Any) -> Any:
    found = m.nn.Linear(1, 1).load_state_dict({"weight": m.zeros(1, 1), "more": m.zeros(1)}, strict=False)
    kind = m.nn.modules.module._IncompatibleKeys
    return [isinstance(found, kind), repr(found), repr(kind([], [])), list(kind(["a"], []))]


def old_schedule(m: Any) -> Any:
    class Constant(m.optim.lr_scheduler._LRScheduler):  # type: ignore[misc]
        def get_lr(self) -> list[float]:
            return [0.25 for _ in self.base_lrs]

    sgd = m.optim.SGD([m.nn.Parameter(m.zeros(1))], 1.0)
    made = Constant(sgd)
    kind = m.optim.lr_scheduler._LRScheduler
    return [
        isinstance(made, m.optim.lr_scheduler.LRScheduler),
        sgd.param_groups[0]["lr"],
        issubclass(kind, made.__class__),
    ]


def recorded_steps(m: Any) -> Any:
    """An optimizer whose step is recorded where its option says so, and works on complex numbers as on pairs."""
    file = importlib.import_module(f"{m.__name__}.optim.optimizer")

    class Plain(m.optim.Optimizer):  # type: ignore[misc]
        def __init__(self, params: Any, differentiable: bool) -> None:
            super().__init__(params, {"lr": m.tensor(0.5), "needed": file.required, "differentiable": differentiable})

        @file._use_grad_for_differentiable
        def step(self, closure: Any = None) -> Any:
            """Steps."""
            for group in self.param_groups:
                params, grads = list(group["params"]), [p.grad for p in group["params"]]
                file._view_as_real(params, grads)
                for p, g in zip(params, grads, strict=True):
                    p.add_(g, alpha=-file._get_value(group["lr"]))
            return m.is_grad_enabled()

    seen: list[Any] = [Plain.step.__name__, type(file.required) is file._RequiredParameter, repr(file.required)]
    for differentiable in (False, True):
        start = m.tensor([1 + 2j], requires_grad=True)
        p = start.clone() if differentiable else start
        p.grad = m.tensor([2 - 4j])
        made = Plain([{"params": [p], "needed": 1}], differentiable)
        with m.set_grad_enabled(not differentiable):
            seen += [made.step(), m.is_grad_enabled(), p.tolist(), p.requires_grad, p.grad_fn is None]
    with pytest.raises(ValueError, match="required optimization parameter needed"):
        Plain([m.nn.Parameter(m.zeros(1))], False)
    return [*seen, file._get_value(3.0), file._get_value(m.tensor(2))]


def numbers(m: Any) -> Any:
    t = m.types
    return [t._int, t._float, t._bool, t._complex, t._Number, isinstance(1.5, t._Number), isinstance("1", t._Number)]


def clones(m: Any) -> Any:
    first = m.nn.Linear(1, 1)
    made = m.nn.modules.transformer._get_clones(first, 3)
    apart = {id(p) for layer in (first, *made) for p in layer.parameters()}
    equal = all(m.equal(layer.weight, first.weight) for layer in made)
    return [type(made) is m.nn.ModuleList, len(made), len(apart), equal]


def activations(m: Any) -> Any:
    find = m.nn.modules.transformer._get_activation_fn
    return [find("relu") is m.nn.functional.relu, find("gelu") is m.nn.functional.gelu, find("tanh")]


def tuples(m: Any) -> Any:
    u = m.nn.modules.utils
    kinds = (u._single, u._pair, u._triple, u._quadruple, u._ntuple(5))
    values: list[Any] = [3, 0.5, None, [1, 2], (1,), range(3), "ab", {4: 1}, (n for n in (7, 8))]
    return [f(v) for v in values for f in kinds] + [f.__name__ for f in kinds] + [u._ntuple(2, "two").__name__]


def reversed_tuples(m: Any) -> Any:
    f = m.nn.modules.utils._reverse_repeat_tuple
    return [f((1, 2, 3), 2), f([1, 2], 3), f((), 2), f((1, 2), 0)]


def defaults(m: Any) -> Any:
    f = m.nn.modules.utils._list_with_default
    return [f([None, 3], [9, 8, 7, 6]), f([None], [1, 5]), f(4, [1, 2]), f((2, None), [1, 2, 3])]


def too_few_defaults(m: Any) -> Any:
    return m.nn.modules.utils._list_with_default([1, None], [1, 2])


def indented(m: Any) -> Any:
    f = m.nn.modules.module._addindent
    return [f("a", 4), f("a\nb\n\nc", 3), f("", 2), f("\n \na", 1), f(s_="x\ny", numSpaces=1)]


def fans(m: Any) -> Any:
    f, g = m.nn.init._calculate_fan_in_and_fan_out, m.nn.init._calculate_correct_fan
    shapes = [(3, 5), (4, 2, 3), (6, 1, 2, 2), (2, 3, 1, 1, 4), (0, 3)]
    one = m.zeros(3, 5, 2)
    return [f(m.zeros(shape)) for shape in shapes] + [g(one, mode) for mode in ("fan_in", "FAN_OUT", "fan_out")]


def fans_of_a_vector(m: Any) -> Any:
    return m.nn.init._calculate_fan_in_and_fan_out(m.zeros(3))


def unknown_fan(m: Any) -> Any:
    return m.nn.init._calculate_correct_fan(m.zeros(3, 3), "fan")


def no_grad_fills(m: Any) -> Any:
    """Each fills its tensor unseen by autograd, gives it back, and draws from where it should."""
    init, seen = m.nn.init, []
    for fill, args, low, high in (
        (init._no_grad_fill_, (2.5,), 2.5, 2.5),
        (init._no_grad_zero_, (), 0.0, 0.0),
        (init._no_grad_uniform_, (3.0, 3.5), 3.0, 3.5),
        (init._no_grad_normal_, (4.0, 0.01), 3.9, 4.1),
        (init._no_grad_trunc_normal_, (0.0, 1.0, -0.5, 0.5), -0.5, 0.5),
    ):
        p = m.nn.Parameter(m.full((50,), 9.0))
        made, values = fill(p, *args), p.tolist()
        seen.append([made is p, p.requires_grad, p.grad_fn, low <= min(values), max(values) <= high])
        assert len(set(values)) == 1 if low == high else len(set(values)) > 40
    return seen


def no_grad_generators(m: Any) -> Any:
    """The generator that is given is the one drawn from."""
    seen = []
    for fill, args in (
        (m.nn.init._no_grad_uniform_, (0.0, 1.0)),
        (m.nn.init._no_grad_normal_, (0.0, 1.0)),
        (m.nn.init._no_grad_trunc_normal_, (0.0, 1.0, -2.0, 2.0)),
    ):
        a, b = (fill(m.zeros(5), *args, generator=m.Generator().manual_seed(3)) for _ in range(2))
        seen.append([m.equal(a, b), len(set(a.tolist())) == 5])
    return seen


PROGRAMS: list[Callable[[Any], Any]] = [
    *(made_batch_norm, made_unchecked, made_instance_norm, made_convolution, made_with_own_weight, made_dropout),
    *(made_sync, padding_of_convolutions, container, derived_container, sixths, zero_pad, permuted, keys),
    *(
        old_schedule,
        recorded_steps,
        numbers,
        clones,
        activations,
        tuples,
        reversed_tuples,
        defaults,
        too_few_defaults,
        indented,
    ),
    *(fans, fans_of_a_vector, unknown_fan, no_grad_fills, no_grad_generators),
]


def told(m: Any, program: Callable[[Any], Any]) -> tuple[Any, list[tuple[type[Warning], str]]]:
    """What a program gives, or the kind of its error, and its warnings."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        try:
            result = program(m)
        except Exception as e:
            result = next(k for k in type(e).__mro__ if k.__module__ == "builtins")
    return result, [(w.category, str(w.message)) for w in given]


def agree(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, (list, tuple)):
        assert type(ours) is type(theirs) and len(ours) == len(theirs), (ours, theirs)
        for a, b in zip(ours, theirs, strict=True):
            agree(a, b)
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, rel=TABLE["few ops"].rtol)
    else:
        assert ours == theirs


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_programs(program: Callable[[Any], Any]) -> None:
    agree(told(lucid, program), told(torch, program))


# Annotations.


def spelled(alias: Any) -> Any:
    """An annotation's parts, with either framework's tensors as one."""
    origin, args = typing.get_origin(alias), typing.get_args(alias)
    if origin is None:
        return {lucid.Tensor: "Tensor", torch.Tensor: "Tensor"}.get(alias, str(alias))
    union = origin in (typing.Union, types.UnionType)
    return ("union" if union else str(origin), [spelled(a) for a in args])


@pytest.mark.parametrize("name", [n for n in vars(torch.nn.common_types) if n.endswith("_t")])
def test_annotations_of_layers(name: str) -> None:
    assert spelled(getattr(lucid.nn.common_types, name)) == spelled(getattr(torch.nn.common_types, name))


def test_what_optimizers_take() -> None:
    assert spelled(lucid.optim.optimizer.ParamsT) == spelled(ParamsT)
