"""Optimizers without PyTorch: hand-computed steps, state, closures, hooks, errors, copies."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import lucid
import pytest
from lucid import nn, optim

from tests.python.tolerances import TABLE, near


def leaf(values: list[float], device: str = "cpu") -> lucid.Tensor:
    return lucid.tensor(values, device=device, requires_grad=True)


def test_sgd_by_hand(device: str) -> None:
    p = leaf([1.0, -2.0], device)
    sgd = optim.SGD([p], lr=0.1, momentum=0.5, weight_decay=1.0)
    for wanted in ([0.8, -1.6], [0.54, -1.08]):
        p.grad = lucid.ones(2, device=device) * p.detach()
        sgd.step()
        assert p.tolist() == pytest.approx(wanted, rel=TABLE["rounding"].rtol)
    assert sgd.state[p]["momentum_buffer"].tolist() == pytest.approx([2.6, -5.2])


def test_adam_by_hand(device: str) -> None:
    p = leaf([1.0, -2.0, 5.0], device)
    adam = optim.Adam([p], lr=0.1, eps=0.0)
    # The first step is the rate times the gradient's sign, whatever its size.
    p.grad = lucid.tensor([3.0, -1e-3, 7.0], device=device)
    adam.step()
    assert p.tolist() == pytest.approx([0.9, -1.9, 4.9], rel=TABLE["few ops"].rtol)
    assert adam.state[p]["step"].item() == 1
    assert adam.state[p]["exp_avg"].tolist() == pytest.approx([0.3, -1e-4, 0.7], rel=TABLE["few ops"].rtol)
    assert adam.state[p]["exp_avg_sq"].tolist() == pytest.approx([9e-3, 1e-9, 49e-3], rel=TABLE["few ops"].rtol)


def test_adamw_decays_without_a_gradient(device: str) -> None:
    p = leaf([2.0], device)
    adamw = optim.AdamW([p], lr=0.1, weight_decay=0.5)
    p.grad = lucid.zeros(1, device=device)
    adamw.step()
    assert p.item() == pytest.approx(2.0 * 0.95)


def test_parameters_without_gradients_stay(device: str) -> None:
    for make in (lambda ps: optim.SGD(ps, lr=1, momentum=0.9), optim.Adam):
        p, q = leaf([1.0], device), leaf([2.0], device)
        optimizer = make([p, q])
        p.grad = lucid.ones(1, device=device)
        optimizer.step()
        assert q.item() == 2.0 and q not in optimizer.state and p in optimizer.state


def test_step_counts_of_their_own() -> None:
    p, q = leaf([1.0]), leaf([1.0])
    adam = optim.Adam([p, q], lr=0.1)
    p.grad = lucid.ones(1)
    adam.step()
    q.grad = lucid.ones(1)
    for _ in range(3):
        adam.step()
    assert (adam.state[p]["step"].item(), adam.state[q]["step"].item()) == (4, 3)
    # With a constant gradient every step is the rate.
    assert p.item() == pytest.approx(0.6, **near("few ops")) and q.item() == pytest.approx(0.7, **near("few ops"))


def test_a_step_is_in_place_and_unrecorded(device: str) -> None:
    p = leaf([1.0, 2.0], device)
    view, version = p.detach()[1:], p._version
    optimizer = optim.SGD([p], lr=1.0)
    p.sum().backward()
    optimizer.step()
    assert view.tolist() == [1.0] and p._version > version
    assert p.requires_grad and p.is_leaf


def test_a_stale_graph_is_caught(device: str) -> None:
    p = leaf([2.0], device)
    loss = (p * p).sum()
    optimizer = optim.SGD([p], lr=1.0)
    p.grad = lucid.ones(1, device=device)
    optimizer.step()
    with pytest.raises(RuntimeError, match=r"in-place|modified"):
        loss.backward()


def test_zero_grad(device: str) -> None:
    p = leaf([1.0], device)
    optimizer = optim.SGD([p])
    p.grad = lucid.ones(1, device=device)
    grad = p.grad
    optimizer.zero_grad(set_to_none=False)
    assert p.grad is not None and grad.item() == 0
    optimizer.zero_grad()
    assert p.grad is None


def test_closure(device: str) -> None:
    p = leaf([3.0], device)
    optimizer = optim.SGD([p], lr=0.1)

    def closure() -> lucid.Tensor:
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with lucid.no_grad():
        assert optimizer.step(closure).item() == 9.0
    assert p.item() == pytest.approx(2.4)
    assert optimizer.step() is None


def test_hooks() -> None:
    p, calls = leaf([1.0]), []
    optimizer = optim.SGD([p], lr=0.1)
    handles = [
        optimizer.register_step_pre_hook(lambda o, args, kwargs: calls.append("pre")),
        optimizer.register_step_post_hook(lambda o, args, kwargs: calls.append("post")),
        optimizer.register_state_dict_post_hook(lambda o, state: {**state, "extra": 1}),
        optimizer.register_load_state_dict_pre_hook(lambda o, state: {k: v for k, v in state.items() if k != "extra"}),
        optimizer.register_load_state_dict_post_hook(lambda o: calls.append("loaded")),
    ]
    optimizer.step()
    state = optimizer.state_dict()
    assert state["extra"] == 1
    optimizer.load_state_dict(state)
    assert calls == ["pre", "post", "loaded"]
    for handle in handles:
        handle.remove()
    optimizer.step()
    assert len(calls) == 3


def test_own_optimizers() -> None:
    class Sign(optim.Optimizer):
        def __init__(self, params: Any, lr: float = 0.1) -> None:
            super().__init__(params, {"lr": lr})

        @lucid.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        p.add_(p.grad.sign(), alpha=-group["lr"])

    p = leaf([1.0, -1.0])
    optimizer = Sign([{"params": p, "lr": 0.5}])
    calls: list[int] = []
    optimizer.register_step_post_hook(lambda *args: calls.append(1))
    (p * p).sum().backward()
    optimizer.step()
    assert p.tolist() == [0.5, -0.5] and calls == [1]


def test_state_dict_round_trip(device: str) -> None:
    def make() -> tuple[lucid.Tensor, optim.Adam]:
        p = leaf([1.0, 2.0], device)
        return p, optim.Adam([p], lr=0.1, amsgrad=True)

    def advance(p: lucid.Tensor, adam: optim.Adam, steps: int) -> None:
        for _ in range(steps):
            adam.zero_grad()
            (p**4).sum().backward()
            adam.step()

    p, adam = make()
    advance(p, adam, 3)
    q, other = make()
    with lucid.no_grad():
        q.copy_(p)
    other.load_state_dict(copy.deepcopy(adam.state_dict()))
    advance(p, adam, 3)
    advance(q, other, 3)
    assert p.tolist() == q.tolist()
    # Loaded state is a copy.
    assert other.state[q]["exp_avg"] is not adam.state[p]["exp_avg"]


def test_state_dicts_that_do_not_fit() -> None:
    one = optim.SGD([leaf([1.0])])
    two = optim.SGD([{"params": [leaf([1.0])]}, {"params": [leaf([1.0])]}])
    wide = optim.SGD([leaf([1.0]), leaf([2.0])])
    with pytest.raises(ValueError, match="different number of parameter groups"):
        one.load_state_dict(two.state_dict())
    with pytest.raises(ValueError, match="doesn't match the size of optimizer's group"):
        one.load_state_dict(wide.state_dict())


def test_copy_and_pickle(device: str) -> None:
    model = nn.Linear(2, 1).to(device)
    adam = optim.Adam(model.parameters(), lr=0.1)
    model(lucid.ones(3, 2, device=device)).sum().backward()
    adam.step()
    for copied_model, copied in (copy.deepcopy((model, adam)), pickle.loads(pickle.dumps((model, adam)))):
        assert copied.param_groups[0]["params"][0] is copied_model.weight
        own = copied.state[copied_model.weight]
        assert own["exp_avg"].tolist() == adam.state[model.weight]["exp_avg"].tolist()
        model_before = model.weight.tolist()
        copied_model.weight.grad = lucid.ones(1, 2, device=device)
        copied.step()
        assert model.weight.tolist() == model_before


def test_duplicates() -> None:
    p = leaf([1.0])
    with pytest.warns(UserWarning, match="duplicate parameters"):
        optim.SGD([p, p])
    optimizer = optim.SGD([p])
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": [p]})
    with pytest.raises(TypeError, match="must be a dict"):
        optimizer.add_param_group([p])  # type: ignore[arg-type]


def test_tensor_instead_of_a_list() -> None:
    with pytest.raises(TypeError, match="should be an iterable of Tensors or dicts"):
        optim.SGD(leaf([1.0]))  # type: ignore[arg-type]
    p = leaf([1.0])
    adam = optim.Adam([p], differentiable=True)
    p.grad = lucid.ones(1)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        adam.step()


def test_wrong_gradients_leave_everything_as_it_was(device: str) -> None:
    p = leaf([1.0, 2.0], device)
    with pytest.raises(RuntimeError):
        p.grad = lucid.ones(3, device=device)
    with pytest.raises(RuntimeError):
        p.grad = lucid.ones(2, dtype=lucid.float16, device=device)


def test_lion_by_hand(device: str) -> None:
    p = leaf([1.0, -2.0, 3.0], device)
    lion = optim.Lion([p], lr=0.1, betas=(0.5, 0.9), weight_decay=0.5)
    p.grad = lucid.tensor([2.0, -1e-3, 0.0], device=device)
    lion.step()
    assert p.tolist() == pytest.approx([0.95 - 0.1, -1.9 + 0.1, 2.85])
    assert lion.state[p]["exp_avg"].tolist() == pytest.approx([0.2, -1e-4, 0.0])
    p.grad = lucid.tensor([-0.1, -1.0, 1.0], device=device)
    lion.step()
    assert p.tolist() == pytest.approx([0.85 * 0.95 - 0.1, -1.8 * 0.95 + 0.1, 2.85 * 0.95 - 0.1])


def test_one_engine_call_for_all_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    step = lucid._C._optimizer_step
    monkeypatch.setattr(
        lucid._C, "_optimizer_step", lambda batches, *rest: calls.append(len(batches)) or step(batches, *rest)
    )
    for make in (optim.SGD, optim.Adam, optim.RMSprop, optim.NAdam, optim.ASGD):
        params = [leaf([1.0, 2.0]) for _ in range(6)]
        optimizer = make([{"params": params[:4]}, {"params": params[4:], "lr": 0.5}])
        for _ in range(3):
            for p in params:
                p.grad = lucid.ones(2)
            optimizer.step()
    assert calls == [2] * 15


def test_matrices_step_in_one_engine_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    step = lucid._C._matrix_step
    monkeypatch.setattr(lucid._C, "_matrix_step", lambda batches: calls.append(len(batches)) or step(batches))
    for make in (optim.Muon, optim.Adafactor):
        params = [lucid.ones(2, 3, requires_grad=True) for _ in range(4)]
        optimizer = make([{"params": params[:3]}, {"params": params[3:], "lr": 0.5}])
        for _ in range(3):
            for p in params:
                p.grad = lucid.ones(2, 3)
            optimizer.step()
    assert calls == [2] * 6


@pytest.mark.parametrize("make", [optim.Muon, optim.Adafactor])
def test_wrong_gradients_leave_matrices_as_they_were(make: Any) -> None:
    p, q = lucid.ones(2, 3, requires_grad=True), lucid.ones(2, 3, requires_grad=True)
    optimizer = make([p, q])
    p.grad, q.grad = lucid.ones(2, 3), lucid.ones(2, 3)
    optimizer.step()
    before = p.tolist(), optimizer.state[p].get("step")
    state = optimizer.state[q]
    name = next(name for name, value in state.items() if value.ndim == 2)
    state[name] = lucid.ones(5, 5)
    with pytest.raises(lucid.errors.ShapeMismatch):
        optimizer.step()
    assert (p.tolist(), optimizer.state[p].get("step")) == before


def test_half_precision(device: str) -> None:
    for dtype in (lucid.float16, lucid.bfloat16):
        p = lucid.ones(4, dtype=dtype, device=device, requires_grad=True)
        optimizer = optim.Adam([p], lr=0.125)
        p.grad = lucid.ones(4, dtype=dtype, device=device)
        optimizer.step()
        assert p.dtype == dtype and p.tolist() == pytest.approx([0.875] * 4, **near("lower precision steps"))


def test_training_converges(device: str) -> None:
    lucid.manual_seed(0)
    x = lucid.randn(64, 3, device=device)
    y = x @ lucid.tensor([[1.0], [-2.0], [0.5]], device=device) + 0.7
    for make in (
        lambda ps: optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True),
        lambda ps: optim.Adam(ps, lr=0.05),
        lambda ps: optim.AdamW(ps, lr=0.05, weight_decay=0.0),
    ):
        model = nn.Linear(3, 1).to(device)
        optimizer = make(model.parameters())
        for _ in range(200):
            loss = nn.functional.mse_loss(model(x), y)
            loss.eval()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert loss.item() < 1e-3
        assert model.weight.tolist()[0] == pytest.approx([1.0, -2.0, 0.5], **near("converged"))
