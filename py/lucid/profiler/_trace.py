"""The profiler itself: recording, cycles of steps, what is written to files."""

from __future__ import annotations

import enum
import functools
import gzip
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar

import lucid
from lucid import _C, errors
from lucid._warnings import warn, warn_without_effect
from lucid.profiler._events import MemoryStats, OpEvent, ProfileSummary
from lucid.profiler._flops import flops
from lucid.profiler._schedule import ProfilerAction

F = TypeVar("F", bound=Callable[..., Any])
# Of an event: name, category, thread, start, duration, MLX operations, evaluations, bytes.
_What = tuple[str, str, int, int, int, int, int, int]


class ProfilerActivity(enum.Enum):
    """What PyTorch's profiler can be told to look at. Here both devices always are."""

    CPU = 0
    CUDA = 1
    XPU = 2
    MTIA = 3
    HPU = 4
    PrivateUse1 = 5


def supported_activities() -> set[ProfilerActivity]:
    """The activities that are traced: the CPU's, which includes recording and evaluating the GPU device's work."""
    return {ProfilerActivity.CPU}


_lock = threading.Lock()
#: The profiler between its `start` and its `stop`, and the one that records.
_owner: Profiler | None = None
_running: Profiler | None = None


def kineto_available() -> bool:
    """Whether PyTorch's tracer of kernels is there: `False`."""
    return False


def _always(step: int) -> ProfilerAction:
    return ProfilerAction.RECORD


