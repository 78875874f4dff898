"""Window functions, as `torch.signal.windows`, and `general_gaussian`, as SciPy has it.

Every function gives a 1-D tensor of `M` samples with a maximum of 1 where the window is symmetric and `M` is odd, or
where it is periodic. Samples are computed in `dtype` by recorded ops, so that they are on `device` from the start.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import lucid
from lucid import errors

if TYPE_CHECKING:
    from lucid import Tensor
    from lucid._typing import DeviceLike

__all__ = [
    "bartlett",
    "blackman",
    "cosine",
    "exponential",
    "gaussian",
    "general_cosine",
    "general_gaussian",
    "general_hamming",
    "hamming",
    "hann",
    "kaiser",
    "nuttall",
]


def _check(op: str, M: int, dtype: lucid.dtype | None, layout: lucid.layout) -> lucid.dtype:
    """Checks the arguments that all windows share and returns the result's dtype."""
    if isinstance(M, bool) or not isinstance(M, int):
        raise errors.TypeError(f"{op}: expected M to be an int, got {type(M).__name__}")
    dtype = lucid.get_default_dtype() if dtype is None else dtype
    if M < 0:
        raise errors.ValueError(f"{op} requires non-negative window length, got M={M}")
    if layout is not lucid.strided:
        raise errors.ValueError(f"{op} is implemented for strided tensors only, got: {layout}")
    if dtype not in (lucid.float32, lucid.float64):
        raise errors.ValueError(f"{op} expects float32 or float64 dtypes, got: {dtype}")
    return dtype


def _steps(M: int, sym: bool) -> int:
    """The number of intervals: `M - 1` of a symmetric window, `M` of a periodic one."""
    return M if not sym and M > 1 else M - 1


def _cosines(
    op: str,
    M: int,
    a: Iterable[float],
    sym: bool,
    dtype: lucid.dtype | None,
    layout: lucid.layout,
    device: DeviceLike | None,
    requires_grad: bool,
) -> Tensor:
    """Computes `general_cosine` under the name of the window that calls it."""
    dtype = _check(op, M, dtype, layout)
    if M == 0:
        return lucid.empty((0,), dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)
    if M == 1:
        return lucid.ones((1,), dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)
    if not isinstance(a, Iterable):
        raise errors.TypeError("Coefficients must be a list/tuple")
    weights = [(-1) ** i * float(w) for i, w in enumerate(a)]
    if not weights:
        raise errors.ValueError("Coefficients cannot be empty")
    step = 2 * math.pi / _steps(M, sym)
    k = lucid.linspace(0, (M - 1) * step, M, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)
    a_i = lucid.tensor(weights, dtype=dtype, device=device, requires_grad=requires_grad)
    i = lucid.arange(len(weights), dtype=dtype, device=a_i.device)
    return (a_i.unsqueeze(-1) * lucid.cos(i.unsqueeze(-1) * k)).sum(0)


