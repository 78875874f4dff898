"""Layers as functions of `lucid` itself, as PyTorch has them: `lucid.conv2d`, `lucid.layer_norm`, `lucid.lstm`.

Most are those of `lucid.nn.functional`. Here stand those that PyTorch gives other arguments: `reduction` as a number
(0 none, 1 mean, 2 sum), weights before statistics, `train` instead of `training`. `lucid` looks names up here when they
are first asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.nn import functional as F
from lucid.nn._functional.recurrent import direction, layers, over_steps

_REDUCTIONS = ("none", "mean", "sum")


def __getattr__(name: str) -> Any:
    return getattr(F, name)


def _reduction(number: int) -> str:
    if isinstance(number, str) or not 0 <= number < len(_REDUCTIONS):
        raise errors.ValueError(f"{number} is not a valid value for reduction: 0 is none, 1 mean, 2 sum")
    return _REDUCTIONS[number]


# ---- norms -----------------------------------------------------------------------------------------------------------


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """`nn.functional.layer_norm`; `cudnn_enable` changes nothing: there is one kernel a device."""
    return F.layer_norm(input, normalized_shape, weight, bias, eps)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """`nn.functional.group_norm`; `cudnn_enabled` changes nothing: there is one kernel a device."""
    return F.group_norm(input, num_groups, weight, bias, eps)


def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """`nn.functional.batch_norm` with the weights first; `cudnn_enabled` changes nothing."""
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """`nn.functional.instance_norm` with the weights first; `cudnn_enabled` changes nothing."""
    return F.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


# ---- dropout ---------------------------------------------------------------------------------------------------------


def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Zero with probability `p`, else `x / (1 - p)`; the input itself unless `train`."""
    return F.dropout(input, p, train)


def dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`dropout` in place."""
    return F.dropout(input, p, train, inplace=True)


def alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`nn.functional.alpha_dropout`."""
    return F.alpha_dropout(input, p, train)


def alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`alpha_dropout` in place."""
    return F.alpha_dropout(input, p, train, inplace=True)


def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Dropout of whole channels of (N, C, …)."""
    if input.dim() < 2:
        raise errors.RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    return F.dropout3d(input, p, train) if input.dim() == 5 else F.dropout2d(input, p, train)


def feature_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`feature_dropout` in place."""
    made = feature_dropout(input, p, train)
    return input if made is input else input.copy_(made)


def feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`nn.functional.feature_alpha_dropout`."""
    return F.feature_alpha_dropout(input, p, train)


def feature_alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`feature_alpha_dropout` in place."""
    return F.feature_alpha_dropout(input, p, train, inplace=True)


# ---- embedding -------------------------------------------------------------------------------------------------------


def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """`nn.functional.embedding` with the table first; a `padding_idx` of -1 is none."""
    padding = None if padding_idx == -1 else padding_idx
    return F.embedding(indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


def embedding_renorm_(input: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Scales the rows of a table that `indices` names down to the norm `max_norm`, in place."""
    F.embedding(indices, input.detach(), max_norm=max_norm, norm_type=norm_type)
    return input


