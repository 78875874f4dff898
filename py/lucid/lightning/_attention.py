"""Attention of one head: the calls, and the sessions that keep operands on the device."""

from __future__ import annotations

import math
import threading
from typing import Any

from lucid import _C, errors
from lucid._grad_mode import enable_grad
from lucid.lightning import _arrays, _direct, _dispatch
from lucid.lightning._arrays import Given, given, number, output, shaped, sizes
from lucid.lightning._policy import AttentionIoPolicy
from lucid.lightning._session import Session, SessionError

__all__ = [
    "AttentionSession",
    "attention2d",
    "attention2d_into",
    "attention2d_session",
    "attention_forward",
    "attention_forward_with_policy",
    "clear_attention2d_session_cache",
]

Tensor = _C.Tensor


class Attention:
    """Attention's attributes as something to call: `relu(scale * softmax(q kᵀ / sqrt(d)) v + bias)`."""

    __slots__ = ("bias", "causal", "relu", "scale")

    def __init__(self, causal: bool, scale: float = 1.0, bias: float = 0.0, relu: bool = False) -> None:
        self.causal = causal
        self.scale = scale
        self.bias = bias
        self.relu = relu

    @classmethod
    def of(cls, causal: bool, policy: AttentionIoPolicy) -> Attention:
        """With what a policy says follows the product."""
        return cls(causal, policy.output_scale, policy.output_bias, policy.output_relu)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, out: Tensor | None = None) -> Tensor:
        y = _C.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        if self.scale != 1.0:
            y = y * self.scale
        if self.bias != 0.0:
            y = y + self.bias
        if self.relu:
            y = y.relu()
        return y if out is None else out.copy_(y)


def flag(op: str, name: str, value: Any) -> bool:
    """An argument that is true or false."""
    if not isinstance(value, (bool, int)) and type(value).__name__ != "bool":
        raise errors.TypeError(f"{op}: {name} must be a bool, got {type(value).__name__}")
    return bool(value)


def _work(q: Tensor, k: Tensor, v: Tensor) -> int:
    return int(q.shape[0] * k.shape[0] * (q.shape[1] + v.shape[1]))


def _matrices(op: str, q: Any, k: Any, v: Any) -> list[Given]:
    listed = [given(op, "q", q), given(op, "k", k), given(op, "v", v)]
    sq, sk, sv = (tuple(g.tensor.shape) for g in listed)
    if not (len(sq) == len(sk) == len(sv) == 2 and sq[1] == sk[1] and sk[0] == sv[0]):
        raise errors.ShapeMismatch(f"{op}: expected q (s, d), k (t, d) and v (t, e), got {sq}, {sk} and {sv}")
    return listed


def attention2d(q: Any, k: Any, v: Any, causal: bool = False, device: Any = "metal") -> Any:
    """Scaled dot-product attention of one head.

    `out = softmax(q kᵀ / sqrt(d)) v`, each row's softmax over the keys, or over those up to its own with `causal`.

    Example::

        >>> import lucid.lightning as lc
        >>> lc.attention2d([[1.0]], [[2.0]], [[5.0]], False, "cpu")
        [[5.0]]

    Args:
        q (object): `(s, d)`, float32: a NumPy array, a list of lists or a `lucid.Tensor`.
        k (object): `(t, d)`.
        v (object): `(t, e)`.
        causal (bool, default: False): A query sees the keys up to its own position alone.
        device (lucid.device or str, default: "metal"): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`.

    Returns:
        `(s, e)`, of the operands' kind.

    Raises:
        ShapeMismatch: The shapes do not fit.
        DtypeMismatch: One is not float32.
    """
    direct = _direct.attention(q, k, v, causal, device)
    if direct is not None:
        return direct
    op = "attention2d()"
    listed = _matrices(op, q, k, v)
    tensors = [g.tensor for g in listed]
    kind = _dispatch.kind_of(listed)
    compute = Attention(flag(op, "causal", causal))
    return _arrays.result(kind, _dispatch.run(op, "attention", device, kind, tensors, _work(*tensors), compute))


