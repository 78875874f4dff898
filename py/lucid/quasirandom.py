"""Sobol sequences, as in `torch.quasirandom`: points that fill a cube more evenly than random ones.

The direction numbers are Joe and Kuo's, which are not part of Lucid: they are read from SciPy, where it is installed.
"""

from __future__ import annotations

import operator
from typing import Any, ClassVar

import lucid
from lucid import Tensor, errors

__all__ = ["SobolEngine"]

# Bits of a point's number that one table covers: 64 combinations of direction numbers.
_TABLE_BITS = 6


def _direction_numbers(dimension: int, bits: int) -> Tensor:
    """The direction numbers, int64 of (dimension, bits).

    Raises:
        ImportError: SciPy is not installed, or one whose engine has no such table.
    """
    try:
        from scipy.stats import qmc
    except ImportError:
        raise ImportError(
            "SobolEngine takes the direction numbers of Joe and Kuo from SciPy, which is not installed: "
            "run pip install scipy"
        ) from None
    found = getattr(qmc.Sobol(dimension, scramble=False, bits=bits), "_sv", None)
    if found is None or found.shape != (dimension, bits):
        raise ImportError("SobolEngine: this SciPy keeps no direction numbers where 1.7 to 1.17 have them")
    return lucid.from_numpy(found.astype("int64"))


def _count(name: str, n: Any) -> int:
    """A number of points.

    Raises:
        TypeError: it is not an integer.
        ValueError: it is negative.
    """
    try:
        number = operator.index(n)
    except TypeError:
        raise errors.TypeError(f"SobolEngine: {name} must be int, not {type(n).__name__}") from None
    if number < 0:
        raise errors.ValueError(f"SobolEngine: {name} must be non-negative, but got {number}")
    return number


