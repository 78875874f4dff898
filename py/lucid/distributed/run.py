"""`python -m lucid.distributed.run [options] program [arguments]`: starts a program several times, as one job.

The options are torchrun's. The launcher of the first node serves the job's store, so that the loss of any process is
noticed. Each line that a process prints has its rank before it. When one fails, the others are ended, and its traceback
comes last.

    python -m lucid.distributed.run --nproc-per-node 2 train.py --lr 0.1
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import runpy
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

__all__ = ["main", "run"]

# How long a process may take to end when it is asked to, before it is killed.
PATIENCE = 5.0


def _node_count(text: str) -> int:
    low, _, high = text.partition(":")
    if high and high != low:
        raise argparse.ArgumentTypeError(f"'{text}': the number of nodes is fixed here, not from {low} to {high}")
    return _positive(low)


def _positive(text: str) -> int:
    try:
        n = int(text)
    except ValueError:
        n = 0
    if n < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number")
    return n


def _number(low: int, high: int, what: str) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text) if text.lstrip("-").isdecimal() else None
        if number is None or not low <= number <= high:
            raise argparse.ArgumentTypeError(f"'{text}' is no {what}")
        return number

    return read


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise argparse.ArgumentTypeError(f"'{text}' is no number of seconds above 0")
    return seconds


_STREAMS = {"0": (), "1": ("stdout",), "2": ("stderr",), "3": ("stdout", "stderr")}


def _streams(text: str) -> Callable[[int], tuple[str, ...]]:
    """Which streams a local rank's option names: 0 none, 1 stdout, 2 stderr, 3 both, for all or as `0:1,1:3`."""
    each: dict[int, tuple[str, ...]] = {}
    for part in text.split(","):
        rank, colon, which = part.rpartition(":")
        if which not in _STREAMS or bool(colon) != rank.isdecimal() or (not colon and part != text):
            raise argparse.ArgumentTypeError(f"'{text}' is neither 0, 1, 2 or 3 nor a list as 0:1,1:3")
        each[int(rank) if colon else -1] = _STREAMS[which]
    return lambda local: each.get(local, each.get(-1, ()))


def _ranks(text: str) -> frozenset[int]:
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f"'{text}' is no list of ranks as 0,1")
    return frozenset(int(word) for word in words)


def _processes(text: str) -> int:
    if text in ("auto", "cpu"):
        return os.cpu_count() or 1
    if text == "gpu":
        return 1
    return _positive(text)


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="lucid.distributed.run", description=__doc__.split("\n\n")[0])

    def add(name: str, **how: Any) -> None:
        # torchrun takes both spellings.
        names = [f"--{name}"] + ([f"--{name.replace('-', '_')}"] if "-" in name else [])
        p.add_argument(*names, dest=name.replace("-", "_"), **how)

    add("nnodes", type=_node_count, default=1, help="how many machines")
    add("nproc-per-node", type=_processes, default=1, help="processes on each: a number, auto, cpu or gpu")
    add("node-rank", type=_number(0, 1 << 31, "number of a machine"), default=0, help="this machine's number")
    add("master-addr", default=None, help="the first machine's name or address (default: loopback for one machine)")
    add(
        "master-port",
        type=_number(0, 65535, "port"),
        default=None,
        help="the store's port (default: a free one for one machine, else 29500)",
    )
    add("hostfile", default=None, help="JSON list of the machines' addresses, or a text file with one for each line")
    add("backend", default="ring", choices=["ring", "gloo", "mpi", "nccl", "any"], help="what init_process_group uses")
    add(
        "max-restarts",
        type=_number(0, 1 << 31, "number of restarts"),
        default=0,
        help="how often all processes are started again when one fails",
    )
    add("monitor-interval", type=_interval, default=0.1, help="seconds between looks at the processes")
    add("rdzv-backend", default="static", choices=["static", "c10d"], help="accepted; the store is the rendezvous")
    add("rdzv-endpoint", default=None, help="host:port instead of --master-addr and --master-port")
    add("rdzv-id", default=None, help="the job's name")
    add("rdzv-conf", default="", help="ignored with a warning: there is nothing to configure")
    add("local-addr", default=None, help="the address that this machine's processes listen at")
    add("role", default="default", help="the processes' role, in ROLE_NAME")
    methods = ["spawn", "fork", "forkserver"]
    add("start-method", default="spawn", choices=methods, help="processes are spawned; another gives a warning")
    add("log-dir", default=None, help="a folder for each rank's output, besides the terminal")
    none = _streams("0")
    only = "output for the log folder alone: 1 stdout, 2 stderr, 3 both"
    p.add_argument("-r", "--redirects", type=_streams, default=none, help=only)
    p.add_argument("-t", "--tee", type=_streams, default=none, help="accepted; what is in the log folder is printed")
    add("local-ranks-filter", type=_ranks, default=None, help="print these local ranks' output alone, such as 0,1")
    add("run-path", action="store_true", help="a script is run by runpy, as it always is")
    p.add_argument("--standalone", action="store_true", help="one machine, free port")
    p.add_argument("-m", "--module", action="store_true", help="the program is a module, as with python -m")
    add("no-python", action="store_true", help="the program is run as it is")
    p.add_argument("program")
    p.add_argument("arguments", nargs=argparse.REMAINDER)
    return p


