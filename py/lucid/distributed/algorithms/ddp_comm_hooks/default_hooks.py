"""The usual communication hooks: the mean of all gradients, sent as they are or in 16 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
from lucid import _C, Tensor
from lucid.distributed._state import resolve
from lucid.nn.data_parallel import GradBucket


class Reduced:
    """A future of a reduced vector."""

    def __init__(self, work: _C._Work, after: Callable[[Tensor], Tensor]) -> None:
        self._work, self._after = work, after

    def wait(self) -> Tensor:
        """The vector; waits."""
        return self._after(self._work.wait())

    value = wait

    def done(self) -> bool:
        """Is it there?"""
        return self._work.is_completed()

    def then(self, callback: Callable[[Reduced], Any]) -> _Then:
        """A future of what the callback makes of this one."""
        return _Then(self, callback)


class _Then:
    def __init__(self, before: Reduced | _Then, callback: Callable[[Any], Any]) -> None:
        self._before, self._callback = before, callback

    def wait(self) -> Any:
        """The callback's result; waits."""
        return self._callback(self._before)

    value = wait

    def then(self, callback: Callable[[Any], Any]) -> _Then:
        """A future of what the callback makes of this one."""
        return _Then(self, callback)


def _mean(group: Any, flat: Tensor, after: Callable[[Tensor], Tensor]) -> Reduced:
    found = resolve(group, "all_reduce")
    assert found is not None
    flat = flat / found.size()
    return Reduced(found.native.begin("all_reduce", flat, "SUM", 0, None, found.timeout), after)


def allreduce_hook(process_group: Any, bucket: GradBucket) -> Reduced:
    """The mean, as without a hook."""
    return _mean(process_group, bucket.buffer(), lambda t: t)


def _compressed(dtype: lucid.dtype) -> Callable[[Any, GradBucket], Reduced]:
    def hook(process_group: Any, bucket: GradBucket) -> Reduced:
        flat = bucket.buffer()
        return _mean(process_group, flat.to(dtype), lambda t: t.to(flat.dtype))

    return hook


def fp16_compress_hook(process_group: Any, bucket: GradBucket) -> Reduced:
    """The mean, sent and summed in float16."""
    return _compressed(lucid.float16)(process_group, bucket)


def bf16_compress_hook(process_group: Any, bucket: GradBucket) -> Reduced:
    """The mean, sent and summed in bfloat16."""
    return _compressed(lucid.bfloat16)(process_group, bucket)


def _wrapper(hook: Callable[[Any, GradBucket], Any], dtype: lucid.dtype) -> Callable[[Any, GradBucket], Any]:
    def wrapped(state: Any, bucket: GradBucket) -> Any:
        own = bucket.buffer().dtype
        bucket.set_buffer(bucket.buffer().to(dtype))
        return _Then(hook(state, bucket), lambda f: f.wait().to(own))

    return wrapped


def fp16_compress_wrapper(hook: Callable[[Any, GradBucket], Any]) -> Callable[[Any, GradBucket], Any]:
    """The hook, given gradients in float16, and its result in their own dtype."""
    return _wrapper(hook, lucid.float16)


def bf16_compress_wrapper(hook: Callable[[Any, GradBucket], Any]) -> Callable[[Any, GradBucket], Any]:
    """The hook, given gradients in bfloat16, and its result in their own dtype."""
    return _wrapper(hook, lucid.bfloat16)
