"""Backends: which there are, what each can do, by which interfaces, and when the host waits for one."""

from __future__ import annotations

import os
from typing import Any

from lucid import _C, errors
from lucid._evaluation import synchronize
from lucid.lightning._trace import RING

__all__ = [
    "backend_name",
    "cuda_available",
    "memory_model_name",
    "metal_available",
    "runtime_active_backend_capabilities",
    "runtime_active_backend_interfaces",
    "runtime_backend_capabilities",
    "runtime_backend_interfaces",
    "runtime_sync_apply",
    "runtime_sync_apply_default",
    "runtime_sync_policy_get",
    "runtime_sync_policy_set",
]

BACKENDS = ("metal", "cpu", "cuda")
SYNC_POLICIES = ("auto", "always", "never")
_DEVICES: dict[str, _C.device] = {}
_CPU = _C.device("cpu")


def device_of(op: str, name: Any) -> _C.device:
    """The engine's device for a device's name: `metal`, `cuda`, `gpu`, `mlx` or `cpu`.

    Where MLX offers another GPU than the one named, it is that one, with the engine's one warning; with
    `LUCID_STRICT_DEVICE=1` it is an error.
    """
    if isinstance(name, str):
        known = _DEVICES.get(name)
        if known is not None and (name == "cpu" or not os.environ.get("LUCID_STRICT_DEVICE")):
            return known
    if isinstance(name, _C.device):
        return name
    if not isinstance(name, str):
        raise errors.TypeError(f'{op}: device must be a str such as "metal" or "cpu", got {type(name).__name__}')
    lower = name.lower()
    if lower == "auto":
        lower = backend_name()
    elif lower not in ("metal", "mps", "cpu", "cuda", "gpu", "mlx"):
        raise errors.ValueError(f'{op}: device must be "metal", "cpu", "cuda", "gpu" or "auto", got {name!r}')
    device = _C.device(lower)
    _DEVICES[name] = device
    return device


def _gpu_type() -> str:
    return _C.device("gpu").type


def metal_available() -> bool:
    """Is Apple's GPU there?"""
    return _gpu_type() == "metal"


def cuda_available() -> bool:
    """Is an NVIDIA GPU there?"""
    return _gpu_type() == "cuda"


def backend_name() -> str:
    """The backend that `"auto"` names: `"metal"` or `"cuda"` where there is such a GPU, else `"cpu"`."""
    gpu = _gpu_type()
    return gpu if gpu in ("metal", "cuda") else "cpu"


_MEMORY_MODELS = {"metal": "host-managed-compat", "cpu": "host-managed-compat", "cuda": "native-device"}


def memory_model_name(backend: str | None = None) -> str:
    """Says where a backend's memory is.

    Args:
        backend (str, optional): `"metal"`, `"cpu"` or `"cuda"`. Default: the active one.

    Returns:
        str: `"host-managed-compat"`, memory that the CPU sees, or `"native-device"`.

    Raises:
        ValueError: there is no such backend.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.memory_model_name("cpu")
        'host-managed-compat'
    """
    return _MEMORY_MODELS[_backend("memory_model_name", backend)]


