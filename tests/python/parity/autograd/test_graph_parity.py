"""`autograd.graph` against PyTorch's: edges, hooks on several tensors, saved tensors, versions."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any

import lucid
import pytest
import torch

MODULES = [lucid, torch]
DEVICES = ["cpu", "gpu"]


def graph_of(m: Any) -> Any:
    return importlib.import_module(f"{m.__name__}.autograd.graph")


def plain(x: Any) -> Any:
    """Tensors as lists, nested as they are."""
    if isinstance(x, (lucid.Tensor, torch.Tensor)):
        return x.detach().cpu().tolist()
    return type(x)(map(plain, x)) if type(x) in (list, tuple) else x


def same(f: Callable[..., Any]) -> None:
    """Both give the same, or refuse it with the same kind of error."""
    found = []
    for m in MODULES:
        try:
            found.append(plain(f(m)))
        except Exception as e:
            found.append(next(c for c in type(e).__mro__ if c.__module__ == "builtins"))
    assert found[0] == found[1]


def leaf(m: Any) -> Any:
    return m.tensor([1.0, 2.0, 3.0], requires_grad=True)


# ---- edges -----------------------------------------------------------------------------------------------------------


def edges(m: Any) -> tuple[Any, Any, Any, Callable[[Any], Any]]:
    x = leaf(m)
    y = x * 2
    return x, y, (y * y).sum(), graph_of(m).get_gradient_edge


@pytest.mark.parametrize(
    "f",
    [
        lambda m, x, y, z, edge: m.autograd.grad(z, edge(y)),
        lambda m, x, y, z, edge: m.autograd.grad(z, [edge(y), x]),
        lambda m, x, y, z, edge: m.autograd.grad(edge(z), x),
        lambda m, x, y, z, edge: m.autograd.grad(edge(y), x),
        lambda m, x, y, z, edge: m.autograd.grad(edge(y), edge(x), m.ones(3)),
        lambda m, x, y, z, edge: m.autograd.grad(edge(y), edge(x), m.ones(2)),
        lambda m, x, y, z, edge: m.autograd.grad([edge(y), z], [edge(x)], [m.ones(3), None]),
        lambda m, x, y, z, edge: m.autograd.grad(edge(y), x, m.eye(3), is_grads_batched=True),
        lambda m, x, y, z, edge: m.autograd.grad(z, edge(leaf(m)), allow_unused=True),
        lambda m, x, y, z, edge: m.autograd.grad(z, edge(leaf(m)), materialize_grads=True),
        lambda m, x, y, z, edge: m.autograd.grad(graph_of(m).GradientEdge(y.grad_fn, 0), x, m.ones(3)),
        lambda m, x, y, z, edge: m.autograd.grad(z, []),
        lambda m, x, y, z, edge: (m.autograd.backward(edge(z)), x.grad),
        lambda m, x, y, z, edge: (m.autograd.backward([z], inputs=edge(x)), x.grad),
        lambda m, x, y, z, edge: (z.backward(inputs=[edge(x)]), x.grad),
        lambda m, x, y, z, edge: (z.backward(inputs=edge(x)), x.grad),
        lambda m, x, y, z, edge: (m.autograd.backward(z, inputs=[edge(y)]), x.grad),
        lambda m, x, y, z, edge: (edge(y).output_nr, edge(y).ownership_token, len(edge(x))),
        lambda m, x, y, z, edge: edge(x.detach()),
    ],
)
def test_edges_stand_for_tensors(f: Any) -> None:
    same(lambda m: f(m, *edges(m)))


def test_an_edge_does_not_keep_its_tensor() -> None:
    x = lucid.ones(1000, requires_grad=True)
    edge = lucid.autograd.graph.get_gradient_edge(x * 2)
    assert edge._like is not None and edge._like.untyped_storage().nbytes() <= 8
    (found,) = lucid.autograd.grad(edge, x, lucid.ones(1000))
    assert found.tolist() == [2.0] * 1000


# ---- hooks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["all", "any", "some"])
def test_hooks_on_several_tensors(mode: str) -> None:
    def f(m: Any) -> Any:
        seen: list[Any] = []
        a, b, unused = leaf(m), leaf(m), leaf(m)
        c, d = a * b, a * 3

        def hook(grads: Any) -> None:
            seen.append(plain(grads) if mode == "any" else [None if g is None else plain(g) for g in grads])

        handle = graph_of(m).register_multi_grad_hook((a, c, d, unused), hook, mode=mode)
        (c.sum() + d.sum()).backward(retain_graph=True)
        c.sum().backward(retain_graph=True)
        d.sum().backward(retain_graph=True)
        (c * unused).sum().backward(retain_graph=True)
        handle.remove()
        c.sum().backward()
        return seen

    same(f)


def test_hooks_on_several_tensors_want_gradients() -> None:
    for m in MODULES:
        with pytest.raises((RuntimeError, AssertionError)):
            graph_of(m).register_multi_grad_hook([m.ones(2)], print)


def test_kept_gradients_after_a_write_are_those_of_what_was_written() -> None:
    def f(m: Any) -> Any:
        x = leaf(m)
        y = x * 2
        y.retain_grad()
        y.mul_(3)
        y.sum().backward(retain_graph=True)
        first = plain(y.grad)
        y.sum().backward()
        return first, y.grad, x.grad

    same(f)


def itself(m: Any) -> None:
    x = leaf(m)
    x.grad = x


def test_a_tensor_is_not_its_own_gradient() -> None:
    same(itself)


# ---- saved tensors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "f",
    [
        lambda m, x: x.exp().grad_fn._saved_result,
        lambda m, x: x.sin().grad_fn._saved_self,
        lambda m, x: (x * (2 * x)).grad_fn._saved_other,
        lambda m, x: (x * m.ones(3)).grad_fn._saved_self,
        lambda m, x: (x / (2 * x)).grad_fn._saved_other,
        lambda m, x: (x[None] @ x[:, None]).grad_fn._saved_mat2,
        lambda m, x: x.relu().grad_fn._saved_result,
        lambda m, x: x.prod().grad_fn._saved_self,
        lambda m, x: x.gather(0, m.tensor([2])).grad_fn._saved_index,
        lambda m, x: m.where(x > 1, x, 0 * x).grad_fn._saved_condition,
        lambda m, x: x.exp().grad_fn._saved_other,
        lambda m, x: x.exp().grad_fn._raw_saved_other,
    ],
)
def test_what_a_step_saved_has_pytorchs_names(f: Any) -> None:
    same(lambda m: f(m, leaf(m)))


def test_what_a_step_saved_is_refused_once_freed() -> None:
    for m in MODULES:
        y = leaf(m).exp()
        y.sum().backward()
        with pytest.raises(RuntimeError, match="directly access saved tensors after they have already been freed"):
            _ = y.grad_fn._saved_result
        assert {"_saved_result", "_raw_saved_result"} <= set(dir(y.grad_fn))


@pytest.mark.parametrize("device", DEVICES)
def test_hooks_on_one_saved_tensor(device: str) -> None:
    found = []
    for m in MODULES:
        x = leaf(m).detach().to(device if m is lucid else "cpu").requires_grad_()
        y, z = x * x, x.exp()
        y.grad_fn._raw_saved_self.register_hooks(lambda t: plain(t * 2), lambda p, m=m, x=x: m.tensor(p).to(x.device))
        z.grad_fn._raw_saved_result.register_hooks(lambda t: t * 10, lambda t: t)
        with pytest.raises(RuntimeError, match="already been set"):
            y.grad_fn._raw_saved_self.register_hooks(lambda t: t, lambda t: t)
        (dy,) = m.autograd.grad(y.sum(), x)
        (dz,) = m.autograd.grad((z / 10).sum(), x)
        found.append((plain(dy), [round(v, 3) for v in plain(dz)]))
    assert found[0] == found[1]


@pytest.mark.parametrize("device", DEVICES)
def test_saved_tensors_may_be_written(device: str) -> None:
    found = []
    for m in MODULES:
        graph = graph_of(m)
        x = m.ones(2, device=device if m is lucid else "cpu", requires_grad=True)
        with graph.allow_mutation_on_saved_tensors() as context:
            y = x.clone()
            z = (y**2).sum()
            y.mul_(5)
            z.backward()
            w = y.sin()
            y.zero_()
            with pytest.raises(RuntimeError), graph.allow_mutation_on_saved_tensors():
                pass
        assert hasattr(context, "clear")
        with pytest.raises(AssertionError):
            w.sum().backward()
        found.append(plain(x.grad))
    assert found[0] == found[1] == [2.0, 2.0]


# ---- versions and views ----------------------------------------------------------------------------------------------


def test_versions_count_writes_from_elsewhere() -> None:
    def f(m: Any) -> Any:
        a, b = m.ones(3), m.ones(2)
        before = a._version
        graph_of(m).increment_version(a)
        graph_of(m).increment_version([a, a, b[0]])
        return a._version - before, b._version

    same(f)
    same(lambda m: graph_of(m).increment_version(3))
    same(lambda m: graph_of(m).increment_version([3]))

    def stale(m: Any) -> None:
        x = leaf(m)
        y = x.exp()
        graph_of(m).increment_version(y)
        y.sum().backward()

    same(stale)


def test_views_know_their_base() -> None:
    def f(m: Any) -> Any:
        x = leaf(m)
        y = (x * 2)[1:].view(2, 1)
        return x._base, y._base, y._is_view(), y._base.grad_fn.name(), x.detach()._base is None

    same(f)


# ---- the rest --------------------------------------------------------------------------------------------------------


def test_functionalize_keeps_results_and_writes() -> None:
    def write(x: Any) -> Any:
        return x.add_(1).view(-1, 1) * x[0]

    def f(m: Any) -> Any:
        out = []
        for kind in ("mutations", "mutations_and_views"):
            x = m.tensor([1.0, 2.0])
            out += [m.func.functionalize(write, remove=kind)(x), x]
        out.append(m.func.vmap(m.func.functionalize(lambda x: x.clone().mul_(2).sum()))(m.ones(3, 2)))
        out.append(m.func.grad(m.func.functionalize(lambda x: x.clone().mul_(x).sum()))(m.ones(3)))
        return out

    same(f)
    same(lambda m: m.func.functionalize(write, remove="views"))


def test_batch_norms_lose_their_running_statistics() -> None:
    for m in MODULES:
        net = m.nn.Sequential(m.nn.Linear(2, 3), m.nn.BatchNorm1d(3), m.nn.Sequential(m.nn.BatchNorm2d(1)))
        assert m.func.replace_all_batch_norm_modules_(net) is net
        norms = [net[1], net[2][0]]
        assert all(n.running_mean is n.running_var is n.num_batches_tracked is None for n in norms)
        assert not any(n.track_running_stats for n in norms) and list(net.buffers()) == []
        net[:2].eval()(m.randn(4, 2)).sum().backward()


def test_default_devices_belong_to_threads() -> None:
    seen: list[str] = []
    gpu = str(lucid.device("gpu"))

    def run(wanted: str | None) -> None:
        if wanted is not None:
            lucid.set_default_device(wanted)
        seen.append(str(lucid.ones(1).device))

    def elsewhere(wanted: str | None) -> None:
        thread = threading.Thread(target=run, args=(wanted,))
        thread.start()
        thread.join()

    with lucid.device("gpu"):
        elsewhere(None)
        elsewhere("gpu")
        run(None)
        with lucid.device("cpu"):
            run(None)
        run(None)
    elsewhere("gpu")
    run(None)
    assert seen == ["cpu", gpu, gpu, "cpu", gpu, gpu, "cpu"]


def test_helpers_of_checkpointing() -> None:
    for m in MODULES:
        tools = importlib.import_module(f"{m.__name__}.utils.checkpoint")
        x = leaf(m) * 2
        cut, number = tools.detach_variable((x, 3))
        assert cut.is_leaf and cut.requires_grad and number == 3
        with pytest.raises(RuntimeError, match="Only tuple of tensors is supported"):
            tools.detach_variable([x])
        with pytest.warns(UserWarning, match="Gradients will be None"):
            tools.check_backward_validity([m.ones(2), 3])
        with pytest.warns(UserWarning, match="Gradients will be None"):
            tools.checkpoint(lambda x: x * 2, m.ones(2), use_reentrant=True)
        first, second = tools.noop_context_fn()
        with first, second:
            tools.check_backward_validity([x])
