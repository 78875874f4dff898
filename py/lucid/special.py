"""Special functions with PyTorch's names.

The ops are rows of the op table, some under another name (`expit` is `sigmoid`, `gammaln` is `lgamma`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lucid._absent import teller
from lucid._C import airy_ai as airy_ai
from lucid._C import bessel_j0 as bessel_j0
from lucid._C import bessel_j1 as bessel_j1
from lucid._C import bessel_y0 as bessel_y0
from lucid._C import bessel_y1 as bessel_y1
from lucid._C import chebyshev_polynomial_t as chebyshev_polynomial_t
from lucid._C import chebyshev_polynomial_u as chebyshev_polynomial_u
from lucid._C import chebyshev_polynomial_v as chebyshev_polynomial_v
from lucid._C import chebyshev_polynomial_w as chebyshev_polynomial_w
from lucid._C import digamma as digamma
from lucid._C import digamma as psi
from lucid._C import entr as entr
from lucid._C import erf as erf
from lucid._C import erfc as erfc
from lucid._C import erfcx as erfcx
from lucid._C import erfinv as erfinv
from lucid._C import exp2 as exp2
from lucid._C import expm1 as expm1
from lucid._C import hermite_polynomial_h as hermite_polynomial_h
from lucid._C import hermite_polynomial_he as hermite_polynomial_he
from lucid._C import i0 as i0
from lucid._C import i0 as modified_bessel_i0
from lucid._C import i0e as i0e
from lucid._C import i1 as i1
from lucid._C import i1 as modified_bessel_i1
from lucid._C import i1e as i1e
from lucid._C import igamma as gammainc
from lucid._C import igammac as gammaincc
from lucid._C import laguerre_polynomial_l as laguerre_polynomial_l
from lucid._C import legendre_polynomial_p as legendre_polynomial_p
from lucid._C import lgamma as gammaln
from lucid._C import log1p as log1p
from lucid._C import log_ndtr as log_ndtr
from lucid._C import log_softmax as log_softmax
from lucid._C import logit as logit
from lucid._C import logsumexp as logsumexp
from lucid._C import modified_bessel_k0 as modified_bessel_k0
from lucid._C import modified_bessel_k1 as modified_bessel_k1
from lucid._C import mvlgamma as multigammaln
from lucid._C import ndtr as ndtr
from lucid._C import ndtri as ndtri
from lucid._C import polygamma as polygamma
from lucid._C import round as round
from lucid._C import scaled_modified_bessel_k0 as scaled_modified_bessel_k0
from lucid._C import scaled_modified_bessel_k1 as scaled_modified_bessel_k1
from lucid._C import shifted_chebyshev_polynomial_t as shifted_chebyshev_polynomial_t
from lucid._C import shifted_chebyshev_polynomial_u as shifted_chebyshev_polynomial_u
from lucid._C import shifted_chebyshev_polynomial_v as shifted_chebyshev_polynomial_v
from lucid._C import shifted_chebyshev_polynomial_w as shifted_chebyshev_polynomial_w
from lucid._C import sigmoid as expit
from lucid._C import sinc as sinc
from lucid._C import softmax as softmax
from lucid._C import spherical_bessel_j0 as spherical_bessel_j0
from lucid._C import xlog1py as xlog1py
from lucid._C import xlogy as xlogy
from lucid._C import zeta as zeta

__all__ = [
    "airy_ai",
    "bessel_j0",
    "bessel_j1",
    "bessel_y0",
    "bessel_y1",
    "chebyshev_polynomial_t",
    "chebyshev_polynomial_u",
    "chebyshev_polynomial_v",
    "chebyshev_polynomial_w",
    "digamma",
    "entr",
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
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
    "log1p",
    "log_ndtr",
    "log_softmax",
    "logit",
    "logsumexp",
    "modified_bessel_i0",
    "modified_bessel_i1",
    "modified_bessel_k0",
    "modified_bessel_k1",
    "multigammaln",
    "ndtr",
    "ndtri",
    "polygamma",
    "psi",
    "round",
    "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1",
    "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
    "sinc",
    "softmax",
    "spherical_bessel_j0",
    "xlog1py",
    "xlogy",
    "zeta",
]

if not TYPE_CHECKING:
    __getattr__ = teller(__name__)
