"""Fuzzes every public function, method and class of the package, found by walking it.

    python -m tests.python.fuzz --seconds 600 --jobs 2 [--seed 7] [--only linalg]
    python -m tests.python.fuzz --replay 'lucid.add' 12345

A case is a target and a seed; from both follows a call, as text, whose arguments are right, nearly right or wrong in
kind, count, shape, dtype, device and value. Calls run in child processes with a time limit and a memory cap. A crash, a
hang, a panic, growing memory and an exception of a kind that PyTorch would not raise are findings.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import inspect
import itertools
import json
import os
import pkgutil
import queue
import random
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: Seconds that one call may take, and bytes of memory of its own that a child may add (CUDA reserves far
#: more addresses than it uses, so these are not what counts).
LIMIT = 20.0
MEMORY = 6 << 30
#: What PyTorch raises for wrong arguments; subclasses count.
KINDS = (
    TypeError,
    ValueError,
    RuntimeError,
    IndexError,
    OverflowError,
    MemoryError,
    AttributeError,
    AssertionError,
    BufferError,
    OSError,
    ImportError,
)
#: Subclasses of the above that PyTorch does not raise: bugs of the caller's are no bugs of ours.
NOT_KINDS = (RecursionError, UnboundLocalError)

# ---- targets ---------------------------------------------------------------------------------------------------------


def targets() -> dict[str, Any]:
    """Every public callable by its path."""
    import lucid

    found: dict[str, Any] = {}
    modules = [lucid]
    for info in pkgutil.walk_packages(lucid.__path__, "lucid."):
        if any(part.startswith("_") for part in info.name.split(".")):
            continue
        modules.append(importlib.import_module(info.name))
    for module in modules:
        # Names that are imported on first use are in the one alone.
        for name in sorted({*getattr(module, "__all__", ()), *dir(module)}):
            value = getattr(module, name, None)
            home = getattr(value, "__module__", None) or "lucid"
            if name.startswith("_") or not callable(value) or not str(home).startswith("lucid"):
                continue
            if isinstance(value, type) and issubclass(value, BaseException):
                continue
            found.setdefault(f"{module.__name__}.{name}", value)
    for name in dir(lucid.Tensor):
        value = getattr(lucid.Tensor, name)
        special = name.startswith("_") and name not in OPERATORS
        if not special and callable(value):
            found[f"lucid.Tensor.{name}"] = value
    # One callable under several paths is one target: the shortest path.
    unique: dict[int, str] = {}
    for path in sorted(found, key=lambda p: (len(p), p)):
        unique.setdefault(id(found[path]), path)
    return {path: found[path] for path in sorted(unique.values())}


_OPERATORS = """
add radd mul sub rsub truediv rtruediv floordiv mod pow rpow matmul and or xor eq ne lt le gt ge neg abs invert lshift
rshift getitem setitem iadd imul isub len iter
"""
OPERATORS = {f"__{n}__" for n in _OPERATORS.split()}

# ---- arguments, as source --------------------------------------------------------------------------------------------

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64"]
DTYPES += ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
SHAPES: list[tuple[int, ...]] = [
    (),
    (0,),
    (1,),
    (3,),
    (4,),
    (2, 3),
    (3, 3),
    (3, 2),
    (0, 3),
    (2, 0),
    (2, 3, 4),
    (2, 3, 3),
    (1, 4, 4),
    (2, 3, 8, 8),
    (1, 2, 5, 5),
    (2, 1, 3, 1, 2),
    (1, 2, 4, 4, 4),
    (1, 1, 1, 1, 1, 1, 1, 2),
    (33, 70),
]
INTS = [0, 1, 2, 3, -1, -2, 4, 5, 7, -3, 64, -100, 2**15, 2**31 - 1, 2**31, -(2**31)]
INTS += [2**62, 2**63 - 1, -(2**63), 2**63, 10**30]
FLOATS = ["0.0", "-0.0", "0.5", "1.0", "-1.5", "2.0", "1e-12", "1e308", "inf", "-inf", "nan", "5e-324"]
TEXTS = ["''", "'mean'", "'sum'", "'none'", "'cpu'", "'gpu'", "'zeros'", "'reflect'", "'ij'"]
TEXTS += ["'a\\0b'", "'%s%n'", "'é'", "'ij,jk->ik'"]
ODD = [
    "lucid.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3))",
    "None", "True", "False", "object()", "...", "slice(1, None, 2)", "{}", "{'a': 1}", "set()", "b'ab'", "range(3)",
    "(lambda *a, **k: a[0] if a else None)", "[]", "()", "[[1, 2], [3]]", "[None]", "(1, 'a')", "int", "float",
    "lucid.Tensor", "Ellipsis",
    "1j", "NP((2, 3))", "NP((), 'int64')", "lucid.Generator()", "iter([1, 2])", "[T((2,), 'float32', 'cpu'), 3]",
]  # fmt: skip


def tensor(
    shape: tuple[int, ...],
    dtype: str,
    device: str,
    kind: str = "normal",
    layout: str = "",
    seed: int = 0,
    grad: bool = False,
) -> Any:
    """A tensor for a call, `T` in its text."""
    import lucid
    import numpy as np

    rng = np.random.default_rng(seed)
    if dtype in ("float16", "bfloat16", "float32", "float64", "complex64", "complex128"):
        values = rng.standard_normal(shape)
        if kind == "special" and values.size:
            values.flat[rng.integers(values.size)] = rng.choice([np.inf, -np.inf, np.nan, 1e38, -0.0, 1e-40])
        if kind == "small":
            values = np.abs(values) % 1
    else:
        low, high = {"special": (-(2**31), 2**31 - 1), "small": (0, 2)}.get(kind, (-4, 5))
        values = rng.integers(low, high, shape)
    device = "cpu" if dtype in ("float64", "complex128") else device
    t = lucid.tensor(np.asarray(values)).to(getattr(lucid, dtype)).to(device)
    if layout == "transposed" and t.ndim >= 2:
        t = t.transpose(0, -1)
    elif layout == "sliced" and t.ndim >= 1 and t.shape[0] > 1:
        t = t[1:]
    elif layout == "expanded" and t.ndim >= 1 and t.shape[0] > 0:
        t = t[:1].expand(t.shape)
    if grad and (t.is_floating_point() or t.is_complex()):
        t = t.detach().requires_grad_()
        t = t * 1 if seed % 2 else t
    return t


def array(shape: tuple[int, ...], dtype: str = "float64") -> Any:
    """A NumPy array, `NP` in a call's text."""
    import numpy as np

    return np.ones(shape, dtype)