def bartlett(
    M: int,
    *,
    sym: bool = True,
    dtype: lucid.dtype | None = None,
    layout: lucid.layout = lucid.strided,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Computes the Bartlett window, a triangle.

        w[n] = 1 - |2 n / N - 1|, where N = M - 1 (symmetric) or M (periodic)

    Args:
        M (int): the number of elements, not negative.
        sym (bool, default: True): a symmetric window; else one period of a longer one, as Fourier transforms want
            it.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        layout (lucid.layout, optional): only `lucid.strided`, the dense layout.
        device (DeviceLike, optional): where the result is made; the current default device by default.
        requires_grad (bool, default: False): records gradients for the result.

    Returns:
        Tensor: (M,).

    Raises:
        ValueError: `M` is negative, or an argument is out of its range.

    Example:
        >>> lucid.signal.windows.bartlett(5)
        tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    dtype = _check("bartlett", M, dtype, layout)
    if M == 0:
        return lucid.empty((0,), dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)
    if M == 1:
        return lucid.ones((1,), dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)
    step = 2 / _steps(M, sym)
    k = lucid.linspace(
        -1.0, -1.0 + (M - 1) * step, M, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad
    )
    return 1 - lucid.abs(k)


def blackman(
    M: int,
    *,
    sym: bool = True,
    dtype: lucid.dtype | None = None,
    layout: lucid.layout = lucid.strided,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Computes the Blackman window.

        w[n] = 0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N)

    Args:
        M (int): the number of elements, not negative.
        sym (bool, default: True): a symmetric window; else one period of a longer one, as Fourier transforms want
            it.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        layout (lucid.layout, optional): only `lucid.strided`, the dense layout.
        device (DeviceLike, optional): where the result is made; the current default device by default.
        requires_grad (bool, default: False): records gradients for the result.

    Returns:
        Tensor: (M,).

    Raises:
        ValueError: `M` is negative, or an argument is out of its range.

    Example:
        >>> lucid.signal.windows.blackman(5)
        tensor([-2.9802e-08,  3.4000e-01,  1.0000e+00,  3.4000e-01, -2.9802e-08])
    """
    return _cosines("blackman", M, [0.42, 0.5, 0.08], sym, dtype, layout, device, requires_grad)


def cosine(
    M: int,
    *,
    sym: bool = True,
    dtype: lucid.dtype | None = None,
    layout: lucid.layout = lucid.strided,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Computes the cosine window, the first half of a sine wave.

        w[n] = sin(pi (n + 1/2) / N), where N = M (symmetric) or M + 1 (periodic)

    Args:
        M (int): the number of elements, not negative.
        sym (bool, default: True): a symmetric window; else one period of a longer one, as Fourier transforms want
            it.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        layout (lucid.layout, optional): only `lucid.strided`, the dense layout.
        device (DeviceLike, optional): where the result is made; the current default device by default.
        requires_grad (bool, default: False): records gradients for the result.

    Returns:
        Tensor: (M,).

    Raises:
        ValueError: `M` is negative, or an argument is out of its range.

    Example:
        >>> lucid.signal.windows.cosine(5)
        tensor([0.3090, 0.8090, 1.0000, 0.8090, 0.3090])
    """
    dtype = _check("cosine", M, dtype, layout)
    if M == 0:
        return lucid.empty((0,), dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)
    step = math.pi / (M + 1 if not sym and M > 1 else M)
    k = lucid.linspace(
        0.5 * step, (0.5 + (M - 1)) * step, M, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad
    )
    return lucid.sin(k)


def exponential(
    M: int,
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    dtype: lucid.dtype | None = None,
    layout: lucid.layout = lucid.strided,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Computes the exponential (Poisson) window.

        w[n] = exp(-|n - c| / tau)

    Args:
        M (int): the number of elements, not negative.
        center (float, optional): where the peak is; the middle by default.
        tau (float, default: 1.0): the decay.
        sym (bool, default: True): a symmetric window; else one period of a longer one, as Fourier transforms want
            it.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        layout (lucid.layout, optional): only `lucid.strided`, the dense layout.
        device (DeviceLike, optional): where the result is made; the current default device by default.
        requires_grad (bool, default: False): records gradients for the result.

    Returns:
        Tensor: (M,).

    Raises:
        ValueError: `M` is negative, or an argument is out of its range.

    Example:
        >>> lucid.signal.windows.exponential(5)
        tensor([0.1353, 0.3679, 1.0000, 0.3679, 0.1353])
    """
    dtype = _check("exponential", M, dtype, layout)
    if tau <= 0:
        raise errors.ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise errors.ValueError("Center must be None for symmetric windows")
    if M == 0:
        return lucid.empty((0,), dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)
    if center is None:
        center = _steps(M, sym) / 2
    k = lucid.linspace(
        -center / tau,
        (-center + (M - 1)) / tau,
        M,
        dtype=dtype,
        layout=layout,
        device=device,
        requires_grad=requires_grad,
    )
    return lucid.exp(-lucid.abs(k))


def gaussian(
    M: int,
    *,
    std: float = 1.0,
    sym: bool = True,
    dtype: lucid.dtype | None = None,
    layout: lucid.layout = lucid.strided,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Computes the Gaussian window.

        w[n] = exp(-((n - (N / 2)) / std)^2 / 2)

    Args:
        M (int): the number of elements, not negative.
        std (float, default: 1.0): the standard deviation.
        sym (bool, default: True): a symmetric window; else one period of a longer one, as Fourier transforms want
            it.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        layout (lucid.layout, optional): only `lucid.strided`, the dense layout.
        device (DeviceLike, optional): where the result is made; the current default device by default.
        requires_grad (bool, default: False): records gradients for the result.

    Returns:
        Tensor: (M,).

    Raises:
        ValueError: `M` is negative, or an argument is out of its range.

    Example:
        >>> lucid.signal.windows.gaussian(5)
        tensor([0.1353, 0.6065, 1.0000, 0.6065, 0.1353])
    """
    dtype = _check("gaussian", M, dtype, layout)
    if std <= 0:
        raise errors.ValueError(f"Standard deviation must be positive, got: {std} instead.")
    if M == 0:
        return lucid.empty((0,), dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)
    start, scale = -_steps(M, sym) / 2, 1 / (std * math.sqrt(2))
    k = lucid.linspace(
        start * scale,
        (start + (M - 1)) * scale,
        M,
        dtype=dtype,
        layout=layout,
        device=device,
        requires_grad=requires_grad,
    )
    return lucid.exp(-(k**2))


def general_cosine(
    M: int,
    *,
    a: Iterable[float],
    sym: bool = True,
    dtype: lucid.dtype | None = None,
    layout: lucid.layout = lucid.strided,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Computes a weighted sum of cosines.

        w[n] = sum_i (-1)^i a_i cos(2 pi i n / N)

    Args:
        M (int): the number of elements, not negative.
        a (Iterable[float]): the coefficients of the cosines.
        sym (bool, default: True): a symmetric window; else one period of a longer one, as Fourier transforms want
            it.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        layout (lucid.layout, optional): only `lucid.strided`, the dense layout.
        device (DeviceLike, optional): where the result is made; the current default device by default.
        requires_grad (bool, default: False): records gradients for the result.

    Returns:
        Tensor: (M,).

    Raises:
        ValueError: `M` is negative, or an argument is out of its range.

    Example:
        >>> lucid.signal.windows.general_cosine(5, a=[0.5, 0.5])
        tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    return _cosines("general_cosine", M, a, sym, dtype, layout, device, requires_grad)


def general_gaussian(
    M: int,
    *,
    p: float,
    sig: float,
    sym: bool = True,
    dtype: lucid.dtype | None = None,
    layout: lucid.layout = lucid.strided,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Computes the generalized Gaussian window.

        w[n] = exp(-|(n - N / 2) / sig|^(2 p) / 2)

    Args:
        M (int): the number of elements, not negative.
        p (float): the exponent; 1 is a Gaussian.
        sig (float): the standard deviation.
        sym (bool, default: True): a symmetric window; else one period of a longer one, as Fourier transforms want
            it.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        layout (lucid.layout, optional): only `lucid.strided`, the dense layout.
        device (DeviceLike, optional): where the result is made; the current default device by default.
        requires_grad (bool, default: False): records gradients for the result.

    Returns:
        Tensor: (M,).

    Raises:
        ValueError: `M` is negative, or an argument is out of its range.

    Example:
        >>> lucid.signal.windows.general_gaussian(5, p=1.0, sig=1.0)
        tensor([0.1353, 0.6065, 1.0000, 0.6065, 0.1353])
    """
    dtype = _check("general_gaussian", M, dtype, layout)
    for name, value in (("p", p), ("sig", sig)):
        if value <= 0:
            raise errors.ValueError(f"general_gaussian: {name} must be positive, got: {value} instead.")
    if M == 0:
        return lucid.empty((0,), dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)
    start = -_steps(M, sym) / 2
    k = lucid.linspace(
        start / sig, (start + (M - 1)) / sig, M, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad
    )
    return lucid.exp(-0.5 * lucid.abs(k) ** (2 * p))


def general_hamming(
    M: int,
    *,
    alpha: float = 0.54,
    sym: bool = True,
    dtype: lucid.dtype | None = None,
    layout: lucid.layout = lucid.strided,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Computes the generalized Hamming window.

        w[n] = alpha - (1 - alpha) cos(2 pi n / N)

    Args:
        M (int): the number of elements, not negative.
        alpha (float, default: 0.54): the constant term.
        sym (bool, default: True): a symmetric window; else one period of a longer one, as Fourier transforms want
            it.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        layout (lucid.layout, optional): only `lucid.strided`, the dense layout.
        device (DeviceLike, optional): where the result is made; the current default device by default.
        requires_grad (bool, default: False): records gradients for the result.

    Returns:
        Tensor: (M,).

    Raises:
        ValueError: `M` is negative, or an argument is out of its range.

    Example:
        >>> lucid.signal.windows.general_hamming(5)
        tensor([0.0800, 0.5400, 1.0000, 0.5400, 0.0800])
    """
    return _cosines("general_hamming", M, [alpha, 1.0 - alpha], sym, dtype, layout, device, requires_grad)


def hamming(
    M: int,
    *,
    sym: bool = True,
    dtype: lucid.dtype | None = None,
    layout: lucid.layout = lucid.strided,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Computes the Hamming window.

        w[n] = 0.54 - 0.46 cos(2 pi n / N)

    Args:
        M (int): the number of elements, not negative.
        sym (bool, default: True): a symmetric window; else one period of a longer one, as Fourier transforms want
            it.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        layout (lucid.layout, optional): only `lucid.strided`, the dense layout.
        device (DeviceLike, optional): where the result is made; the current default device by default.
        requires_grad (bool, default: False): records gradients for the result.

    Returns:
        Tensor: (M,).

    Raises:
        ValueError: `M` is negative, or an argument is out of its range.

    Example:
        >>> lucid.signal.windows.hamming(5)
        tensor([0.0800, 0.5400, 1.0000, 0.5400, 0.0800])
    """
    return _cosines("hamming", M, [0.54, 1.0 - 0.54], sym, dtype, layout, device, requires_grad)


def hann(
    M: int,
    *,
    sym: bool = True,
    dtype: lucid.dtype | None = None,
    layout: lucid.layout = lucid.strided,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Computes the Hann window.

        w[n] = 0.5 - 0.5 cos(2 pi n / N) = sin^2(pi n / N)

    Args:
        M (int): the number of elements, not negative.
        sym (bool, default: True): a symmetric window; else one period of a longer one, as Fourier transforms want
            it.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        layout (lucid.layout, optional): only `lucid.strided`, the dense layout.
        device (DeviceLike, optional): where the result is made; the current default device by default.
        requires_grad (bool, default: False): records gradients for the result.

    Returns:
        Tensor: (M,).

    Raises:
        ValueError: `M` is negative, or an argument is out of its range.

    Example:
        >>> lucid.signal.windows.hann(5)
        tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    return _cosines("hann", M, [0.5, 0.5], sym, dtype, layout, device, requires_grad)


def kaiser(
    M: int,
    *,
    beta: float = 12.0,
    sym: bool = True,
    dtype: lucid.dtype | None = None,
    layout: lucid.layout = lucid.strided,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Computes the Kaiser window.

        w[n] = I_0(beta sqrt(1 - (2 n / N - 1)^2)) / I_0(beta), I_0 the modified Bessel function

    Args:
        M (int): the number of elements, not negative.
        beta (float, default: 12.0): the shape of the window.
        sym (bool, default: True): a symmetric window; else one period of a longer one, as Fourier transforms want
            it.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        layout (lucid.layout, optional): only `lucid.strided`, the dense layout.
        device (DeviceLike, optional): where the result is made; the current default device by default.
        requires_grad (bool, default: False): records gradients for the result.

    Returns:
        Tensor: (M,).

    Raises:
        ValueError: `M` is negative, or an argument is out of its range.

    Example:
        >>> lucid.signal.windows.kaiser(5)
        tensor([5.2773e-05, 2.1567e-01, 1.0000e+00, 2.1567e-01, 5.2773e-05])
    """
    dtype = _check("kaiser", M, dtype, layout)
    if beta < 0:
        raise errors.ValueError(f"beta must be non-negative, got: {beta} instead.")
    if M == 0:
        return lucid.empty((0,), dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)
    if M == 1:
        return lucid.ones((1,), dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)
    end = min(beta, -beta + (M - 1) * 2.0 * beta / _steps(M, sym))
    k = lucid.linspace(-beta, end, M, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)
    # beta rounded as the samples are, so that the root is of no negative number.
    b = lucid.tensor(beta, dtype=dtype, device=device)
    return lucid.i0(lucid.sqrt(b * b - k**2)) / lucid.i0(b)


def nuttall(
    M: int,
    *,
    sym: bool = True,
    dtype: lucid.dtype | None = None,
    layout: lucid.layout = lucid.strided,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Computes the minimum 4-term Blackman-Harris window of Nuttall.

        w[n] = 0.3635819 - 0.4891775 cos(z) + 0.1365995 cos(2 z) - 0.0106411 cos(3 z), z = 2 pi n / N

    Args:
        M (int): the number of elements, not negative.
        sym (bool, default: True): a symmetric window; else one period of a longer one, as Fourier transforms want
            it.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        layout (lucid.layout, optional): only `lucid.strided`, the dense layout.
        device (DeviceLike, optional): where the result is made; the current default device by default.
        requires_grad (bool, default: False): records gradients for the result.

    Returns:
        Tensor: (M,).

    Raises:
        ValueError: `M` is negative, or an argument is out of its range.

    Example:
        >>> lucid.signal.windows.nuttall(5)
        tensor([3.6281e-04, 2.2698e-01, 1.0000e+00, 2.2698e-01, 3.6281e-04])
    """
    return _cosines(
        "nuttall", M, [0.3635819, 0.4891775, 0.1365995, 0.0106411], sym, dtype, layout, device, requires_grad
    )
