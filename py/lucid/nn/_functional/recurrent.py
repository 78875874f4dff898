"""Recurrent layers over packed rows as functions of their weights: what `LSTM` and its like share with `lucid.lstm`.

A layer's direction is one call of the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lucid
from lucid import _C, Tensor

#: The engine's nonlinearity of each mode without gates.
PLAIN = {"RNN_TANH": "tanh", "RNN_RELU": "relu"}


def direction(
    mode: str, x: Tensor, hidden: Sequence[Tensor], sizes: list[int], weights: Sequence[Tensor | None], reverse: bool
) -> tuple[Tensor, ...]:
    """One direction of one layer: all states, then the last ones (for an LSTM states and cells).

    `weights` are the input's and the state's, their biases or `None`, and for an LSTM the projection or `None`.
    """
    w_ih, w_hh, b_ih, b_hh, project = weights
    assert w_ih is not None and w_hh is not None
    if mode == "LSTM":
        return tuple(_C.lstm_sequence(x, hidden[0], hidden[1], sizes, w_ih, w_hh, b_ih, b_hh, project, reverse))
    if mode == "GRU":
        return tuple(_C.gru_sequence(x, hidden[0], sizes, w_ih, w_hh, b_ih, b_hh, reverse))
    return tuple(_C.rnn_sequence(x, hidden[0], sizes, w_ih, w_hh, b_ih, b_hh, PLAIN[mode], reverse))


def layers(
    mode: str,
    x: Tensor,
    hidden: Sequence[Tensor],
    sizes: list[int],
    weights: Sequence[Sequence[Tensor | None]],
    bidirectional: bool,
    dropout: float,
) -> tuple[Tensor, list[Tensor]]:
    """All layers over packed rows: the last layer's states, and the last states (and cells) of each.

    Args:
        mode: "RNN_TANH", "RNN_RELU", "LSTM" or "GRU".
        x: The rows (total, input size), step by step.
        hidden: Initial states, and cells for an LSTM, each (layers times directions, N, size).
        sizes: How many sequences have each step.
        weights: What `direction` takes, for each layer and in it for each direction.
        bidirectional: Whether each layer also runs backwards.
        dropout: Probability with which inputs of layers but the first are zeroed.
    """
    directions = 2 if bidirectional else 1
    lasts: list[tuple[Tensor, ...]] = []
    for start in range(0, len(weights), directions):
        if start > 0 and dropout > 0:
            x = _C.dropout(x, dropout, True)
        outs = []
        for at in range(start, start + directions):
            out, *last = direction(mode, x, [h[at] for h in hidden], sizes, weights[at], at > start)
            outs.append(out)
            lasts.append(tuple(last))
        x = outs[0] if directions == 1 else lucid.cat(outs, 1)
    return x, [lucid.stack(list(states)) for states in zip(*lasts, strict=True)]


def over_steps(
    mode: str, rows: Tensor, sizes: list[int], bidirectional: bool, projected: bool, batch_first: bool, like: Any = None
) -> Tensor:
    """Packed rows of sequences of one length as (L, N, size), or (N, L, size); the steps have the names of PyTorch's.

    The result has the strides of an op on `like`, where it is given.
    """
    fused = mode == "LSTM" and rows.dtype == lucid.float32 and not projected
    with _C._Step("cat" if bidirectional else "mkldnn_rnn_layer" if fused else "stack"):
        made = rows.reshape([len(sizes), sizes[0] if sizes else 0, rows.shape[1]])
    made = made if like is None else made._result_of(like, True)
    if not batch_first:
        return made
    # To PyTorch an LSTM's is a view of what nobody has, the others' are turned in place.
    return made.transpose(0, 1) if mode == "LSTM" else made.transpose_(0, 1)
