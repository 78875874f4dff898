"""What the GPU device cannot count, and what it gets no memory for, is an error at the call.

MLX counts elements in 32 bits: an op on more gave zeros, garbage or a signal. Its CPU stream writes to what it
allocates without a look at whether it got it.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import lucid
import lucid.errors
import pytest

F = lucid.nn.functional
SIDE = 2**16


def giant(*shape: int, dtype: Any = lucid.int8) -> Any:
    """More than 2^31 elements in a byte: a view, which costs nothing."""
    return lucid.ones(1, dtype=dtype, device="gpu").expand(*(shape or (SIDE, SIDE)))


CALLS: dict[str, Callable[[], Any]] = {
    "add": lambda: giant() + giant(),
    "add a number": lambda: giant() + 1,
    "neg": lambda: -giant(),
    "max": lambda: giant().max(),
    "sum": lambda: giant().sum(),
    "sum of a dimension": lambda: giant().sum(0),
    "any": lambda: giant().bool().any(),
    "argmax": lambda: giant().argmax(),
    "sort": lambda: giant().sort(),
    "cumsum": lambda: giant().cumsum(0),
    "clone": lambda: giant().clone(),
    "contiguous": lambda: giant().contiguous(),
    "reshape": lambda: giant().reshape(-1).sum(),
    "transposed": lambda: giant().t().sum(0),
    "cast": lambda: giant().float(),
    "compare": lambda: giant() == giant(),
    "where": lambda: lucid.where(giant().bool(), 1, 0),
    "cat": lambda: lucid.cat([giant(), giant()]),
    "stack of halves": lambda: lucid.stack([giant(SIDE, SIDE // 4)] * 4),
    "repeat": lambda: lucid.ones(SIDE, 1, device="gpu").repeat(1, SIDE),
    "masked": lambda: giant()[giant().bool()],
    "index": lambda: giant()[lucid.zeros(SIDE, dtype=lucid.int64, device="gpu")],
    "nonzero": lambda: giant().nonzero(),
    "cpu": lambda: giant().cpu(),
    "item": lambda: giant().sum().item(),
    "one size": lambda: giant(2**31) + 1,
    "one size of a view": lambda: giant(2**31).sum(),
    "just beyond": lambda: giant(2, 2**30).sum(),
    "outer product": lambda: lucid.ones(SIDE, 1, device="gpu") @ lucid.ones(1, SIDE, device="gpu"),
    "outer": lambda: lucid.outer(lucid.ones(SIDE, device="gpu"), lucid.ones(SIDE, device="gpu")),
    "product of giants": lambda: giant(SIDE, SIDE, dtype=lucid.float32) @ lucid.ones(SIDE, 1, device="gpu"),
    "batches": lambda: (
        lucid.ones(1, 1, 4096, device="gpu") @ lucid.ones(1, 4096, 1, device="gpu").expand(2**20, -1, -1)
    ),
    "linear": lambda: F.linear(lucid.ones(SIDE, 1, device="gpu"), lucid.ones(SIDE, 1, device="gpu")),
    "broadcast": lambda: lucid.ones(SIDE, 1, device="gpu") * lucid.ones(SIDE, device="gpu"),
    "attention": lambda: F.scaled_dot_product_attention(*[lucid.ones(1, 1, SIDE, 4, device="gpu")] * 3),
    "softmax": lambda: giant(dtype=lucid.float32).softmax(0),
    "layer_norm": lambda: F.layer_norm(giant(dtype=lucid.float32), (SIDE,)),
    "zeros": lambda: lucid.zeros(SIDE, SIDE, device="gpu"),
    "full": lambda: lucid.full((SIDE, SIDE), 2, device="gpu"),
    "eye": lambda: lucid.eye(SIDE, device="gpu"),
    "arange": lambda: lucid.arange(2**31 + 1, device="gpu"),
    "arange of floats": lambda: lucid.arange(0.0, 2.0**31 + 1, device="gpu"),
    "linspace": lambda: lucid.linspace(0, 1, 2**31 + 1, device="gpu"),
    "rand": lambda: lucid.rand(SIDE, SIDE, device="gpu"),
    "randint": lambda: lucid.randint(0, 3, (SIDE, SIDE), device="gpu"),
    "to": lambda: lucid.ones(1, dtype=lucid.int8).expand(SIDE, SIDE).to("gpu"),
    "empty with a giant size": lambda: lucid.zeros(0, 2**31, device="gpu") + 1,
    "padding": lambda: F.pad(lucid.ones(1, 1, device="gpu"), (SIDE, 0, SIDE, 0)),
    "tri": lambda: lucid.tril(giant()),
    "diag": lambda: lucid.diag(lucid.ones(SIDE, device="gpu")),
}


@pytest.mark.parametrize("name", CALLS)
def test_more_than_can_be_counted_is_an_error_at_the_call(name: str) -> None:
    with pytest.raises(lucid.errors.BackendLimit) as caught:
        CALLS[name]()
    assert isinstance(caught.value, RuntimeError) and isinstance(caught.value, lucid.LucidError)
    assert "2147483647" in str(caught.value) and "cpu" in str(caught.value)


def test_the_error_names_the_op() -> None:
    for name, call in {"neg": lambda: -giant(), "amax": lambda: giant().amax(), "zeros": CALLS["zeros"]}.items():
        with pytest.raises(lucid.errors.BackendLimit) as caught:
            call()
        assert caught.value.op in (name, "max", "full") and str(caught.value).startswith(caught.value.op)


def test_views_of_giants_can_be_looked_at_in_parts() -> None:
    x = lucid.arange(4, device="gpu").reshape(1, 1, 4).expand(SIDE, SIDE, 4)
    assert x.shape == (SIDE, SIDE, 4) and x.numel() == 2**34
    assert x[3:5, SIDE - 2 :].tolist() == [[[0, 1, 2, 3]] * 2] * 2
    assert x[7, 9, 2].item() == 2 and x[:, 0, 3].sum().item() == 3 * SIDE
    assert (x.select(0, 1)[:8] + 1).sum().item() == 8 * 10


def test_what_can_be_counted_is_computed() -> None:
    """The largest number of elements, in a byte each."""
    x = giant(2**31 - 1)
    assert x.max().item() == 1 and x.shape == (2**31 - 1,)


MEMORY = """
import resource, sys
import lucid
import lucid.nn.functional as F

