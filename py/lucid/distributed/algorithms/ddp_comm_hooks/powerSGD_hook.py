"""PowerSGD: gradients travel as the factors of low-rank matrices, and what that leaves out is added the next time.

Reference: Vogels et al., PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization, 2019.
"""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid._warnings import warn_without_effect
from lucid.distributed._state import resolve
from lucid.distributed.algorithms.ddp_comm_hooks.default_hooks import Reduced, allreduce_hook
from lucid.nn.data_parallel import GradBucket


class PowerSGDState:
    """What `powerSGD_hook` keeps between backward passes.

    Args:
        process_group (object, optional): The group; all processes where it is None.
        matrix_approximation_rank (int, default: 1): The rank of the matrices that travel.
        start_powerSGD_iter (int, default: 1000): How many passes send all of the gradients first.
        min_compression_rate (float, default: 2): Matrices that would shrink by less travel as they are.
        use_error_feedback (bool, default: True): Whether what was left out is added to the next gradients.
        warm_start (bool, default: True): Whether the factors of the last pass are where this one begins.
        orthogonalization_epsilon (float, default: 0): What is added to norms; a QR decomposition is used where it is 0.
        random_seed (int, default: 0): Of the first factors, the same on every process.
        compression_stats_logging_frequency (int, default: 10000): Accepted; `compression_stats()` says it.
        batch_tensors_with_same_shape (bool, default: False): Accepted; factors travel together in any case.
    """

    def __init__(
        self,
        process_group: Any = None,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1_000,
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        orthogonalization_epsilon: float = 0,
        random_seed: int = 0,
        compression_stats_logging_frequency: int = 10_000,
        batch_tensors_with_same_shape: bool = False,
    ) -> None:
        warn_without_effect(
            "PowerSGDState",
            "no statistics are logged",
            compression_stats_logging_frequency=compression_stats_logging_frequency != 10_000,
        )
        warn_without_effect(
            "PowerSGDState",
            "each tensor is compressed by itself",
            batch_tensors_with_same_shape=batch_tensors_with_same_shape
        )
        if matrix_approximation_rank < 1:
            raise errors.ValueError(f"PowerSGDState: the rank must be at least 1, got {matrix_approximation_rank}")
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            why = "start_powerSGD_iter must be above 1 with error feedback or warm start"
            raise errors.ValueError(f"PowerSGDState: {why}, got {start_powerSGD_iter}")
        self.process_group = process_group
        self.matrix_approximation_rank = matrix_approximation_rank
        self.start_powerSGD_iter = start_powerSGD_iter
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback = use_error_feedback
        self.warm_start = warm_start
        self.orthogonalization_epsilon = orthogonalization_epsilon
        self.generator = lucid.Generator().manual_seed(random_seed)
        self.error_dict: dict[int, Tensor] = {}
        self.q_memory_dict: dict[int, list[Tensor]] = {}
        self.iter = 0
        self.total_numel_before_compression = 0
        self.total_numel_after_compression = 0

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Counts a backward pass at its last bucket."""
        if bucket.is_last():
            self.iter += 1

    def compression_stats(self) -> tuple[float, int, int]:
        """How much less travelled, and the numbers before and after."""
        before, after = self.total_numel_before_compression, self.total_numel_after_compression
        return (before / after if after else 0.0), before, after


class _Done(Reduced):
    """A future whose value is there."""

    def __init__(self, value: Tensor) -> None:
        self._value = value

    def wait(self) -> Tensor:
        """The vector."""
        return self._value

    value = wait

    def done(self) -> bool:
        """Is it there?"""
        return True


def _orthogonal(matrix: Tensor, epsilon: float) -> Tensor:
    """The matrix with orthonormal columns that span the same."""
    if epsilon == 0:
        basis: Tensor = lucid.linalg.qr(matrix.float())[0]
        return basis.to(matrix.dtype)
    columns: list[Tensor] = []
    for i in range(matrix.shape[1]):
        column = matrix[:, i]
        for other in columns:
            column = column - (other * column).sum() * other
        columns.append(column / (column.norm() + epsilon))
    return lucid.stack(columns, 1)


def _summed(group: Any, tensors: list[Tensor]) -> list[Tensor]:
    """The sums over all processes, which travel as one vector."""
    if not tensors:
        return []
    flat = lucid.cat([t.reshape(-1) for t in tensors])
    flat = group.native.begin("all_reduce", flat, "SUM", 0, None, group.timeout).wait()
    out, at = [], 0
    for t in tensors:
        out.append(flat[at : at + t.numel()].reshape(t.shape))
        at += t.numel()
    return out


def _approximated(state: PowerSGDState, group: Any, index: int, matrices: list[Tensor]) -> list[Tensor]:
    """The means of the matrices over all processes, of low rank."""
    epsilon = state.orthogonalization_epsilon
    kept = state.q_memory_dict.get(index) if state.warm_start else None
    if kept is None:
        ranks = [min(*m.shape, state.matrix_approximation_rank) for m in matrices]
        kept = [
            lucid.randn(m.shape[1], rank, generator=state.generator, device="cpu").to(m)
            for m, rank in zip(matrices, ranks, strict=True)
        ]
    right = [_orthogonal(q, epsilon) for q in kept]
    left = _summed(group, [m @ q for m, q in zip(matrices, right, strict=True)])
    left = [_orthogonal(p, epsilon) for p in left]
    right = _summed(group, [m.t() @ p for m, p in zip(matrices, left, strict=True)])
    right = [q / group.size() for q in right]
    state.q_memory_dict[index] = right
    state.total_numel_after_compression += sum(t.numel() for t in (*left, *right))
    return [p @ q.t() for p, q in zip(left, right, strict=True)]


def _hook(state: PowerSGDState, bucket: GradBucket, shapes: list[tuple[int, ...]]) -> Reduced:
    """The mean of the bucket's vector, seen as tensors of these shapes."""
    found = resolve(state.process_group, "powerSGD_hook")
    assert found is not None
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return allreduce_hook(state.process_group, bucket)
    index, flat = bucket.index(), bucket.buffer()
    count = flat.numel()
    if state.use_error_feedback and index in state.error_dict:
        flat = flat + state.error_dict[index]
    wanted = sum(math.prod(shape) for shape in shapes)
    padded = lucid.cat([flat, flat.new_zeros(wanted - count)]) if wanted > count else flat
    pieces, at = [], 0
    for shape in shapes:
        rows = shape[0] if shape else 1
        pieces.append(padded[at : at + math.prod(shape)].reshape(rows, -1))
        at += math.prod(shape)

    def shrinks(m: Tensor) -> bool:
        rows, columns = m.shape
        sent = (rows + columns) * min(rows, columns, state.matrix_approximation_rank)
        return sent * state.min_compression_rate < rows * columns

    chosen = [i for i, shape in enumerate(shapes) if len(shape) > 1 and shrinks(pieces[i])]
    others = [i for i in range(len(pieces)) if i not in set(chosen)]
    made: dict[int, Tensor] = {}
    whole = _summed(found, [pieces[i] for i in others])
    made.update((i, m / found.size()) for i, m in zip(others, whole, strict=True))
    if chosen:
        low = _approximated(state, found, index, [pieces[i] for i in chosen])
        made.update(zip(chosen, low, strict=True))
    state.total_numel_before_compression += count
    state.total_numel_after_compression += sum(m.numel() for m in whole)
    out = lucid.cat([made[i].reshape(-1) for i in range(len(pieces))])[:count]
    if state.use_error_feedback:
        state.error_dict[index] = flat - out
    state.maybe_increase_iter(bucket)
    return _Done(out)


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Reduced:
    """The mean of gradients, of which each matrix travels as its factors: P Qᵀ with P = orth(Σ M Q), Q = Σ Mᵀ P / n.

    Args:
        state (PowerSGDState): What is kept between passes, one for each `DistributedDataParallel`.
        bucket (GradBucket): The gradients. Vectors and small matrices travel as they are.

    Returns:
        A future of the vector.
    """
    return _hook(state, bucket, [tuple(g.shape) for g in bucket.gradients()])


def batched_powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Reduced:
    """As `powerSGD_hook`, with all of the bucket as one square matrix: faster, and less exact."""
    side = math.isqrt(bucket.buffer().numel() - 1) + 1
    return _hook(state, bucket, [(side, side)])