def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`nn.functional.embedding_bag` with the table first; modes are 0 sum, 1 mean, 2 max.

    Gives the bags, the bag of each index, how many indices count in each bag, and the rows that the maxima came from
    (the sizes again for means). For sums PyTorch leaves these empty and zero, and so it is here.
    """
    kind = ("sum", "mean", "max")[mode]
    out = F.embedding_bag(
        indices,
        weight,
        offsets,
        scale_grad_by_freq=scale_grad_by_freq,
        mode=kind,
        sparse=sparse,
        per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset,
        padding_idx=padding_idx,
    )
    starts, flat = offsets.tolist(), indices.tolist()
    ends = starts[1:] if include_last_offset else [*starts[1:], len(flat)]
    count = len(ends)

    def whole(values: Any) -> Tensor:
        return lucid.tensor(values, dtype=indices.dtype, device=indices.device)

    if kind == "sum":
        return out, whole([]), whole([0] * count), whole([0] * count)
    bags = [[row for row in flat[a:b] if row != padding_idx] for a, b in zip(starts, ends, strict=False)]
    of_each = whole([number for number, (a, b) in enumerate(zip(starts, ends, strict=False)) for _ in range(a, b)])
    sizes = whole([len(bag) for bag in bags])
    if kind == "mean":
        return out, of_each, sizes, sizes.clone()
    table = weight.detach()
    none = lucid.zeros(table.shape[1], dtype=indices.dtype, device=indices.device)
    rows = [whole(bag)[table[whole(bag)].argmax(0)] if bag else none for bag in bags]
    return out, of_each, sizes, lucid.stack(rows) if rows else none[None][:0]


# ---- convolution and sampling ----------------------------------------------------------------------------------------


def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """A convolution, or with `transposed` a transposed one, of as many dimensions as `weight` has beyond two."""
    n = weight.dim() - 2
    if not 1 <= n <= 3:
        raise errors.RuntimeError(f"convolution: expected weights of 3 to 5 dimensions, got {weight.dim()}")
    if transposed:
        function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[n - 1]
        return function(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return (F.conv1d, F.conv2d, F.conv3d)[n - 1](input, weight, bias, stride, padding, dilation, groups)


def affine_grid_generator(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """`nn.functional.affine_grid`."""
    return F.affine_grid(theta, size, align_corners)


def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """`nn.functional.grid_sample`: modes are 0 bilinear, 1 nearest, 2 bicubic; 0 zeros, 1 border, 2 reflection."""
    kind = ("bilinear", "nearest", "bicubic")[interpolation_mode]
    return F.grid_sample(input, grid, kind, ("zeros", "border", "reflection")[padding_mode], align_corners)


grid_sampler_2d = grid_sampler_3d = grid_sampler


def adaptive_max_pool1d(input: Tensor, output_size: int | Sequence[int]) -> tuple[Tensor, Tensor]:
    """`nn.functional.adaptive_max_pool1d` with the places of the maxima."""
    found: tuple[Tensor, Tensor] = F.adaptive_max_pool1d(input, output_size, return_indices=True)
    return found


# ---- losses ----------------------------------------------------------------------------------------------------------


# Without a number PyTorch's bindings take 0 for these, though its declarations say 1: so nothing is reduced.


def kl_div(input: Tensor, target: Tensor, reduction: int = 0, *, log_target: bool = False) -> Tensor:
    """`nn.functional.kl_div`."""
    return F.kl_div(input, target, reduction=_reduction(reduction), log_target=log_target)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = 0,
) -> Tensor:
    """`nn.functional.binary_cross_entropy_with_logits`."""
    kind = _reduction(reduction)
    return F.binary_cross_entropy_with_logits(input, target, weight, reduction=kind, pos_weight=pos_weight)


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """`nn.functional.cosine_embedding_loss`."""
    return F.cosine_embedding_loss(input1, input2, target, margin, reduction=_reduction(reduction))


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 0) -> Tensor:
    """`nn.functional.hinge_embedding_loss`."""
    return F.hinge_embedding_loss(input, target, margin, reduction=_reduction(reduction))


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """`nn.functional.margin_ranking_loss`."""
    return F.margin_ranking_loss(input1, input2, target, margin, reduction=_reduction(reduction))


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = 0,
) -> Tensor:
    """`nn.functional.triplet_margin_loss`."""
    return F.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=_reduction(reduction))


def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int) -> Tensor:
    """`nn.functional.poisson_nll_loss`."""
    return F.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=_reduction(reduction))


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 0,
    zero_infinity: bool = False,
) -> Tensor:
    """`nn.functional.ctc_loss`."""
    kind = _reduction(reduction)
    return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, kind, zero_infinity)


# ---- recurrent layers ------------------------------------------------------------------------------------------------


def _weights(mode: str, params: Sequence[Tensor], has_biases: bool, states: int) -> list[tuple[Tensor | None, ...]]:
    """The flat list of a layer's weights, by layer and direction."""
    each, rest = divmod(len(params), states)
    plain = 4 if has_biases else 2
    projected = mode == "LSTM" and each == plain + 1
    if rest or each != plain + projected:
        raise errors.RuntimeError(f"{mode}: got {len(params)} weights for {states} layers and directions")
    made: list[tuple[Tensor | None, ...]] = []
    for i in range(0, len(params), each):
        own = params[i : i + each]
        biases = tuple(own[2:4]) if has_biases else (None, None)
        made.append((*own[:2], *biases, own[-1] if projected else None))
    return made


