"""Known gaps, as data: what does not work where, and why. The tests read it; so does the support table in the docs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limitation:
    """One gap. ``dtype`` is ``"*"`` for all."""

    op: str
    device: str
    dtype: str
    reason: str


LIMITATIONS: tuple[Limitation, ...] = ()


def known(op: str, device: str, dtype: str) -> Limitation | None:
    """The gap that covers a combination, if any."""
    for gap in LIMITATIONS:
        if gap.op == op and gap.device == device and gap.dtype in ("*", dtype):
            return gap
    return None
