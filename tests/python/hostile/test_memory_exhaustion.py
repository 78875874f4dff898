"""No room: every op ends in a result or in a typed error, and no process is aborted.

Each program runs in a child process whose address space is limited (RLIMIT_AS) to a little more than it has: so an
allocation that is too large fails wherever it is made. Beside it, what indexing allocates next to its result.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lucid
import pytest

if sys.platform != "linux":
    pytest.skip("RLIMIT_AS holds on Linux only", allow_module_level=True)

ROOT = Path(lucid.__file__).resolve().parent.parent

# Programs that took memory by sizes from outside without asking whether there is any.
PROGRAMS = {
    "index by a block": "x.reshape(2000, 1000)[lucid.tensor([0, 1]).expand(N, 2)]",
    "index of a table": "x[lucid.zeros((), dtype=lucid.int64).expand(N)]",
    "index by two": "x.reshape(2000, 1000)[lucid.tensor(0).expand(N), lucid.tensor(1).expand(N)]",
    "index the last": "lucid.zeros(1).expand(N, 2)[:, lucid.tensor([0, 1])]",
    "index_put": "x.index_put((lucid.tensor(0).expand(N),), lucid.tensor(1.0).expand(N))",
    "index_put_": "x.index_put_((lucid.tensor(0).expand(N),), lucid.tensor(1.0).expand(N))",
    "index_select": "x.index_select(0, lucid.zeros(1, dtype=lucid.int64).expand(N))",
    "gather": "x.gather(0, lucid.tensor(0).expand(N))",
    "scatter": "x.scatter(0, lucid.tensor(0).expand(N), lucid.tensor(1.0).expand(N))",
    "scatter_": "x.scatter_(0, lucid.tensor(0).expand(N), lucid.tensor(1.0).expand(N))",
    "take": "x.take(lucid.tensor(0).expand(N))",
    "embedding": "lucid.nn.functional.embedding(lucid.tensor(0).expand(N), x.reshape(2000, 1000))",
    "masked_select": "lucid.tensor(1.0).expand(N).masked_select(lucid.tensor(True).expand(N))",
    "nonzero": "lucid.tensor(1.0).expand(N).nonzero()",
    "split": "lucid.tensor(1.0).expand(N).split(1)",
    "split list": "lucid.tensor(1.0).expand(N).split([1] * 1000 + [N - 1000])",
    "chunk": "lucid.zeros(0).chunk(N)",
    "unbind": "lucid.tensor(1.0).expand(N).unbind()",
    "tolist": "lucid.tensor(1.0).expand(N).tolist()",
    "tobytes": "lucid.tensor(1.0).expand(N)._bytes()",
    "sort": "lucid.tensor(1.0).expand(N).sort()",
    "argsort": "lucid.tensor(1.0).expand(N).argsort()",
    "topk": "lucid.tensor(1.0).expand(N).topk(5)",
    "unique": "lucid.tensor(1).expand(N).unique()",
    "cumsum": "lucid.tensor(1.0).expand(N).cumsum(0)",
    "cummax": "lucid.tensor(1.0).expand(2, N).cummax(0)",
    "logcumsumexp": "lucid.tensor(1.0).expand(2, N).logcumsumexp(0)",
    "sum over rows": "lucid.tensor(1.0).expand(2, N).sum(0)",
    "var over rows": "lucid.tensor(1.0).expand(2, N).var(0)",
    "softmax": "lucid.tensor(1.0).expand(2, N).softmax(0)",
    "layer_norm": "lucid.nn.functional.layer_norm(lucid.tensor(1.0).expand(2, N), (N,))",
    "batch_norm": "lucid.nn.functional.batch_norm(lucid.tensor(1.0).expand(2, N), None, None, training=True)",
    "matmul": "lucid.tensor(1.0).expand(N, 1, 1) @ lucid.tensor(1.0).expand(N, 1, 1)",
    "det": "lucid.tensor(1.0).expand(M, M).det()",
    "inverse": "lucid.eye(M).inverse()",
    "solve": "lucid.linalg.solve(lucid.eye(M), lucid.ones(M, M))",
    "qr": "lucid.linalg.qr(lucid.eye(M))",
    "svd": "lucid.linalg.svdvals(lucid.eye(M))",
    "eigh": "lucid.linalg.eigvalsh(lucid.eye(M))",
    "eig": "lucid.linalg.eigvals(lucid.eye(M))",
    "cholesky": "lucid.linalg.cholesky(lucid.eye(M))",
    "lu": "lucid.linalg.lu(lucid.eye(M))",
    "ldl": "lucid.linalg.ldl_factor(lucid.eye(M))",
    "pinv": "lucid.linalg.pinv(lucid.eye(M))",
    "matrix_exp": "lucid.linalg.matrix_exp(lucid.eye(M))",
    "conv2d": "lucid.nn.functional.conv2d(lucid.ones(1, 1, 9, 9).expand(N // 64, 1, 9, 9), lucid.ones(8, 1, 3, 3))",
    "max_pool2d": "lucid.nn.functional.max_pool2d(lucid.tensor(1.0).expand(1, 1, 4, N), 2)",
    "avg_pool2d": "lucid.nn.functional.avg_pool2d(lucid.tensor(1.0).expand(1, 1, 4, N), 2)",
    "attention": (
        "lucid.nn.functional.scaled_dot_product_attention("
        "lucid.ones(1, 1, 4, 8), lucid.tensor(1.0).expand(1, 1, N, 8), lucid.tensor(1.0).expand(1, 1, N, 8))"
    ),
    "cat": "lucid.cat([lucid.tensor(1.0).expand(N)] * 3)",
    "stack": "lucid.stack([lucid.tensor(1.0).expand(N)] * 3)",
    "flip": "lucid.tensor(1.0).expand(N).flip(0)",
    "roll": "lucid.tensor(1.0).expand(N).roll(1)",
    "repeat_interleave": "lucid.tensor(1.0).repeat_interleave(N)",
    "combinations": "lucid.combinations(lucid.arange(3), N, with_replacement=True)",
    "cdist": "lucid.cdist(lucid.tensor(1.0).expand(N, 2), lucid.ones(2, 2))",
    "histogramdd": "lucid.histogramdd(lucid.tensor(1.0).expand(2, N), 3)",
    "bincount": "lucid.tensor(1).expand(N).bincount()",
    "searchsorted": "lucid.searchsorted(lucid.arange(9.0), lucid.tensor(1.0).expand(N))",
    "randperm": "lucid.randperm(N)",
    "randn": "lucid.randn(N)",
    "nll_loss": "lucid.nn.functional.nll_loss(lucid.ones(1, 3).expand(N, 3), lucid.tensor(1).expand(N))",
    "cross_entropy": "lucid.nn.functional.cross_entropy(lucid.ones(1, 3).expand(N, 3), lucid.tensor(-100).expand(N))",
    "einsum": "lucid.einsum('ij,kj->ik', lucid.tensor(1.0).expand(N, 2), lucid.tensor(1.0).expand(3, 2))",
    "resize": "lucid.ones(4).resize_(N).resize_(2)",
    "gradient": "lucid.ones(4, requires_grad=True).expand(N, 4)[lucid.zeros(N, dtype=lucid.int64)].sum().backward()",
}

CHILD = """
import resource, sys
import lucid