def attention2d_into(q: Any, k: Any, v: Any, out: Any, causal: bool = False, device: Any = "metal") -> None:
    """Computes `attention2d` into the caller's memory: `out = softmax(q kᵀ / √d) v`.

    Args:
        q (array, list or Tensor): queries of shape (s, d), float32.
        k (array, list or Tensor): keys of shape (t, d), float32.
        v (array, list or Tensor): values of shape (t, e), float32.
        out (array or Tensor): of shape (s, e) or flat, float32, contiguous, writable, apart from the operands.
        causal (bool, optional): whether query `i` sees keys `0 … i` alone. Default: False.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.

    Raises:
        ShapeMismatch: the shapes do not fit.
        DtypeMismatch: an operand is not float32.
        ValueError: `out` is read-only, not contiguous, or overlaps an operand.

    Example:
        >>> import numpy as np
        >>> import lucid.lightning as lc
        >>> out = np.empty((1, 1), np.float32)
        >>> lc.attention2d_into([[1.0]], [[2.0]], [[5.0]], out, device="cpu")
        >>> out
        array([[5.]], dtype=float32)
    """
    if out is not None and _direct.attention(q, k, v, causal, device, out) is not None:
        return
    op = "attention2d_into()"
    listed = _matrices(op, q, k, v)
    _into(op, listed, [g.tensor for g in listed], out, Attention(flag(op, "causal", causal)), device)


def _into(op: str, listed: list[Given], tensors: list[Tensor], out: Any, compute: Attention, device: Any) -> None:
    target = output(op, out, (tensors[0].shape[0], tensors[2].shape[1]))
    _arrays.apart(op, target, q=tensors[0], k=tensors[1], v=tensors[2])
    kind = _dispatch.kind_of(listed)
    _dispatch.run(op, "attention", device, kind, tensors, _work(*tensors), compute, target)


def _sized(op: str, q: Any, k: Any, v: Any, seq_len: Any, head_dim: Any) -> tuple[list[Given], list[Tensor]]:
    shape = sizes(op, seq_len=seq_len, head_dim=head_dim)
    listed = [given(op, "q", q), given(op, "k", k), given(op, "v", v)]
    return listed, [shaped(op, name, g, shape) for name, g in zip("qkv", listed, strict=True)]


def forward(
    op: str, q: Any, k: Any, v: Any, seq_len: Any, head_dim: Any, causal: Any, device: Any, out: Any = None
) -> Any:
    """Attention whose sizes are given; into `out` where there is one."""
    if seq_len.__class__ is int and head_dim.__class__ is int:
        direct = _direct.sized_attention(q, k, v, (seq_len, head_dim), causal, device, out)
        if direct is not None:
            return direct
    listed, tensors = _sized(op, q, k, v, seq_len, head_dim)
    compute = Attention(flag(op, "causal", causal))
    if out is not None:
        return _into(op, listed, tensors, out, compute, device)
    kind = _dispatch.kind_of(listed)
    result = _dispatch.run(op, "attention", device, kind, tensors, _work(*tensors), compute)
    return _arrays.result(kind, result, len(listed[0].tensor.shape) == 1)


def attention_forward(
    q: Any, k: Any, v: Any, seq_len: int, head_dim: int, causal: bool = False, device: Any = "metal"
) -> Any:
    """`attention2d` whose sizes are given, so that operands may be flat.

    Example::

        >>> import lucid.lightning as lc
        >>> lc.attention_forward([1.0], [2.0], [5.0], 1, 1, False, "cpu")
        [5.0]

    Args:
        q (object): `(seq_len, head_dim)` or `(seq_len * head_dim,)`, float32.
        k (object): `(seq_len, head_dim)` or `(seq_len * head_dim,)`, float32.
        v (object): `(seq_len, head_dim)` or `(seq_len * head_dim,)`, float32.
        seq_len (int): The sizes.
        head_dim (int): The sizes.
        causal (bool, default: False): As in `attention2d`.
        device (lucid.device or str, default: "metal"): As in `attention2d`.

    Returns:
        Flat where `q` is, else `(seq_len, head_dim)`, of the operands' kind.
    """
    return forward("attention_forward()", q, k, v, seq_len, head_dim, causal, device)


