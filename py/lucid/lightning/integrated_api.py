"""What scripts import as `lightning_core_integrated_api`: blocks over the integrated API, with an engine to choose.

Helpers of a leading underscore are there because scripts of Lightning Core use them.
"""

from __future__ import annotations

from typing import Any

from lucid import errors
from lucid.lightning import _arrays, _attention, api
from lucid.lightning._engines import get_backend as get_backend
from lucid.lightning._engines import package, resolve, torch_device_for
from lucid.lightning._engines import set_backend as set_backend
from lucid.lightning._layers import Linear as Linear
from lucid.lightning._sessions import Conv2dMetalResidentSession, ConvAttentionResidentSession

__all__ = [
    "AttentionResidentBlock",
    "ConvAttentionResidentPipeline",
    "ConvReLUResidentBlock",
    "Linear",
    "clear_attention_session_cache",
    "get_backend",
    "lightning_attention",
    "lightning_conv_attention_torchstrong_nchw",
    "lightning_conv_attention_torchstrong_nchw_ab_report",
    "lightning_conv_relu_nchw",
    "lightning_conv_relu_torchstrong_nchw",
    "lightning_matmul",
    "lightning_matmul_into",
    "set_backend",
    "tensor",
]

clear_attention_session_cache = api.clear_attention_session_cache
lightning_matmul = api.matmul
lightning_matmul_into = api.matmul_into
lightning_conv_relu_nchw = api.conv_relu_nchw
lightning_conv_relu_torchstrong_nchw = api.conv_relu_nchw
lightning_conv_attention_torchstrong_nchw = api.conv_attention_torchstrong_nchw
lightning_conv_attention_torchstrong_nchw_ab_report = api.conv_attention_torchstrong_nchw_ab_report
lightning_attention = api.attention


def _import_torch() -> Any:
    """PyTorch, or an error that says that it is not installed."""
    return package("torch")


def _torch_device_for(device: str) -> str:
    """PyTorch's device for a device's name."""
    return torch_device_for(device)


def _resolve_engine(engine: str | None = None) -> str:
    """The engine that computes: the one named, else the one set."""
    return resolve(engine)


def _as_f32_c(x: Any) -> Any:
    """A contiguous float32 array of `x`, which itself is given where it is one already."""
    return _arrays.numpy().ascontiguousarray(x, dtype=_arrays.numpy().float32)


def _as_out_f32_c_no_copy(x: Any) -> Any:
    """`x`, where results can be written to it: a contiguous, writable float32 array."""
    np = _arrays.numpy()
    if not isinstance(x, np.ndarray):
        raise errors.TypeError(f"out must be a NumPy array, got {type(x).__name__}")
    _arrays.output("out", x, x.shape)
    return x


def _get_or_create_attention_session(
    seq_len: int, head_dim: int, causal: bool = False, device: Any = "metal"
) -> _attention.AttentionSession:
    """The calling thread's attention session of a shape."""
    return _attention.cached_session(seq_len, head_dim, causal, device)


def tensor(data: Any) -> Any:
    """Makes a contiguous float32 array.

    Args:
        data (list, array or Tensor): numbers, of any shape.

    Returns:
        array: of the same shape; `data` itself where it is such an array.

    Raises:
        TypeError: `data` is none of these.

    Example:
        >>> from lucid.lightning import integrated_api
        >>> integrated_api.tensor([1, 2])
        array([1., 2.], dtype=float32)
    """
    detach = getattr(data, "detach", None)
    return _as_f32_c(detach().cpu().numpy() if detach is not None else data)