class Writer:
    """Writes calls from a random generator."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        # Most calls have one shape, dtype and device in common, or nothing would ever get past the first check.
        self.shape = rng.choice(SHAPES)
        self.dtype = rng.choice([*DTYPES, "float32", "float32", "float32", "int64"])
        self.device = rng.choice(["cpu", "gpu"])

    def tensor(self, strange: float = 0.15) -> str:
        rng = self.rng
        shape = self.shape if rng.random() > 2 * strange else rng.choice(SHAPES)
        dtype = self.dtype if rng.random() > strange else rng.choice(DTYPES)
        device = self.device if rng.random() > strange / 4 else rng.choice(["cpu", "gpu"])
        kind = rng.choice(["normal", "normal", "normal", "small", "special"])
        layout = rng.choice(["", "", "", "transposed", "sliced", "expanded"])
        grad = rng.random() < 0.3
        return f"T({shape}, {dtype!r}, {device!r}, {kind!r}, {layout!r}, {rng.randrange(1000)}, {grad})"

    def integer(self) -> str:
        return repr(self.rng.choice(INTS[:10] if self.rng.random() < 0.8 else INTS))

    def integers(self) -> str:
        rng = self.rng
        n = rng.choice([0, 1, 1, 2, 2, 2, 3, 4, 5])
        items = [self.integer() for _ in range(n)]
        return rng.choice(["({},)", "[{}]"]).format(", ".join(items)) if items else rng.choice(["()", "[]"])

    def anything(self) -> str:
        rng = self.rng
        return rng.choice(
            [
                lambda: self.tensor(0.5),
                self.integer,
                lambda: rng.choice(FLOATS),
                self.integers,
                lambda: rng.choice(TEXTS),
                lambda: rng.choice(ODD),
                lambda: f"lucid.{rng.choice(DTYPES)}",
                lambda: f"[{self.tensor()}, {self.tensor()}]",
            ]
        )()

    def of_kind(self, kind: str) -> str:
        """What a parameter kind of the op table asks for."""
        rng = self.rng
        if kind.startswith("Opt"):
            return "None" if rng.random() < 0.3 else self.of_kind(kind[3:])
        return {
            "Tensor": self.tensor,
            "Tensors": lambda: "[" + ", ".join(self.tensor() for _ in range(rng.randrange(4))) + "]",
            "Operand": lambda: (
                self.tensor() if rng.random() < 0.6 else rng.choice([self.integer(), rng.choice(FLOATS)])
            ),
            "Number": lambda: rng.choice([self.integer(), rng.choice(FLOATS), "True", "1j"]),
            "Int": self.integer,
            "Float": lambda: rng.choice(FLOATS),
            "Bool": lambda: rng.choice(["True", "False"]),
            "Dim": lambda: str(rng.randrange(-4, 4)),
            "Dims": self.integers,
            "Sizes": self.integers,
            "Dtype": lambda: f"lucid.{rng.choice(DTYPES)}",
            "Device": lambda: rng.choice(["'cpu'", "'gpu'", "lucid.device('cpu')"]),
            "DeviceArg": lambda: rng.choice(["'cpu'", "'gpu'"]),
            "Generator": lambda: "lucid.Generator()",
            "Text": lambda: rng.choice(TEXTS),
        }.get(kind, self.anything)()

    def named(self, name: str) -> str:
        """What a parameter of this name usually is."""
        for words, kind in NAMES.items():
            if name in words.split():
                return self.of_kind(kind)
        return self.tensor() if self.rng.random() < 0.4 else self.anything()

    def arguments(self, callable_: Any, schema: Any, method: bool) -> str:
        """The text between the parentheses."""
        rng = self.rng
        positional: list[str] = []
        named: list[str] = []
        if schema and rng.random() < 0.95:
            for p in schema["params"][1 if method else 0 :]:
                if p["default"] is not None and rng.random() < 0.5:
                    continue
                value = self.of_kind(p["kind"]) if rng.random() < 0.93 else self.anything()
                if p["keyword_only"] or named or rng.random() < 0.2:
                    named.append(f"{p['name']}={value}")
                else:
                    positional.append(value)
        else:
            for p in parameters(callable_)[1 if method else 0 :]:
                if p.default is not p.empty and rng.random() < 0.6:
                    continue
                if p.kind is p.VAR_POSITIONAL:
                    positional += [self.anything() for _ in range(rng.randrange(3))] if not named else []
                elif p.kind is p.VAR_KEYWORD:
                    continue
                else:
                    value = self.named(p.name) if rng.random() < 0.9 else self.anything()
                    if p.kind is p.KEYWORD_ONLY or named or (p.kind is not p.POSITIONAL_ONLY and rng.random() < 0.2):
                        named.append(f"{p.name}={value}")
                    else:
                        positional.append(value)
        if rng.random() < 0.03:
            positional.append(self.anything())
        if rng.random() < 0.03 and positional:
            positional.pop(rng.randrange(len(positional)))
        if rng.random() < 0.02 and not named:
            named.append(f"{rng.choice(['out', 'dim', 'dtype', 'nothing'])}={self.anything()}")
        return ", ".join([*positional, *named])


NAMES = {
    "input other x y tensor weight target a b self mask index source src value query key data q k v mat vec": "Tensor",
    "bias running_mean running_var attn_mask condition out": "OptTensor",
    "tensors parameters inputs outputs params": "Tensors",
    "dim dim0 dim1 axis start_dim end_dim": "Dim",
    "dims axes": "Dims",
    "size sizes shape kernel_size stride padding dilation output_size normalized_shape repeats shifts": "Sizes",
    "n m num groups num_classes start end step diagonal offset in_features out_features in_channels": "Int",
    "p eps alpha beta momentum lr margin scale gamma lambd negative_slope low high threshold": "Float",
    "keepdim training inplace bias affine batch_first unbiased descending sorted largest": "Bool",
    "dtype": "Dtype",
    "device": "Device",
    "mode reduction equation norm": "Text",
    "generator": "OptGenerator",
}


def parameters(callable_: Any) -> list[inspect.Parameter]:
    """The parameters of a callable, as far as it says."""
    try:
        return list(inspect.signature(callable_).parameters.values())
    except (TypeError, ValueError):
        return [inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)]


def schemas() -> dict[str, Any]:
    """Rows of the op table by name."""
    import lucid

    return {s["name"]: s for s in lucid.op_schemas()}


def call_text(path: str, callable_: Any, rows: dict[str, Any], seed: int) -> str:
    """The call of a case."""
    rng = random.Random(zlib.crc32(f"{path}:{seed}".encode()))
    w = Writer(rng)
    name = path.rsplit(".", 1)[-1]
    if path.startswith("lucid.Tensor."):
        schema = rows.get(name) or rows.get(name.rstrip("_")) if not name.startswith("__") else None
        if isinstance(inspect.getattr_static(owner(path), name, None), staticmethod):
            return f"{path}({w.arguments(callable_, None, False)})"
        return f"{w.tensor()}.{name}({w.arguments(callable_, schema, True)})"
    if isinstance(callable_, type):
        text = f"{path}({w.arguments(callable_, None, False)})"
        import lucid

        if issubclass(callable_, lucid.nn.Module):
            text += f"({w.tensor()})"
        return text
    tables = ("lucid.nn.functional.", "lucid.linalg.", "lucid.special.", "lucid.fft.")
    schema = rows.get(name) if path.startswith(tables) or path.count(".") == 1 else None
    return f"{path}({w.arguments(callable_, schema, False)})"


def owner(path: str) -> Any:
    """What a path's last name is looked up in."""
    import lucid

    found: Any = lucid
    for part in path.split(".")[1:-1]:
        found = getattr(found, part)
    return found


