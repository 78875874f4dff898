"""Non-maximum suppression of boxes."""

from __future__ import annotations

import lucid
from lucid import Tensor, errors

# The most boxes whose overlaps are one matrix.
_BLOCK = 4096


def _overlaps(a: Tensor, b: Tensor) -> Tensor:
    """The intersection over union of each box of `a` (N, 4) with each of `b` (M, 4), (N, M)."""
    low = lucid.maximum(a[:, None, :2], b[None, :, :2])
    high = lucid.minimum(a[:, None, 2:], b[None, :, 2:])
    sides = (high - low).clamp(min=0)
    inter = sides[..., 0] * sides[..., 1]
    area_a = (a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1])
    area_b = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    return inter / (area_a[:, None] + area_b[None, :] - inter)


def _greedy(suppresses: Tensor, alive: Tensor) -> Tensor:
    """Which boxes stay, where `suppresses[i, j]` says that box `i`, if it stays, removes a later box `j`.

    The answer is the one fixed point of "a box stays if none that stays removes it". Each round settles at least one
    more box of every chain of overlaps, so rounds are few where chains are short.
    """
    kept = alive
    while True:
        after = alive & ~(suppresses & kept[:, None]).any(0)
        if bool((after == kept).all()):
            return kept
        kept = after


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """The indices of boxes that no box of a higher score overlaps by more than `iou_threshold`, by falling score.

    Args:
        dets: boxes (N, 4) as x1, y1, x2, y2.
        scores: (N,). Of equal scores the first comes first.
        iou_threshold: intersection over union above which the lower score is removed.

    Returns:
        int64 indices.

    Raises:
        RuntimeError: shapes or dtypes do not fit.
    """
    if dets.dim() != 2 or dets.size(1) != 4:
        raise errors.RuntimeError(f"nms: boxes should have shape (N, 4), got {tuple(dets.shape)}")
    if scores.dim() != 1 or scores.size(0) != dets.size(0):
        raise errors.RuntimeError(
            f"nms: scores should have shape ({dets.size(0)},) as there are boxes, got {tuple(scores.shape)}"
        )
    if dets.dtype != scores.dtype:
        raise errors.RuntimeError(f"nms: dets should have the same type as scores, got {dets.dtype} and {scores.dtype}")
    order = lucid.argsort(scores, stable=True, descending=True)
    boxes = dets[order]
    if boxes.dtype in (lucid.float16, lucid.bfloat16):
        boxes = boxes.float()
    kept: list[Tensor] = []
    places: list[Tensor] = []
    for start in range(0, boxes.size(0), _BLOCK):
        block = boxes[start : start + _BLOCK]
        alive = lucid.ones(block.size(0), dtype=lucid.bool, device=boxes.device)
        for former in kept:
            alive = alive & ~(_overlaps(former, block) > iou_threshold).any(0)
        stays = _greedy((_overlaps(block, block) > iou_threshold).triu(1), alive)
        places.append(stays.nonzero().squeeze(1) + start)
        kept.append(block[stays])
    if not places:
        return order
    return order[lucid.cat(places)]
