"""`lucid.Tag`: what an op says of itself, by PyTorch's names."""

from __future__ import annotations

import enum
import functools

from lucid import _C

INPLACE_VIEWS = frozenset(
    ["as_strided_", "detach_", "squeeze_", "swapaxes_", "swapdims_", "t_", "transpose_", "unsqueeze_"]
)
#: Ops in place that draw numbers, whose names in the table are others.
_DRAWING = frozenset(["uniform", "random", "dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"])


class Tag(enum.Enum):
    """What `tags` of an op may say: whether its numbers depend on the seed, and whether it changes its operand's shape
    or strides in place. PyTorch has more."""

    nondeterministic_seeded = "nondeterministic_seeded"
    inplace_view = "inplace_view"


@functools.cache
def _seeded() -> frozenset[str]:
    return _DRAWING | {row["name"] for row in _C._op_schemas() if row["determinism"] == "seeded"}


def of(name: str) -> list[Tag]:
    """The tags of an op."""
    seeded = name.removesuffix("_") in _seeded()
    return [Tag.nondeterministic_seeded] * seeded + [Tag.inplace_view] * (name in INPLACE_VIEWS)