def _backend(op: str, backend: Any) -> str:
    if backend is None:
        return backend_name()
    if backend not in BACKENDS:
        raise errors.ValueError(f"{op}: backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    return str(backend)


def _available(backend: str) -> bool:
    return backend == "cpu" or _gpu_type() == backend


def runtime_backend_capabilities(backend: str) -> dict[str, Any]:
    """What a backend can do, whether or not this machine has it.

    Args:
        backend (str): `"metal"`, `"cpu"` or `"cuda"`.

    Returns:
        A dict with `backend`, `built` (this installation can drive it), `available` (it is on this machine), `compute`,
        `memory`, `sync`, `profiling`, `trace`, `sync_policy`, `graph`, `float64`, `memory_model` and `query`.

    Raises:
        ValueError: There is no such backend.

    Example:
        >>> import lucid.lightning as lc
        >>> found = lc.runtime_backend_capabilities("cpu")
        >>> found["available"], found["float64"]
        (True, True)
    """
    name = _backend("runtime_backend_capabilities()", backend)
    gpu = name != "cpu"
    return {
        "backend": name,
        "built": not gpu or _gpu_type() == name,
        "available": _available(name),
        "compute": True,
        "memory": gpu,
        "sync": True,
        "profiling": True,
        "trace": True,
        "sync_policy": True,
        "graph": True,
        "float64": not gpu,
        "memory_model": _MEMORY_MODELS[name],
        "query": "ok",
    }


def runtime_active_backend_capabilities() -> dict[str, Any]:
    """`runtime_backend_capabilities` of the active backend."""
    return runtime_backend_capabilities(backend_name())


_INTERFACES: dict[str, tuple[str, ...]] = {
    "compute": ("matmul", "attention", "conv2d", "elementwise", "graph"),
    "memory": ("upload", "download", "resident", "zero_copy"),
    "sync": ("policy", "device", "event"),
    "profiler": ("trace", "timeline", "chrome", "html"),
}


def runtime_backend_interfaces(backend: str) -> dict[str, Any]:
    """The interfaces of a backend's contract (compute, memory, sync, profiler), and which methods each has.

    Args:
        backend (str): `"metal"`, `"cpu"` or `"cuda"`.

    Returns:
        A dict with `backend`, `version` and for each interface a dict of method to whether the backend has it.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.runtime_backend_interfaces("cpu")["memory"]["upload"]  # nothing has to be brought to the CPU
        False
    """
    name = _backend("runtime_backend_interfaces()", backend)
    # On the CPU there is nothing to bring anywhere or to wait for; on a GPU of its own memory nothing is shared.
    missing = {"cpu": {"upload", "download", "event"}, "cuda": {"zero_copy"}, "metal": set[str]()}[name]
    methods = {
        interface: {method: method not in missing for method in names} for interface, names in _INTERFACES.items()
    }
    return {"backend": name, "version": 1, **methods}


def runtime_active_backend_interfaces() -> dict[str, Any]:
    """`runtime_backend_interfaces` of the active backend."""
    return runtime_backend_interfaces(backend_name())


class _Sync:
    policy = "auto"


def runtime_sync_policy_set(policy: str) -> None:
    """Sets when the host waits for a device after an op whose result stays there.

    Args:
        policy (str): `"always"`, `"never"`, or `"auto"` (at first): only where something is downloaded.

    Raises:
        ValueError: `policy` is none of these.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.runtime_sync_policy_set("always")
        >>> lc.runtime_sync_policy_get()
        'always'
        >>> lc.runtime_sync_policy_set("auto")
    """
    if policy not in SYNC_POLICIES:
        raise errors.ValueError(
            f"runtime_sync_policy_set(): expected one of {', '.join(SYNC_POLICIES)}, got {policy!r}"
        )
    _Sync.policy = policy


def runtime_sync_policy_get() -> str:
    """When the host waits: `"auto"`, `"always"` or `"never"`."""
    return _Sync.policy


def wait(device: _C.device, requested: str = "") -> None:
    """Waits for a device, and notes it in the trace."""
    if device.type == "cpu":
        return
    if RING.enabled:
        import time

        start = time.perf_counter_ns()
        synchronize(device)
        RING.add("sync", "synchronize", start, requested or device.type, device.type)
    else:
        synchronize(device)


def runtime_sync_apply(policy: str | None = None, device: str = "auto") -> bool:
    """Waits for a device as a policy says.

    Args:
        policy (str, optional): `"auto"` and `"always"` wait, `"never"` does not; the default policy where it is
            `None`.
        device (str, default: "auto"): The device's name.

    Returns:
        Whether it waited: not on the CPU, where nothing is ever pending.

    Raises:
        ValueError: there is no such policy or device.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.runtime_sync_apply("always", "cpu")  # on the CPU nothing is pending
        False
    """
    if policy is None:
        policy = _Sync.policy
    if policy not in SYNC_POLICIES:
        raise errors.ValueError(f"runtime_sync_apply(): expected one of {', '.join(SYNC_POLICIES)}, got {policy!r}")
    chosen = device_of("runtime_sync_apply()", device)
    if policy == "never" or chosen.type == "cpu":
        return False
    wait(chosen, device)
    return True


def runtime_sync_apply_default(device: str = "auto") -> bool:
    """Waits for a device as the policy says that `runtime_sync_policy_set` has set.

    Args:
        device (device or str, optional): the device's name. Default: `"auto"`.

    Returns:
        bool: whether it waited; never on the CPU, where nothing is pending.

    Raises:
        ValueError: there is no such device.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.runtime_sync_apply_default("cpu")
        False
    """
    return runtime_sync_apply(None, device)
