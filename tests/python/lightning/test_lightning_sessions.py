"""Resident sessions: values, what is uploaded and downloaded, states, threads, and misuse."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import lucid
import lucid.lightning as lc
import numpy as np
import pytest
import torch
from lucid import errors

from tests.python.tolerances import TABLE, within

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(1)


def rand(*shape: int) -> Array:
    return RNG.random(shape, np.float32)


A, B = rand(5, 7), rand(7, 3)
M, N = rand(4, 6), rand(4, 6) + 1
V, W = rand(11), rand(11)
X, F, C = rand(2, 3, 7, 6), rand(4, 3, 3, 2), rand(4)
CONV = torch.nn.functional.conv2d(*map(torch.from_numpy, (X, F, C)), stride=(2, 1), padding=(1, 0)).numpy()
SHAPE = (2, 3, 7, 6, 4, 3, 2)
STEPS = (2, 1, 1, 0)


def fused() -> Array:
    return np.asarray(lc.api.conv_attention_torchstrong_nchw(X, F, C, 5, 4, *STEPS, "cpu"))


# A session's name: how it is made, its operands, its result, and the prefix of its methods.
SESSIONS: dict[str, tuple[Callable[[str], Any], tuple[Array, ...], Callable[[], Array], str]] = {
    "matmul": (lambda d: lc.MatMulMetalResidentSession(5, 7, 3, d), (A, B), lambda: A @ B, ""),
    "matmul2d": (lambda d: lc.matmul2d_resident_session(A, B, d), (A, B), lambda: A @ B, ""),
    "vector add": (lambda d: lc.VectorAddMetalResidentSession(11, d), (V, W), lambda: V + W, ""),
    "sub": (lambda d: lc.MatrixElemwiseMetalResidentSession(4, 6, d), (M, N), lambda: M - N, "sub_"),
    "div": (lambda d: lc.MatrixElemwiseMetalResidentSession(4, 6, d), (M, N), lambda: M / N, "div_"),
    "conv2d": (lambda d: lc.Conv2dMetalResidentSession(*SHAPE, *STEPS, d), (X, F, C), lambda: CONV, ""),
    "conv2d relu": (
        lambda d: lc.Conv2dMetalResidentSession(*SHAPE, *STEPS, d, relu=True),
        (X, F, C),
        lambda: np.maximum(CONV, 0),
        "",
    ),
    "conv attention": (lambda d: lc.ConvAttentionResidentSession(*SHAPE, 5, 4, *STEPS, d), (X, F, C), fused, ""),
}


def close(got: Any, want: Array) -> None:
    np.testing.assert_allclose(np.asarray(got).reshape(want.shape), want, **within("program"))


@pytest.fixture(params=["cpu", "metal"])
def device(request: pytest.FixtureRequest) -> str:
    lc.crossover_policy_set(lc.CrossoverPolicy(mode="off"))
    return str(request.param)


@pytest.mark.parametrize("name", SESSIONS)
def test_into_methods_write_the_callers_memory(name: str, device: str) -> None:
    make, operands, result, prefix = SESSIONS[name]
    session, want = make(device), result()
    assert session.state == "new" and session.device == lucid.device(device).type
    for step in ("start_into", "run_into", "sync_into", "finish_into"):
        method = getattr(session, prefix + step, None)
        if method is None:
            assert step == "sync_into"
            continue
        for shape in (want.shape, (want.size,))[: 1 if step == "finish_into" else 2]:
            out = np.full(shape, 7, np.float32)
            assert method(*operands, out) is None
            close(out, want)
    assert session.finished and session.resident == ()
    with pytest.raises(lc.SessionError, match="finished"):
        getattr(session, prefix + "run_into")(*operands, out)
    getattr(session, prefix + "start_into")(*operands, out)
    assert session.state == "running"
    session.close()


@pytest.mark.parametrize("name", [n for n in SESSIONS if "conv" not in n])
def test_results_stay_on_the_device_until_they_are_asked_for(name: str, device: str) -> None:
    make, operands, result, prefix = SESSIONS[name]
    session, want = make(device), result()
    with pytest.raises(lc.SessionError, match="not started"):
        getattr(session, prefix + "run")(*operands)
    assert getattr(session, prefix + "start")(*operands) is None
    assert getattr(session, prefix + "run")() is None
    close(getattr(session, prefix + "finish")(), want)
    once = {"matmul": None, "matmul2d": None, "vector add": "add", "sub": "sub", "div": "div"}[name]
    if once is not None:
        got = getattr(make(device), once)(*[x.tolist() for x in operands])
        assert isinstance(got, list)
        close(got, want)


def test_batches(device: str) -> None:
    session = lc.MatMulMetalResidentSession(5, 7, 3, device)
    out = np.full((5, 3), 7, np.float32)
    session.run_batch_sync_no_download_into(A, B, out, 3)
    assert (out == 7).all(), "nothing was downloaded"
    session.run_batch_sync_cached_no_download(2)
    close(session.sync(), A @ B)
    close(session.run_batch_sync(2 * A, B, 4), 2 * A @ B)
    changed = A.copy()
    session.run_batch_sync_into(changed, B, out, 2)
    changed *= 3
    session.run_batch_sync_into(changed, B, out, 1)
    close(out, 3 * A @ B)
    conv = lc.Conv2dMetalResidentSession(*SHAPE, *STEPS, device)
    got = np.empty(CONV.shape, np.float32)
    conv.run_batch_sync_into(X, F, C, got, 3)
    close(got, CONV)
    for loops in (0, -1, 1.5, True, 1 << 40):
        with pytest.raises((errors.ValueError, errors.TypeError)):
            session.run_batch_sync_into(A, B, out, loops)


def uploads() -> int:
    return sum(e["type"] == "upload" for e in lc.runtime_trace_events())


def test_io_policies_say_what_is_uploaded() -> None:
    if lucid.device("gpu").type == "cpu":
        pytest.fail("there always is a GPU device")
    lc.crossover_policy_set(lc.CrossoverPolicy(mode="off"))
    lc.runtime_trace_enable()

    def count(call: Callable[[], Any]) -> int:
        lc.runtime_trace_clear()
        call()
        return uploads()

    session = lc.MatMulMetalResidentSession(5, 7, 3, "gpu")
    out = np.empty((5, 3), np.float32)
    assert count(lambda: session.start_into(A, B, out)) == 2
    assert count(lambda: session.run_into(A, B, out)) == 0, "resident"
    assert count(lambda: session.run_into(A + 1, B, out)) == 1, "another array"
    close(out, (A + 1) @ B)
    assert count(lambda: session.run_batch_sync_cached_no_download(5)) == 0
    assert count(lambda: session.sync_into(A, B, out)) == 2
    session.set_policy(lc.MatMulIoPolicy(upload_b="once"))
    assert count(lambda: session.sync_into(A, B, out)) == 1
    session.set_policy(lc.MatMulIoPolicy(upload_a=False, upload_b=False))
    assert count(lambda: session.sync_into(A + 5, B, out)) == 0
    close(out, A @ B)


@pytest.mark.parametrize("name", ["matmul", "matmul into", "vector", "matrix", "attention"])
def test_calls_under_policies(name: str, device: str) -> None:
    out = np.full((5, 3), 7, np.float32)
    calls: dict[str, tuple[Callable[..., Any], type, Callable[[], Any]]] = {
        "matmul": (lambda a, p: lc.matmul_np_with_policy(a, B, 5, 7, 3, device, p), lc.MatMulIoPolicy, lambda: A),
        "matmul into": (
            lambda a, p: lc.matmul_np_into_with_policy(a, B, out, 5, 7, 3, device, p),
            lc.MatMulIoPolicy,
            lambda: A,
        ),
        "vector": (lambda a, p: lc.vector_add_with_policy(a, W, 11, device, p), lc.VectorAddIoPolicy, lambda: V),
        "matrix": (
            lambda a, p: lc.matrix_sub_with_policy(a, N, 4, 6, device, p),
            lc.MatrixElementwiseIoPolicy,
            lambda: M,
        ),
        "attention": (
            lambda a, p: lc.attention_forward_with_policy(a, M, M, 4, 6, False, device, p),
            lc.AttentionIoPolicy,
            lambda: M,
        ),
    }
    call, policy, operand = calls[name]
    first = "upload_q" if name == "attention" else "upload_a"

    def fresh() -> None:
        failure: list[BaseException] = []

        def work() -> None:
            try:
                with pytest.raises(lc.SessionError, match="resident"):
                    call(operand(), policy(**{first: False}))
            except BaseException as e:
                failure.append(e)

        # Sessions behind calls belong to their thread: another one has nothing resident.
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert not failure

    fresh()
    whole = call(operand(), policy())
    kept = call(operand() * 0, policy(**{first: False}))
    if name == "matmul into":
        close(out, A @ B)
        out[...] = 7
    else:
        close(kept, np.asarray(whole))
    assert call(operand(), policy(download_out=False, synchronize=False)) is None
    if name == "matmul into":
        assert (out == 7).all()
    with pytest.raises((TypeError, AttributeError)):
        call(operand(), "always")


def test_attention_session(device: str) -> None:
    q, k, v, target = rand(6, 4), rand(6, 4), rand(6, 4), rand(6, 4)
    session = lc.AttentionSession(6, 4, True, device)

    def attend(values: torch.Tensor) -> torch.Tensor:
        tq, tk = (torch.from_numpy(x)[None] for x in (q, k))
        return torch.nn.functional.scaled_dot_product_attention(tq, tk, values[None], is_causal=True)[0]

    want = attend(torch.from_numpy(v)).numpy()
    close(session.forward(q, k, v), want)
    out = np.empty(24, np.float32)
    session.forward_into(q, k, v, out)
    close(out, want)
    policy = lc.AttentionIoPolicy(output_scale=-2.0, output_bias=1.0, output_relu=True)
    close(session.forward_with_policy(q, k, v, policy), np.maximum(1 - 2 * want, 0))
    close(session.forward(), want)
    session.set_default_policy(lc.AttentionIoPolicy(upload_q=False, upload_k="once"))
    close(session.forward(q * 9, k, v), want)
    session.forward_with_policy_into(q, k, v, out, policy)
    close(out, np.maximum(1 - 2 * want, 0))

    session = lc.AttentionSession(6, 4, True, device)
    values = torch.from_numpy(v.copy()).requires_grad_(True)
    trained = v.copy()
    for _ in range(3):
        loss = ((attend(values) - torch.from_numpy(target)) ** 2).mean()
        (grad,) = torch.autograd.grad(loss, values)
        assert session.train_step(q, k, trained, target, 2.0) == pytest.approx(loss.item(), rel=TABLE["program"].rtol)
        values = (values - 2.0 * grad).detach().requires_grad_(True)
        close(trained, values.detach().numpy())
    policy = lc.AttentionIoPolicy(loss_every=2, download_v=False)
    session = lc.AttentionSession(6, 4, True, device)
    before = trained.copy()
    seen = [session.train_step_with_policy(q, k, trained, target, 1.0, policy) for _ in range(3)]
    assert seen[0] == seen[1] and seen[2] is not None
    np.testing.assert_array_equal(trained, before)
    assert session.train_step_with_policy(q, k, trained, target, 1.0, lc.AttentionIoPolicy(loss_every=0)) is None


def test_attention_session_misuse() -> None:
    q = rand(6, 4)
    session = lc.AttentionSession(6, 4, False, "cpu")
    with pytest.raises(lc.SessionError, match="no target"):
        session.train_step(q, q, q.copy(), None)
    read_only = q.copy()
    read_only.flags.writeable = False
    with pytest.raises(errors.ValueError, match="read-only"):
        session.train_step(q, q, read_only, q)
    for rate in (float("nan"), -1.0, float("inf")):
        with pytest.raises(errors.ValueError, match="learning_rate"):
            session.train_step(q, q, q.copy(), q, rate)
    values = q.copy()
    with pytest.raises(errors.ValueError, match="loss is nan"):
        session.train_step(q, q, values, np.full_like(q, np.nan))
    np.testing.assert_array_equal(values, q)
    with pytest.raises(errors.TypeError):
        session.set_default_policy(lc.MatMulIoPolicy())
    with pytest.raises(errors.ShapeMismatch):
        session.forward(q, q, q[:3])
    session.close()
    with pytest.raises(lc.SessionError, match="finished"):
        session.forward(q, q, q)
    with pytest.raises(errors.ValueError):
        lc.AttentionSession(6, 1 << 61)
    kept = lc.attention2d_session(q, q, q, False, "cpu")
    assert lc.attention2d_session(q, device="cpu") is kept
    assert lc.clear_attention2d_session_cache() >= 1
    assert lc.attention2d_session(q, device="cpu") is not kept


@pytest.mark.parametrize("name", SESSIONS)
def test_misuse_is_an_error_and_writes_nothing(name: str, device: str) -> None:
    make, operands, result, prefix = SESSIONS[name]
    want = result()
    session = make(device)
    out = np.full(want.shape, 7, np.float32)
    run, start = getattr(session, prefix + "run_into"), getattr(session, prefix + "start_into")
    with pytest.raises(lc.SessionError, match="not started"):
        run(*operands, out)
    with pytest.raises(lc.SessionError, match="resident"):
        start(None, *operands[1:], out)
    smaller = operands[0][..., :-1].copy()
    with pytest.raises(errors.ShapeMismatch):
        start(smaller, *operands[1:], out)
    with pytest.raises(errors.DtypeMismatch):
        start(operands[0].astype(np.float64), *operands[1:], out)
    with pytest.raises(errors.ShapeMismatch):
        start(*operands, out[..., :-1].copy())
    frozen = out.copy()
    frozen.flags.writeable = False
    with pytest.raises(errors.ValueError, match="read-only"):
        start(*operands, frozen)
    assert (out == 7).all() and (frozen == 7).all()
    start(*operands, out)
    out[...] = 7
    with pytest.raises(errors.ShapeMismatch):
        run(smaller, *operands[1:], out)
    assert (out == 7).all()
    run(*operands, out)
    close(out, want)


def test_a_session_has_one_user_at_a_time() -> None:
    session = lc.MatMulMetalResidentSession(5, 7, 3, "cpu")
    out = np.empty((5, 3), np.float32)
    session.start_into(A, B, out)
    assert session._lock.acquire()
    try:
        with pytest.raises(lc.SessionError, match="another thread"):
            session.run_into(A, B, out)
    finally:
        session._lock.release()
    found: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(200):
                session.run_into(A, B, out)
        except lc.SessionError:
            pass
        except BaseException as e:
            found.append(e)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not found
    session.run_into(A, B, out)
    close(out, A @ B)


def test_operands_that_go_away_are_kept() -> None:
    for device in ("cpu", "gpu"):
        session = lc.MatMulMetalResidentSession(64, 64, 64, device)
        a, b = rand(64, 64), rand(64, 64)
        want = a @ b
        session.start(a, b)
        del a, b
        others = [rand(64, 64) for _ in range(20)]
        close(session.sync(), want)
        del others


@pytest.mark.parametrize(
    "make",
    [
        lambda: lc.MatMulMetalResidentSession(0, 1, 1),
        lambda: lc.MatMulMetalResidentSession(1 << 40, 1 << 40, 1),
        lambda: lc.MatMulMetalResidentSession(1.5, 1, 1),
        lambda: lc.VectorAddMetalResidentSession(-1),
        lambda: lc.MatrixElemwiseMetalResidentSession(1 << 62, 2),
        lambda: lc.Conv2dMetalResidentSession(1, 1, 2, 2, 1, 3, 3),
        lambda: lc.ConvAttentionResidentSession(*SHAPE, 0, 1),
        lambda: lc.MatMulMetalResidentSession(1, 1, 1, "tpu"),
        lambda: lc.MatMulMetalResidentSession(1, 1, 1, policy=lc.VectorAddIoPolicy()),
        lambda: lc.matmul2d_resident_session(A, A),
        lambda: lc.MatMulIoPolicy(upload_c=True),
        lambda: lc.MatMulIoPolicy(upload_a="sometimes"),
        lambda: lc.AttentionIoPolicy(output_scale=float("nan")),
        lambda: lc.AttentionIoPolicy(loss_every=-1),
        lambda: lc.AttentionIoPolicy(output_relu=2),
    ],
)
def test_what_cannot_be_made(make: Callable[[], Any]) -> None:
    with pytest.raises(errors.LucidError):
        make()