_OVER_SEQUENCES = (
    "input",
    "hx",
    "params",
    "has_biases",
    "num_layers",
    "dropout",
    "train",
    "bidirectional",
    "batch_first",
)
_OVER_ROWS = ("data", "batch_sizes", "hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional")


def _recurrent(op: str, mode: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, ...]:
    """Layers of a mode, over sequences of one length or packed rows, as PyTorch's arguments tell them apart."""
    packed = "batch_sizes" in kwargs or (len(args) > 3 and not isinstance(args[3], bool))
    names = _OVER_ROWS if packed else _OVER_SEQUENCES
    given = dict(zip(names, args, strict=False)) | kwargs
    if len(args) > len(names) or set(given) != set(names):
        raise errors.TypeError(
            f"{op}() takes the arguments ({', '.join(_OVER_SEQUENCES)}) or ({', '.join(_OVER_ROWS)})"
        )
    hx, bidirectional, batch_first = given["hx"], given["bidirectional"], given.get("batch_first", False)
    if packed:
        x, sizes = given["data"], [int(n) for n in given["batch_sizes"].tolist()]
    else:
        steps = given["input"].transpose(0, 1) if batch_first else given["input"]
        sizes = [steps.shape[1]] * steps.shape[0]
        x = steps.reshape([steps.shape[0] * steps.shape[1], steps.shape[2]])
    hidden = tuple(hx) if mode == "LSTM" else (hx,)
    states = given["num_layers"] * (2 if bidirectional else 1)
    weights = _weights(mode, given["params"], given["has_biases"], states)
    dropout = given["dropout"] if given["train"] else 0.0
    out, last = layers(mode, x, hidden, sizes, weights, bidirectional, dropout)
    if not packed:
        projected = any(own[-1] is not None for own in weights)
        out = over_steps(mode, out, sizes, bidirectional, projected, batch_first)
    return (out, *last)


def lstm(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
    """LSTM layers: states of all steps, last states, last cells.

    Called as (input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first), or for packed
    rows as (data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional). `hx` is a pair of
    states and cells; `params` lists the weights of each layer and direction as `nn.LSTM` has them.
    """
    return _recurrent("lstm", "LSTM", args, kwargs)


def gru(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
    """GRU layers: states of all steps, last states. Called as `lstm`, with one tensor of states."""
    return _recurrent("gru", "GRU", args, kwargs)


def rnn_tanh(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
    """Recurrent layers with tanh. Called as `gru`."""
    return _recurrent("rnn_tanh", "RNN_TANH", args, kwargs)


def rnn_relu(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
    """Recurrent layers with relu. Called as `gru`."""
    return _recurrent("rnn_relu", "RNN_RELU", args, kwargs)


def _cell(mode: str, input: Tensor, hidden: Sequence[Tensor], *weights: Tensor | None) -> tuple[Tensor, ...]:
    return direction(mode, input, hidden, [input.shape[0]], (*weights, None), False)[1:]


def lstm_cell(
    input: Tensor,
    hx: Sequence[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One step of an LSTM: states and cells (N, hidden)."""
    if not isinstance(hx, (tuple, list)):
        raise errors.TypeError(f"lstm_cell(): argument 'hx' must be tuple of Tensors, not {lucid.typename(hx)}")
    h, c = _cell("LSTM", input, hx, w_ih, w_hh, b_ih, b_hh)
    return h, c


def gru_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """One step of a GRU: states (N, hidden)."""
    return _cell("GRU", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


def rnn_tanh_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """One step of a recurrent layer with tanh: states (N, hidden)."""
    return _cell("RNN_TANH", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


def rnn_relu_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """One step of a recurrent layer with relu: states (N, hidden)."""
    return _cell("RNN_RELU", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]