class ConvReLUResidentBlock:
    """Convolution and relu, whose weights stay on the device. Called with images, it gives `max(conv(x), 0)`.

    Args:
        w (array, list or Tensor): kernels of shape (out, c, kh, kw), float32.
        b (array, list or Tensor, optional): biases of shape (out,), float32. Default: zeros.
        stride (int, optional): rows and columns between windows. Default: 1.
        padding (int, optional): rows and columns of zeros on each side. Default: 1.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.

    Raises:
        ShapeMismatch: `w` does not have four dimensions.

    Example:
        >>> from lucid.lightning.integrated_api import ConvReLUResidentBlock
        >>> block = ConvReLUResidentBlock([[[[3.0]]]], padding=0, device="cpu")
        >>> block([[[[-1.0, 2.0]]]]).ravel()
        array([0., 6.], dtype=float32)
    """

    def __init__(self, w: Any, b: Any = None, stride: int = 1, padding: int = 1, device: Any = "metal") -> None:
        np = _arrays.numpy()
        self.weight = _as_f32_c(w)
        if self.weight.ndim != 4:
            raise errors.ShapeMismatch(f"{type(self).__name__}: w must be (out, c, kh, kw), got {self.weight.shape}")
        self.bias = np.zeros(self.weight.shape[0], np.float32) if b is None else _as_f32_c(b)
        self.stride, self.padding, self.device = stride, padding, device
        self._sessions: dict[tuple[int, ...], Any] = {}

    def _session(self, shape: Any) -> Any:
        out, _, kh, kw = self.weight.shape
        steps: Any = (self.stride, self.stride, self.padding, self.padding)
        kind: Any = Conv2dMetalResidentSession
        return kind(*shape, out, kh, kw, *steps, device=self.device, relu=True)

    def _shape(self, session: Any) -> Any:
        return _arrays.numpy().empty(session._out_shape, _arrays.numpy().float32)

    def __call__(self, x: Any) -> Any:
        """The result for images of shape `(n, c, h, w)`."""
        x = _as_f32_c(x)
        if x.ndim != 4:
            raise errors.ShapeMismatch(f"{type(self).__name__}: x must be (n, c, h, w), got {x.shape}")
        session = self._sessions.get(x.shape)
        if session is None:
            session = self._sessions[x.shape] = self._session(x.shape)
        out = self._shape(session)
        session.run_batch_sync_into(x, self.weight, self.bias, out, 1)
        return out


class AttentionResidentBlock:
    """Attention of one shape by a session of its own. Called with q, k and v, it gives the result, flat where q is.

    Args:
        seq_len (int): how many queries and keys there are.
        head_dim (int): features of each.
        causal (bool, optional): whether query `i` sees keys `0 … i` alone. Default: False.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.

    Example:
        >>> from lucid.lightning.integrated_api import AttentionResidentBlock
        >>> AttentionResidentBlock(1, 1, device="cpu")([1.0], [2.0], [5.0])
        [5.0]
    """

    def __init__(self, seq_len: int, head_dim: int, causal: bool = False, device: Any = "metal") -> None:
        self.session = _attention.AttentionSession(seq_len, head_dim, causal, device)

    def __call__(self, q: Any, k: Any, v: Any) -> Any:
        """The result, flat where q is."""
        return self.session.forward(q, k, v)


class ConvAttentionResidentPipeline(ConvReLUResidentBlock):
    """Convolution, relu and attention, whose weights stay on the device. Called with images, it gives the result.

    Args:
        w (array, list or Tensor): kernels of shape (out, c, kh, kw), float32.
        b (array, list or Tensor or None): biases of shape (out,), float32; None: zeros.
        seq_len (int): how many queries and keys there are.
        head_dim (int): features of each.
        stride (int, optional): rows and columns between windows. Default: 1.
        padding (int, optional): rows and columns of zeros on each side. Default: 1.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.

    Example:
        >>> from lucid.lightning.integrated_api import ConvAttentionResidentPipeline
        >>> pipeline = ConvAttentionResidentPipeline([[[[1.0]]]], None, 1, 1, padding=0, device="cpu")
        >>> pipeline([[[[1.0, 2.0, 3.0]]]])
        array([[3.]], dtype=float32)
    """

    def __init__(
        self, w: Any, b: Any, seq_len: int, head_dim: int, stride: int = 1, padding: int = 1, device: Any = "metal"
    ) -> None:
        super().__init__(w, b, stride, padding, device)
        self.seq_len, self.head_dim = _arrays.sizes(type(self).__name__, seq_len=seq_len, head_dim=head_dim)

    def _session(self, shape: Any) -> Any:
        out, _, kh, kw = self.weight.shape
        steps: Any = (self.stride, self.stride, self.padding, self.padding)
        kind: Any = ConvAttentionResidentSession
        return kind(*shape, out, kh, kw, self.seq_len, self.head_dim, *steps, device=self.device)