def get_args_parser() -> argparse.ArgumentParser:
    """The launcher's arguments, for programs that start it from Python."""
    return _parser()


def _hosts(path: str) -> list[str]:
    text = Path(path).read_text()
    try:
        listed = json.loads(text)
        return [str(h["ssh"] if isinstance(h, dict) else h[0] if isinstance(h, list) else h) for h in listed]
    except (ValueError, KeyError, IndexError):
        lines = (line.split("#")[0].split() for line in text.splitlines())
        return [words[0] for words in lines if words]


class _Process:
    """One rank: its process, and the threads that read what it prints."""

    def __init__(
        self,
        rank: int,
        local: int,
        command: list[str],
        env: dict[str, str],
        log: Path | None,
        quiet: tuple[str, ...],
    ) -> None:
        self.rank, self.local = rank, local
        self.error_file = env["TORCHELASTIC_ERROR_FILE"]
        # A session of its own, so that the processes that it starts end with it.
        self.process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.tail: list[bytes] = []
        self.readers = [
            threading.Thread(
                target=self._read, args=(pipe, out, log and log / f"{rank}-{name}.log", name in quiet), daemon=True
            )
            for pipe, out, name in (
                (self.process.stdout, sys.stdout, "stdout"),
                (self.process.stderr, sys.stderr, "stderr"),
            )
        ]
        for reader in self.readers:
            reader.start()

    def _read(self, pipe: IO[bytes], out: Any, log: Path | None, quiet: bool) -> None:
        prefix = f"[rank{self.rank}]: ".encode()
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(open(log, "wb")) if log else None
            for line in pipe:
                if out is sys.stderr:
                    self.tail = [*self.tail[-60:], line]
                if not quiet:
                    with contextlib.suppress(OSError, ValueError):
                        os.write(out.fileno(), prefix + line if line.endswith(b"\n") else prefix + line + b"\n")
                if file:
                    file.write(line)
                    file.flush()

    def end(self, how: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, how)

    def settle(self) -> None:
        for reader in self.readers:
            reader.join(1.0)


def _end(processes: list[_Process], how: int = signal.SIGTERM) -> None:
    """Ends processes: asks, waits, kills. Also what they started."""
    for p in processes:
        p.end(how)
    until = time.monotonic() + PATIENCE
    for p in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            p.process.wait(max(until - time.monotonic(), 0.01))
    for p in processes:
        p.end(signal.SIGKILL)
        p.process.wait()
        p.settle()


def _environment(
    args: argparse.Namespace, local: int, attempt: int, host: str, port: int, token: str, run: str, folder: str
) -> dict[str, str]:
    from lucid import _C

    rank, world = args.node_rank * args.nproc_per_node + local, args.nnodes * args.nproc_per_node
    env = dict(os.environ)
    env.update(
        RANK=str(rank),
        WORLD_SIZE=str(world),
        LOCAL_RANK=str(local),
        LOCAL_WORLD_SIZE=str(args.nproc_per_node),
        GROUP_RANK=str(args.node_rank),
        GROUP_WORLD_SIZE=str(args.nnodes),
        ROLE_RANK=str(rank),
        ROLE_NAME=args.role,
        ROLE_WORLD_SIZE=str(world),
        MASTER_ADDR=host,
        MASTER_PORT=str(port),
        TORCHELASTIC_RUN_ID=run,
        TORCHELASTIC_RESTART_COUNT=str(attempt),
        TORCHELASTIC_MAX_RESTARTS=str(args.max_restarts),
        TORCHELASTIC_USE_AGENT_STORE="True",
        TORCHELASTIC_ERROR_FILE=str(Path(folder) / f"{attempt}-{rank}.json"),
        LUCID_DISTRIBUTED_TOKEN=token,
        LUCID_DISTRIBUTED_BACKEND=args.backend,
    )
    if args.nproc_per_node > 1:
        # Each process computes on one GPU, and finds it under number 0.
        named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        gpus = named or [str(index) for index in range(_C._gpu_count())]
        env["CUDA_VISIBLE_DEVICES"] = gpus[local % len(gpus)]
    env.setdefault("OMP_NUM_THREADS", "1")
    env["PYTHONUNBUFFERED"] = "1"
    return env