class AttentionSession(Session):
    """Attention of one shape whose operands stay on the device, with a training step for the values.

    Example::

        >>> import lucid.lightning as lc
        >>> session = lc.AttentionSession(1, 1, device="cpu")
        >>> session.forward([1.0], [2.0], [5.0])
        [5.0]

    Args:
        seq_len (int): The shape of q, k, v and the result.
        head_dim (int): The shape of q, k, v and the result.
        causal (bool, default: False): As in `attention2d`.
        device (lucid.device or str, default: "metal"): As in `attention2d`.
        policy (AttentionIoPolicy, optional): What is uploaded, downloaded and waited for; everything at each call
            by default.
    """

    def __init__(
        self,
        seq_len: int,
        head_dim: int,
        causal: bool = False,
        device: Any = "metal",
        policy: AttentionIoPolicy | None = None,
    ) -> None:
        op = "AttentionSession()"
        shape = sizes(op, seq_len=seq_len, head_dim=head_dim)
        self._causal = flag(op, "causal", causal)
        self._policy = AttentionIoPolicy() if policy is None else policy
        self.set_default_policy(self._policy)
        work = 2 * shape[0] * shape[0] * shape[1]
        self._steps = 0
        self._last_loss: float | None = None
        super().__init__(
            op,
            {"q": shape, "k": shape, "v": shape, "target": shape},
            shape,
            device,
            "attention",
            work,
            needs=("q", "k", "v"),
        )

    def _compute(self, tensors: dict[str, Tensor], out: Tensor | None) -> Tensor:
        return self._attention(tensors["q"], tensors["k"], tensors["v"], out)

    def set_default_policy(self, policy: AttentionIoPolicy) -> None:
        """Sets the policy of calls that are given none."""
        if not isinstance(policy, AttentionIoPolicy):
            raise errors.TypeError(f"AttentionSession: expected an AttentionIoPolicy, got {type(policy).__name__}")
        self._policy = policy

    def _forward(self, op: str, q: Any, k: Any, v: Any, policy: Any, out: Any, into: bool) -> Any:
        if not isinstance(policy, AttentionIoPolicy):
            raise errors.TypeError(f"{op}: expected an AttentionIoPolicy, got {type(policy).__name__}")
        with self._using(op):
            target = self._target(op, out) if into else None
            self._attention = Attention.of(self._causal, policy)
            uploads = {name: policy._often(f"upload_{name}") for name in "qkv"}
            self._bring(op, {"q": q, "k": k, "v": v}, uploads, target)
            result = self._launch(op, target, policy._often("download_out"))
            self._settle(policy._often("synchronize"))
            return None if into else self._give(result)

    def forward(self, q: Any = None, k: Any = None, v: Any = None) -> Any:
        """Attention under the default policy. Operands that are `None` are those that are resident.

        Returns:
            The result, flat where q was; `None` where the policy downloads nothing.
        """
        return self._forward("AttentionSession.forward()", q, k, v, self._policy, None, False)

    def forward_with_policy(self, q: Any, k: Any, v: Any, policy: AttentionIoPolicy) -> Any:
        """`forward` under a policy of its own."""
        return self._forward("AttentionSession.forward_with_policy()", q, k, v, policy, None, False)

    def forward_into(self, q: Any, k: Any, v: Any, out: Any) -> None:
        """`forward` into the caller's memory."""
        self._forward("AttentionSession.forward_into()", q, k, v, self._policy, out, True)

    def forward_with_policy_into(self, q: Any, k: Any, v: Any, out: Any, policy: AttentionIoPolicy) -> None:
        """`forward_with_policy` into the caller's memory; it stays as it is where the policy downloads nothing."""
        self._forward("AttentionSession.forward_with_policy_into()", q, k, v, policy, out, True)

    def train_step(self, q: Any, k: Any, v: Any, target: Any, learning_rate: float = 0.01) -> float | None:
        """One step of gradient descent on the values, which lowers the mean squared distance to `target`.

        `loss = mean((forward(q, k, v) - target)²)`, `v ← v - learning_rate * ∂loss/∂v`

        Args:
            q, k, v, target: `(seq_len, head_dim)` or flat, float32; `None` is what is resident. The new values are
                written to `v` where it is an array or tensor and the policy downloads them.
            learning_rate: From 0 on.

        Returns:
            The loss before the step (see `AttentionIoPolicy.loss_every`).

        Raises:
            ValueError: The rate is negative or NaN, or `v` is to be written and cannot be.
        """
        return self._train("AttentionSession.train_step()", q, k, v, target, learning_rate, self._policy)

    def train_step_with_policy(
        self, q: Any, k: Any, v: Any, target: Any, learning_rate: float, policy: AttentionIoPolicy
    ) -> float | None:
        """`train_step` under a policy of its own."""
        return self._train("AttentionSession.train_step_with_policy()", q, k, v, target, learning_rate, policy)

    def _train(self, op: str, q: Any, k: Any, v: Any, target: Any, rate: Any, policy: Any) -> float | None:
        if not isinstance(policy, AttentionIoPolicy):
            raise errors.TypeError(f"{op}: expected an AttentionIoPolicy, got {type(policy).__name__}")
        rate = number(op, "learning_rate", rate, least=0.0)
        with self._using(op):
            home = None
            if v is not None and not isinstance(v, (list, tuple)) and policy._often("download_v") != "never":
                home = output(op, v, self._shapes["v"], "v")
            uploads = {name: policy._often(f"upload_{name}") for name in ("q", "k", "v", "target")}
            self._bring(op, {"q": q, "k": k, "v": v, "target": target}, uploads, None)
            tensors = self._resident
            if "target" not in tensors:
                raise SessionError(f"{op}: no target is resident; pass one")
            attention = Attention.of(self._causal, policy)
            with enable_grad():
                values = tensors["v"].detach().clone().requires_grad_(True)
                distance = attention(tensors["q"], tensors["k"], values) - tensors["target"]
                loss = (distance * distance).mean()
                loss.backward()
            gradient = values.grad
            if gradient is None:
                raise errors.InternalError(f"{op}: no gradient reached the values")
            fresh = _dispatch.evaluate((tensors["v"] - gradient * rate).detach())
            if policy.loss_every and self._steps % policy.loss_every == 0:
                read = loss.item()
                if not math.isfinite(read):
                    # Before anything is written: the values stay as they were.
                    raise errors.ValueError(f"{op}: the loss is {read}; lower learning_rate or look for NaN")
                self._last_loss = read
            self._steps += 1
            if home is not None:
                home.copy_(fresh)
            self._replace("v", fresh)
            self._settle(policy._often("synchronize"))
            return self._last_loss if policy.loss_every else None


