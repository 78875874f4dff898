#!/usr/bin/env python3
"""All that a Mac can say of this project, in one file: `make mac-report`.

    python tools/mac_report.py [--out DIR] [--parts NAME,...] [--seconds S]

Writes `mac-report.json` and the same as a page, `mac-report.html`. Each part runs whatever became of the ones before:

- machine: the chip, its memory, pages and cores, macOS, compilers, the state of the source;
- packages: `make venv-test`, and the versions of what it installs;
- build: `make build`;
- library: what the extension loads, from where, and who signed it;
- accelerate: questions that Apple's documentation leaves open, asked of Accelerate (tools/accelerate/probe.py);
- rust, python: all tests, with the names of those that fail; Python's folder by folder, so that a crash costs one;
- memory: what is copied between the CPU and the GPU, shared memory between processes, limits;
- lenet, models, zoo, lightning: benchmarks against raw MLX, and against PyTorch where it is installed (on `mps`).

It runs on Linux too, where it is rehearsed: there the GPU is whatever MLX has. Nothing is sent anywhere.
"""

from __future__ import annotations

import argparse
import contextlib
import html
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
VERSION = 1
# What `sysctl` is asked, and what the answers are for.
SYSCTL = (
    "hw.model",
    "machdep.cpu.brand_string",
    "hw.memsize",
    "hw.pagesize",
    "hw.ncpu",
    "hw.perflevel0.physicalcpu",
    "hw.perflevel1.physicalcpu",
    "hw.l1dcachesize",
    "hw.l2cachesize",
    "kern.osproductversion",
    "kern.sysv.shmmax",
    "iogpu.wired_limit_mb",
    "iogpu.rsrc_limit",
)
# The most that is kept of what a command prints.
TAIL = 12_000
HOURS = 3600.0
# A test of so many seconds says where it is.
HANGS = 900.0
ALL_TESTS = "tests/python"
# A list of more lines than these has a bar to scroll by.
SCROLLED = 15

IMPORT = """
import json, lucid
print(json.dumps({"lucid": lucid.__version__, "module": lucid._C.__file__, "gpu": str(lucid.device("gpu"))}))
"""

MEMORY = """
import json, multiprocessing, os, sys
import lucid

def child(queue, tensor):
    tensor += 1
    queue.put(float(tensor.sum()))

def main():
    found = {"gpu": str(lucid.device("gpu")), "page_bytes": os.sysconf("SC_PAGE_SIZE")}
    x = lucid.arange(1 << 20, dtype=lucid.float32)
    there = x.to("gpu")
    back = there.to("cpu")
    found["round_trip_equal"] = bool((back == x).all())
    context = lucid.multiprocessing.get_context("spawn")
    queue, shared = context.Queue(), lucid.zeros(1000).share_memory_()
    worker = context.Process(target=child, args=(queue, shared))
    worker.start()
    found["child_saw"] = queue.get(timeout=120)
    worker.join(120)
    found["parent_sees"] = float(shared.sum())
    found["start_method"] = multiprocessing.get_start_method()
    dataset = lucid.utils.data.TensorDataset(lucid.arange(64))
    loader = lucid.utils.data.DataLoader(dataset, batch_size=8, num_workers=1)
    found["loader_sum"] = int(sum(int(batch[0].sum()) for batch in loader))
    if lucid.mps.is_available():
        # The most that one array may have is asked of `sysctl` by MLX.
        names = ("recommended_max_memory", "current_allocated_memory", "driver_allocated_memory")
        found["limits"] = {name: getattr(lucid.mps, name)() for name in names}
    try:
        lucid.ones(1 << 50)
        found["refused"] = None
    except lucid.errors.OutOfMemory as refused:
        found["refused"] = str(refused)
    found["works_after"] = float((lucid.ones(3, device="gpu").cpu() + 1).sum()) == 6
    found["ok"] = found["round_trip_equal"] and found["parent_sees"] == 1000.0 and found["loader_sum"] == 2016
    found["ok"] = found["ok"] and found["refused"] is not None and found["works_after"]
    print(json.dumps(found))

if __name__ == "__main__":
    main()
"""


class Failed(Exception):
    """A part that did not work; its argument is what there is to say, as a dict."""

    def __init__(self, found: dict[str, Any]) -> None:
        super().__init__(found.get("error", "failed"))
        self.found = found