def _command(args: argparse.Namespace) -> list[str]:
    if args.no_python:
        return [args.program, *args.arguments]
    # The program runs below this module, which leaves its traceback for the launcher.
    kind = ["-m"] if args.module else []
    return [sys.executable, "-u", "-m", "lucid.distributed.run", "--lucid-worker", *kind, args.program, *args.arguments]


def _attempt(args: argparse.Namespace, attempt: int, host: str, port: int, token: str, run: str) -> int:
    """Starts all processes once and watches them; the exit status."""
    from lucid import _C

    server = None
    if args.node_rank == 0:
        server = _C._StoreServer(host, port, token)
        port = server.port
    log = Path(args.log_dir) / run / str(attempt) if args.log_dir else None
    if log:
        log.mkdir(parents=True, exist_ok=True)
    processes: list[_Process] = []
    with tempfile.TemporaryDirectory(prefix="lucid-run-") as folder:
        try:
            for local in range(args.nproc_per_node):
                env = _environment(args, local, attempt, host, port, token, run, folder)
                shown = args.local_ranks_filter is None or local in args.local_ranks_filter
                quiet = args.redirects(local) if shown else _STREAMS["3"]
                processes.append(_Process(int(env["RANK"]), local, _command(args), env, log, quiet))
            failed: list[_Process] = []
            while not failed and any(p.process.poll() is None for p in processes):
                time.sleep(args.monitor_interval)
                failed = [p for p in processes if p.process.poll() not in (None, 0)]
            failed = failed or [p for p in processes if p.process.returncode != 0]
            if not failed:
                for p in processes:
                    # What a rank has left running ends with it.
                    p.end(signal.SIGTERM)
                    p.settle()
                return 0
            # Others fail for its sake, some sooner: the first is the one whose error came first.
            time.sleep(0.5)
            failed = [p for p in processes if p.process.poll() not in (None, 0)]
            first = min(failed, key=_failed_at)
            status = first.process.returncode
            _end(processes)
            _report(first, status)
            return status if status > 0 else 128 - status
        finally:
            _end([p for p in processes if p.process.poll() is None])
            del server


def _failed_at(p: _Process) -> tuple[int, float]:
    """When a process failed; those that a signal ended first, then those that raised an error of their own."""
    try:
        told = json.loads(Path(p.error_file).read_text())
    except (OSError, ValueError):
        return (0, 0.0)
    # One that lost a peer is not the first, whenever it said so.
    return (2 if told.get("kind") == "DistBackendError" else 1, float(told.get("time", 0.0)))


def _report(first: _Process, status: int) -> None:
    out = sys.stderr
    how = f"with exit status {status}" if status >= 0 else f"by signal {signal.Signals(-status).name}"
    print(
        f"lucid.distributed.run: rank {first.rank} (local rank {first.local}, pid {first.process.pid}) ended {how}; "
        "the others were ended",
        file=out,
    )
    try:
        trace = json.loads(Path(first.error_file).read_text())["traceback"]
    except (OSError, ValueError, KeyError):
        trace = b"".join(first.tail).decode(errors="replace")
    if trace.strip():
        print(trace.rstrip("\n"), file=out, flush=True)


def _follow(launcher: int) -> None:
    """Ends this process, and what it started, when the launcher is gone without having ended it."""
    while os.getppid() == launcher:
        time.sleep(1.0)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _run_worker(arguments: list[str]) -> None:
    """Runs the program in this process, and leaves the traceback of its error in a file."""
    threading.Thread(target=_follow, args=(os.getppid(),), daemon=True).start()
    module = arguments[0] == "-m"
    program, *rest = arguments[1:] if module else arguments
    sys.argv = [program, *rest]
    try:
        if module:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(program).resolve().parent)
            runpy.run_path(program, run_name="__main__")
    except Exception as e:
        from lucid.distributed.elastic.multiprocessing.errors import write_error

        write_error(e)
        raise


def main(argv: list[str] | None = None) -> int:
    """Starts a program as several processes: `python -m lucid.distributed.run --nproc-per-node 2 train.py`.

    Args:
        argv (list of str, optional): the command line's arguments. Default: `sys.argv[1:]`. `--help` lists them.

    Returns:
        int: the exit status: 0 where every process ended with 0, 130 after an interrupt.

    Raises:
        SystemExit: the arguments do not make sense together.

    Example:
        >>> from lucid.distributed.run import main
        >>> main(["--help"])
        Traceback (most recent call last):
        ...
        SystemExit: 0
    """
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["--lucid-worker"]:
        _run_worker(argv[1:])
        return 0
    parser = _parser()
    return _start(parser, parser.parse_args(argv))