_sessions: dict[tuple[Any, ...], AttentionSession] = {}
MOST_SESSIONS = 64


def cached_session(seq_len: int, head_dim: int, causal: bool, device: Any) -> AttentionSession:
    """The calling thread's session of a shape, made at its first use; the oldest goes where there are many."""
    key = (threading.get_ident(), seq_len, head_dim, bool(causal), str(device))
    session = _sessions.get(key)
    if session is None or session.finished:
        session = AttentionSession(seq_len, head_dim, causal, device)
        while len(_sessions) >= MOST_SESSIONS:
            _sessions.pop(next(iter(_sessions)), None)
        _sessions[key] = session
    return session


def attention2d_session(
    q: Any, k: Any = None, v: Any = None, causal: bool = False, device: Any = "metal"
) -> AttentionSession:
    """Gives the attention session for the operands' shape, which later calls of this thread are given again.

    Args:
        q (array, list or Tensor): queries of shape (s, d), float32.
        k (array, list or Tensor, optional): keys; where given, of `q`'s shape.
        v (array, list or Tensor, optional): values; where given, of `q`'s shape.
        causal (bool, optional): whether query `i` sees keys `0 … i` alone. Default: False.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.

    Returns:
        AttentionSession: its operands stay on the device between calls.

    Raises:
        ShapeMismatch: the shapes do not fit.
        DtypeMismatch: an operand is not float32.

    Example:
        >>> import lucid.lightning as lc
        >>> session = lc.attention2d_session([[1.0]], device="cpu")
        >>> session.forward([[1.0]], [[2.0]], [[5.0]])
        [[5.0]]
    """
    op = "attention2d_session()"
    listed = [given(op, name, x) for name, x in (("q", q), ("k", k), ("v", v)) if x is not None]
    shape = tuple(listed[0].tensor.shape)
    if len(shape) != 2 or any(tuple(g.tensor.shape) != shape for g in listed):
        raise errors.ShapeMismatch(
            f"{op}: expected matrices of one shape, got {[tuple(g.tensor.shape) for g in listed]}"
        )
    return cached_session(shape[0], shape[1], flag(op, "causal", causal), device)


def clear_attention2d_session_cache() -> int:
    """Drops the sessions that are kept for later calls. Returns how many there were."""
    count = len(_sessions)
    _sessions.clear()
    return count


def attention_forward_with_policy(
    q: Any, k: Any, v: Any, seq_len: int, head_dim: int, causal: bool, device: Any, policy: AttentionIoPolicy
) -> Any:
    """Computes `attention_forward` under an IO policy.

    What is not uploaded is what this thread's last call of the same shape left on the device.

    Args:
        q (array, list or Tensor): queries of shape (seq_len, head_dim), or flat, float32.
        k (array, list or Tensor): keys of the same shape.
        v (array, list or Tensor): values of the same shape.
        seq_len (int): how many queries and keys there are.
        head_dim (int): features of each.
        causal (bool): whether query `i` sees keys `0 … i` alone.
        device (device or str): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU (see
            `CrossoverPolicy`).
        policy (AttentionIoPolicy): what is uploaded, downloaded and waited for.

    Returns:
        array, list or Tensor: of shape (seq_len, head_dim), flat where `q` is; None where the policy downloads nothing.

    Raises:
        ShapeMismatch: the shapes do not fit.
        DtypeMismatch: an operand is not float32.
        TypeError: `policy` is no `AttentionIoPolicy`.
        SessionError: an operand is not uploaded, and none is resident.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.attention_forward_with_policy([1.0], [2.0], [5.0], 1, 1, False, "cpu", lc.AttentionIoPolicy())
        [5.0]
    """
    op = "attention_forward_with_policy()"
    sizes(op, seq_len=seq_len, head_dim=head_dim)
    session = cached_session(seq_len, head_dim, flag(op, "causal", causal), device)
    return session._forward(op, q, k, v, policy, None, False)
