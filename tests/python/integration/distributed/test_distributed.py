"""`lucid.distributed` with 2 and 4 processes over MLX's ring on loopback; the checks are programs beside this file."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import lucid
import lucid.distributed as dist
import pytest
from lucid.distributed.fsdp import fully_shard

from tests.python.integration.distributed.launching import HERE, launch, succeeded


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def by_hand(
    script: str, *args: str, port: int, world: tuple[int, ...] = (2, 2), **more: str
) -> list[subprocess.Popen[str]]:
    """Processes that the launcher did not start; `world` is what each believes its size is."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **more}
    for name in ("TORCHELASTIC_USE_AGENT_STORE", "LUCID_DISTRIBUTED_TOKEN"):
        env.pop(name, None)
    return [
        subprocess.Popen(
            [
                sys.executable,
                *(["-c"] if "\n" in script else []),
                script if "\n" in script else str(HERE / script),
                *args,
            ],
            env={**env, "RANK": str(rank), "WORLD_SIZE": str(size)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, size in enumerate(world)
    ]


def output(process: subprocess.Popen[str]) -> str:
    try:
        return process.communicate(timeout=180)[0]
    finally:
        process.kill()


@pytest.mark.skipif(not shutil.which("mpirun"), reason="Open MPI is not installed: tools/openmpi.sh")
def test_collectives_over_mpi() -> None:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_USE_AGENT_STORE", "LUCID_DISTRIBUTED_TOKEN"):
        env.pop(name, None)
    env["PYTHONPATH"] = os.pathsep.join([str(HERE.parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable]
    done = subprocess.run(
        [*command, str(HERE / "check_mpi.py")], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count("done over mpi") == 2, done.stdout


@pytest.mark.parametrize("n", [2, 4])
def test_collectives(n: int) -> None:
    succeeded(n, "check_collectives.py")


def test_compiled_functions_have_collectives_in_their_graph() -> None:
    succeeded(2, "check_compiled.py")


def test_collectives_of_the_gpu_device_are_lazy() -> None:
    succeeded(2, "check_lazy.py")


def test_training_is_that_of_one_process(tmp_path: Path) -> None:
    succeeded(2, "check_training.py", "train", str(tmp_path))


def test_powersgd_and_uneven_inputs() -> None:
    succeeded(2, "check_data_parallel.py")


def test_a_function_as_one_job() -> None:
    from lucid.distributed.elastic.multiprocessing.errors import ChildFailedError
    from lucid.distributed.launcher.api import LaunchConfig, elastic_launch

    from tests.python.integration.distributed.launching import add_ranks, fail_at_first

    assert elastic_launch(LaunchConfig(1, 1, 2, max_restarts=0), add_ranks)(5) == {0: 11, 1: 11}
    assert elastic_launch(LaunchConfig(1, 1, 1, max_restarts=1), fail_at_first)() == {0: "1"}
    with pytest.raises(ChildFailedError, match="not the first time"):
        elastic_launch(LaunchConfig(1, 1, 1, max_restarts=0), fail_at_first)()
    with pytest.raises(NotImplementedError, match="run --nnodes"):
        LaunchConfig(2, 2, 1)
    with pytest.raises(ValueError, match="number of processes"):
        LaunchConfig(1, 1, 0)
    with pytest.raises(NotImplementedError, match="starts programs"):
        elastic_launch(LaunchConfig(1, 1, 1), "train.py")


def test_checkpoints_of_4_processes_are_read_by_2_and_by_one(tmp_path: Path) -> None:
    import lucid.distributed.checkpoint as dcp

    succeeded(4, "check_training.py", "save", str(tmp_path))
    succeeded(2, "check_training.py", "load", str(tmp_path))
    state = {"model": {"0.weight": lucid.zeros(9, 6)}}
    dcp.load(state, checkpoint_id=tmp_path / "one")
    assert lucid.equal(state["model"]["0.weight"], lucid.load(tmp_path / "expected.pt")["0.weight"])
    # What is cut short, or not there, is an error; a save that fails leaves the old checkpoint.
    (tmp_path / "one" / "rank1.pt").unlink()
    with pytest.raises(dcp.CheckpointException):
        dcp.load(state, checkpoint_id=tmp_path / "one")
    with pytest.raises(dcp.CheckpointException, match="shape"):
        dcp.load({"model": {"0.weight": lucid.zeros(2)}}, checkpoint_id=tmp_path / "one")
    with pytest.raises(dcp.CheckpointException):
        dcp.save({"x": lambda: None}, checkpoint_id=tmp_path / "one")
    assert (tmp_path / "one" / "metadata.json").exists()
    assert not [p for p in tmp_path.iterdir() if "partial" in p.name]


@pytest.mark.parametrize("how", ["die", "stop"])
def test_failures_are_errors_on_the_others(how: str) -> None:
    first, second = by_hand("check_failures.py", how, port=free_port())
    try:
        told = output(first)
        assert first.returncode == 0 and "done" in told, told[-3000:]
    finally:
        second.kill()
        second.communicate()


JOIN = """
import lucid.distributed as dist
try:
    dist.init_process_group("gloo", timeout=4)
    print("joined")
except Exception as e:
    print(type(e).__name__, e)
"""


def test_jobs_that_do_not_fit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    # World sizes that disagree: both are told.
    told = [output(p) for p in by_hand(JOIN, port=free_port(), world=(2, 3))]
    assert all("world sizes disagree" in t and "DistBackendError" in t for t in told), told
    # A port that is taken, a host that does not resolve, nobody there: one sentence each.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (told_taken,) = [output(p) for p in by_hand(JOIN, port=port, world=(2,))]
    assert "cannot listen at 127.0.0.1" in told_taken and "in use" in told_taken
    monkeypatch.delenv("LUCID_DISTRIBUTED_TOKEN", raising=False)
    with pytest.raises(ValueError, match="LUCID_DISTRIBUTED_TOKEN"):
        dist.init_process_group(init_method="tcp://192.0.2.1:1", rank=1, world_size=2, timeout=1)
    monkeypatch.setenv("LUCID_DISTRIBUTED_TOKEN", "a secret")
    with pytest.raises(dist.DistBackendError, match="cannot be resolved"):
        dist.init_process_group(init_method="tcp://no-such-host.invalid:1", rank=1, world_size=2, timeout=1)
    with pytest.raises(dist.DistBackendError, match="no store answers"):
        dist.init_process_group(init_method=f"tcp://127.0.0.1:{free_port()}", rank=1, world_size=2, timeout=0.5)
    with pytest.raises(ValueError, match="rank 2 of a world of 2"):
        dist.init_process_group(init_method="tcp://127.0.0.1:1", rank=2, world_size=2)
    with pytest.raises(dist.DistBackendError, match="no backend 'nccl'"):
        dist.init_process_group("nccl", init_method="tcp://127.0.0.1:1", rank=0, world_size=1, timeout=1)
    monkeypatch.setenv("LUCID_DISTRIBUTED_BACKEND", "nccl")
    with pytest.raises(dist.DistBackendError, match="no backend 'nccl'"):
        dist.init_process_group(init_method="tcp://127.0.0.1:2", rank=0, world_size=1, timeout=1)
    assert dist.Backend("cpu:gloo,cuda:nccl") == "gloo"
    assert not dist.is_initialized()
    with pytest.raises(ValueError, match="not been initialized"):
        dist.all_reduce(lucid.ones(1))


def test_store() -> None:
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=5, token="a secret")
    client = dist.TCPStore("127.0.0.1", server.port, timeout=5, token="a secret")
    server.set("a", "1")
    assert client.get("a") == b"1" and client.add("n", 5) == 5 and server.add("n", -7) == -2
    assert client.compare_set("b", "", "x") == b"x" and client.compare_set("b", "y", "z") == b"x"
    assert client.check(["a", "b"]) and not client.check(["a", "c"]) and client.num_keys() == 3
    assert client.delete_key("a") and not client.delete_key("a")
    with pytest.raises(dist.DistBackendError, match="no answer in time"):
        client.wait(["never"], 0.2)
    assert dist.PrefixStore("p", client).add("n", 1) == 1 and client.get("p/n") == b"1"
    with pytest.raises(dist.DistBackendError, match="token"):
        dist.TCPStore("127.0.0.1", server.port, timeout=5, token="another")
    # Garbage, and lengths that are no lengths, end the connection and nothing else.
    for junk in (b"\xff\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n", b"\x04\x00\x00\x00\xff\xff\xff\xff"):
        with socket.create_connection(("127.0.0.1", server.port)) as s:
            s.sendall(junk)
            s.settimeout(10)
            # The server may have hung up by now.
            with contextlib.suppress(ConnectionError, OSError):
                s.shutdown(socket.SHUT_WR)
                while s.recv(1024):
                    pass
    assert client.get("b") == b"x"
    hashed = dist.HashStore()
    assert hashed.add("k", 2) == 2 and hashed.get("k") == b"2"


def test_one_process_and_a_file(tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        x = lucid.arange(3.0)
        dist.all_reduce(x)
        outs = [lucid.zeros(3)]
        dist.all_gather(outs, x)
        assert outs[0].tolist() == [0.0, 1.0, 2.0]
        dist.barrier()
        net = lucid.nn.parallel.DistributedDataParallel(lucid.nn.Linear(3, 1))
        net(x).sum().backward()
        assert net.module.weight.grad.tolist() == [[0.0, 1.0, 2.0]]
        sharded = fully_shard(lucid.nn.Linear(3, 1))
        with pytest.warns(UserWarning, match="has no effect") as given:
            for _ in range(2):
                sharded.set_is_last_backward(True)
                sharded.set_requires_all_reduce(False)
                sharded.set_modules_to_forward_prefetch([])
                sharded.set_modules_to_backward_prefetch([])
        assert len(given) == 4
    finally:
        dist.destroy_process_group()
    store = dist.FileStore(str(tmp_path / "store"))
    assert store.add("n", 2) == 2 and dist.FileStore(str(tmp_path / "store")).get("n") == b"2"


FAILS = """
import os, subprocess, sys, time
import lucid.distributed as dist
dist.init_process_group()
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
print("attempt", attempt, flush=True)
if sys.argv[1] == "always" or attempt == 0:
    if dist.get_rank() == 1:
        raise ValueError("this rank is broken")
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print("child", child.pid, flush=True)
    time.sleep(600)
dist.barrier()
print("done", flush=True)
"""


def is_there(pid: int) -> bool:
    # One that has ended and was not waited for yet is gone, too.
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        try:
            os.kill(pid, 0)
        except OSError:
            return False
        return not Path("/proc").exists()


def children(text: str) -> list[int]:
    return [int(line.split()[-1]) for line in text.splitlines() if "child" in line]


def test_a_rank_that_fails_ends_the_others(tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text(FAILS)
    begun = time.monotonic()
    done = launch(2, script, "always")
    assert done.returncode == 1 and time.monotonic() - begun < 30
    assert "rank 1" in done.stderr and "ValueError: this rank is broken" in done.stderr
    # Its traceback comes last.
    assert done.stderr.rstrip().endswith("ValueError: this rank is broken")
    assert children(done.stdout) and not any(is_there(pid) for pid in children(done.stdout))
    again = launch(2, script, "once", options=("--max-restarts", "1"))
    assert again.returncode == 0, again.stderr
    assert "[rank0]: attempt 1" in again.stdout and again.stdout.count("done") == 2


def test_where_the_output_goes(tmp_path: Path) -> None:
    script = tmp_path / "says.py"
    script.write_text(
        "import os, sys\nprint('out', os.environ['ROLE_NAME'], flush=True)\nprint('err', file=sys.stderr, flush=True)\n"
    )
    logs = ("--log-dir", str(tmp_path / "logs"), "--rdzv-id", "job", "--role", "trainer")
    done = launch(2, script, options=(*logs, "--redirects", "0:1,1:3"))
    assert done.returncode == 0 and "out" not in done.stdout, done.stderr
    assert "[rank0]: err" in done.stderr and "[rank1]" not in done.stderr
    for rank in range(2):
        assert (tmp_path / f"logs/job/0/{rank}-stdout.log").read_text() == "out trainer\n"
        assert (tmp_path / f"logs/job/0/{rank}-stderr.log").read_text() == "err\n"
    done = launch(2, script, options=("--local-ranks-filter", "1", "--tee", "3", "--start-method", "spawn"))
    assert done.stdout == "[rank1]: out default\n" and done.stderr == "[rank1]: err\n"
    done = launch(1, script, options=("--start-method", "fork", "--rdzv-conf", "timeout=900", "--run-path"))
    warned = [line.split(" has no effect")[0] for line in done.stderr.splitlines() if "no effect" in line]
    start = "lucid.distributed.run: warning: "
    assert done.returncode == 0 and warned == [f"{start}--start-method fork", f"{start}--rdzv-conf timeout=900"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_when_the_launcher_ends(tmp_path: Path, how: signal.Signals) -> None:
    script = tmp_path / "waits.py"
    script.write_text("import os, time\nprint('child', os.getpid(), flush=True)\ntime.sleep(600)\n")
    command = [sys.executable, "-m", "lucid.distributed.run", "--nproc-per-node", "2", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        pids = [int(launcher.stdout.readline().split()[-1]) for _ in range(2)]
        launcher.send_signal(how)
        launcher.wait(20)
        until = time.monotonic() + 10
        while any(is_there(pid) for pid in pids) and time.monotonic() < until:
            time.sleep(0.1)
        assert not any(is_there(pid) for pid in pids)
        assert launcher.returncode == (130 if how is signal.SIGINT else -signal.SIGKILL)


def test_the_tutorial_runs_as_it_is() -> None:
    out = succeeded(2, "tutorial.py")
    assert "Finished running basic DDP example on rank 1." in out
    alone = subprocess.run(
        [sys.executable, str(HERE / "tutorial.py"), str(free_port())],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert alone.returncode == 0 and alone.stdout.count("Finished") == 2, alone.stderr[-3000:]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--nnodes", "2"), "--master-addr"),
        (("--nnodes", "2", "--master-addr", "localhost"), "LUCID_DISTRIBUTED_TOKEN"),
        (("--node-rank", "1"), "--node-rank"),
        (("--master-addr", "no-such-host.invalid"), "cannot be resolved"),
        (("--nnodes", "1:4"), "fixed"),
        (("--hostfile", "/no/such/file"), "hostfile"),
        (("--master-port", "99999"), "'99999' is no port"),
        (("--rdzv-endpoint", "localhost:http"), "'http' is no port"),
        (("--max-restarts", "-1"), "restarts"),
        (("--monitor-interval", "0"), "above 0"),
        (("--local-ranks-filter", "a"), "list of ranks"),
        (("--redirects", "0:1,4"), "neither"),
        (("--redirects", "3"), "--log-dir"),
        (("--nnodes", "2", "--master-addr", "localhost", "--master-port", "0"), "not 0"),
    ],
)
def test_the_launcher_says_what_is_wrong(
    options: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from lucid.distributed.run import main

    with pytest.raises(SystemExit) as stopped:
        main([*options, "program.py"])
    assert stopped.value.code == 2 and why in capsys.readouterr().err


@pytest.mark.parametrize("name", ["ddp", "fsdp", "tensor_parallel", "pipeline"])
def test_examples_end_as_one_process_does(name: str) -> None:
    examples = HERE.parents[3] / "examples" / "distributed"
    done = launch(2, examples / f"{name}.py", "--steps", "8")
    assert done.returncode == 0, done.stderr[-3000:]
    # It fails where the losses differ.
    assert "2 processes: loss" in done.stdout


def test_the_benchmark_runs() -> None:
    bench = HERE.parents[3] / "bench" / "distributed.py"
    command = [sys.executable, str(bench), "--least", "2", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = json.loads(done.stdout.splitlines()[-1])["rows"]
    assert [r["bytes"] for r in rows[:2]] == [4, 4096] and all(r["ours_us"] > 0 for r in rows)
