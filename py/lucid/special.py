"""Special functions with PyTorch's names.

The ops are rows of the op table, some under another name (`expit` is `sigmoid`, `gammaln` is `lgamma`). `entr`,
`ndtri`, the Bessel functions and the orthogonal polynomials of PyTorch's module are not there.
"""

from __future__ import annotations

from lucid._C import digamma as digamma
from lucid._C import digamma as psi
from lucid._C import erf as erf
from lucid._C import erfc as erfc
from lucid._C import erfcx as erfcx
from lucid._C import erfinv as erfinv
from lucid._C import exp2 as exp2
from lucid._C import expm1 as expm1
from lucid._C import i0 as i0
from lucid._C import i0e as i0e
from lucid._C import i1 as i1
from lucid._C import i1e as i1e
from lucid._C import igamma as gammainc
from lucid._C import igammac as gammaincc
from lucid._C import lgamma as gammaln
from lucid._C import log1p as log1p
from lucid._C import log_ndtr as log_ndtr
from lucid._C import log_softmax as log_softmax
from lucid._C import logit as logit
from lucid._C import logsumexp as logsumexp
from lucid._C import mvlgamma as multigammaln
from lucid._C import ndtr as ndtr
from lucid._C import polygamma as polygamma
from lucid._C import round as round
from lucid._C import sigmoid as expit
from lucid._C import sinc as sinc
from lucid._C import softmax as softmax
from lucid._C import xlog1py as xlog1py
from lucid._C import xlogy as xlogy
from lucid._C import zeta as zeta

__all__ = [
    "digamma",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gammainc",
    "gammaincc",
    "gammaln",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "log1p",
    "log_ndtr",
    "log_softmax",
    "logit",
    "logsumexp",
    "multigammaln",
    "ndtr",
    "polygamma",
    "psi",
    "round",
    "sinc",
    "softmax",
    "xlog1py",
    "xlogy",
    "zeta",
]
