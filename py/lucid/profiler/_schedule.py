"""Which steps of a loop a profiler records."""

from __future__ import annotations

import enum
from collections.abc import Callable

from lucid import errors
from lucid._warnings import warn


class ProfilerAction(enum.Enum):
    """What a profiler does during a step."""

    #: Nothing.
    NONE = 0
    #: Records, and forgets it.
    WARMUP = 1
    #: Records.
    RECORD = 2
    #: Records; at the step's end the trace is handed over.
    RECORD_AND_SAVE = 3


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """Cycles of steps: `wait` without recording, `warmup` recorded and forgotten, `active` recorded and handed over.

    Args:
        wait (int): Numbers of steps.
        warmup (int): Numbers of steps.
        active (int): Numbers of steps.
        repeat (int, default: 0): How many cycles; 0 goes on for good.
        skip_first (int, default: 0): Steps before the first cycle.
        skip_first_wait (int, default: 0): If not 0, the first cycle does not wait.

    Returns:
        callable: takes the number of the step, and returns a `ProfilerAction`.

    Raises:
        ValueError: a number is negative, or `active` not positive.

    Example:
        >>> steps = lucid.profiler.schedule(wait=1, warmup=0, active=1)
        >>> [steps(i).name for i in range(2)]
        ['NONE', 'RECORD_AND_SAVE']
    """
    if wait < 0 or warmup < 0 or repeat < 0 or skip_first < 0 or active <= 0:
        raise errors.ValueError(
            "schedule: wait, warmup, repeat and skip_first should not be negative and active be positive, got "
            f"wait={wait}, warmup={warmup}, active={active}, repeat={repeat}, skip_first={skip_first}"
        )
    if warmup == 0:
        warn("Profiler won't be using warmup, this can skew profiler results")
    cycle = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise errors.ValueError(f"schedule: steps count from 0, got {step}")
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait:
            step += wait
        if 0 < repeat <= step // cycle:
            return ProfilerAction.NONE
        at = step % cycle
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if at < cycle - 1 else ProfilerAction.RECORD_AND_SAVE

    return action
