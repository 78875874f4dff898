"""What resident sessions share: operands that stay on the device, a state, one user at a time.

A session is new until it is started, then running until it is finished. On the CPU a resident operand is the caller's
own memory, so nothing is copied; on a GPU it is a copy that an upload renews.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lucid import _C, errors
from lucid.lightning import _arrays, _dispatch, _policy
from lucid.lightning._arrays import Given, given, shaped
from lucid.lightning._runtime import _Sync, device_of, wait
from lucid.lightning._trace import RING

__all__ = ["Session", "SessionError"]

Tensor = _C.Tensor


class SessionError(errors.RuntimeError):
    """A session was used in an order, or by a thread, in which it cannot be."""


class Session:
    """The base of resident sessions; a subclass says which operands there are and how the result is computed."""

    def __init__(
        self,
        op: str,
        shapes: Mapping[str, Sequence[int]],
        out_shape: Sequence[int],
        device: Any,
        family: str,
        work: float,
        needs: Sequence[str] | None = None,
    ) -> None:
        self._name = op
        self._shapes = {name: tuple(shape) for name, shape in shapes.items()}
        self._out_shape = tuple(out_shape)
        self._needs = tuple(shapes) if needs is None else tuple(needs)
        self._requested = device
        asked = device_of(op, device)
        # A session is for many runs, so that it stays where it was asked for unless the policy's threshold says so.
        self._device = _policy.select(family, op, asked, work)
        self._asked = asked
        self._fallback = self._device != asked
        self._lock = threading.Lock()
        self._resident: dict[str, Tensor] = {}
        self._sources: dict[str, tuple[Any, int]] = {}
        self._result: Tensor | None = None
        self._bound: Tensor | None = None
        self._downloads = 0
        self._kind = "numpy"
        self._flat = False
        self._state = "new"

    # ---- state -------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """`"new"`, `"running"` or `"finished"`."""
        return self._state

    @property
    def finished(self) -> bool:
        """Has the session given back what it kept?"""
        return self._state == "finished"

    @property
    def device(self) -> str:
        """Where the session computes."""
        return self._device.type

    @property
    def resident(self) -> tuple[str, ...]:
        """The operands that are on the device."""
        return tuple(self._resident)

    @contextlib.contextmanager
    def _using(self, op: str, *, running: bool = False, restarts: bool = False) -> Iterator[None]:
        """One user at a time, and not after the end."""
        if not self._lock.acquire(blocking=False):
            raise SessionError(f"{op}: another thread uses the session; make one for each thread")
        try:
            if self._state == "finished" and not restarts:
                raise SessionError(f"{op}: the session is finished; start it again or make another")
            if running and self._state != "running":
                raise SessionError(f"{op}: the session was not started")
            yield
        finally:
            self._lock.release()

    def _drop(self) -> None:
        """Gives back what is kept on the device."""
        self._resident, self._sources = {}, {}
        self._result = self._bound = None
        self._state = "finished"

    def close(self) -> None:
        """Ends the session without a result: what it keeps on the device is given back."""
        with self._using(f"{self._name}.close()", restarts=True):
            self._drop()

    # ---- operands and results ----------------------------------------------------------------------------------------

    def _check(self, op: str, name: str, x: Any) -> tuple[Given, Tensor]:
        operand = given(op, name, x)
        return operand, shaped(op, name, operand, self._shapes[name])

    def _target(self, op: str, out: Any) -> Tensor:
        return _arrays.output(op, out, self._out_shape)

    def _bring(self, op: str, operands: Mapping[str, Any], often: Mapping[str, str], target: Tensor | None) -> None:
        """Makes the operands resident as the policy says: at each call, where none or another is, or never."""
        checked: dict[str, tuple[Given, Tensor]] = {}
        for name, x in operands.items():
            if x is not None:
                checked[name] = self._check(op, name, x)
            elif often[name] == "always" and name in self._needs and name not in self._resident:
                raise SessionError(f"{op}: no {name} is resident; pass one")
        for name in self._needs:
            uploads = name in checked and often.get(name) != "never"
            if not uploads and name not in self._resident:
                raise SessionError(f"{op}: no {name} is resident, and the policy uploads none")
        if target is not None:
            _arrays.apart(op, target, **{name: tensor for name, (_, tensor) in checked.items()})
        for name, (operand, tensor) in checked.items():
            if often[name] == "never":
                continue
            address = self._sources.get(name, (None, -1))[1]
            if often[name] == "once" and name in self._resident and operand.address and operand.address == address:
                continue
            own = tensor.detach() if tensor.requires_grad else tensor
            self._resident[name] = _dispatch.evaluate(_dispatch.moved(own, self._device))
            # The source is kept, so that no other array can come to its address.
            self._sources[name] = (operands[name], operand.address)
        first = next(iter(checked.values()), None)
        if first is not None:
            self._kind = _dispatch.kind_of([operand for operand, _ in checked.values()])
            self._flat = len(first[0].tensor.shape) == 1
        self._state = "running"

    def _replace(self, name: str, tensor: Tensor) -> None:
        """Another value for a resident operand, which no longer is the caller's."""
        self._resident[name] = tensor
        self._sources[name] = (None, -1)

    def _compute(self, tensors: dict[str, Tensor], out: Tensor | None) -> Tensor:
        raise NotImplementedError

    def _launch(self, op: str, target: Tensor | None = None, download: str = "always", loops: int = 1) -> Tensor | None:
        """Computes from what is resident, `loops` times, and brings the result home as asked.

        Returns:
            The result where it was asked for; `None` where it stays on the device.
        """
        start = time.perf_counter_ns() if RING.enabled else 0
        wanted = download == "always" or (download == "once" and self._downloads == 0)
        cpu = self._device.type == "cpu"
        direct = target if cpu and wanted and target is not None and target.is_cpu else None
        for _ in range(loops):
            self._result = self._compute(self._resident, direct)
            if not cpu:
                # Started at once, so that each of the runs is computed and none waits for the last.
                _C._eval([self._result], False)
        result = self._result
        if start and result is not None:
            RING.add(
                "session",
                op.removesuffix("()"),
                start,
                str(self._requested),
                self._device.type,
                fallback=self._fallback,
                shape=result.shape,
                nbytes=4 * result.numel() * loops,
            )
        if not wanted or result is None:
            return None
        self._downloads += 1
        if target is not None and result is not target:
            target.copy_(result)
        return result

    def _settle(self, synchronize: str) -> None:
        """Waits for the device where the policy says so: the session's, or else the runtime's."""
        if synchronize == "always" or _Sync.policy == "always":
            if self._result is not None:
                _dispatch.evaluate(self._result)
            wait(self._device, str(self._requested))

    def _give(self, result: Tensor | None) -> Any:
        """The result as the operands' kind, in memory of its own."""
        if result is None:
            return None
        if self._kind == "tensor":
            # The crossover is for arrays: a tensor is given where it was asked for.
            result = _dispatch.moved(result, self._asked)
        return _arrays.result(self._kind, result, self._flat)