# ---- the child -------------------------------------------------------------------------------------------------------


def child() -> None:
    """Runs calls that come line by line; says before and after each what it does."""
    import resource

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    out = os.fdopen(os.dup(1), "w", buffering=1)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    warnings.simplefilter("ignore")
    import lucid

    lucid.zeros(1, device="gpu").eval()
    found, rows = targets(), schemas()
    used = (
        int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize() if Path("/proc").exists() else 0
    )
    if used:
        resource.setrlimit(resource.RLIMIT_DATA, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print("ready", file=out)
    for line in sys.stdin:
        path, seed, deep = json.loads(line)
        try:
            text = call_text(path, found[path], rows, seed)
        except BaseException as e:
            print(
                json.dumps({"text": f"writing {path}", "kind": f"fuzzer {type(e).__name__}", "why": str(e)}), file=out
            )
            continue
        print(json.dumps({"text": text}), file=out)
        print(json.dumps(run_case(text, deep)), file=out)
        gc.collect(0)


def run_case(text: str, deep: bool) -> dict[str, Any]:
    """What a call did: its kind of end, and the finding if it is one."""
    import lucid

    env = {"T": tensor, "NP": array, "lucid": lucid, "inf": float("inf"), "nan": float("nan")}
    random.seed(0)
    lucid.manual_seed(0)
    done: dict[str, Any] = {"kind": "ok", "finding": False}
    try:
        result = eval(text, env)
        use(result)
    except BaseException as e:
        kind = type(e).__name__
        bad = not isinstance(e, KINDS) or isinstance(e, NOT_KINDS) or kind in ("InternalError", "PanicException")
        done = {"kind": kind, "finding": bad, "why": str(e)[:500]}
        del e
    if deep and not done["finding"]:
        grown = growth(text, env)
        if grown:
            done = {"kind": "growing memory", "finding": True, "why": f"{grown} bytes per call"}
    return done


def use(result: Any, depth: int = 0) -> None:
    """Evaluates what came out, prints it and goes backward from it."""
    import lucid

    if isinstance(result, (list, tuple)) and depth < 3:
        for r in list(result)[:4]:
            use(r, depth + 1)
    if not isinstance(result, lucid.Tensor):
        return
    result.eval()
    if result.numel() < 5000:
        repr(result)
    if result.requires_grad and result.numel():
        total = (result * result.conj()).real if result.is_complex() and hasattr(result, "real") else result
        total.float().sum().backward() if not total.is_complex() else None


def growth(text: str, env: dict[str, Any]) -> int:
    """Bytes that the process grows by per call, where it keeps growing."""
    page = os.sysconf("SC_PAGE_SIZE")

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * page

    if not Path("/proc/self/statm").exists():
        return 0
    until = time.monotonic() + 2.0
    rounds: list[int] = []
    for _ in range(4):
        for _ in range(100):
            with contextlib.suppress(BaseException):
                use(eval(text, env))
            if time.monotonic() > until:
                return 0
        gc.collect()
        rounds.append(resident())
    steps = [b - a for a, b in itertools.pairwise(rounds[1:])]
    return min(steps) // 100 if min(steps) > 400 << 10 else 0


# ---- the parent ------------------------------------------------------------------------------------------------------


@dataclass
class Report:
    """What a run found."""

    calls: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, Any]] = field(default_factory=list)
    reached: set[str] = field(default_factory=set)
    succeeded: set[str] = field(default_factory=set)

    def text(self, all_targets: int) -> str:
        lines = [
            f"{self.calls} calls of {len(self.reached)}/{all_targets} targets, {len(self.succeeded)} with success",
            "ends: " + ", ".join(f"{k} {n}" for k, n in self.kinds.most_common()),
        ]
        for f in self.findings:
            lines.append(f"\n{f['kind']}: {f['text']}\n    {f.get('why', '')}\n    --replay {f['path']!r} {f['seed']}")
        lines.append(f"{len(self.findings)} findings")
        return "\n".join(lines)