programs = {programs!r}
x = lucid.ones(2_000_000)
lucid.set_num_threads(2)
(lucid.ones(300, 300) @ lucid.ones(300, 300)).sum().item()
lucid.linalg.eigh(lucid.eye(8))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limit = used + {room}
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for N, M in {sizes!r}:
    for name, program in programs.items():
        # Known even where the process is gone.
        print(name, N, end=": ", flush=True)
        try:
            value = eval(program)
        except (lucid.OutOfMemory, MemoryError) as e:
            print("out of memory", flush=True)
        except lucid.LucidError as e:
            print("error", type(e).__name__, str(e)[:100], flush=True)
        else:
            print("made", flush=True)
        value = None
        lucid.empty_cache()
print("done", flush=True)
"""


def in_child(programs: dict[str, str], sizes: list[tuple[int, int]], room: int) -> list[str]:
    code = CHILD.format(programs=programs, sizes=sizes, room=room)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240, cwd=ROOT.parent
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[-1:] == ["done"], (lines[-1:], done.returncode, done.stderr[-600:])
    return lines[:-1]


def test_no_room_is_a_typed_error() -> None:
    # Sizes for which the result fits and the memory to work in may not, and sizes for which nothing fits.
    # Less room than this OpenBLAS itself ends the process over, where it makes a buffer for a thread.
    lines = in_child(PROGRAMS, [(2_000_000, 500), (1 << 28, 6000), (1 << 42, 200_000)], 96 << 20)
    internal = [line for line in lines if "InternalError" in line]
    assert not internal
    assert sum(line.endswith("out of memory") for line in lines) > len(PROGRAMS)


# Programs that index, and how many bytes their results have.
BLOCKS = {
    "last dimensions": ("x[i]", 4 * 2 * 1_000_000),
    "first dimensions": ("x.t()[:, i]", 4 * 2 * 1_000_000),
    "of a transposed array": ("x.t()[i]", 4 * 2 * 10),
    "index_select": ("x.index_select(0, i)", 4 * 2 * 1_000_000),
    "write": ("x.index_put_((i,), lucid.tensor(1.0).expand(2, 1_000_000))", 4 * 2 * 1_000_000),
    "gather": ("x.gather(0, lucid.zeros(1, dtype=lucid.int64).expand(1, 1_000_000))", 12 * 1_000_000),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_indexing_allocates_its_result_and_little_else(name: str) -> None:
    program, result = BLOCKS[name]
    code = f"""
import resource
import lucid

lucid.set_num_threads(1)
x = lucid.ones(10, 1_000_000)
i = lucid.tensor([0, 1])
x[i, i]
lucid.empty_cache()
def peak():
    return int([line for line in open("/proc/self/status") if line.startswith("VmPeak")][0].split()[1]) * 1024
lucid.reset_peak_memory_stats()
used = lucid.memory_stats()["current"]
before = peak()
y = {program}
print(lucid.memory_stats()["peak"] - used, peak() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, cwd=ROOT.parent
    )
    counted, mapped = map(int, done.stdout.split())
    # The engine's own buffers, and the whole process's address space: tables would be in neither or in the second.
    assert counted <= result + (1 << 20)
    assert mapped <= result + (4 << 20)
