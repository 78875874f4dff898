"""How an op runs: operands to the chosen device, the op, the result in the caller's memory or of the kind given."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from lucid import _C, errors
from lucid.lightning import _arrays, _policy
from lucid.lightning._arrays import Given
from lucid.lightning._runtime import _CPU, _DEVICES, _Sync, device_of, wait
from lucid.lightning._trace import RING

Tensor = _C.Tensor
_DEVICES["cpu"] = _CPU
# Computes from tensors on one device; with memory given, writes there and returns it.
Compute = Callable[..., Tensor]


def evaluate(tensor: Tensor) -> Tensor:
    """The tensor, computed."""
    if not tensor.is_cpu:
        _C._eval([tensor], True)
    return tensor


def moved(tensor: Tensor, device: _C.device) -> Tensor:
    """The tensor on a device, uploaded or downloaded where it is elsewhere."""
    if tensor.device == device:
        return tensor
    if not RING.enabled:
        return tensor.to(device)
    start = time.perf_counter_ns()
    there = tensor.to(device)
    kind = "download" if device.type == "cpu" else "upload"
    RING.add(kind, "to", start, device.type, device.type, shape=tensor.shape, nbytes=4 * tensor.numel())
    return there


def kind_of(operands: Sequence[Given]) -> str:
    """The kind of the result: a tensor where an operand is one, else as the first operand."""
    for operand in operands:
        if operand.kind == "tensor":
            return "tensor"
    return operands[0].kind


def run(
    op: str,
    family: str,
    device_name: Any,
    kind: str,
    tensors: Sequence[Tensor],
    work: float,
    compute: Compute,
    out: Tensor | None = None,
) -> Tensor:
    """Computes on the device asked for, or where the crossover policy puts it; into `out` where that is given.

    Args:
        op: The op's name, for errors and the trace.
        family: The crossover's family.
        device_name: The device as the caller named it.
        kind: The kind of the operands: the crossover leaves results of tensors where they were asked for.
        tensors: The operands in the shapes that `compute` takes.
        work: Multiply-accumulates, or elements.
        compute: Called with tensors on one device and `out`, which is memory on the CPU or `None`.
    """
    asked = device_of(op, device_name)
    if out is not None and any(t.requires_grad for t in tensors):
        raise errors.ValueError(f"{op}: an operand requires a gradient, which plain memory has not; detach it")
    chosen = asked
    start = time.perf_counter_ns() if RING.enabled else 0
    if kind != "tensor" and asked is not _CPU and asked.type != "cpu":

        def trial(device: _C.device) -> None:
            evaluate(compute(*[t.to(device) for t in tensors], out=None)).cpu()

        key = f"{op} {'; '.join('x'.join(map(str, t.shape)) for t in tensors)}"
        chosen = _policy.select(family, key, asked, work, trial)
    cpu = chosen is _CPU or chosen.type == "cpu"
    here = [t if (t.is_cpu if cpu else t.device == chosen) else moved(t, chosen) for t in tensors]
    result = compute(*here, out=out if cpu and out is not None and out.is_cpu else None)
    if out is not None and result is not out:
        out.copy_(result)
        result = out
    elif _Sync.policy == "always" and not result.is_cpu:
        evaluate(result)
        wait(chosen)
    if start:
        RING.add(
            "op_dispatch",
            op.removesuffix("()"),
            start,
            str(device_name),
            chosen.type,
            fallback=chosen != asked,
            shape=result.shape,
            nbytes=4 * (result.numel() + sum(t.numel() for t in tensors)),
        )
    return result


def finish(kind: str, result: Tensor, flat: bool) -> Any:
    """The result as the caller's kind."""
    return _arrays.result(kind, result, flat)
