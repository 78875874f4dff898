"""`elastic_launch`: one function in several processes, with the environment of a job.

`python -m lucid.distributed.run` does it for a program, and on several machines.
"""

from __future__ import annotations

import os
import pickle
import socket
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lucid import errors
from lucid._spawn import ProcessException, start_processes
from lucid._warnings import warn_without_effect
from lucid.distributed.elastic.multiprocessing.errors import ChildFailedError

__all__ = ["LaunchConfig", "elastic_launch"]


@dataclass
class LaunchConfig:
    """What `elastic_launch` starts.

    Args:
        min_nodes (int): 1, the number of machines.
        max_nodes (int): 1, too.
        nproc_per_node (int): the number of processes.
        logs_specs (object, optional): without effect: processes share this one's terminal.
        run_id (str): the job's name, in `TORCHELASTIC_RUN_ID`; made up where it is empty.
        role (str): without effect: a name for logs.
        rdzv_endpoint (str): `host:port` of the job's store; a free port of this machine where it is empty.
        rdzv_backend (str): without effect: processes of one machine meet at the endpoint.
        rdzv_configs (dict): without effect, as `rdzv_backend`.
        rdzv_timeout (int): without effect, as `rdzv_backend`.
        max_restarts (int, default: 3): how often all processes are started again when one fails.
        monitor_interval (float): without effect: a failure is seen at once.
        start_method (str, default: "spawn"): "spawn" or "forkserver"; "fork" means "spawn", since MLX hangs after a
            fork.
        log_line_prefix_template (str, optional): without effect, with a warning.
        metrics_cfg (dict): without effect, with a warning.
        local_addr (str, optional): without effect, as `rdzv_backend`.
        event_log_handler (str): without effect: there are no events.
        numa_options (NumaOptions, optional): without effect, with a warning: the system places processes.
        signals_to_handle (str): without effect: the processes end with this one.

    Raises:
        NotImplementedError: more machines than one.
        ValueError: a number of processes below 1.

    Example:
        >>> from lucid.distributed.launcher.api import LaunchConfig
        >>> LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2).start_method
        'spawn'
    """

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: Any = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "etcd"
    rdzv_configs: dict[str, Any] = field(default_factory=dict)
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: str | None = None
    metrics_cfg: dict[str, str] = field(default_factory=dict)
    local_addr: str | None = None
    event_log_handler: str = "null"
    numa_options: Any = None
    signals_to_handle: str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"

    def __post_init__(self) -> None:
        if (self.min_nodes, self.max_nodes) != (1, 1):
            raise errors.NotImplementedError(
                f"LaunchConfig: expected one machine, got {self.min_nodes} to {self.max_nodes}; start "
                "`python -m lucid.distributed.run --nnodes` on each"
            )
        if self.nproc_per_node < 1:
            raise errors.ValueError(f"LaunchConfig: expected a number of processes, got {self.nproc_per_node}")


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _worker(rank: int, entrypoint: Any, args: tuple[Any, ...], told: dict[str, str], folder: str) -> None:
    os.environ.update({**told, "RANK": str(rank), "LOCAL_RANK": str(rank)})
    result = entrypoint(*args)
    with open(Path(folder) / str(rank), "wb") as file:
        pickle.dump(result, file)


class elastic_launch:
    """A callable that runs a function in the processes of one job.

    Each has `RANK`, `LOCAL_RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT` in its environment, as
    `lucid.distributed.init_process_group()` reads them.

    Args:
        config (LaunchConfig): how many processes, and how.
        entrypoint (callable): a function at the top level of a module, which the processes import. It returns what can
            be pickled.

    Returns:
        dict: by rank what the function returned, when it is called with the function's arguments.

    Raises:
        ChildFailedError: a process failed, and did again each time that all were started anew.
        NotImplementedError: `entrypoint` is a program's name.

    Example:
        >>> from lucid.distributed.launcher.api import LaunchConfig, elastic_launch
        >>> elastic_launch(LaunchConfig(1, 1, nproc_per_node=1), abs)(-3)
        {0: 3}
    """

    def __init__(self, config: LaunchConfig, entrypoint: Callable[..., Any] | str | None) -> None:
        if not callable(entrypoint):
            raise errors.NotImplementedError(
                f"elastic_launch: expected a function, got {entrypoint!r}; `python -m lucid.distributed.run` starts "
                "programs"
            )
        self._config, self._entrypoint = config, entrypoint

    def __call__(self, *args: Any) -> dict[int, Any]:
        c = self._config
        warn_without_effect(
            "elastic_launch",
            "processes of one machine share its terminal, and are watched at once",
            logs_specs=c.logs_specs is not None and getattr(c.logs_specs, "_tee", None) is not None,
            log_line_prefix_template=c.log_line_prefix_template is not None,
            numa_options=c.numa_options is not None,
            metrics_cfg=bool(c.metrics_cfg),
        )
        host, _, port = c.rdzv_endpoint.rpartition(":")
        method = "spawn" if c.start_method == "fork" else c.start_method
        for attempt in range(c.max_restarts + 1):
            told = {
                "WORLD_SIZE": str(c.nproc_per_node),
                "LOCAL_WORLD_SIZE": str(c.nproc_per_node),
                "GROUP_RANK": "0",
                "MASTER_ADDR": host or "127.0.0.1",
                "MASTER_PORT": port if port not in ("", "0") else str(_free_port()),
                "TORCHELASTIC_RUN_ID": c.run_id or uuid.uuid4().hex,
                "TORCHELASTIC_RESTART_COUNT": str(attempt),
                "TORCHELASTIC_MAX_RESTARTS": str(c.max_restarts),
            }
            with tempfile.TemporaryDirectory(prefix="lucid-launch-") as folder:
                try:
                    given = (self._entrypoint, args, told, folder)
                    start_processes(_worker, given, nprocs=c.nproc_per_node, start_method=method)
                except ProcessException as e:
                    if attempt == c.max_restarts:
                        raise ChildFailedError(str(e)) from e
                    continue
                return {i: pickle.loads((Path(folder) / str(i)).read_bytes()) for i in range(c.nproc_per_node)}
        raise AssertionError("a job ends by its results or its failure")
