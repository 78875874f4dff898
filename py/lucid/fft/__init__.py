"""Fourier transforms, as `torch.fft`.

With `n` the number of elements that are transformed, the transform and its inverse are

    X[k] = Σ x[j] exp(-2πi jk / n)        x[j] = (1 / n) Σ X[k] exp(2πi jk / n)

=========  =====================================================================================================
`fft…`     complex numbers to complex numbers; real ones are taken, too
`rfft…`    real numbers to the first `n // 2 + 1` elements of the last dimension: the others are their conjugates
`irfft…`   such a half back to real numbers
`hfft…`    the half of what has conjugates in its other half, to the real numbers that are its transform
`ihfft…`   the inverse of that
`…2`       along two dimensions, by default the last
`…n`       along `dim`, by default all
=========  =====================================================================================================

Args that the functions share:
    input (Tensor): any shape, on either device. float32 and complex64 are transformed in single precision, float64 and
        complex128 (which the CPU alone has) in double; integers and bool in the default float.
    n (int, optional), s (tuple of ints, optional): how many elements along the dimension, or along each; what is longer
        is cut off, what is shorter filled up with zeros. -1 in `s` leaves a dimension as it is. Of `irfft…` and
        `hfft…`, the number of elements of the last dimension of the result, by default `2 * (m - 1)`.
    dim (int or tuple of ints, optional): along which.
    norm (str, optional): "backward" (the default) divides inverse transforms by `n`, "forward" the others, "ortho" all
        by `√n`, where `n` counts all elements that are transformed together. `hfft` is no inverse, `ihfft` is one.
    out (Tensor, optional): the result is written to it.

Returns:
    A tensor of the input's shape but for the dimensions that are named, complex, or real of `irfft…` and `hfft…`. Its
    strides are PyTorch's: elements that were transformed together are next to one another.

Raises:
    RuntimeError: no elements to transform, dimensions that are named twice, an unknown `norm`.
    IndexError: there is no such dimension.
    TypeError: complex numbers where real ones are expected.
    NotImplementedError: float16 or bfloat16, as on PyTorch's CPU. Under `lucid.autocast("cpu")` the functions that
        PyTorch lists compute in float32.

All are differentiable any number of times, in forward mode too, and `vmap` takes them as they are. Lengths may be any,
primes too. On the CPU the library is `rustfft`; on the GPU device MLX transforms, in single precision. PyTorch takes
float16 on CUDA, for powers of two; Lucid does not.

Example:
    >>> import lucid
    >>> x = lucid.sin(lucid.arange(8) * (2 * lucid.pi / 8))
    >>> lucid.fft.rfft(x).abs().round().tolist()
    [0.0, 4.0, 0.0, 0.0, 0.0]
    >>> lucid.allclose(lucid.fft.irfft(lucid.fft.rfft(x)), x, atol=1e-6)
    True

Reference: Cooley and Tukey, "An algorithm for the machine calculation of complex Fourier series" (1965); Bluestein, "A
linear filtering approach to the computation of discrete Fourier transform" (1970), for large primes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lucid._absent import teller
from lucid._C import Tensor as Tensor
from lucid._C import fft_fft as fft
from lucid._C import fft_fft2 as fft2
from lucid._C import fft_fftfreq as fftfreq
from lucid._C import fft_fftn as fftn
from lucid._C import fft_fftshift as fftshift
from lucid._C import fft_hfft as hfft
from lucid._C import fft_hfft2 as hfft2
from lucid._C import fft_hfftn as hfftn
from lucid._C import fft_ifft as ifft
from lucid._C import fft_ifft2 as ifft2
from lucid._C import fft_ifftn as ifftn
from lucid._C import fft_ifftshift as ifftshift
from lucid._C import fft_ihfft as ihfft
from lucid._C import fft_ihfft2 as ihfft2
from lucid._C import fft_ihfftn as ihfftn
from lucid._C import fft_irfft as irfft
from lucid._C import fft_irfft2 as irfft2
from lucid._C import fft_irfftn as irfftn
from lucid._C import fft_rfft as rfft
from lucid._C import fft_rfft2 as rfft2
from lucid._C import fft_rfftfreq as rfftfreq
from lucid._C import fft_rfftn as rfftn

__all__ = [
    "Tensor",
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "hfft2",
    "hfftn",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "ihfft2",
    "ihfftn",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]

if not TYPE_CHECKING:
    __getattr__ = teller(__name__)