class Child:
    """A child process, and a reader of its lines that gives up in time."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="lucid-fuzz-")
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.python.fuzz", "--child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            cwd=self.folder.name,
            env=env,
        )
        self.rest = b""
        if self.line(120) != "ready":
            raise RuntimeError(f"the child did not start: {self.last_words()}")

    def line(self, seconds: float) -> str | None:
        """The next line; None where it ended or the time is up."""
        assert self.process.stdout is not None
        until = time.monotonic() + seconds
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return None
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                return None
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode(errors="replace")

    def last_words(self) -> str:
        self.errors.seek(0)
        said = self.errors.read().decode(errors="replace")[-600:].strip()
        return f"{said} (exit code {self.process.poll()})"

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.errors.close()
        self.folder.cleanup()


def one(worker: Child, path: str, seed: int, deep: bool) -> tuple[dict[str, Any], bool]:
    """Runs a case; also says whether the child can go on."""
    assert worker.process.stdin is not None
    try:
        worker.process.stdin.write((json.dumps([path, seed, deep]) + "\n").encode())
        worker.process.stdin.flush()
    except BrokenPipeError:
        return {"kind": "ok", "finding": False, "text": ""}, False
    text = ""
    for _ in range(2):
        line = worker.line(LIMIT)
        if line is None:
            break
        said = json.loads(line)
        text = said.get("text", text)
        if "kind" in said:
            return {"finding": "finding" not in said, **said, "text": text, "path": path, "seed": seed}, True
    found = {"finding": True, "text": text or path, "path": path, "seed": seed}
    try:
        code = worker.process.wait(0.5)
    except subprocess.TimeoutExpired:
        return {**found, "kind": "hang", "why": f"more than {LIMIT} s"}, False
    name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return {**found, "kind": f"crash ({name})", "why": worker.last_words()}, False


def fuzz(seconds: float, jobs: int, seed: int = 0, only: str = "", most: int | None = None) -> tuple[Report, int]:
    """Fuzzes for a time, or until `most` calls are made: the same ones for a seed. Gives the report and the number of
    targets.
    """
    paths = [p for p in targets() if only in p]
    if not paths:
        raise SystemExit(f"no target's path has {only!r} in it")
    report, lock = Report(), threading.Lock()
    until = time.monotonic() + seconds
    cases: queue.Queue[tuple[str, int]] = queue.Queue()
    order = random.Random(seed)

    def refill(turn: int) -> None:
        turns = [(p, seed * 1_000_003 + turn) for p in paths]
        order.shuffle(turns)
        for t in turns:
            cases.put(t)

    turn = taken = 0
    seen: set[tuple[str, str, str]] = set()

    def work() -> None:
        nonlocal turn, taken
        worker: Child | None = None
        while time.monotonic() < until:
            with lock:
                if taken == most:
                    break
                taken += 1
                if cases.empty():
                    refill(turn)
                    turn += 1
                path, case = cases.get()
            try:
                worker = worker or Child()
            except RuntimeError as e:
                # Without a child nothing is tried: that must not look like a clean run.
                with lock:
                    report.findings.append({"kind": "no child", "text": str(e), "path": path, "seed": case})
                break
            done, alive = one(worker, path, case, zlib.crc32(f"{path}{case}".encode()) % 97 == 0)
            # What sets something for the whole process must not touch the cases that follow.
            if not alive or "set_" in path.rsplit(".", 1)[-1]:
                worker.close()
                worker = None
            with lock:
                report.calls += 1
                report.kinds[done["kind"]] += 1
                report.reached.add(path)
                if done["kind"] == "ok":
                    report.succeeded.add(path)
                key = (path, done["kind"], str(done.get("why", ""))[:60])
                if done["finding"] and key not in seen:
                    seen.add(key)
                    report.findings.append(done)
        if worker:
            worker.close()

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return report, len(paths)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a part of the targets' paths")
    parser.add_argument("--replay", nargs=2, metavar=("PATH", "SEED"))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child()
    elif options.replay:
        path, seed = options.replay
        text = call_text(path, targets()[path], schemas(), int(seed))
        print(text, flush=True)
        print(run_case(text, True))
    else:
        report, total = fuzz(options.seconds, options.jobs, options.seed, options.only)
        print(report.text(total))
        sys.exit(bool(report.findings))


if __name__ == "__main__":
    main()