class SobolEngine:
    """Draws the points of a Sobol sequence in `[0, 1)`, one after the other.

    Point `p` is the exclusive or of a shift and of the direction numbers whose bits the Gray code `p ^ (p >> 1)` has,
    over `2**30`. Without scrambling the shift is 0 and the points are PyTorch's. With it the direction numbers are
    multiplied by random lower triangular matrices of bits, and the shift is random: a linear matrix scramble, whose
    random bits are `lucid.Generator`'s, so that a seed gives other points than in PyTorch.

    Other than in PyTorch more than `2**30` points are an error, and `draw(0)` before any point gives none.

    Args:
        dimension (int): The number of coordinates of a point, 1 to 21201.
        scramble (bool, default: False): Scrambles the sequence.
        seed (int, optional): The seed of the scrambling. Default: the process's random numbers.

    Raises:
        ImportError: SciPy, whose direction numbers these are, is not installed.
        ValueError: `dimension` is out of range.

    Example:
        >>> lucid.quasirandom.SobolEngine(dimension=5).draw(3)
        tensor([[0.0000, 0.0000, 0.0000, 0.0000, 0.0000],
                [0.5000, 0.5000, 0.5000, 0.5000, 0.5000],
                [0.7500, 0.2500, 0.2500, 0.2500, 0.7500]])

    Reference:
        S. Joe and F. Y. Kuo, "Constructing Sobol sequences with better two-dimensional projections", 2008.
        A. B. Owen, "Scrambling Sobol and Niederreiter-Xing points", 1998.
    """

    MAXBIT: ClassVar[int] = 30
    MAXDIM: ClassVar[int] = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        dimension = _count("dimension", dimension)
        if not 1 <= dimension <= self.MAXDIM:
            raise errors.ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]")
        self.seed = seed
        self.scramble = scramble
        self.dimension = dimension
        self.sobolstate = _direction_numbers(dimension, self.MAXBIT)
        self.shift = lucid.zeros(dimension, dtype=lucid.int64, device="cpu")
        if scramble:
            self._scramble()
        self.quasi = self.shift.clone()
        self.num_generated = 0

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: lucid.dtype | None = None) -> Tensor:
        """The next points.

        Of float32, a coordinate within `2**-25` of 1 rounds to 1, as in PyTorch; only scrambled points have such.

        Args:
            n (int, default: 1): The number of points.
            out (Tensor, optional): Takes the result, whatever its shape was.
            dtype (dtype, optional): float32 or float64. Default: the default dtype.

        Returns:
            Tensor: (n, dimension), on the CPU.

        Raises:
            TypeError: `n` is not an integer.
            ValueError: `n` is negative, or the sequence ends before.
            UnsupportedDtype: `dtype` is another.

        Example:
            >>> lucid.quasirandom.SobolEngine(2).draw(2, dtype=lucid.float64)
            tensor([[0.0000, 0.0000],
                    [0.5000, 0.5000]], dtype=lucid.float64)
        """
        dtype = lucid.get_default_dtype() if dtype is None else dtype
        if dtype not in (lucid.float32, lucid.float64):
            raise errors.UnsupportedDtype(f"SobolEngine.draw: expected dtype float32 or float64, got {dtype}")
        n = self._advance(n)
        if n == 0:
            return lucid.zeros(0, self.dimension, dtype=dtype, device="cpu")
        points = self._points(self.num_generated - n, n)
        self.quasi = points[-1].clone()
        result = points.to(dtype) * 2.0**-self.MAXBIT
        if out is None:
            return result
        return out.resize_as_(result).copy_(result)

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: lucid.dtype | None = None) -> Tensor:
        """The next `2**m` points, after which the number of all points is a power of 2, as their balance needs.

        Args:
            m (int): The exponent.
            out (Tensor, optional): Takes the result, whatever its shape was.
            dtype (dtype, optional): float32 or float64. Default: the default dtype.

        Returns:
            Tensor: (2**m, dimension), on the CPU.

        Raises:
            TypeError: `m` is not an integer.
            ValueError: the number of all points would be no power of 2, or `m` is negative.

        Example:
            >>> lucid.quasirandom.SobolEngine(3).draw_base2(4).shape
            lucid.Size([16, 3])
        """
        n = 2 ** _count("m", m)
        total = self.num_generated + n
        if total & (total - 1):
            raise errors.ValueError(
                f"The balance properties of Sobol' points require n to be a power of 2. {self.num_generated} points "
                f"have been previously generated, then: n={self.num_generated}+2**{m}={total}. If you still want to do "
                "this, please use 'SobolEngine.draw()' instead."
            )
        return self.draw(n, out, dtype)

    def reset(self) -> SobolEngine:
        """Goes back to the first point.

        Returns:
            SobolEngine: this engine.

        Example:
            >>> engine = lucid.quasirandom.SobolEngine(2)
            >>> first = engine.draw(3)
            >>> bool((engine.reset().draw(3) == first).all())
            True
        """
        self.quasi = self.shift.clone()
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leaves out points; the time does not depend on how many.

        Args:
            n (int): The number of points.

        Returns:
            SobolEngine: this engine.

        Raises:
            TypeError: `n` is not an integer.
            ValueError: `n` is negative, or the sequence ends before.

        Example:
            >>> lucid.quasirandom.SobolEngine(2).fast_forward(2).draw(1)
            tensor([[0.7500, 0.2500]])
        """
        if self._advance(n):
            self.quasi = self._point(self.num_generated - 1)
        return self

    def _advance(self, n: int) -> int:
        """Counts `n` points more.

        Raises:
            ValueError: direction numbers of 30 bits have no more.
        """
        n = _count("n", n)
        if self.num_generated + n > 2**self.MAXBIT:
            raise errors.ValueError(
                f"SobolEngine: the sequence has 2**{self.MAXBIT} points; {n} were asked for after {self.num_generated}"
            )
        self.num_generated += n
        return n

    def _point(self, p: int) -> Tensor:
        """Point `p` as integers, (dimension,)."""
        gray = p ^ (p >> 1)
        point = self.shift.clone()
        for bit in range(gray.bit_length()):
            if gray >> bit & 1:
                point ^= self.sobolstate[:, bit]
        return point

    def _points(self, start: int, n: int) -> Tensor:
        """Points `start` to `start + n - 1` as integers, (n, dimension)."""
        first = self._point(start)
        numbers = lucid.arange(start, start + n, device="cpu")
        # The direction numbers by which each point differs from the first.
        codes = (numbers ^ (numbers >> 1)) ^ (start ^ (start >> 1))
        highest = int(codes.max()).bit_length()
        points = first.expand(n, -1)
        for low in range(0, highest, _TABLE_BITS):
            table = lucid.zeros(1, self.dimension, dtype=lucid.int64, device="cpu")
            for bit in range(low, min(low + _TABLE_BITS, highest)):
                table = lucid.cat((table, table ^ self.sobolstate[:, bit]))
            points = points ^ table[codes >> low & (len(table) - 1)]
        return points

    def _scramble(self) -> None:
        """Draws the shift, and multiplies the direction numbers by lower triangular matrices modulo 2."""
        generator = None if self.seed is None else lucid.Generator().manual_seed(self.seed)
        bits, dimension = self.MAXBIT, self.dimension
        # Bit 29 is a coordinate's first half: the most significant bit comes first.
        weights = 2 ** lucid.arange(bits - 1, -1, -1, device="cpu")
        drawn = lucid.randint(2, (dimension, bits), device="cpu", generator=generator)
        self.shift = (drawn * weights).sum(-1)
        lower = lucid.randint(2, (dimension, bits, bits), device="cpu", generator=generator).tril(-1)
        lower = lower.float() + lucid.eye(bits, device="cpu")
        columns = (self.sobolstate.unsqueeze(1) // weights.unsqueeze(1)) % 2
        # Sums of at most 30 ones: exact in float32.
        scrambled = (lower @ columns.float()).long() % 2
        self.sobolstate = (scrambled * weights.unsqueeze(1)).sum(1)

    def __repr__(self) -> str:
        parts = [f"dimension={self.dimension}"]
        if self.scramble:
            parts.append("scramble=True")
        if self.seed is not None:
            parts.append(f"seed={self.seed}")
        return f"{type(self).__name__}({', '.join(parts)})"
