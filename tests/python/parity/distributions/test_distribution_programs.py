"""Programs that use distributions, as people write them, with the same numbers as PyTorch where nothing is random."""

from __future__ import annotations

from typing import Any

import lucid
import lucid.distributions as LD
import pytest
import torch
import torch.distributions as TD

from tests.python.parity.distributions.distribution_cases import same

DEVICES = pytest.mark.parametrize("device", ["cpu", "gpu"])


def like(x: Any, device: str) -> Any:
    return lucid.tensor(x.detach().numpy(), device=device, requires_grad=x.requires_grad)


@DEVICES
def test_the_loss_of_a_variational_autoencoder(device: str) -> None:
    torch.manual_seed(0)
    mean, log_scale = torch.randn(4, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    noise, x = torch.randn(4, 3), (torch.rand(4, 5) > 0.5).float()
    weight = torch.randn(3, 5, requires_grad=True)
    theirs = [mean, log_scale, weight]
    ours = [like(v, device) for v in theirs]
    losses = []
    for m, d, (mu, ls, w), e, target in (
        (lucid, LD, ours, like(noise, device), like(x, device)),
        (torch, TD, theirs, noise, x),
    ):
        posterior = d.Independent(d.Normal(mu, ls.exp()), 1)
        prior = d.Independent(d.Normal(m.zeros_like(mu), m.ones_like(mu)), 1)
        z = posterior.base_dist.loc + e * posterior.base_dist.scale
        likelihood = d.Independent(d.Bernoulli(logits=z @ w), 1).log_prob(target)
        loss = (d.kl_divergence(posterior, prior) - likelihood).mean()
        loss.backward()
        losses.append(loss)
    same(losses[0], losses[1], "float32")
    for a, b in zip(ours, theirs, strict=True):
        same(a.grad, b.grad, "float32", gradient=True)


@DEVICES
def test_the_loss_of_proximal_policy_optimisation(device: str) -> None:
    torch.manual_seed(1)
    logits = torch.randn(8, 4, requires_grad=True)
    old, advantage, action = torch.randn(8), torch.randn(8), torch.randint(0, 4, (8,))
    mine = like(logits, device)
    out = []
    for m, d, x, o, adv, a in (
        (lucid, LD, mine, like(old, device), like(advantage, device), lucid.tensor(action.numpy(), device=device)),
        (torch, TD, logits, old, advantage, action),
    ):
        probs = d.Categorical(logits=x)
        assert probs.sample().shape == (8,)
        ratio = (probs.log_prob(a) - o).exp()
        policy = m.max(-adv * ratio, -adv * m.clamp(ratio, 0.8, 1.2)).mean()
        loss = policy - 0.01 * probs.entropy().mean()
        loss.backward()
        out.append(loss)
    same(out[0], out[1], "float32")
    same(mine.grad, logits.grad, "float32", gradient=True)


@DEVICES
def test_a_policy_gradient_learns_a_bandit(device: str) -> None:
    lucid.manual_seed(0)
    logits = lucid.zeros(4, device=device, requires_grad=True)
    optimizer = lucid.optim.Adam([logits], lr=0.1)
    rewards = lucid.tensor([0.1, 0.9, 0.3, 0.2], device=device)
    for _ in range(60):
        policy = LD.Categorical(logits=logits)
        action = policy.sample((32,))
        reward = rewards[action]
        loss = -(policy.log_prob(action) * (reward - reward.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert LD.Categorical(logits=logits).mode.item() == 1
    assert LD.Categorical(logits=logits).probs[1].item() > 0.6


@DEVICES
def test_a_mixture_is_fitted_by_gradient_descent(device: str) -> None:
    lucid.manual_seed(0)
    true = LD.MixtureSameFamily(
        LD.Categorical(lucid.tensor([0.3, 0.7], device=device)),
        LD.Normal(lucid.tensor([-2.0, 3.0], device=device), lucid.tensor([0.5, 1.0], device=device)),
    )
    data = true.sample((600,))
    logits, loc, log_scale = (
        lucid.tensor(v, device=device, requires_grad=True) for v in ([0.0, 0.0], [-1.0, 1.0], [0.0, 0.0])
    )
    optimizer = lucid.optim.Adam([logits, loc, log_scale], lr=0.1)
    for _ in range(80):
        model = LD.MixtureSameFamily(LD.Categorical(logits=logits), LD.Normal(loc, log_scale.exp()))
        loss = -model.log_prob(data).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert abs(loc[0].item() + 2.0) < 0.2 and abs(loc[1].item() - 3.0) < 0.2
    assert abs(log_scale[0].exp().item() - 0.5) < 0.15
    assert abs(LD.Categorical(logits=logits).probs[0].item() - 0.3) < 0.07


@DEVICES
def test_variational_inference_with_reparameterised_gamma_numbers(device: str) -> None:
    """The posterior of a Poisson rate with a gamma prior is a gamma distribution, which gradients find."""
    lucid.manual_seed(0)
    counts = lucid.tensor([3.0, 5.0, 4.0, 6.0, 2.0], device=device)
    prior = LD.Gamma(lucid.tensor(1.0, device=device), 1.0)
    exact = (1.0 + 20.0, 1.0 + 5.0)
    raw = lucid.tensor([1.0, 1.0], device=device, requires_grad=True)
    optimizer = lucid.optim.Adam([raw], lr=0.1)
    for _ in range(200):
        q = LD.Gamma(raw[0].exp(), raw[1].exp())
        rate = q.rsample((64,))
        likelihood = LD.Poisson(rate.unsqueeze(-1)).log_prob(counts).sum(-1).mean()
        loss = LD.kl_divergence(q, prior) - likelihood
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    q = LD.Gamma(raw[0].exp(), raw[1].exp())
    assert abs(q.mean.item() - exact[0] / exact[1]) < 0.15
    assert abs(q.stddev.item() - exact[0] ** 0.5 / exact[1]) < 0.25


def test_constrained_parameters_are_optimised_without_constraints() -> None:
    lucid.manual_seed(0)
    data = LD.Beta(2.0, 5.0).sample((500,))
    raw = lucid.zeros(2, requires_grad=True)
    to = LD.transform_to(LD.Beta.arg_constraints["concentration1"])
    optimizer = lucid.optim.Adam([raw], lr=0.1)
    for _ in range(120):
        optimizer.zero_grad()
        loss = -LD.Beta(to(raw[0]), to(raw[1])).log_prob(data).mean()
        loss.backward()
        optimizer.step()
    a, b = (to(r).item() for r in raw)
    assert abs(a - 2.0) < 0.4 and abs(b - 5.0) < 0.9


def test_a_flow_is_scored_and_sampled() -> None:
    flow = LD.TransformedDistribution(
        LD.Normal(lucid.zeros(2), lucid.ones(2)),
        [LD.AffineTransform(lucid.tensor([1.0, 0.0]), lucid.tensor([2.0, 0.5])), LD.TanhTransform(cache_size=1)],
    )
    x = flow.rsample((100,))
    assert bool((x.abs() < 1).all()) and bool(flow.log_prob(x).isfinite().all())


def test_compiled_and_batched_densities() -> None:
    """Densities inside of vmap, with validation off, as in PyTorch."""
    x, loc = lucid.arange(3.0), lucid.tensor([0.5, 1.0, -1.0])
    got = lucid.vmap(lambda x, m: LD.Normal(m, 1.0, validate_args=False).log_prob(x))(x, loc)
    want = torch.vmap(lambda x, m: TD.Normal(m, 1.0, validate_args=False).log_prob(x))(
        torch.arange(3.0), torch.tensor(loc.numpy())
    )
    same(got, want, "float32")
