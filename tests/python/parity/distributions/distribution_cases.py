"""Distributions with parameters and values, to be made in Lucid and in PyTorch alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import lucid
import lucid.distributions
import numpy as np
import pytest
import torch
import torch.distributions

from tests.python.tolerances import backward, forward

#: Where float64 is not, float32 is taken.
PLACES = [("cpu", "float64"), ("cpu", "float32"), ("gpu", "float32")]


class Case(NamedTuple):
    name: str
    cls: str
    params: dict[str, Any]
    values: Any
    #: Probabilities for `icdf`, where it is there.
    options: dict[str, Any] = {}  # noqa: RUF012


_K = [[0.2, 0.3, 0.5], [0.6, 0.1, 0.3]]
_L = [[0.3, -1.0, 2.0], [0.0, 0.1, -0.4]]
_TRIL = [[1.2, 0.0, 0.0], [0.3, 0.7, 0.0], [-0.5, 0.2, 1.5]]
_COV = (np.array(_TRIL) @ np.array(_TRIL).T).tolist()
_PREC = np.linalg.inv(np.array(_COV)).tolist()
_V3 = [[0.1, -0.4, 0.8], [1.5, 0.2, -0.9]]
_SPD = [[2.0, 0.3], [0.3, 1.1]]
_CORR = np.linalg.cholesky(np.array([[1.0, 0.4, -0.2], [0.4, 1.0, 0.1], [-0.2, 0.1, 1.0]])).tolist()

CASES = [
    Case("bernoulli-probs", "Bernoulli", {"probs": [0.2, 0.9, 0.5]}, [1.0, 0.0, 1.0]),
    Case("bernoulli-logits", "Bernoulli", {"logits": [[-2.0], [0.7]]}, [0.0, 1.0, 1.0]),
    Case("beta", "Beta", {"concentration1": [0.5, 2.0, 30.0], "concentration0": [1.5, 3.0, 7.0]}, [0.2, 0.6, 0.85]),
    Case("beta-corners", "Beta", {"concentration1": [0.5, 1.0], "concentration0": [0.7, 3.0]}, [0.2, 0.6]),
    Case("binomial", "Binomial", {"total_count": [5.0, 12.0], "probs": [0.3, 0.8]}, [2.0, 12.0]),
    Case("binomial-logits", "Binomial", {"total_count": 6, "logits": [0.3, -20.0]}, [2.0, 1.0]),
    Case("categorical", "Categorical", {"probs": _K}, [2.0, 0.0]),
    Case("categorical-logits", "Categorical", {"logits": _L}, [[1.0, 1.0], [0.0, 2.0]]),
    Case("cauchy", "Cauchy", {"loc": [0.3, -1.0], "scale": [0.5, 2.0]}, [2.0, -1.5]),
    Case("chi2", "Chi2", {"df": [0.7, 4.0, 30.0]}, [0.2, 3.0, 41.0]),
    Case("continuous-bernoulli", "ContinuousBernoulli", {"probs": [0.1, 0.4995, 0.5, 0.7]}, [0.3, 0.9, 0.2, 0.6]),
    Case("continuous-bernoulli-logits", "ContinuousBernoulli", {"logits": [-3.0, 0.001, 2.0]}, [0.3, 0.9, 0.6]),
    Case("dirichlet", "Dirichlet", {"concentration": [[0.5, 1.5, 3.0], [2.0, 0.7, 0.9]]}, _K),
    Case("dirichlet-corners", "Dirichlet", {"concentration": [0.5, 0.9, 0.3]}, _K),
    Case("exponential", "Exponential", {"rate": [0.5, 3.0]}, [0.2, 1.3]),
    Case("fisher-snedecor", "FisherSnedecor", {"df1": [1.0, 3.0, 9.0], "df2": [1.5, 3.0, 8.0]}, [0.3, 1.2, 4.0]),
    Case("gamma", "Gamma", {"concentration": [0.4, 3.0, 25.0], "rate": [1.0, 0.5, 4.0]}, [0.1, 7.0, 5.0]),
    Case(
        "generalized-pareto",
        "GeneralizedPareto",
        {"loc": [0.0, 1.0, -1.0, 0.5], "scale": [1.0, 2.0, 0.5, 1.0], "concentration": [0.0, 0.3, -0.5, 1.2]},
        [0.7, 4.0, -0.5, 2.0],
    ),
    Case("geometric", "Geometric", {"probs": [0.2, 0.9]}, [3.0, 0.0]),
    Case("geometric-logits", "Geometric", {"logits": [0.2, -1.0]}, [3.0, 0.0]),
    Case("gumbel", "Gumbel", {"loc": [0.3, -1.0], "scale": [0.5, 2.0]}, [0.4, 3.0]),
    Case("half-cauchy", "HalfCauchy", {"scale": [0.5, 2.0]}, [0.4, 3.0]),
    Case("half-normal", "HalfNormal", {"scale": [0.5, 2.0]}, [0.4, 3.0]),
    Case("inverse-gamma", "InverseGamma", {"concentration": [0.5, 1.5, 4.0], "rate": [1.0, 2.0, 3.0]}, [0.4, 1.0, 2.0]),
    Case("kumaraswamy", "Kumaraswamy", {"concentration1": [0.5, 2.0], "concentration0": [1.5, 3.0]}, [0.3, 0.6]),
    Case("laplace", "Laplace", {"loc": [0.3, -1.0], "scale": [0.5, 2.0]}, [0.1, 3.0]),
    Case("lkj", "LKJCholesky", {"concentration": [0.5, 2.0]}, _CORR, {"dim": 3}),
    Case("log-normal", "LogNormal", {"loc": [0.3, -1.0], "scale": [0.5, 1.2]}, [0.4, 3.0]),
    Case("logistic-normal", "LogisticNormal", {"loc": [[0.3, -1.0]], "scale": [[0.5, 1.2]]}, _K),
    Case(
        "lowrank-normal",
        "LowRankMultivariateNormal",
        {"loc": _V3, "cov_factor": [[1.0, 0.2], [0.4, -0.3], [0.1, 0.9]], "cov_diag": [0.5, 1.5, 2.0]},
        _V3[::-1],
    ),
    Case("multinomial", "Multinomial", {"probs": _K}, [[2.0, 1.0, 2.0], [0.0, 0.0, 5.0]], {"total_count": 5}),
    Case("multinomial-logits", "Multinomial", {"logits": _L}, [[2.0, 1.0, 1.0], [0.0, 0.0, 4.0]], {"total_count": 4}),
    Case("mvn-tril", "MultivariateNormal", {"loc": _V3, "scale_tril": _TRIL}, _V3[::-1]),
    Case("mvn-covariance", "MultivariateNormal", {"loc": _V3[0], "covariance_matrix": [_COV, _COV]}, [_V3, _V3]),
    Case("mvn-precision", "MultivariateNormal", {"loc": _V3[0], "precision_matrix": _PREC}, _V3[1]),
    Case("negative-binomial", "NegativeBinomial", {"total_count": [3.0, 2.5], "probs": [0.3, 0.8]}, [2.0, 7.0]),
    Case("negative-binomial-logits", "NegativeBinomial", {"total_count": 4.0, "logits": [0.3, -1.0]}, [2.0, 0.0]),
    Case("normal", "Normal", {"loc": [0.3, -1.0], "scale": [0.5, 2.0]}, [0.1, 3.0]),
    Case("normal-number", "Normal", {"loc": 0.5, "scale": [[0.5], [2.0]]}, [0.1, 3.0, 0.0]),
    Case("one-hot", "OneHotCategorical", {"probs": _K}, [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
    Case("one-hot-straight", "OneHotCategoricalStraightThrough", {"logits": _L}, [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
    Case("pareto", "Pareto", {"scale": [0.5, 1.0, 2.0], "alpha": [0.8, 1.5, 3.0]}, [0.9, 1.5, 6.0]),
    Case("poisson", "Poisson", {"rate": [0.5, 9.0]}, [2.0, 11.0]),
    Case("relaxed-bernoulli", "RelaxedBernoulli", {"temperature": 0.7, "probs": [0.3, 0.8]}, [0.2, 0.9]),
    Case("relaxed-one-hot", "RelaxedOneHotCategorical", {"temperature": 0.7, "logits": _L}, _K),
    Case(
        "student-t",
        "StudentT",
        {"df": [0.8, 1.5, 7.0], "loc": [0.0, 1.0, 2.0], "scale": [1.0, 0.5, 2.0]},
        [0.3, 2.0, -1.0],
    ),
    Case("uniform", "Uniform", {"low": [0.0, -1.0], "high": [1.0, 3.0]}, [0.3, 2.0]),
    Case("von-mises", "VonMises", {"loc": [0.3, -1.0, 0.0], "concentration": [0.5, 4.0, 30.0]}, [0.1, 2.0, -0.2]),
    Case("weibull", "Weibull", {"scale": [0.5, 2.0], "concentration": [1.5, 3.0]}, [0.4, 1.7]),
    Case("wishart", "Wishart", {"df": [3.0, 5.5], "covariance_matrix": _SPD}, [[1.5, 0.2], [0.2, 0.8]]),
    Case("wishart-tril", "Wishart", {"df": 4.0, "scale_tril": [[1.0, 0.0], [0.4, 0.8]]}, [[1.5, 0.2], [0.2, 0.8]]),
]


def tensors(m: Any, params: dict[str, Any], dtype: str, device: str, grad: bool = False) -> dict[str, Any]:
    """The parameters as leaves of a framework; PyTorch's are on the CPU."""
    made = {}
    for name, value in params.items():
        value = m.tensor(value, dtype=getattr(m, dtype), **({"device": device} if m is lucid else {}))
        made[name] = value.requires_grad_() if grad else value
    return made