def output(*command: str, seconds: float = 60) -> str:
    """What a command prints, or why it does not."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"not there: {e}"
    return (done.stdout or done.stderr).strip()


def command(*words: str, seconds: float = 3 * HOURS, **env: str) -> dict[str, Any]:
    """Run a command to its end, its output shown as it comes; the end of that is kept."""
    lines: list[str] = []
    process = subprocess.Popen(
        words,
        cwd=ROOT,
        env=os.environ | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        bufsize=1,
        start_new_session=True,
    )
    assert process.stdout is not None
    late: list[str] = []

    def stop() -> None:
        # With all that it has started, which would hold the pipe open.
        late.append(f"stopped after {seconds:g} seconds\n")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    # A command that hangs prints nothing: a clock of its own ends it.
    clock = threading.Timer(seconds, stop)
    clock.start()
    try:
        for line in process.stdout:
            lines.append(line)
            sys.stdout.write(f"  {line}")
        status = process.wait()
    except BaseException:
        stop()
        raise
    finally:
        clock.cancel()
    lines += late
    text = "".join(lines)
    found = {"command": " ".join(words), "status": status, "output": text[-TAIL:]}
    if status != 0:
        raise Failed(found | {"error": f"exit status {status}: {last_line(text)}"})
    return found | {"text": text}


def last_line(text: str) -> str:
    """The last line that says something: of a traceback, the exception."""
    said = [line.strip() for line in text.splitlines() if line.strip()]
    return said[-1][-400:] if said else "nothing was printed"


def last_json(text: str) -> Any:
    """The JSON object that is the last line of a benchmark's output."""
    return json.loads(text.strip().splitlines()[-1])


def machine(_: argparse.Namespace) -> dict[str, Any]:
    """The chip, macOS, and what compiles."""
    found: dict[str, Any] = {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "macos": platform.mac_ver()[0] or None,
        "python": sys.version,
        "page_bytes": os.sysconf("SC_PAGE_SIZE"),
        "cores": os.cpu_count(),
        "commit": output("git", "describe", "--always", "--dirty"),
        "cargo": output("cargo", "--version"),
        "rustc": output("rustc", "--version"),
        "compiler": output(os.environ.get("CC", "cc"), "--version").splitlines()[:1],
    }
    if sys.platform == "darwin":
        found["sysctl"] = {name: output("sysctl", "-n", name) for name in SYSCTL}
        found["rosetta"] = output("sysctl", "-n", "sysctl.proc_translated")
        found["displays"] = output("system_profiler", "SPDisplaysDataType")
    return found