def run(args: argparse.Namespace) -> int:
    """Starts a program as several processes, with the launcher's arguments as attributes.

    Args:
        args (argparse.Namespace): what `get_args_parser().parse_args()` or torchrun's parser gives; the program is
            `program` or `training_script`, its arguments `arguments` or `training_script_args`. What is missing has
            its default; texts are read as on the command line.

    Returns:
        int: the exit status: 0 where every process ended with 0, 130 after an interrupt.

    Raises:
        SystemExit: the arguments do not make sense together, or a process failed.

    Example:
        >>> import argparse
        >>> from lucid.distributed.run import run
        >>> run(argparse.Namespace(training_script="train.py", node_rank=1))
        Traceback (most recent call last):
        ...
        SystemExit: 2
    """
    parser = _parser()
    given = dict(vars(args))
    given.setdefault("program", given.get("training_script"))
    given.setdefault("arguments", given.get("training_script_args"))
    own = argparse.Namespace()
    for action in parser._actions:
        value = given.get(action.dest)
        if value is None or action.default is argparse.SUPPRESS:
            value = action.default
        elif isinstance(value, str) and callable(action.type):
            try:
                value = action.type(value)
            except argparse.ArgumentTypeError as e:
                parser.error(f"{'/'.join(action.option_strings)}: {e}")
        setattr(own, action.dest, value)
    if not own.program:
        parser.error("the program is missing")
    own.arguments = list(own.arguments or ())
    status = _start(parser, own)
    if status:
        raise SystemExit(status)
    return status


def _start(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    for option, given, why in (
        ("--start-method", args.start_method != "spawn" and args.start_method, "processes are always spawned"),
        ("--rdzv-conf", args.rdzv_conf, "the store is the rendezvous, and has nothing to configure"),
    ):
        if given:
            print(f"lucid.distributed.run: warning: {option} {given} has no effect: {why}", file=sys.stderr, flush=True)
    if args.hostfile:
        try:
            hosts = _hosts(args.hostfile)
        except OSError as e:
            parser.error(f"--hostfile: {e}")
        if not hosts:
            parser.error(f"--hostfile: {args.hostfile} names no machine")
        args.nnodes = len(hosts)
        args.master_addr = args.master_addr or hosts[0]
        os.environ.setdefault("LUCID_DISTRIBUTED_HOST", hosts[min(args.node_rank, len(hosts) - 1)])
    if args.rdzv_endpoint:
        host, colon, port = args.rdzv_endpoint.rpartition(":")
        try:
            args.master_addr = (host if colon else port).strip("[]")
            args.master_port = _number(0, 65535, "port")(port) if colon else 29500
        except argparse.ArgumentTypeError as e:
            parser.error(f"--rdzv-endpoint '{args.rdzv_endpoint}': {e}")
    if not 0 <= args.node_rank < args.nnodes:
        parser.error(f"--node-rank {args.node_rank} of {args.nnodes} nodes")
    if args.nnodes > 1 and not args.master_addr:
        parser.error("several nodes need --master-addr, the first one's address")
    host = args.master_addr or "127.0.0.1"
    single = args.nnodes == 1
    port = args.master_port if args.master_port is not None else (0 if single else 29500)
    if port == 0 and not single:
        parser.error("several nodes need one --master-port, not 0")
    if args.redirects is not parser.get_default("redirects") and not args.log_dir:
        parser.error("--redirects needs --log-dir, the folder where the output goes")
    if args.local_addr:
        os.environ["LUCID_DISTRIBUTED_HOST"] = args.local_addr
    if args.standalone:
        host, port = "127.0.0.1", 0
    token = os.environ.get("LUCID_DISTRIBUTED_TOKEN") or (secrets.token_hex(32) if single else "")
    if not token:
        parser.error("several nodes need LUCID_DISTRIBUTED_TOKEN, one secret text, in the environment of each launcher")
    try:
        socket.getaddrinfo(host, None)
    except OSError as e:
        parser.error(f"the host '{host}' cannot be resolved: {e}")
    run = args.rdzv_id or uuid.uuid4().hex[:12]

    def interrupted(number: int, _frame: Any) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, interrupted)
    try:
        for attempt in range(args.max_restarts + 1):
            status = _attempt(args, attempt, host, port, token, run)
            if status == 0 or attempt == args.max_restarts:
                return status
            print(f"lucid.distributed.run: starting all again, {attempt + 1} of {args.max_restarts}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    except (RuntimeError, OSError) as e:
        print(f"lucid.distributed.run: {e}", file=sys.stderr)
        return 1
    return 1


if __name__ == "__main__":
    sys.exit(main())