def make(m: Any, case: Case, dtype: str, device: str, grad: bool = False) -> tuple[Any, dict[str, Any]]:
    params = tensors(m, case.params, dtype, device, grad)
    return getattr(m.distributions, case.cls)(**case.options, **params), params


def values(m: Any, case: Case, dtype: str, device: str) -> Any:
    return tensors(m, {"x": case.values}, dtype, device)["x"]


def array(x: Any) -> Any:
    return x.detach().cpu().numpy()


def same(got: Any, want: Any, dtype: str, gradient: bool = False, scale: float = 1.0, what: str = "") -> None:
    rtol, atol = (backward if gradient else forward)(dtype)
    assert tuple(got.shape) == tuple(want.shape), f"{what}: {got.shape}, not {want.shape}"
    assert str(got.dtype).split(".")[-1] == str(want.dtype).split(".")[-1], what
    np.testing.assert_allclose(
        array(got), array(want), rtol=rtol * scale, atol=atol * scale, equal_nan=True, err_msg=what
    )


def outcome(f: Callable[[], Any]) -> Any:
    """What a call gives, or the class of its error."""
    try:
        return f()
    except Exception as e:
        return e


cases = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
places = pytest.mark.parametrize(("device", "dtype"), PLACES, ids=lambda p: p)
__all__ = [
    "CASES",
    "PLACES",
    "Case",
    "array",
    "cases",
    "lucid",
    "make",
    "outcome",
    "places",
    "same",
    "tensors",
    "torch",
    "values",
]
