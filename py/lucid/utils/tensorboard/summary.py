"""Summaries of TensorBoard as bytes: one function for each kind of data, as `torch.utils.tensorboard.summary`."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import lucid
from lucid import errors
from lucid._C import Tensor
from lucid.utils.tensorboard._images import grid as grid
from lucid.utils.tensorboard._images import image, image_boxes, make_np, video
from lucid.utils.tensorboard._proto import data, double, doubles, float32, integer, plugin, shape, single, value, varint

__all__ = ["audio", "custom_scalars", "histogram", "histogram_raw", "hparams", "image", "image_boxes", "make_np"]
__all__ += ["mesh", "pr_curve", "pr_curve_raw", "scalar", "tensor_proto", "text", "video"]

_FLOAT, _DOUBLE, _STRING = 1, 2, 7


def scalar(tag: str, tensor: Any, new_style: bool = False, double_precision: bool = False) -> bytes:
    """A number. `new_style` writes it as a tensor, of float64 with `double_precision`.

    Args:
        tag (str): the name of the data.
        tensor (Tensor or number): one element, of any shape.
        new_style (bool, default: False): writes it as a tensor.
        double_precision (bool, default: False): writes it as float64.

    Returns:
        bytes: the summary, serialized.

    Raises:
        AssertionError: there is not exactly one element.

    Example:
        >>> len(lucid.utils.tensorboard.summary.scalar("loss", 0.5)) > 0
        True
    """
    array = make_np(tensor).squeeze()
    if array.ndim != 0:
        raise AssertionError(f"add_scalar: expected one element, got shape {list(array.shape)}")
    number = float(array)
    if not new_style:
        return value(tag, single(2, number))
    if double_precision:
        content = integer(1, _DOUBLE) + doubles(6, [number])
    else:
        content = integer(1, _FLOAT) + data(5, float32(number))
    return value(tag, data(9, plugin("scalars")) + data(8, content))


# By dtype: the number of TensorFlow's type, the field of the values, and how one value is encoded.
_TENSORS: dict[Any, tuple[int, int, str]] = {
    lucid.float16: (19, 13, "half"),
    lucid.bfloat16: (14, 13, "half"),
    lucid.float32: (1, 5, "f"),
    lucid.float64: (2, 6, "d"),
    lucid.int8: (6, 7, "int"),
    lucid.uint8: (4, 16, "int"),
    lucid.int16: (5, 7, "int"),
    lucid.int32: (3, 7, "int"),
    lucid.int64: (9, 10, "int"),
    lucid.bool: (10, 11, "int"),
    lucid.complex64: (8, 9, "f"),
    lucid.complex128: (18, 12, "d"),
}


def tensor_proto(tag: str, tensor: Tensor) -> bytes:
    """A whole tensor.

    Args:
        tag (str): the name of the data.
        tensor (Tensor): any shape.

    Returns:
        bytes: the summary, serialized.

    Raises:
        ValueError: it has 2 GiB or more, or a dtype that TensorBoard does not have.

    Example:
        >>> len(lucid.utils.tensorboard.summary.tensor_proto("x", lucid.ones(2))) > 0
        True
    """
    if tensor.numel() * tensor.element_size() >= 1 << 31:
        raise errors.ValueError("add_tensor: the tensor has 2 GiB or more, which is the limit of protocol buffers")
    if tensor.dtype not in _TENSORS:
        raise errors.ValueError(f"{tag} has unsupported tensor dtype {tensor.dtype}")
    kind, field, how = _TENSORS[tensor.dtype]
    values = tensor.detach().cpu().flatten().tolist()
    if tensor.dtype.is_complex:
        values = [part for c in values for part in (c.real, c.imag)]
    if how == "int":
        packed = b"".join(varint(int(v)) for v in values)
    elif how == "half":
        # PyTorch writes the bits of the value as float32.
        packed = b"".join(varint(struct.unpack("<i", float32(v))[0]) for v in values)
    else:
        packed = b"".join(float32(v) for v in values) if how == "f" else struct.pack(f"<{len(values)}d", *values)
    content = integer(1, kind) + data(2, shape(tensor.shape)) + (data(field, packed) if packed else b"")
    return value(tag, data(9, plugin("tensor")) + data(8, content))


def _default_bins() -> list[float]:
    """Limits of bins that grow by a tenth, from 1e-12 to 1e20, and their negatives."""
    limits, at = [], 1e-12
    while at < 1e20:
        limits.append(at)
        at *= 1.1
    return [-v for v in reversed(limits)] + [0.0, *limits]


def histogram(tag: str, values: Any, bins: Any = "tensorflow", max_bins: int | None = None) -> bytes:
    """A histogram of all elements.

    Args:
        tag (str): the name of the data.
        values (Tensor or array): at least one number, of any shape.
        bins (str or int, default: "tensorflow"): "tensorflow" for exponential limits, or what `numpy.histogram`
            takes.
        max_bins (int, optional): bins are joined until there are about this many.

    Returns:
        bytes: the summary, serialized.

    Raises:
        ValueError: there is no element, or one is not finite.

    Example:
        >>> len(lucid.utils.tensorboard.summary.histogram("x", lucid.ones(2))) > 0
        True
    """
    import numpy as np

    flat = make_np(values).astype(float).reshape(-1)
    if flat.size == 0:
        raise errors.ValueError("The input has no element.")
    if isinstance(bins, str) and bins == "tensorflow":
        bins = _default_bins()
    counts, limits = np.histogram(flat, bins=bins)
    if max_bins is not None and len(counts) > max_bins:
        by = len(counts) // max_bins
        rest = len(counts) % by
        last = limits[-1]
        if rest:
            counts = np.concatenate([counts, np.zeros(by - rest, counts.dtype)])
        counts = counts.reshape(-1, by).sum(-1)
        limits = np.concatenate([limits[:-1:by], [last]])
    filled = np.flatnonzero(counts)
    if filled.size == 0:
        raise errors.ValueError(f"add_histogram({tag!r}): no element is in one of the bins")
    first, last = int(filled[0]), int(filled[-1]) + 1
    # TensorBoard wants an empty bin before the first that is filled.
    shown = counts[first - 1 : last] if first > 0 else np.concatenate([[0], counts[:last]])
    return histogram_raw(
        tag, flat.min(), flat.max(), len(flat), flat.sum(), flat.dot(flat), limits[first : last + 1], shown
    )


def histogram_raw(
    tag: str, min: float, max: float, num: float, sum: float, sum_squares: float, bucket_limits: Any, bucket_counts: Any
) -> bytes:
    """A histogram of counts that the caller has made; `bucket_limits` are the upper ends.

    Args:
        tag (str): the name of the data.
        min (float): the smallest element.
        max (float): the largest element.
        num (float): the number of elements.
        sum (float): the sum of the elements.
        sum_squares (float): the sum of their squares.
        bucket_limits (sequence of floats): the upper ends of the bins.
        bucket_counts (sequence of floats): how many elements each bin has.

    Returns:
        bytes: the summary, serialized.

    Example:
        >>> len(lucid.utils.tensorboard.summary.histogram_raw("x", 0.0, 1.0, 2.0, 1.0, 1.0, [0.5, 1.0], [1.0, 1.0])) > 0
        True
    """
    parts = [double(i, float(v)) for i, v in enumerate((min, max, num, sum, sum_squares), 1) if v]
    parts += [doubles(6, make_np(bucket_limits).tolist()), doubles(7, make_np(bucket_counts).tolist())]
    return value(tag, data(5, b"".join(parts)))


def audio(tag: str, tensor: Any, sample_rate: int = 44100) -> bytes:
    """Sound of one channel, between -1 and 1, as a WAV file; what is beyond is clipped with a warning.

    Args:
        tag (str): the name of the data.
        tensor (Tensor or array): the samples, (1, L) or (L,), within -1 to 1.
        sample_rate (int, default: 44100): samples in a second.

    Returns:
        bytes: the summary, serialized.

    Raises:
        AssertionError: several channels.

    Example:
        >>> len(lucid.utils.tensorboard.summary.audio("sound", lucid.zeros(1, 8))) > 0
        True
    """
    import warnings
    import wave

    import numpy as np

    if isinstance(sample_rate, bool) or not isinstance(sample_rate, int) or not 0 < sample_rate < 1 << 31:
        raise errors.ValueError(f"add_audio: expected a sample rate that is a positive int, got {sample_rate!r}")
    array = make_np(tensor).squeeze()
    if array.ndim != 1:
        raise AssertionError("input tensor should be 1 dimensional.")
    if array.size and abs(array).max() > 1:
        warnings.warn("add_audio: the amplitude is beyond 1 and is clipped", stacklevel=3)
    samples = (array.clip(-1, 1) * np.iinfo(np.int16).max).astype("<i2")
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sample_rate)
        file.writeframes(samples.tobytes())
    parts = single(1, sample_rate) + integer(2, 1) + integer(3, len(samples))
    return value(tag, data(6, parts + data(4, out.getvalue()) + data(5, "audio/wav")))


def _strings(texts: Sequence[bytes], sizes: Sequence[int]) -> bytes:
    return data(8, integer(1, _STRING) + data(2, shape(sizes)) + b"".join(data(8, t) for t in texts))


def text(tag: str, text: str) -> bytes:
    """A text, shown as Markdown.

    Args:
        tag (str): the name of the data.
        text (str): what is shown, as Markdown.

    Returns:
        bytes: the summary, serialized.

    Example:
        >>> len(lucid.utils.tensorboard.summary.text("note", "hello")) > 0
        True
    """
    return value(f"{tag}/text_summary", data(9, plugin("text")) + _strings([str(text).encode()], [1]))


def custom_scalars(layout: Mapping[str, Mapping[str, Sequence[Any]]]) -> bytes:
    """The layout of a page: `{category: {chart: ["Multiline", tags] or ["Margin", [value, lower, upper]]}}`.

    Args:
        layout (Mapping[str, Mapping[str, Sequence[Any]]]): charts by category.

    Returns:
        bytes: the summary, serialized.

    Raises:
        ValueError: another kind of chart.

    Example:
        >>> layout = {"training": {"loss": ["Multiline", ["loss/train", "loss/test"]]}}
        >>> len(lucid.utils.tensorboard.summary.custom_scalars(layout)) > 0
        True
    """
    page = b""
    for category, charts in layout.items():
        section = data(1, category)
        for title, (kind, tags) in charts.items():
            if kind == "Margin":
                if len(tags) != 3:
                    raise AssertionError(f"expected 3 tags of a margin chart, got {len(tags)}")
                chart = data(3, data(1, b"".join(data(i, t) for i, t in enumerate(tags, 1))))
            else:
                chart = data(2, b"".join(data(1, t) for t in tags))
            section += data(2, data(1, title) + chart)
        page += data(2, section)
    return value("custom_scalars__config__", data(9, plugin("custom_scalars")) + _strings([page], []))


def pr_curve(tag: str, labels: Any, predictions: Any, num_thresholds: int = 127, weights: Any = None) -> bytes:
    """Precision and recall by threshold: `labels` of 0 and 1, `predictions` between 0 and 1.

    Args:
        tag (str): the name of the data.
        labels (Tensor or array): 0 or 1, of any shape.
        predictions (Tensor or array): probabilities, of the shape of `labels`.
        num_thresholds (int, default: 127): the number of thresholds.
        weights (Tensor or array, optional): a weight for each element, of the same shape.

    Returns:
        bytes: the summary, serialized.

    Raises:
        ValueError: shapes that do not fit.

    Example:
        >>> len(lucid.utils.tensorboard.summary.pr_curve("pr", lucid.tensor([0, 1]), lucid.tensor([0.2, 0.8]))) > 0
        True
    """
    import numpy as np

    labels, predictions = make_np(labels).astype(np.float64).reshape(-1), make_np(predictions).reshape(-1)
    if labels.shape != predictions.shape:
        raise errors.ValueError(f"add_pr_curve: {labels.size} labels, but {predictions.size} predictions")
    n = min(num_thresholds, 127)
    weights = 1.0 if weights is None else make_np(weights).reshape(-1)
    at = np.floor(predictions * (n - 1)).astype(np.int32)
    kept = (at >= 0) & (at < n)
    at, true, false = at[kept], (labels * weights)[kept], ((1 - labels) * weights)[kept]
    tp, fp = (np.bincount(at, w, n)[::-1].cumsum()[::-1] for w in (true, false))
    tn, fn = fp[0] - fp, tp[0] - tp
    precision, recall = tp / np.maximum(1e-7, tp + fp), tp / np.maximum(1e-7, tp + fn)
    return pr_curve_raw(tag, tp, fp, tn, fn, precision, recall, n)


def pr_curve_raw(
    tag: str, tp: Any, fp: Any, tn: Any, fn: Any, precision: Any, recall: Any, num_thresholds: int = 127
) -> bytes:
    """Precision and recall that the caller has computed, each of shape (thresholds,).

    Args:
        tag (str): the name of the data.
        tp (sequence of floats): true positives, (thresholds,).
        fp (sequence of floats): false positives, (thresholds,).
        tn (sequence of floats): true negatives, (thresholds,).
        fn (sequence of floats): false negatives, (thresholds,).
        precision (sequence of floats): precisions, (thresholds,).
        recall (sequence of floats): recalls, (thresholds,).
        num_thresholds (int, default: 127): the number of thresholds.

    Returns:
        bytes: the summary, serialized.

    Example:
        >>> ones = [1.0, 1.0]
        >>> len(lucid.utils.tensorboard.summary.pr_curve_raw("pr", ones, ones, ones, ones, ones, ones, 2)) > 0
        True
    """
    import numpy as np

    table = np.stack([make_np(x) for x in (tp, fp, tn, fn, precision, recall)])
    metadata = plugin("pr_curves", integer(2, min(num_thresholds, 127)))
    return value(tag, data(9, metadata) + data(8, _floats(table)))


def _floats(array: Any) -> bytes:
    """A TensorProto of float32."""
    values = array.astype("<f4").tobytes()
    return integer(1, _FLOAT) + data(2, shape(array.shape)) + (data(5, values) if values else b"")


def mesh(tag: str, vertices: Any, colors: Any, faces: Any, config_dict: Mapping[str, Any] | None) -> bytes:
    """A mesh or a point cloud: each array of shape (N, points, 3), `colors` and `faces` or `None`.

    Args:
        tag (str): the name of the data.
        vertices (Tensor or array): (N, points, 3).
        colors (Tensor or array): (N, points, 3), of uint8; or None.
        faces (Tensor or array): (N, faces, 3), indices of points; or None.
        config_dict (Mapping[str, Any], optional): what the viewer of TensorBoard takes.

    Returns:
        bytes: the summary, serialized.

    Raises:
        ValueError: shapes that do not fit.

    Example:
        >>> len(lucid.utils.tensorboard.summary.mesh("m", lucid.zeros(1, 3, 3), None, None, None)) > 0
        True
    """
    given = [(kind, make_np(x)) for kind, x in ((1, vertices), (2, faces), (3, colors)) if x is not None]
    components = sum(1 << kind for kind, _ in given)
    config = json.dumps(config_dict, sort_keys=True) if config_dict is not None else "{}"
    out = b""
    for kind, array in given:
        if array.ndim != 3:
            raise AssertionError(f"add_mesh: expected arrays of shape (N, points, 3), got {list(array.shape)}")
        head = data(2, tag) + integer(3, kind) + data(5, config)
        head += data(6, b"".join(varint(n) for n in array.shape)) + integer(7, components)
        name = f"{tag}_{('VERTEX', 'FACE', 'COLOR')[kind - 1]}"
        out += value(name, data(9, plugin("mesh", head)) + data(8, _floats(array)))
    return out


_TEXT, _BOOL, _NUMBER = 1, 2, 3


def hparams(
    hparam_dict: Mapping[str, Any],
    metric_dict: Mapping[str, Any],
    hparam_domain_discrete: Mapping[str, list[Any]] | None = None,
) -> tuple[bytes, bytes, bytes]:
    """The three summaries of a run with hyperparameters: the experiment, the start of the session, and its end.

    Args:
        hparam_dict (Mapping[str, Any]): the hyperparameters by name.
        metric_dict (Mapping[str, Any]): the metrics by name.
        hparam_domain_discrete (Mapping[str, list[Any]], optional): the values that a hyperparameter may have, by
            name.

    Returns:
        tuple of bytes: three summaries, serialized.

    Raises:
        TypeError: an argument is no dict, or a domain is no list of values of the hyperparameter's type.
        ValueError: a value is neither a number, a string, a bool nor a tensor of one element.

    Example:
        >>> len(lucid.utils.tensorboard.summary.hparams({"lr": 0.1}, {"loss": 0.5}))
        3
    """
    domains = hparam_domain_discrete or {}
    for given in (hparam_dict, metric_dict, domains):
        if not isinstance(given, dict):
            raise errors.TypeError(f"add_hparams: expected dicts, got {type(given).__name__}")
    for key, values in domains.items():
        kind: Any = type(hparam_dict.get(key))
        if key not in hparam_dict or not isinstance(values, list) or not all(isinstance(v, kind) for v in values):
            raise errors.TypeError(
                f"parameter: hparam_domain_discrete[{key}] should be a list of same type as hparam_dict[{key}]."
            )
    start = infos = b""
    for key, v in hparam_dict.items():
        if v is None:
            continue
        if isinstance(v, Tensor):
            v = v.item()
        if not isinstance(v, (bool, int, float, str)):
            raise errors.ValueError(f"add_hparams: {key!r} is no number, string, bool or tensor: {type(v).__name__}")
        # A bool is a number here, as in PyTorch's files.
        kind = _TEXT if isinstance(v, str) else _NUMBER
        start += data(1, data(1, key) + data(2, _hparam(v)))
        domain = b"".join(data(1, _hparam(d)) for d in domains.get(key, ()))
        infos += data(4, data(1, key) + integer(4, kind) + (data(5, domain) if domain else b""))
    infos += b"".join(data(5, data(1, data(2, key))) for key in metric_dict)
    tags = ("_hparams_/experiment", "_hparams_/session_start_info", "_hparams_/session_end_info")
    contents = (data(2, infos), data(3, start), data(4, integer(1, 1)))
    made = [value(t, data(9, plugin("hparams", c))) for t, c in zip(tags, contents, strict=True)]
    return made[0], made[1], made[2]


def _hparam(v: Any) -> bytes:
    """A google.protobuf.Value."""
    return data(3, v) if isinstance(v, str) else double(2, float(v))