def packages(_: argparse.Namespace) -> dict[str, Any]:
    """What the tests and benchmarks import."""
    failure: Failed | None = None
    try:
        command("make", "venv-test", f"PYTHON={sys.executable}")
    except Failed as e:
        failure = e
    listed = output(sys.executable, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check")
    found = {"installed": listed.splitlines()}
    if failure is not None:
        # Benchmarks and most tests need none of what may be missing.
        raise Failed(failure.found | found)
    return found


def build(_: argparse.Namespace) -> dict[str, Any]:
    """`make build`, which fetches what it needs."""
    found = command("make", "build", f"PYTHON={sys.executable}")
    return {name: found[name] for name in ("command", "output")}


def library(_: argparse.Namespace) -> dict[str, Any]:
    """What the extension loads, and its signature."""
    module = ROOT / "py" / "lucid" / "_C.abi3.so"
    if not module.exists():
        raise Failed({"error": f"{module.name} is not built"})
    found: dict[str, Any] = {}
    if sys.platform == "darwin":
        found["loads"] = output("otool", "-L", str(module)).splitlines()
        found["run_paths"] = re.findall(r"path (\S+) \(offset", output("otool", "-l", str(module)))
        found["signature"] = output("codesign", "--display", "--verbose=2", str(module))
        found["quarantine"] = output("xattr", str(module))
    else:
        found["loads"] = [line.strip() for line in output("ldd", str(module)).splitlines()]
    try:
        found["imported"] = last_json(command(sys.executable, "-c", IMPORT, seconds=600)["text"])
    except Failed as e:
        raise Failed(e.found | found | {"error": f"the extension is not imported: {e}"}) from e
    return found


def accelerate(_: argparse.Namespace) -> dict[str, Any]:
    """Questions for Accelerate."""
    answers = json.loads(command(sys.executable, "tools/accelerate/probe.py", seconds=600)["text"])
    wrong = [question for question, found in answers.items() if found["ok"] is False]
    if wrong:
        raise Failed({"answers": answers, "error": f"not as the engine counts on: {'; '.join(wrong)}"})
    return {"answers": answers}


def rust(_: argparse.Namespace) -> dict[str, Any]:
    """The Rust tests."""
    try:
        found = command("cargo", "test", "--release", "--workspace", "--no-fail-fast")
    except Failed as e:
        text = e.found["output"]
        e.found["failed"] = sorted(set(re.findall(r"^    (\S+)$", text, re.MULTILINE)))
        raise
    return {"passed": sum(int(n) for n in re.findall(r"(\d+) passed", found["text"]))}


def test_folders(paths: list[str]) -> list[str]:
    """The paths, or for the folder of all tests the folders in it: each is a process of its own."""
    folders: list[str] = []
    for path in paths:
        below = sorted(f for f in (ROOT / path).glob("*/") if any(f.rglob("test_*.py")))
        folders += [str(f.relative_to(ROOT)) for f in below] if path == ALL_TESTS else [path]
    return folders


def pytest_results(path: str, folder: Path) -> dict[str, Any]:
    """The results of pytest over one path, or why there are none."""
    results = folder / "results.xml"
    results.unlink(missing_ok=True)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={results}"]
    # What hangs says where.
    words += ["-o", f"faulthandler_timeout={HANGS:g}", path]
    failure: Failed | None = None
    try:
        command(*words)
    except Failed as e:
        failure = e
    if not results.exists():
        return (failure.found if failure else {}) | {"error": f"{failure or 'pytest wrote no results'}"}
    suite = next(ET.parse(results).iter("testsuite"))
    found: dict[str, Any] = {key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")}
    found["failed"] = [
        {"name": f"{case.get('classname')}::{case.get('name')}", "says": (bad.text or bad.get("message") or "")[-800:]}
        for case in suite.iter("testcase")
        for bad in (*case.iter("failure"), *case.iter("error"))
    ]
    found["skips"] = [str(skip.get("message")) for skip in suite.iter("skipped")]
    if failure is not None and not found["failed"]:
        found["error"] = str(failure)
    return found


def python(args: argparse.Namespace) -> dict[str, Any]:
    """The Python tests, or those that `--tests` names, each path in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="mac-report-") as folder:
        each = {path: pytest_results(path, Path(folder)) for path in test_folders(args.tests)}
    counts = ("tests", "failures", "errors", "skipped")
    found: dict[str, Any] = {key: sum(one.get(key, 0) for one in each.values()) for key in counts}
    found["folders"] = [
        {"path": path} | {key: one[key] for key in (*counts, "error") if key in one} for path, one in each.items()
    ]
    found["failed"] = [bad for one in each.values() for bad in one.get("failed", ())][:200]
    found["skips"] = sorted({skip for one in each.values() for skip in one.get("skips", ())})[:50]
    found["ended_early"] = {path: one["output"] for path, one in each.items() if "error" in one and "output" in one}
    early = [f"{path}: {one['error']}" for path, one in each.items() if "error" in one]
    if found["failures"] or found["errors"] or early:
        error = f"{found['failures']} failures, {found['errors']} errors"
        raise Failed(found | {"error": "; ".join([error, *early])})
    return found


def memory(_: argparse.Namespace) -> dict[str, Any]:
    """Transfers, shared memory, workers, limits and what is refused beyond them."""
    with tempfile.TemporaryDirectory(prefix="mac-report-") as folder:
        script = Path(folder) / "memory_between.py"
        script.write_text(MEMORY)
        found = last_json(command(sys.executable, str(script), seconds=600)["text"])
    if not found["ok"]:
        raise Failed(found | {"error": "memory is not shared as it should be"})
    return dict(found)


def lenet(args: argparse.Namespace) -> dict[str, Any]:
    """LeNet-5 against raw MLX."""
    made = {}
    for batch in ("64", "1"):
        words = (
            "bench/lenet_overhead.py",
            "--device",
            "gpu",
            "--batch",
            batch,
            "--seconds",
            str(args.seconds),
            "--json",
        )
        made[f"batch {batch}"] = last_json(command(sys.executable, *words)["text"])
    return made


def models(args: argparse.Namespace) -> dict[str, Any]:
    """Three models beside PyTorch on the same GPU."""
    words = ("bench/mps.py", "--device", "gpu", "--seconds", str(args.seconds), "--json")
    return dict(last_json(command(sys.executable, *words)["text"]))


def zoo(args: argparse.Namespace) -> dict[str, Any]:
    """Training steps of many models, as elsewhere measured."""
    words = ["bench/models.py", "--device", "gpu", "--seconds", str(min(args.seconds, 10.0)), "--json"]
    if sys.platform != "darwin":
        # A rehearsal may have no GPU: MLX's CPU stream takes minutes for a step of the large shapes.
        words.append("--quick")
    return dict(last_json(command(sys.executable, *words)["text"]))


def lightning(args: argparse.Namespace) -> dict[str, Any]:
    """Lightning Core's tables."""
    with tempfile.TemporaryDirectory(prefix="mac-report-") as folder:
        suite = "all" if sys.platform == "darwin" else "quick"
        options = args.lightning or ["--suite", suite, "--device", "auto", "--seconds", str(args.seconds)]
        command(sys.executable, "bench/lightning/bench.py", *options, "--out", folder)
        return {f.name: json.loads(f.read_text()) for f in sorted(Path(folder).glob("*.json"))}


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "machine": machine,
    "packages": packages,
    "build": build,
    "library": library,
    "accelerate": accelerate,
    "rust": rust,
    "python": python,
    "memory": memory,
    "lenet": lenet,
    "models": models,
    "zoo": zoo,
    "lightning": lightning,
}


def page(report: dict[str, Any]) -> str:
    """The report as one HTML page that loads nothing."""

    def shown(value: Any) -> str:
        if isinstance(value, dict):
            parts = list(value.values())
            if len(parts) > 1 and all(isinstance(v, dict) and list(v) == list(parts[0]) for v in parts):
                return shown([{"": k} | v for k, v in value.items()])
            rows = "".join(f"<tr><th>{html.escape(str(k))}</th><td>{shown(v)}</td></tr>" for k, v in value.items())
            return f"<table>{rows}</table>"
        if isinstance(value, list):
            if value and all(isinstance(v, dict) for v in value):
                heads = list(dict.fromkeys(k for v in value for k in v))
                head = "".join(f"<th>{html.escape(str(h))}</th>" for h in heads)
                rows = "".join(f"<tr>{''.join(f'<td>{shown(v.get(h))}</td>' for h in heads)}</tr>" for v in value)
                return f"<table><tr>{head}</tr>{rows}</table>"
            if len(value) > SCROLLED and all(isinstance(v, str) for v in value):
                return shown("\n".join(value))
            return "<br>".join(shown(v) for v in value) or "none"
        if value is None:
            return "–"
        if isinstance(value, float):
            return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
        text = html.escape(str(value))
        return f"<pre>{text}</pre>" if "\n" in text else text

    parts = "".join(
        f"<h2 id={name}>{name}: {html.escape(part['result'])} <small>{part['seconds']:.0f} s</small></h2>"
        f"{'<p class=bad>' + html.escape(part['error']) + '</p>' if 'error' in part else ''}{shown(part['found'])}"
        for name, part in report["parts"].items()
    )
    contents = " · ".join(f"<a href=#{n}>{n}: {p['result']}</a>" for n, p in report["parts"].items())
    style = (
        "body{font:15px/1.4 system-ui,sans-serif;margin:2em auto;max-width:70em}table{border-collapse:collapse}"
        "th,td{border:1px solid #ccc;padding:.15em .5em;text-align:left;vertical-align:top;font-weight:normal}"
        "th{background:#f4f4f4}pre{max-height:20em;overflow:auto}.bad{color:#b00}small{color:#777}"
    )
    title = "Report of a Mac" if report["system"] == "Darwin" else f"Rehearsal on {report['system']}"
    return (
        f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{style}</style><h1>{title}</h1>"
        f"<p>{html.escape(report['started'])}</p><p>{contents}</p>{parts}\n"
    )


def write(report: dict[str, Any], out: Path) -> None:
    """Both files, each renamed into place."""
    out.mkdir(parents=True, exist_ok=True)
    for name, text in (("mac-report.json", json.dumps(report, indent=1)), ("mac-report.html", page(report))):
        fresh = out / f"{name}.new"
        fresh.write_text(text)
        fresh.replace(out / name)


def main(words: list[str] | None = None) -> int:
    """Do what the command line says; exit status 1 if a part failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT, help="the folder of both files")
    parser.add_argument("--parts", default=",".join(PARTS), help="which parts, by comma")
    parser.add_argument("--seconds", type=float, default=40, help="how long each benchmark measures, about")
    parser.add_argument("--tests", nargs="*", default=[ALL_TESTS], help="what pytest runs")
    parser.add_argument("--lightning", type=shlex.split, metavar="OPTIONS", help="of bench/lightning/bench.py")
    args = parser.parse_args(words)
    names = args.parts.split(",")
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    report: dict[str, Any] = {
        "version": VERSION,
        "system": platform.system(),
        "started": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "parts": {},
    }
    for name in names:
        print(f"mac-report: {name}", flush=True)
        start, part = time.monotonic(), {}
        try:
            part = {"result": "ok", "found": PARTS[name](args)}
        except Failed as e:
            part = {"result": "failed", "error": str(e), "found": {k: v for k, v in e.found.items() if k != "error"}}
        except Exception as e:
            # A report with a hole says more than none.
            part = {"result": "failed", "error": f"{type(e).__name__}: {e}", "found": {}}
        part["seconds"] = round(time.monotonic() - start, 2)
        report["parts"][name] = part
        write(report, args.out)
    failed = [name for name, part in report["parts"].items() if part["result"] != "ok"]
    print(f"mac-report: {args.out / 'mac-report.json'}{': failed: ' + ', '.join(failed) if failed else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
