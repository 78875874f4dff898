"""Recurrent layers and cells. A layer's direction is one call of the engine."""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid._warnings import warn
from lucid.nn import init
from lucid.nn._functional.recurrent import layers, over_steps
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter
from lucid.nn.utils.rnn import PackedSequence

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCell", "RNNCellBase"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def apply_permutation(tensor: Tensor, permutation: Tensor, dim: int = 1) -> Tensor:
    """`tensor.index_select(dim, permutation)` by its old name, which is deprecated."""
    warn("`apply_permutation` is deprecated, please use `tensor.index_select(dim, permutation)` instead", FutureWarning)
    return tensor.index_select(dim, permutation)


class RNNBase(Module):
    """What recurrent layers share.

    Parameters have PyTorch's names, `weight_ih_l0`, `weight_hh_l0`, `bias_ih_l0`, `bias_hh_l0`, `weight_hr_l0`, with
    `_reverse` for the second direction, and start uniform within ±1/sqrt(hidden_size).

    Args:
        mode (str): "RNN_TANH", "RNN_RELU", "LSTM" or "GRU".
        input_size (int): Size of each step's input.
        hidden_size (int): Size of the hidden state.
        num_layers (int, default: 1): Layers on top of each other.
        bias (bool, default: True): Whether to add `bias_ih` and `bias_hh`.
        batch_first (bool, default: False): Whether sequences are (N, L, …) rather than (L, N, …).
        dropout (float, default: 0.0): Probability between layers, in training.
        bidirectional (bool, default: False): Whether each layer also runs backwards.
        proj_size (int, default: 0): For an LSTM, the size its states are projected to; 0 for none.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Raises:
        ValueError: another `mode`, or sizes that are not positive.

    Example:
        >>> from lucid import nn
        >>> nn.RNNBase("GRU", 3, 4)
        RNNBase(3, 4)
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if not isinstance(dropout, (int, float)) or isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise errors.ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being zeroed, "
                f"got {dropout}"
            )
        if dropout > 0 and num_layers == 1:
            warn(
                f"dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
                f"num_layers greater than 1, but got dropout={dropout} and num_layers={num_layers}"
            )
        kinds: list[tuple[str, Any, type]] = [("bias", bias, bool), ("batch_first", batch_first, bool)]
        kinds += [("input_size", input_size, int), ("hidden_size", hidden_size, int)]
        for name, given, kind in kinds:
            if not isinstance(given, kind):
                raise errors.TypeError(f"{name} should be of type {kind.__name__}, got: {type(given).__name__}")
        if input_size <= 0:
            raise errors.ValueError(f"input_size must be greater than zero, got {input_size}")
        if hidden_size <= 0:
            raise errors.ValueError(f"hidden_size must be greater than zero, got {hidden_size}")
        if num_layers <= 0:
            raise errors.ValueError(f"num_layers must be greater than zero, got {num_layers}")
        if proj_size < 0:
            raise errors.ValueError("proj_size should be a positive integer or zero to disable projections")
        if proj_size >= hidden_size:
            raise errors.ValueError(f"proj_size has to be smaller than hidden_size, got {proj_size} and {hidden_size}")
        if mode not in _GATES:
            raise errors.ValueError("Unrecognized RNN mode: " + mode)
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        directions, gates = 2 if bidirectional else 1, _GATES[mode] * hidden_size
        state = proj_size or hidden_size
        self._type_names: list[list[str]] = []
        for layer in range(num_layers):
            for direction in range(directions):
                size = input_size if layer == 0 else state * directions
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (gates, size), "weight_hh": (gates, state)}
                if bias:
                    shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                suffix = f"_l{layer}{'_reverse' if direction else ''}"
                for name, shape in shapes.items():
                    setattr(self, name + suffix, Parameter(lucid.empty(shape, device=device, dtype=dtype)))
                self._type_names.append([name + suffix for name in shapes])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new parameters."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Accepted and without effect: parameters need not be next to each other here."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._type_names]

    def _check(self, data: Tensor, hidden: tuple[Tensor, ...], count: int) -> None:
        if data.dtype != self.weight_ih_l0.dtype:
            own = self.weight_ih_l0.dtype
            raise errors.ValueError(
                f"RNN input dtype ({data.dtype}) does not match weight dtype ({own}). "
                f"Convert input: input.to({own}), or convert model: model.to({data.dtype})"
            )
        if data.shape[-1] != self.input_size:
            raise errors.RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {data.shape[-1]}"
            )
        layers = self.num_layers * (2 if self.bidirectional else 1)
        sizes = (self.proj_size or self.hidden_size, self.hidden_size)
        for i, (state, size) in enumerate(zip(hidden, sizes, strict=False)):
            if tuple(state.shape) != (layers, count, size):
                what = f"hidden[{i}]" if len(hidden) > 1 else "hidden"
                raise errors.RuntimeError(f"Expected {what} size ({layers}, {count}, {size}), got {list(state.shape)}")

    def forward(self, input: Any, hx: Any = None) -> Any:
        """Runs over sequences (L, N, in), (N, L, in) with `batch_first`, (L, in), or packed ones.

        `hx` is the first state (layers · directions, N, hidden), for an LSTM with the cell; zeros by default.
        Gives the last layer's states of all steps, and the last state (or pair).
        """
        lstm = self.mode == "LSTM"
        packed = isinstance(input, PackedSequence)
        alone = False
        order = unsorted = None
        if packed:
            data, batch_sizes, order, unsorted = input
            sizes = [int(n) for n in batch_sizes.tolist()]
            count = sizes[0]
        else:
            if input.dim() not in (2, 3):
                raise errors.ValueError(
                    f"{self._get_name()}: Expected input to be 2D or 3D, got {input.dim()}D instead"
                )
            alone = input.dim() == 2
            x = input.unsqueeze(1) if alone else (input.transpose(0, 1) if self.batch_first else input)
            length, count = x.shape[:2]
            if length == 0:
                raise errors.RuntimeError("Expected sequence length to be larger than 0 in RNN")
            data, sizes = x.reshape([length * count, x.shape[2]]), [count] * length
        if hx is None:
            layers = self.num_layers * (2 if self.bidirectional else 1)
            hidden = tuple(
                lucid.zeros((layers, count, size), dtype=data.dtype, device=data.device)
                for size in ((self.proj_size or self.hidden_size, self.hidden_size) if lstm else (self.hidden_size,))
            )
        else:
            hidden = tuple(hx) if lstm else (hx,)
            for state in hidden:
                wanted = 2 if alone else 3
                if not packed and state.dim() != wanted:
                    kind = "unbatched 2-D" if alone else "batched 3-D"
                    raise errors.RuntimeError(
                        f"For {kind} input, hx{' and cx' if lstm else ''} should also be {wanted}-D but got "
                        f"{state.dim()}-D tensor"
                    )
            if alone:
                hidden = tuple(state.unsqueeze(1) for state in hidden)
            if order is not None:
                hidden = tuple(state.index_select(1, order) for state in hidden)
        self._check(data, hidden, count)
        if count == 0:
            raise errors.RuntimeError(f"{self._get_name()}: a batch of no sequences has no steps to run")
        out, last = self._run(data, hidden, sizes)
        if unsorted is not None:
            last = [state.index_select(1, unsorted) for state in last]
        if packed:
            result: Any = PackedSequence(out, input.batch_sizes, order, unsorted)
        else:
            swaps, projected = self.batch_first and not alone, self.proj_size > 0
            result = over_steps(self.mode, out, sizes, self.bidirectional, projected, swaps, input)
            if alone:
                result, last = result.squeeze(1), [state.squeeze(1) for state in last]
        return result, (tuple(last) if lstm else last[0])

    def _run(self, x: Tensor, hidden: tuple[Tensor, ...], sizes: list[int]) -> tuple[Tensor, list[Tensor]]:
        """All layers over packed rows."""
        weights = []
        for names in self._type_names:
            own = [getattr(self, name) for name in names]
            biases = own[2:4] if self.bias else (None, None)
            weights.append((*own[:2], *biases, own[-1] if self.proj_size else None))
        dropout = self.dropout if self.training else 0.0
        return layers(self.mode, x, hidden, sizes, weights, self.bidirectional, dropout)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.proj_size != 0:
            text += f", proj_size={self.proj_size}"
        if self.num_layers != 1:
            text += f", num_layers={self.num_layers}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if self.batch_first is not False:
            text += f", batch_first={self.batch_first}"
        if self.dropout != 0:
            text += f", dropout={self.dropout}"
        if self.bidirectional is not False:
            text += f", bidirectional={self.bidirectional}"
        return text


class RNN(RNNBase):
    """`h' = tanh(W_ih x + b_ih + W_hh h + b_hh)`, or with relu, over sequences (Elman, 1990).

    Inputs are (L, N, input_size), (N, L, input_size) with `batch_first`, (L, input_size), or a `PackedSequence`. The
    first states (layers · directions, N, hidden_size) are zeros where they are not given. Gives the
    last layer's states of all steps, (L, N, directions · hidden_size), and the last states of all layers.

    Args:
        input_size (int): The number of features of each step's input.
        hidden_size (int): The number of features of the hidden state.
        num_layers (int, default: 1): Layers on top of each other.
        nonlinearity (str, default: "tanh"): "tanh" or "relu".
        bias (bool, default: True): Whether to add `bias_ih` and `bias_hh`.
        batch_first (bool, default: False): Whether sequences are (N, L, …) rather than (L, N, …).
        dropout (float, default: 0.0): The probability of dropping between layers, in training.
        bidirectional (bool, default: False): Whether each layer also runs backwards.
        proj_size (int, optional): Of an LSTM alone; an error here.
        device (lucid.device or str, optional): Where the parameters are made; the current default device by default.
        dtype (lucid.dtype, optional): Their dtype; the default dtype by default.

    Raises:
        ValueError: another `nonlinearity`, sizes that are not positive, or a `proj_size`.

    Example:
        >>> from lucid import nn
        >>> states, last = nn.RNN(3, 4)(lucid.zeros(5, 2, 3))
        >>> states.shape, last.shape
        (lucid.Size([5, 2, 4]), lucid.Size([1, 2, 4]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if proj_size is not None:
            raise errors.ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if nonlinearity not in ("tanh", "relu"):
            raise errors.ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        mode = f"RNN_{nonlinearity.upper()}"
        options = (num_layers, bias, batch_first, dropout, bidirectional)
        super().__init__(mode, input_size, hidden_size, *options, device=device, dtype=dtype)
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory over sequences (Hochreiter and Schmidhuber, 1997): gates `i, f, o = σ(…)`, `g = tanh(…)`,
    `c' = f c + i g`, `h' = o tanh(c')`.

    Inputs are (L, N, input_size), (N, L, input_size) with `batch_first`, (L, input_size), or a `PackedSequence`. The
    first states and cells (layers · directions, N, hidden_size) are zeros where they are not given. Gives the
    last layer's states of all steps, (L, N, directions · hidden_size), and the last states of all layers.

    Args:
        input_size (int): The number of features of each step's input.
        hidden_size (int): The number of features of the hidden state.
        num_layers (int, default: 1): Layers on top of each other.
        bias (bool, default: True): Whether to add `bias_ih` and `bias_hh`.
        batch_first (bool, default: False): Whether sequences are (N, L, …) rather than (L, N, …).
        dropout (float, default: 0.0): The probability of dropping between layers, in training.
        bidirectional (bool, default: False): Whether each layer also runs backwards.
        proj_size (int, default: 0): The size that states are projected to; 0 for none.
        device (lucid.device or str, optional): Where the parameters are made; the current default device by default.
        dtype (lucid.dtype, optional): Their dtype; the default dtype by default.

    Raises:
        ValueError: sizes that are not positive, `dropout` outside of 0 to 1, or a `proj_size` beyond `hidden_size`.

    Example:
        >>> from lucid import nn
        >>> states, (last, cells) = nn.LSTM(3, 4, bidirectional=True)(lucid.zeros(5, 2, 3))
        >>> states.shape, cells.shape
        (lucid.Size([5, 2, 8]), lucid.Size([2, 2, 4]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        options = (num_layers, bias, batch_first, dropout, bidirectional, proj_size)
        super().__init__("LSTM", input_size, hidden_size, *options, device=device, dtype=dtype)


class GRU(RNNBase):
    """Gated recurrent units over sequences (Cho et al., 2014): `r, z = σ(…)`,
    `n = tanh(W_in x + b_in + r (W_hn h + b_hn))`, `h' = (1 - z) n + z h`.

    Inputs are (L, N, input_size), (N, L, input_size) with `batch_first`, (L, input_size), or a `PackedSequence`. The
    first states (layers · directions, N, hidden_size) are zeros where they are not given. Gives the
    last layer's states of all steps, (L, N, directions · hidden_size), and the last states of all layers.

    Args:
        input_size (int): The number of features of each step's input.
        hidden_size (int): The number of features of the hidden state.
        num_layers (int, default: 1): Layers on top of each other.
        bias (bool, default: True): Whether to add `bias_ih` and `bias_hh`.
        batch_first (bool, default: False): Whether sequences are (N, L, …) rather than (L, N, …).
        dropout (float, default: 0.0): The probability of dropping between layers, in training.
        bidirectional (bool, default: False): Whether each layer also runs backwards.
        proj_size (int, optional): Of an LSTM alone; an error here.
        device (lucid.device or str, optional): Where the parameters are made; the current default device by default.
        dtype (lucid.dtype, optional): Their dtype; the default dtype by default.

    Raises:
        ValueError: sizes that are not positive, `dropout` outside of 0 to 1, or a `proj_size`.

    Example:
        >>> from lucid import nn
        >>> states, last = nn.GRU(3, 4, batch_first=True)(lucid.zeros(2, 5, 3))
        >>> states.shape, last.shape
        (lucid.Size([2, 5, 4]), lucid.Size([1, 2, 4]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if proj_size is not None:
            raise errors.ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        options = (num_layers, bias, batch_first, dropout, bidirectional)
        super().__init__("GRU", input_size, hidden_size, *options, device=device, dtype=dtype)


class RNNCellBase(Module):
    """What cells share: one step of a layer. Parameters `weight_ih`, `weight_hh`, `bias_ih`, `bias_hh`.

    Args:
        input_size (int): the number of features of the input.
        hidden_size (int): the number of features of the hidden state.
        bias (bool): learns an additive bias.
        num_chunks (int): how many gates the weights hold.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Example:
        >>> from lucid import nn
        >>> nn.RNNCellBase(3, 4, True, 1).weight_ih.shape
        lucid.Size([4, 3])
    """

    weight_ih: Parameter
    weight_hh: Parameter
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size

        def blank(*shape: int) -> Parameter:
            return Parameter(lucid.empty(shape, device=device, dtype=dtype))

        self.weight_ih = blank(rows, input_size)
        self.weight_hh = blank(rows, hidden_size)
        self.register_parameter("bias_ih", blank(rows) if bias else None)
        self.register_parameter("bias_hh", blank(rows) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new parameters, uniform within ±1/sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _batched(self, input: Tensor, states: tuple[Tensor, ...] | None, count: int) -> tuple[Tensor, list[Tensor]]:
        name = self._get_name()
        if input.dim() not in (1, 2):
            raise errors.ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        if states is not None and any(s.dim() not in (1, 2) for s in states):
            raise errors.ValueError(f"{name}: Expected hidden to be 1D or 2D, got {states[0].dim()}D instead")
        x = input.unsqueeze(0) if input.dim() == 1 else input
        if x.shape[1] != self.input_size:
            raise errors.RuntimeError(f"input has inconsistent input_size: got {x.shape[1]} expected {self.input_size}")
        if states is None:
            blank = lucid.zeros((x.shape[0], self.hidden_size), dtype=x.dtype, device=x.device)
            return x, [blank] * count
        made = [s.unsqueeze(0) if s.dim() == 1 else s for s in states]
        for state in made:
            if tuple(state.shape) != (x.shape[0], self.hidden_size):
                raise errors.RuntimeError(
                    f"hidden{tuple(state.shape)} does not fit an input of {x.shape[0]} rows and hidden_size "
                    f"{self.hidden_size}"
                )
        return x, made

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            text += f", nonlinearity={self.nonlinearity}"
        return text


class RNNCell(RNNCellBase):
    """One step of an `RNN`: (N, in) and (N, hidden), or without N, to (N, hidden).

    Args:
        input_size (int): the number of features of the input.
        hidden_size (int): the number of features of the hidden state.
        bias (bool, default: True): learns an additive bias.
        nonlinearity (str, default: "tanh"): "tanh" or "relu".
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Example:
        >>> from lucid import nn
        >>> nn.RNNCell(3, 4)(lucid.zeros(2, 3), lucid.zeros(2, 4)).shape
        lucid.Size([2, 4])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise errors.RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        x, (h,) = self._batched(input, None if hx is None else (hx,), 1)
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        with _C._Step(self.nonlinearity):
            out = _C.rnn_sequence(x, h, [x.shape[0]], *weights, self.nonlinearity)[1]
        return out.squeeze(0) if input.dim() == 1 else out


class LSTMCell(RNNCellBase):
    """One step of an `LSTM`: (N, in) and a pair of (N, hidden), or without N, to such a pair.

    Args:
        input_size (int): the number of features of the input.
        hidden_size (int): the number of features of the hidden state.
        bias (bool, default: True): learns an additive bias.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Example:
        >>> from lucid import nn
        >>> h, c = nn.LSTMCell(3, 4)(lucid.zeros(2, 3))
        >>> h.shape, c.shape
        (lucid.Size([2, 4]), lucid.Size([2, 4]))
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        x, (h, c) = self._batched(input, hx, 2)
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        with _C._Step("lstm_cell"):
            _, h, c = _C.lstm_sequence(x, h, c, [x.shape[0]], *weights)
        return (h.squeeze(0), c.squeeze(0)) if input.dim() == 1 else (h, c)


class GRUCell(RNNCellBase):
    """One step of a `GRU`: (N, in) and (N, hidden), or without N, to (N, hidden).

    Args:
        input_size (int): the number of features of the input.
        hidden_size (int): the number of features of the hidden state.
        bias (bool, default: True): learns an additive bias.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Example:
        >>> from lucid import nn
        >>> nn.GRUCell(3, 4)(lucid.zeros(2, 3)).shape
        lucid.Size([2, 4])
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        x, (h,) = self._batched(input, None if hx is None else (hx,), 1)
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        with _C._Step("gru_cell"):
            out = _C.gru_sequence(x, h, [x.shape[0]], *weights)[1]
        return out.squeeze(0) if input.dim() == 1 else out
