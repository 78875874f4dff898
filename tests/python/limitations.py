"""Known gaps, as data: what does not work where, and why. The tests read it; so does the support table in the docs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limitation:
    """One gap. ``dtype`` is ``"*"`` for all, ``"special"`` for NaN, infinities and the ends of the range."""

    op: str
    device: str
    dtype: str
    reason: str


OVERFLOW = "the squares overflow float32 above 1.8e19; PyTorch sums them in float64"

POLES = "at the poles PyTorch's trigamma gives large finite numbers, from sin(πx) of a rounded πx"
NO_FLOAT64 = "the GPU device has no float64; float32 stands in, as documented"

LIMITATIONS: tuple[Limitation, ...] = (
    Limitation("float_power", "gpu", "*", NO_FLOAT64),
    Limitation("polygamma", "cpu", "special", POLES),
    Limitation("polygamma", "gpu", "special", POLES),
    Limitation("std", "cpu", "special", OVERFLOW),
    Limitation("std", "gpu", "special", OVERFLOW),
)


def known(op: str, device: str, dtype: str) -> Limitation | None:
    """The gap that covers a combination, if any."""
    for gap in LIMITATIONS:
        if gap.op == op and gap.device == device and gap.dtype in ("*", dtype):
            return gap
    return None