lucid.ones(4, device="gpu").add(1).eval()
with open("/proc/self/statm") as f:
    used = int(f.read().split()[0]) * resource.getpagesize()
limit = used + (256 << 20)
resource.setrlimit(resource.{limit}, (limit, resource.RLIM_INFINITY))
n = 8 << 20
kept = []
last = lambda: kept[-1].eval()
try:
    for i in range(100):
        {body}
except lucid.errors.OutOfMemory as e:
    assert isinstance(e, MemoryError), e
else:
    sys.exit("no error")
refused = len(kept)
kept.clear()
lucid.empty_cache()
# What was freed may stay with the allocator: that the engine goes on is tested with room.
resource.setrlimit(resource.{limit}, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
x = lucid.arange(1000, device="gpu").float() + 1
assert x.sum().item() == 500500, x
y = lucid.ones(1 << 20, device="gpu") * 2
assert y.sum().item() == 2 << 20
print("refused", refused)
"""
BODIES = {
    "one after another": "kept.append(lucid.ones(n, device='gpu') + i); last()",
    "in one evaluation": "kept.append(lucid.ones(n, device='gpu') + i)\n        if i == 40: lucid.eval(*kept)",
    "at the end": "kept.append(lucid.rand(n, device='gpu') * 2); kept[-1].sum().item()",
    "host kernels": "kept.append(lucid.rand(n // 2048, 2048, device='gpu').softmax(-1)); last()",
    "products": "kept.append(lucid.ones(2800, 8, device='gpu') @ lucid.ones(8, 2800, device='gpu')); last()",
    "sorts": "kept.append(lucid.rand(n // 64, 64, device='gpu').sort()[0]); last()",
    "scatters": "i = lucid.arange(9, device='gpu'); kept.append(lucid.zeros(n, device='gpu').index_add(0, i, i * 1.0))",
    "backward": "x = lucid.rand(n, device='gpu', requires_grad=True); x.exp().sum().backward(); kept.append(x.grad)",
    "one that is too large": "kept.append(lucid.ones(1 << 27, device='gpu') * 3); last()",
    "from the host": "kept.append(lucid.ones(n).to('gpu') * 1); last()",
}


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space are Linux's")
@pytest.mark.parametrize("limit", ["RLIMIT_AS", "RLIMIT_DATA"])
@pytest.mark.parametrize("name", BODIES)
def test_refused_memory_is_an_error(name: str, limit: str) -> None:
    program = textwrap.dedent(MEMORY).format(limit=limit, body=BODIES[name])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120, check=False)
    assert done.returncode == 0 and done.stdout.startswith(b"refused"), (done.returncode, done.stderr.decode()[-2000:])
