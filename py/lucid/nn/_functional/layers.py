"""Normalisation, dropout, embedding and attention beyond what is one call of the engine."""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid._warnings import warn
from lucid.nn._functional.bags import of_bags, sums_of_bags
from lucid.nn._functional.step import step

__all__ = [
    "bilinear",
    "embedding",
    "embedding_bag",
    "fused_linear_gelu",
    "fused_linear_relu",
    "grouped_mm",
    "gumbel_softmax",
    "instance_norm",
    "local_response_norm",
    "rrelu",
    "softmin",
]


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x1 A x2 + b`: (…, in1) and (…, in2) with `weight` (out, in1, in2) to (…, out).

    Args:
        input1 (Tensor): (…, in1).
        input2 (Tensor): (…, in2), with the same leading dimensions.
        weight (Tensor): (out, in1, in2).
        bias (Tensor, optional): (out,); zeros by default.

    Returns:
        Tensor: (…, out).

    Raises:
        RuntimeError: shapes that do not fit.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.bilinear(lucid.ones(2, 3), lucid.ones(2, 4), lucid.ones(5, 3, 4)).shape
        lucid.Size([2, 5])
    """
    if weight.dim() != 3 or input1.shape[:-1] != input2.shape[:-1]:
        raise errors.RuntimeError(
            f"bilinear(): input batch dimensions do not match: got {list(input1.shape)} and {list(input2.shape)}"
        )
    outs, first, second = weight.shape
    if input1.shape[-1] != first or input2.shape[-1] != second:
        raise errors.RuntimeError(
            f"bilinear(): input sizes do not match the weight's: got {input1.shape[-1]} and {input2.shape[-1]} but "
            f"expected {first} and {second}"
        )
    others = (input2, weight) if bias is None else (input2, weight, bias)
    if any(t.dtype != input1.dtype for t in others):
        raise errors.DtypeMismatch(
            f"bilinear(): All tensors must have the same dtype, got input1: {input1.dtype}, input2: {input2.dtype}, "
            f"weight: {weight.dtype}, bias: {None if bias is None else bias.dtype}"
        )
    if bias is not None and bias.shape != (outs,):
        raise errors.RuntimeError(
            f"bilinear(): bias size does not match weight size: got {list(bias.shape)} but expected {outs}"
        )
    left = input1.matmul(weight.permute([1, 0, 2]).reshape([first, outs * second]))
    with _C._Step("view"):
        made = (left.reshape([*input1.shape[:-1], outs, second]) * input2.unsqueeze(-2)).sum(-1)
    if not made.is_floating_point() and not made.is_complex():
        # Sums of integers are int64; what is summed keeps its dtype here.
        made = made.to(input1.dtype)
    return made if bias is None else made + bias


def fused_linear_relu(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`relu(x @ weight.T + bias)`. Not in PyTorch.

    Args:
        input (Tensor): (…, in).
        weight (Tensor): (out, in).
        bias (Tensor, optional): (out,); zeros by default.

    Returns:
        Tensor: (…, out).

    Example:
        >>> import lucid.nn.functional as F
        >>> F.fused_linear_relu(lucid.tensor([[1.0, -2.0]]), lucid.tensor([[1.0, 1.0], [1.0, 0.0]]))
        tensor([[0., 1.]])
    """
    return _C.linear(input, weight, bias).relu()


def fused_linear_gelu(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`gelu(x @ weight.T + bias)`. Not in PyTorch.

    Args:
        input (Tensor): (…, in).
        weight (Tensor): (out, in).
        bias (Tensor, optional): (out,); zeros by default.

    Returns:
        Tensor: (…, out).

    Example:
        >>> import lucid.nn.functional as F
        >>> F.fused_linear_gelu(lucid.tensor([[1.0, -2.0]]), lucid.tensor([[1.0, 1.0], [1.0, 0.0]]))
        tensor([[-0.1587,  0.8413]])
    """
    return _C.gelu(_C.linear(input, weight, bias))


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """`softmax(-x)` along `dim`.

    Args:
        input (Tensor): any shape, floating.
        dim (int, optional): the dimension along which the result sums to 1.
        dtype (lucid.dtype, optional): the dtype that `input` is cast to first.

    Returns:
        Tensor: the shape of `input`.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.softmin(lucid.tensor([0.0, 1.0]), dim=0)
        tensor([0.7311, 0.2689])
    """
    from lucid.nn import functional as F

    return F.softmax(-input, dim, _stacklevel + 1, dtype)


def gumbel_softmax(
    logits: Tensor, tau: float | Tensor = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """Samples of the Gumbel-softmax distribution (Jang et al., 2017).

    With `hard` one-hot vectors, whose gradient is that of the soft ones.

    Args:
        logits (Tensor): unnormalized log-probabilities, of any shape.
        tau (float or Tensor, default: 1): the temperature, positive; low ones come near to one-hot vectors.
        hard (bool, default: False): returns one-hot vectors.
        eps (float, default: 1e-10): has no effect, as in PyTorch.
        dim (int, default: -1): the dimension of the classes.

    Returns:
        Tensor: the shape of `logits`; sums to 1 along `dim`.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.gumbel_softmax(lucid.zeros(2, 3), hard=True).sum(1)
        tensor([1., 1.])
    """
    if eps != 1e-10:
        warn("`eps` parameter is deprecated and has no effect.")
    # Not `exponential_` of an empty tensor: under `vmap` that has no samples to be different.
    noise = -(1.0 - lucid.rand_like(logits)).log()
    # An exponential variable of 0 would give an infinite logit.
    gumbels = -noise.clamp(min=lucid.finfo(logits.dtype).tiny).log()
    soft = _C.softmax((logits + gumbels) / tau, dim)
    if not hard:
        return soft
    index = soft.argmax(dim, keepdim=True)
    sharp = lucid.zeros_like(logits).scatter(dim, index, 1.0)
    return sharp - soft.detach() + soft


def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """`x` above 0, `a x` below; `a` is random within the bounds in training, and their mean otherwise.

    Args:
        input (Tensor): any shape, floating.
        lower (float, default: 0.125): the smallest slope below 0.
        upper (float, default: 0.3333333333333333): the largest slope below 0.
        training (bool, default: False): draws a slope for each element; otherwise the slope is the mean of both bounds.
        inplace (bool, default: False): writes the result over `input`, and returns `input`.

    Returns:
        Tensor: the shape and dtype of `input`.

    Raises:
        RuntimeError: `lower` is above `upper`.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.rrelu(lucid.tensor([-1.0, 2.0]))
        tensor([-0.2292,  2.0000])
    """
    if lower > upper:
        raise errors.RuntimeError(f"Lower bound should be less than or equal to the upper bound, got {lower}, {upper}")
    read = _C._rewritten(input) if inplace else input
    if inplace and not training and input.requires_grad:
        # The gradient needs what is written over.
        read = read.clone()
    with _C._Step("rrelu_with_noise_" if inplace else "rrelu_with_noise"):
        if training:
            slope = lucid.rand_like(input) * (upper - lower) + lower
            made = lucid.where(read <= 0, read * slope, read)
        else:
            made = _C.leaky_relu(read, (lower + upper) / 2)
    return _C._overwrite(input, made) if inplace else made


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalises each channel of each sample of (N, C, …) by its own mean and variance, or by the running ones.

    With `use_input_stats` the running statistics, if given, are updated by the mean over the samples.

    Args:
        input (Tensor): (N, C, …), floating.
        running_mean (Tensor, optional): the running mean of each channel, (C,).
        running_var (Tensor, optional): the running variance of each channel, (C,).
        weight (Tensor, optional): the scale of each channel, (C,); ones by default.
        bias (Tensor, optional): the shift of each channel, (C,); zeros by default.
        use_input_stats (bool, default: True): normalises by the sample's own statistics, rather than by the
            running ones.
        momentum (float, default: 0.1): the weight of the samples in the running statistics.
        eps (float, default: 1e-05): what is added to the variance.

    Returns:
        Tensor: the shape and dtype of `input`.

    Raises:
        ValueError: one element in each channel.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.instance_norm(lucid.tensor([[[1.0, 3.0]]]))
        tensor([[[-1.0000,  1.0000]]])
    """
    if running_mean is not None and running_var is not None and running_mean.dtype == input.dtype != running_var.dtype:
        raise errors.DtypeMismatch(
            f"instance_norm: expected running_var to have the dtype of input and running_mean, {input.dtype}, but "
            f"got {running_var.dtype}"
        )
    if not use_input_stats:
        if running_mean is not None and running_var is not None and running_mean.dtype != input.dtype:
            # Statistics of any other dtype will do here.
            running_mean, running_var = running_mean.to(input.dtype), running_var.to(input.dtype)
        with _C._Step("view"):
            return _C.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    count = 1
    for size in input.shape[2:]:
        count *= size
    if count == 1:
        raise errors.ValueError(f"Expected more than 1 spatial element when training, got input size {input.shape}")
    if input.numel() == 0:
        return _C.batch_norm(input, None, None, weight, bias, True, momentum, eps)
    for name, statistic in (("running_mean", running_mean), ("running_var", running_var)):
        if statistic is not None and statistic.requires_grad and lucid.is_grad_enabled():
            raise errors.RuntimeError(
                f"The function 'native_batch_norm' is not differentiable with respect to argument '{name}'. This input "
                "cannot have requires_grad True; detach() it."
            )
    if running_mean is not None and running_var is not None:
        with lucid.no_grad():
            rows = input.detach().reshape([*input.shape[:2], -1])
            mean, var = rows.mean(2).mean(0), rows.var(2).mean(0)
            running_mean.copy_(running_mean * (1 - momentum) + mean.to(running_mean.dtype) * momentum)
            running_var.copy_(running_var * (1 - momentum) + var.to(running_var.dtype) * momentum)
    # Row-major, as in PyTorch, whatever the input's format.
    with _C._Step("view"):
        return _C.group_norm(input.contiguous(), input.shape[1], weight, bias, eps)


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """`x / (k + alpha · mean of x² over size channels)^beta` (Krizhevsky et al., 2012).

    Args:
        input (Tensor): (N, C, …), floating.
        size (int): the number of neighbouring channels.
        alpha (float, default: 0.0001): the factor of the mean square.
        beta (float, default: 0.75): the exponent.
        k (float, default: 1.0): the additive constant.

    Returns:
        Tensor: the shape and dtype of `input`.

    Raises:
        ValueError: `input` has fewer than three dimensions.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.local_response_norm(lucid.ones(1, 3, 2), 3).shape
        lucid.Size([1, 3, 2])
    """
    if input.dim() < 3:
        raise errors.ValueError(f"Expected 3D or higher dimensionality input (got {input.dim()} dimensions)")
    if input.numel() == 0:
        return input
    if size < 1:
        raise errors.RuntimeError(f"local_response_norm: kernel size should be greater than zero, but got {size}")
    around = [0, 0] * (input.dim() - 2) + [size // 2, (size - 1) // 2]
    squares = _C.constant_pad_nd(input * input, around)
    if not input.is_floating_point() and not input.is_complex():
        # A pool of integers: what is behind the point of a mean is cut off.
        mean = squares.unfold(1, size, 1).sum(-1).div(size, rounding_mode="trunc")
    else:
        mean = squares.unfold(1, size, 1).mean(-1)
    return input / (mean * alpha + k).pow(beta)


def _renormed(weight: Tensor, rows: Tensor, max_norm: float, norm_type: float) -> None:
    """Scales the rows of a table that are used down to a norm, in place; other rows are neither read nor written."""
    with lucid.no_grad():
        table, used = weight.detach(), rows.reshape([-1])
        if table.shape[0] > 1 and table.stride(0) == 0:
            # One row, shown as several: it is scaled once for each that is used, as far as it still needs it.
            for row in (table[i] for i in used.unique().tolist()):
                length = _C.norm(row, norm_type, 0).item()
                if length > max_norm:
                    row.mul_(max_norm / (length + 1e-7))
            return
        found = table.index_select(0, used)
        size = _C.norm(found, norm_type, 1)
        scale = lucid.where(size > max_norm, max_norm / (size + 1e-7), 1.0)
        # A row that is used twice is written twice, with the same numbers.
        table.index_copy_(0, used, found * scale.to(weight.dtype).unsqueeze(1))


def _by_frequency(rows: Tensor, index: Tensor, count: int) -> Tensor:
    """The same rows, whose gradient is divided by how often each index occurs."""
    flat = index.reshape([-1])
    occurs = lucid.zeros(count, device=rows.device).index_add(0, flat, lucid.ones(flat.shape[0], device=rows.device))
    share = (1.0 / occurs.clamp(min=1)).index_select(0, flat).reshape([*index.shape, 1]).to(rows.dtype)
    scaled = rows * share
    return rows.detach() + (scaled - scaled.detach())


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of `weight` (count, size) at the indices `input`: shape (…, size).

    Args:
        input (Tensor): indices of any shape (…), from 0 to before the count.
        weight (Tensor): the table, (count, size).
        padding_idx (int, optional): A row that gets no gradient.
        max_norm (float, optional): Rows that are used and longer are first scaled down to this, in the table
            itself.
        norm_type (float, default: 2.0): Of which norm.
        scale_grad_by_freq (bool, default: False): Whether gradients are divided by how often an index occurs.
        sparse (bool, default: False): Whether the gradient is a sparse tensor of the rows that were looked up.

    Returns:
        Tensor: (…, size), in the dtype of `weight`.

    Raises:
        IndexError: an index is out of range.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.embedding(lucid.tensor([1, 0]), lucid.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor([[3., 4.],
                [1., 2.]])
    """
    if padding_idx is not None and not -weight.shape[0] <= padding_idx < weight.shape[0]:
        raise AssertionError(f"Padding_idx must be within num_embeddings, got {padding_idx}")
    if max_norm is not None:
        _renormed(weight, input, max_norm, norm_type)
    if sparse and scale_grad_by_freq and weight.requires_grad:
        raise errors.RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
    made: Tensor = _C.embedding(input, weight, padding_idx, sparse=sparse)
    return _by_frequency(made, input, weight.shape[0]) if scale_grad_by_freq else made


@step("embedding_bag")
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Sums, means or maxima of bags of rows of `weight`: (bags, size).

    Args:
        input (Tensor): (bags, length), or (total) with `offsets`.
        weight (Tensor): the table, (count, size).
        offsets (Tensor, optional): where each bag begins in a 1-D input, (bags,).
        max_norm (float, optional): As in `embedding`.
        norm_type (float, default: 2): As in `embedding`.
        scale_grad_by_freq (bool, default: False): As in `embedding`; not with "max".
        mode (str, default: "mean"): "sum", "mean" or "max".
        sparse (bool, default: False): Whether the gradient is a sparse tensor of the rows that were looked up; not
            with "max".
        per_sample_weights (Tensor, optional): a factor for each row, of the shape of `input`; for "sum" alone.
        include_last_offset (bool, default: False): Whether the last offset is the end of the last bag.
        padding_idx (int, optional): An index that counts nothing.

    Returns:
        Tensor: (bags, size), in the dtype of `weight`.

    Raises:
        ValueError: arguments that do not go together.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.embedding_bag(lucid.tensor([[0, 1]]), lucid.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor([[2., 3.]])
    """
    if weight.dtype == lucid.int64 and input.is_floating_point():
        warn("Argument order of nn.functional.embedding_bag has changed: give input first, then weight")
        input, weight = weight, input
    if mode not in ("sum", "mean", "max"):
        raise errors.ValueError(f"mode has to be one of sum, mean or max, got {mode!r}")
    if per_sample_weights is not None:
        if per_sample_weights.shape != input.shape:
            raise errors.ValueError(
                f"embedding_bag: If per_sample_weights ({list(per_sample_weights.shape)}) is not None, then it must "
                f"have the same shape as the input ({list(input.shape)})"
            )
        if mode != "sum":
            raise errors.NotImplementedError(
                f"embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' "
                f"(got mode='{mode}'). Please open a feature request on GitHub."
            )
    if mode == "max" and scale_grad_by_freq:
        raise errors.ValueError("max mode does not support scaling the gradient by the frequency")
    if mode == "max" and sparse:
        raise errors.ValueError("max mode does not support sparse weights")
    if sparse and scale_grad_by_freq and weight.requires_grad:
        raise errors.RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
    device = weight.device
    if input.dim() == 2:
        if offsets is not None:
            raise errors.ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length "
                f"sequences. However, found offsets of type {type(offsets)}"
            )
        bags, length = input.shape
        flat = input.reshape([-1])
        starts = [i * length for i in range(bags)]
        factors = None if per_sample_weights is None else per_sample_weights.reshape([-1])
    elif input.dim() == 1:
        if offsets is None:
            raise errors.ValueError("offsets has to be a 1D Tensor but got None")
        if offsets.dim() != 1:
            raise errors.ValueError("offsets has to be a 1D Tensor")
        starts, flat, factors = [int(o) for o in offsets.tolist()], input, per_sample_weights
        if include_last_offset:
            if not starts:
                raise errors.RuntimeError("include_last_offset: number of offsets should be at least 1")
            *starts, stop = starts
            if stop < max(starts, default=0) or stop > flat.shape[0]:
                raise errors.RuntimeError(
                    f"offsets[-1] can not be greater than input's length({flat.shape[0]}) nor before another bag, "
                    f"got {stop}"
                )
            # What comes after the last bag is in none.
            flat = flat.narrow(0, 0, stop)
            factors = None if factors is None else factors.narrow(0, 0, stop)
        if starts and starts[0] != 0:
            raise errors.RuntimeError(
                f"offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start "
                f"from position 0. However, got {starts[0]}"
            )
        if starts and max(starts) > flat.shape[0]:
            raise errors.RuntimeError(
                f"offsets[-1] can not be greater than input's length({flat.shape[0]}), got {max(starts)}"
            )
        bags = len(starts)
    else:
        raise errors.ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}")
    if padding_idx is not None:
        if not -weight.shape[0] <= padding_idx < weight.shape[0]:
            raise AssertionError("padding_idx must be within the number of embeddings")
        padding_idx %= weight.shape[0]
    total = flat.shape[0]
    ends = [*starts[1:], total] if starts else []
    if max_norm is not None:
        _renormed(weight, flat, max_norm, norm_type)
    if padding_idx is None and mode != "max" and not scale_grad_by_freq and weight.is_floating_point():
        alike = sums_of_bags(
            flat, weight, {end - start for start, end in zip(starts, ends, strict=True)}, factors, mode, sparse
        )
        if alike is not None:
            return alike
    try:
        rows: Tensor = _C.embedding(flat, weight, padding_idx, sparse=sparse)
    except errors.IndexError as error:
        raise errors.RuntimeError(f"embedding_bag: {error}, which is not in the valid range") from None
    if scale_grad_by_freq:
        rows = _by_frequency(rows, flat, weight.shape[0])
    if input.dim() == 2 and length > 0:
        # Bags of one length are the rows of a dimension.
        if factors is not None:
            rows = rows * factors.unsqueeze(1)
        found = rows.reshape([bags, length, -1])
        if padding_idx is None:
            return of_bags(found, None, mode)
        return of_bags(found, (input != padding_idx).unsqueeze(2), mode)
    counted = lucid.ones(total, device=device) if padding_idx is None else (flat != padding_idx).to(lucid.float32)
    if mode == "max":
        longest = max((b - a for a, b in zip(starts, ends, strict=True)), default=0)
        if longest == 0:
            return lucid.zeros([bags, weight.shape[1]], dtype=weight.dtype, device=device)
        places = [[min(a + j, max(total - 1, 0)) for j in range(longest)] for a in starts]
        inside = [[a + j < b for j in range(longest)] for a, b in zip(starts, ends, strict=True)]
        where = lucid.tensor(places, device=device)
        seen = lucid.tensor(inside, device=device) & (counted.index_select(0, where.reshape([-1])) > 0).reshape(
            where.shape
        )
        found = rows.index_select(0, where.reshape([-1])).reshape([bags, longest, -1])
        best = found.masked_fill(seen.logical_not().unsqueeze(2), -math.inf).argmax(1, keepdim=True)
        picked = found.gather(1, best).squeeze(1)
        return picked.masked_fill(seen.any(1).logical_not().unsqueeze(1), 0.0)
    lengths = lucid.tensor([b - a for a, b in zip(starts, ends, strict=True)], dtype=lucid.int64, device=device)
    bag = lucid.arange(bags, device=device).repeat_interleave(lengths)
    if padding_idx is not None:
        rows = rows * counted.to(rows.dtype).unsqueeze(1)
    if factors is not None:
        rows = rows * factors.unsqueeze(1)
    made = lucid.zeros([bags, weight.shape[1]], dtype=weight.dtype, device=device).index_add(0, bag, rows)
    if mode == "mean":
        size = lucid.zeros(bags, device=device).index_add(0, bag, counted).clamp(min=1)
        made = made / size.to(made.dtype).unsqueeze(1)
    return made


def grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: lucid.dtype | None = None,
) -> Tensor:
    """Multiplies groups of rows, columns or summands with matrices of their own, as in mixtures of experts.

    Args:
        mat_a (Tensor): `(M, K)` or `(G, M, K)`.
        mat_b (Tensor): `(K, N)` or `(G, K, N)`, of the same floating dtype.
        offs (Tensor, optional): `(G)`, int32: where each group ends, where a matrix has two dimensions.
        bias (Tensor, optional): `(N)`; not taken, as in PyTorch.
        out_dtype (lucid.dtype, optional): the inputs' dtype, which is the default.

    Returns:
        Tensor: `(G, M, N)` where both or none of the matrices have three dimensions, else `(M, N)`.

    Raises:
        RuntimeError: shapes or dtypes that do not fit, or ends that do not rise or are beyond the size.

    Differences from PyTorch: all floating dtypes.

    Example:
        >>> x, experts = lucid.ones(3, 2), lucid.stack([lucid.eye(2), 2 * lucid.eye(2)])
        >>> lucid.nn.functional.grouped_mm(x, experts, offs=lucid.tensor([1, 3], dtype=lucid.int32)).tolist()
        [[1.0, 1.0], [2.0, 2.0], [2.0, 2.0]]
    """
    return lucid._grouped_mm(mat_a, mat_b, offs, bias, out_dtype)