class Profiler:
    """Traces what runs between `start` and `stop`, or inside of its `with` block.

    Args:
        profile_memory (bool, default: False): Whether events tell how much they allocated. The GPU's memory is
            looked at only once it is used.
        record_shapes (bool, default: False): Whether events tell the shapes of the op's tensors.
        with_stack (bool, default: False): Whether events tell where they were called, which is slow.
        schedule (Callable[[int], ProfilerAction], optional): What to do in each step, such as `schedule(wait=1,
            warmup=1, active=3)`; `step` ends one. By default everything is recorded.
        on_trace_ready (Callable[[Any], Any], optional): Called with the profiler when a recording is complete.
        acc_events (bool, default: False): Whether events of earlier cycles are kept.
        with_flops (bool, default: False): Whether events tell how many floating-point operations they are
            (products, convolutions, attention, `add` and `mul`), worked out from the shapes.

    Raises:
        RuntimeError: the profiler is running already.

    Example:
        >>> with lucid.profiler.Profiler() as p:
        ...     _ = lucid.ones(2) + 1
        >>> "add" in [e.name for e in p.events()]
        True
    """

    def __init__(
        self,
        *,
        profile_memory: bool = False,
        record_shapes: bool = False,
        with_stack: bool = False,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[Any], Any] | None = None,
        acc_events: bool = False,
        with_flops: bool = False,
    ) -> None:
        if schedule is not None and not callable(schedule):
            raise errors.TypeError(
                f"Profiler: schedule should be a function of the step, got {type(schedule).__name__}; "
                "lucid.profiler.schedule makes one"
            )
        if on_trace_ready is not None and not callable(on_trace_ready):
            raise errors.TypeError(
                f"Profiler: on_trace_ready should be a function of the profiler, got {type(on_trace_ready).__name__}"
            )
        self.profile_memory = profile_memory
        self.record_shapes = record_shapes
        self.with_stack = with_stack
        self.with_flops = with_flops
        self.on_trace_ready = on_trace_ready
        self.acc_events = acc_events
        self.step_num = 0
        self.current_action = ProfilerAction.NONE
        self.dropped = 0
        self._schedule = schedule or _always
        self._named_steps = schedule is not None
        self._step_began: tuple[int, int] | None = None
        self._events: list[OpEvent] = []
        # What the running recording has of named ranges, and how many recordings there were.
        self._user: list[OpEvent] = []
        self._recording = 0
        self._memory: list[MemoryStats] = []
        self._before: dict[str, int] = {}
        self._metadata: dict[str, Any] = {}

    # ---- running -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins anew, at step 0. RuntimeError where another profiler runs."""
        global _owner
        with _lock:
            if _owner is not None:
                raise errors.RuntimeError("a profiler is running already; stop it first")
            _owner = self
        self.step_num = 0
        self._events, self._user, self._memory, self.dropped = [], [], [], 0
        try:
            self.current_action = self._schedule(0)
            if self.current_action is not ProfilerAction.NONE:
                self._record()
        except BaseException:
            _owner = None
            raise
        self._begin_step()

    def stop(self) -> None:
        """Ends the trace, and hands it over if it recorded; without effect where it does not run."""
        global _owner
        with _lock:
            if _owner is not self:
                return
        self._end_step()
        action, self.current_action = self.current_action, ProfilerAction.NONE
        try:
            self._keep(action)
        finally:
            with _lock:
                _owner = None
        if action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE):
            self._ready()

    def step(self) -> None:
        """Ends a step, and does what the schedule says of the next one."""
        if _owner is not self:
            return
        self._end_step()
        before = self.current_action
        self.step_num += 1
        self.current_action = after = self._schedule(self.step_num)
        if before is ProfilerAction.RECORD and after in (ProfilerAction.NONE, ProfilerAction.WARMUP):
            warn(f"Incorrect schedule: RECORD followed by {after.name}")
        goes_on = before is ProfilerAction.RECORD and after in (
            ProfilerAction.RECORD,
            ProfilerAction.RECORD_AND_SAVE,
        )
        if not goes_on and not (before is after is ProfilerAction.WARMUP):
            self._keep(before)
            if before is ProfilerAction.RECORD_AND_SAVE:
                self._ready()
            if after is not ProfilerAction.NONE:
                self._record()
        self._begin_step()

    def _begin_step(self) -> None:
        if self._named_steps and _running is self:
            self._step_began = _C._profile_now()

    def _end_step(self) -> None:
        if self._step_began is not None:
            start, thread = self._step_began
            self._step_began = None
            name = f"ProfilerStep#{self.step_num}"
            self._user.append(OpEvent(name, "user", thread, start, _C._profile_now()[0] - start))

    def _record(self) -> None:
        global _running
        if not self.acc_events:
            self._events, self.dropped = [], 0
        self._user, self._memory = [], []
        self._recording += 1
        if self.profile_memory:
            for device in self._devices():
                lucid.reset_peak_memory_stats(device)
                self._before[device.type] = lucid.memory_stats(device)["allocations"]
        _C._profile_start_trace(self.profile_memory, self.record_shapes or self.with_flops, self.with_stack)
        with _lock:
            _running = self

    def _keep(self, action: ProfilerAction) -> None:
        """Ends a recording; what was for warming up is forgotten."""
        global _running
        with _lock:
            if _running is not self:
                return
            _running = None
        _C._profile_stop()
        events, dropped = _C._profile_take_trace()
        if action is ProfilerAction.WARMUP:
            return
        self.dropped += dropped
        found = [self._event(*event) for event in events] + self._user
        # Each recording has a clock of its own.
        shift = max((e.end_ns for e in self._events), default=0)
        self._events += [replace(e, start_ns=e.start_ns + shift) for e in found] if shift else found
        if self.profile_memory:
            for device in self._devices():
                stats = lucid.memory_stats(device)
                stats["allocations"] -= self._before.get(device.type, 0)
                self._memory.append(MemoryStats(device.type, **stats))

    def _event(self, what: _What, shapes: list[list[int]], made: list[int], stack: list[str]) -> OpEvent:
        counted = flops(what[0], shapes, made) if self.with_flops else 0
        return OpEvent(*what, shapes if self.record_shapes else [], stack, counted)

    def _ready(self) -> None:
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    @staticmethod
    def _devices() -> list[Any]:
        return [lucid.device(d) for d in (("cpu", "gpu") if _C._gpu_in_use() else ("cpu",))]

    def __enter__(self) -> Profiler:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # ---- what it found -----------------------------------------------------------------------------------------------

    def events(self) -> list[OpEvent]:
        """All events, by their start."""
        return sorted(self._events, key=lambda e: (e.start_ns, -e.duration_ns))

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> ProfileSummary:
        """The events added up by name; if asked, shapes and the innermost `group_by_stack_n` frames apart."""
        return ProfileSummary(self.events(), self._memory, group_by_input_shape, group_by_stack_n)

    summary = key_averages

    def memory_stats(self) -> list[MemoryStats]:
        """What the devices' memory did, where it was profiled."""
        return list(self._memory)

    def add_metadata(self, key: str, value: str) -> None:
        """A text that goes into the written trace."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """The same, of a value given as JSON."""
        self._metadata[key] = json.loads(value)

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the events as JSON for `chrome://tracing` or Perfetto; compressed where the path ends in `.gz`."""
        process = os.getpid()
        rows = []
        for e in self.events():
            args: dict[str, Any] = {"mlx_ops": e.mlx_ops, "evaluations": e.evaluations, "bytes": e.memory}
            if self.record_shapes:
                args["Input Dims"] = e.shapes
            if e.flops:
                args["flops"] = e.flops
            if self.with_stack:
                args["Call stack"] = ";".join(e.stack)
            rows.append(
                {
                    "name": e.name,
                    "cat": e.category,
                    "ph": "X",
                    "ts": e.start_ns / 1000,
                    "dur": e.duration_ns / 1000,
                    "pid": process,
                    "tid": e.thread,
                    "args": args,
                }
            )
        found = {"traceEvents": rows, "displayTimeUnit": "ms", **self._metadata}
        opened: Any = gzip.open if os.fspath(path).endswith(".gz") else open
        with opened(path, "wt", encoding="utf-8") as file:
            json.dump(found, file)

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Writes a line per stack, the outermost frame first, with its events' microseconds: what flame graphs are made
        of. Needs `with_stack`."""
        if not self.with_stack:
            raise errors.RuntimeError("export_stacks: the profiler did not record stacks; give it with_stack=True")
        if metric not in ("self_cpu_time_total", "self_cuda_time_total", "self_xpu_time_total"):
            raise errors.ValueError(f"export_stacks: metric should be self_cpu_time_total, got {metric!r}")
        times: dict[str, int] = {}
        for e in self.events():
            if e.stack:
                line = ";".join([*(f.replace(";", ",").replace(" ", "_") for f in reversed(e.stack)), e.name])
                times[line] = times.get(line, 0) + e.duration_ns
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{line} {ns // 1000}\n" for line, ns in times.items() if ns >= 1000)

    def __str__(self) -> str:
        return self.key_averages().table()


class profile(Profiler):
    """A `Profiler` with the arguments that PyTorch's has.

    Args:
        activities (Iterable[Any], optional): all are traced in any case; an empty one is an error.
        schedule (callable, optional): takes the number of the step, and returns what is done in it.
        on_trace_ready (callable, optional): takes the profiler, when a trace is complete.
        record_shapes (bool, default: False): records the shapes of operands.
        profile_memory (bool, default: False): records memory.
        with_stack (bool, default: False): records where ops were called.
        with_flops (bool, default: False): counts floating-point operations.
        with_modules (bool, default: False): True gives one warning that it has no effect.
        experimental_config (object, optional): one gives one warning that it has no effect.
        execution_trace_observer (object, optional): one gives one warning that it has no effect.
        acc_events (bool, default: False): keeps the events of all cycles.
        custom_trace_id_callback (callable, optional): one gives one warning that it has no effect.
        post_processing_timeout_s (float, optional): a number gives one warning that it has no effect.

    Raises:
        ValueError: activities that are not there.

    Example:
        >>> with lucid.profiler.profile() as p:
        ...     _ = lucid.ones(2) + 1
        >>> "add" in [e.name for e in p.events()]
        True
    """

    def __init__(
        self,
        activities: Iterable[Any] | None = None,
        *,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[Any], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        custom_trace_id_callback: Any = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        warn_without_effect(
            "profile",
            "ops are what is recorded",
            with_modules=with_modules,
            experimental_config=experimental_config is not None,
            execution_trace_observer=execution_trace_observer is not None,
            custom_trace_id_callback=custom_trace_id_callback is not None,
            post_processing_timeout_s=post_processing_timeout_s is not None,
        )
        if activities is not None and not list(activities):
            raise errors.ValueError("profile: no activities given; leave them out, or name ProfilerActivity.CPU")
        super().__init__(
            profile_memory=profile_memory,
            record_shapes=record_shapes,
            with_stack=with_stack,
            schedule=schedule,
            on_trace_ready=on_trace_ready,
            acc_events=acc_events,
            with_flops=with_flops,
        )


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[Profiler], None]:
    """For `on_trace_ready`: writes each trace to a file of its own in a folder, as TensorBoard's plugin reads them.

    Args:
        dir_name (str): the folder to write to.
        worker_name (str, optional): the name of the process; by default made of the host's and the number of the
            process.
        use_gzip (bool, default: False): compresses the files.

    Returns:
        callable: takes the profiler, and writes its trace.

    Raises:
        RuntimeError: `dir_name` cannot be made.

    Example:
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with lucid.profiler.profile(on_trace_ready=lucid.profiler.tensorboard_trace_handler(folder)):
        ...         _ = lucid.ones(1) + 1
        ...     print(len(os.listdir(folder)))
        1
    """

    def write(profiler: Profiler) -> None:
        try:
            os.makedirs(dir_name, exist_ok=True)
        except OSError as e:
            raise errors.RuntimeError(f"tensorboard_trace_handler: can't create directory {dir_name}: {e}") from e
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        ending = ".gz" if use_gzip else ""
        profiler.export_chrome_trace(os.path.join(dir_name, f"{worker}.{time.time_ns()}.pt.trace.json{ending}"))

    return write


class record_function:
    """Names a range of a program, as a `with` block or a decorator; without a running profiler it costs next to
    nothing.

    Args:
        name (str): the name of the range.
        args (str, optional): a text that is recorded beside it.

    Example:
        >>> with lucid.profiler.profile() as p, lucid.profiler.record_function("my step"):
        ...     _ = lucid.ones(1)
        >>> "my step" in [e.name for e in p.events()]
        True
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name if args is None else f"{name}({args})"
        self._started: list[tuple[Profiler, int, int]] = []

    def __enter__(self) -> record_function:
        running = _running
        if running is not None:
            self._started.append((running, running._recording, _C._profile_now()[0]))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._started:
            return
        profiler, recording, start = self._started.pop()
        if profiler is _running and profiler._recording == recording:
            now, thread = _C._profile_now()
            profiler._user.append(OpEvent(self.name, "user", thread, start, now - start))

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            # An instance of its own for each call: it may run in several threads, or call itself.
            with record_function(self.name):
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]
