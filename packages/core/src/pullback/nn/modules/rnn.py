"""Recurrent layers and cells: Elman networks, LSTM, GRU."""

from __future__ import annotations

import math
import numbers
import warnings

import pullback
from pullback.nn import functional as F
from pullback.nn import init
from pullback.nn.modules.module import Module
from pullback.nn.parameter import Parameter
from pullback.nn.utils.rnn import PackedSequence
from pullback.ops.nn.recurrent_layers import MODES, run_layers

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCell", "RNNCellBase"]


_HOST = ("cpu", "ref")


def _lowered_dtype(layer, data, is_packed):
    """Return the dtype that autocast lowers the operands of a whole layer to, or None.

    As in torch, where cuDNN's layers and oneDNN's LSTM are on the lists.
    """
    where = data.device.type
    if not pullback.is_autocast_enabled(where) or data.dtype == pullback.float64:
        return None
    if where in _HOST and (layer.mode != "LSTM" or layer.proj_size or is_packed):
        return None
    return pullback.get_autocast_dtype(where)


class RNNBase(Module):
    """What RNN, LSTM and GRU share: weights by layer and direction, checks, the loop over steps."""

    __constants__ = (
        *("mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout"),
        *("bidirectional", "proj_size"),
    )

    def __init__(
        self,
        mode,
        input_size,
        hidden_size,
        num_layers=1,
        bias=True,
        batch_first=False,
        dropout=0.0,
        bidirectional=False,
        proj_size=0,
        device=None,
        dtype=None,
    ):
        super().__init__()
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._check_sizes(dropout)
        out_size = proj_size or hidden_size
        gates = MODES[mode][1] * hidden_size
        options = {"device": device, "dtype": dtype}
        self._all_weights = []
        for layer in range(num_layers):
            size = input_size if layer == 0 else out_size * self._directions
            for direction in range(self._directions):
                shapes = {"weight_ih": (gates, size), "weight_hh": (gates, out_size)}
                if bias:
                    shapes.update(bias_ih=(gates,), bias_hh=(gates,))
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                suffix = f"_l{layer}" + "_reverse" * direction
                self._all_weights.append([name + suffix for name in shapes])
                for name, shape in shapes.items():
                    setattr(self, name + suffix, Parameter(pullback.empty(shape, **options)))
        self.reset_parameters()

    def _check_sizes(self, dropout):
        number = isinstance(dropout, numbers.Number) and not isinstance(dropout, bool)
        if not number or not 0 <= dropout <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an "
                "element being zeroed"
            )
        if dropout > 0 and self.num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero "
                f"dropout expects num_layers greater than 1, but got dropout={dropout} and "
                f"num_layers={self.num_layers}",
                stacklevel=3,
            )
        if not isinstance(self.hidden_size, int):
            raise TypeError(
                f"hidden_size should be of type int, got: {type(self.hidden_size).__name__}"
            )
        if self.hidden_size <= 0:
            raise ValueError("hidden_size must be greater than zero")
        if self.num_layers <= 0:
            raise ValueError("num_layers must be greater than zero")
        if self.proj_size < 0:
            raise ValueError(
                "proj_size should be a positive integer or zero to disable projections"
            )
        if self.proj_size >= self.hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")
        if self.mode not in MODES:
            raise ValueError("Unrecognized RNN mode: " + self.mode)

    @property
    def _directions(self):
        return 2 if self.bidirectional else 1

    @property
    def all_weights(self):
        """The parameters by layer and direction, a list each."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights_names(self):
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self):
        return [getattr(self, name) for name in self._flat_weights_names]

    @_flat_weights.setter
    def _flat_weights(self, weights):
        for name, weight in zip(self._flat_weights_names, weights, strict=True):
            if weight is not getattr(self, name):
                table = self._parameters if name in self._parameters else self.__dict__
                table[name] = weight

    def flatten_parameters(self):
        """Do nothing: weights may lie anywhere in memory."""

    def reset_parameters(self):
        """Draw all parameters again, uniform in (-k, k) with k = hidden_size ** -0.5."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self):
        text = f"{self.input_size}, {self.hidden_size}"
        for name, default in (
            *(("proj_size", 0), ("num_layers", 1), ("bias", True), ("batch_first", False)),
            *(("dropout", 0), ("bidirectional", False)),
        ):
            value = getattr(self, name)
            if value != default:
                text += f", {name}={value}"
        return text

    # ---- checks ----------------------------------------------------------------------------------

    def check_input(self, input, batch_sizes):
        """Raise unless an input has the layer's dtype, numbers of dims and size of features."""
        weight = self.weight_ih_l0
        is_cast = pullback.is_autocast_enabled(input.device.type)
        if input.dtype != weight.dtype and not is_cast:
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). "
                f"Convert input: input.to({weight.dtype}), or convert model: "
                f"model.to({input.dtype})"
            )
        dims = 2 if batch_sizes is not None else 3
        if input.dim() != dims:
            raise RuntimeError(f"input must have {dims} dimensions, got {input.dim()}")
        if input.size(-1) != self.input_size:
            raise RuntimeError(
                "input.size(-1) must be equal to input_size. Expected "
                f"{self.input_size}, got {input.size(-1)}"
            )

    def check_hidden_size(self, hx, expected, msg="Expected hidden size {}, got {}"):
        """Raise unless a state has the expected sizes."""
        if tuple(hx.size()) != expected:
            raise RuntimeError(msg.format(expected, list(hx.size())))

    def _check_state(self, state, input_dims, batched, rows):
        names = "hx and cx" if len(state) > 1 else "hx"
        dims = 3 if batched else 2
        if any(part.dim() != dims for part in state):
            kind = "batched 3-D" if batched else "unbatched 2-D"
            got = ", ".join(f"{part.dim()}-D" for part in state)
            got = f"({got}) tensors" if len(state) > 1 else f"{got} tensor"
            raise RuntimeError(f"For {kind} input, {names} should also be {dims}-D but got {got}")
        if not batched:
            state = tuple(part.unsqueeze(1) for part in state)
        layers = self.num_layers * self._directions
        sizes = (self.proj_size or self.hidden_size, self.hidden_size)
        for number, (part, size) in enumerate(zip(state, sizes, strict=False)):
            message = f"Expected hidden[{number}] size {{}}, got {{}}"
            if len(state) == 1:
                message = "Expected hidden size {}, got {}"
            self.check_hidden_size(part, (layers, rows, size), message)
        return state

    # ---- the call --------------------------------------------------------------------------------

    def _forward(self, input, state):
        """Run all layers; ``state`` is None or a tuple of tensors. Returns output and state."""
        if isinstance(input, PackedSequence):
            data, batch_sizes, order, back = input
            counts = batch_sizes.tolist()
            rows, batched = counts[0], True
        else:
            data, counts, order, back = input, None, None, None
            if data.dim() not in (2, 3):
                raise ValueError(
                    f"{self._get_name()}: Expected input to be 2D or 3D, got {data.dim()}D instead"
                )
            batched = data.dim() == 3
            if not batched:
                data = data.unsqueeze(1)
            elif self.batch_first:
                data = data.transpose(0, 1)
            rows = data.size(1)
        self.check_input(data, counts)
        if state is None:
            state = self._zero_state(rows, data)
        else:
            state = self._check_state(state, data.dim(), batched, rows)
            if order is not None:
                state = tuple(part.index_select(1, order) for part in state)
        lowered = _lowered_dtype(self, data, counts is not None)
        if lowered is not None:
            data, state = data.to(lowered), tuple(part.to(lowered) for part in state)
        data, last = self._run_layers(data, counts, state)
        if back is not None:
            last = tuple(part.index_select(1, back) for part in last)
        if counts is not None:
            return PackedSequence(data, input.batch_sizes, order, back), last
        if not batched:
            return data.squeeze(1), tuple(part.squeeze(1) for part in last)
        return (data.transpose(0, 1) if self.batch_first else data), last

    def _zero_state(self, rows, data):
        layers = self.num_layers * self._directions
        sizes = (self.proj_size or self.hidden_size, self.hidden_size)
        count = MODES[self.mode][2]
        return tuple(data.new_zeros((layers, rows, size)) for size in sizes[:count])

    def _run_layers(self, data, counts, state):
        """Return the outputs of the last layer and the last states of all layers."""
        weights = [
            {name.partition("_l")[0]: getattr(self, name) for name in names}
            for names in self._all_weights
        ]
        return run_layers(
            self.mode, data, counts, state, weights, self._directions, self.dropout, self.training
        )


class RNN(RNNBase):
    """Layers of h' = tanh(x @ weight_ih.T + bias_ih + h @ weight_hh.T + bias_hh). J. Elman (1990).

    Inputs are (steps, n, input_size), with ``batch_first`` (n, steps, input_size), without a batch
    (steps, input_size), or a PackedSequence; a first state is (layers * directions, n,
    hidden_size), by default zeros. Returns the outputs of the last layer (steps, n, directions *
    hidden_size) and the last state of every layer. ``nonlinearity`` is "tanh" or "relu",
    ``dropout`` that of the input of all layers but the first. Parameters begin uniform in (-k, k)
    with k = hidden_size ** -0.5.

    Raises: ValueError and RuntimeError for sizes that do not fit.

    >>> import pullback
    >>> output, state = pullback.nn.RNN(3, 4)(pullback.ones(5, 2, 3))
    >>> output.shape, state.shape
    (pullback.Size([5, 2, 4]), pullback.Size([1, 2, 4]))
    """

    def __init__(self, *args, **kwargs):
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        self.__dict__["nonlinearity"] = nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if len(args) > 3:
            self.__dict__["nonlinearity"] = nonlinearity = args[3]
            args = args[:3] + args[4:]
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(
                f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'."
            )
        super().__init__("RNN_" + nonlinearity.upper(), *args, **kwargs)

    def forward(self, input, hx=None):
        output, (last,) = self._forward(input, None if hx is None else (hx,))
        return output, last


class GRU(RNNBase):
    """Layers of gated recurrent units; inputs, states and arguments are those of RNN.

    r = sigmoid(W_ir x + b_ir + W_hr h + b_hr), z the same with W_iz and W_hz,
    n = tanh(W_in x + b_in + r * (W_hn h + b_hn)), h' = (1 - z) * n + z * h. The weights of r, z and
    n lie one below the other in weight_ih and weight_hh. K. Cho et al. (2014).

    >>> import pullback
    >>> output, state = pullback.nn.GRU(3, 4, bidirectional=True)(pullback.ones(5, 2, 3))
    >>> output.shape, state.shape
    (pullback.Size([5, 2, 8]), pullback.Size([2, 2, 4]))
    """

    def __init__(self, *args, **kwargs):
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)

    def forward(self, input, hx=None):
        output, (last,) = self._forward(input, None if hx is None else (hx,))
        return output, last


class LSTM(RNNBase):
    """Layers of long short-term memory; inputs and arguments are those of RNN, states pairs (h, c).

    i, f and o = sigmoid(W_i x + b_i + W_h h + b_h) and g = tanh(the same) with weights of their
    own, one below the other in the order i, f, g, o; c' = f * c + i * g, h' = o * tanh(c').
    ``proj_size`` multiplies h' by weight_hr (proj_size, hidden_size). S. Hochreiter and
    J. Schmidhuber (1997); H. Sak et al. (2014) for the projection.

    >>> import pullback
    >>> output, (h, c) = pullback.nn.LSTM(3, 4, num_layers=2)(pullback.ones(5, 2, 3))
    >>> output.shape, h.shape, c.shape
    (pullback.Size([5, 2, 4]), pullback.Size([2, 2, 4]), pullback.Size([2, 2, 4]))
    """

    def __init__(self, *args, **kwargs):
        super().__init__("LSTM", *args, **kwargs)

    def forward(self, input, hx=None):
        return self._forward(input, None if hx is None else (hx[0], hx[1]))


# ---- cells ---------------------------------------------------------------------------------------


class RNNCellBase(Module):
    """Weights and checks of a cell, which makes one step."""

    __constants__ = ("input_size", "hidden_size", "bias")

    def __init__(self, input_size, hidden_size, bias, num_chunks, device=None, dtype=None):
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        options = {"device": device, "dtype": dtype}
        self.weight_ih = Parameter(pullback.empty((rows, input_size), **options))
        self.weight_hh = Parameter(pullback.empty((rows, hidden_size), **options))
        for name in ("bias_ih", "bias_hh"):
            made = Parameter(pullback.empty(rows, **options)) if bias else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def extra_repr(self):
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            text += f", nonlinearity={self.nonlinearity}"
        return text

    def reset_parameters(self):
        """Draw all parameters again, uniform in (-k, k) with k = hidden_size ** -0.5."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _step(self, mode, input, state):
        name = self._get_name()
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        for number, part in enumerate(state or ()):
            if part.dim() not in (1, 2):
                which = f"hx[{number}]" if len(state) > 1 else "hidden"
                raise ValueError(
                    f"{name}: Expected {which} to be 1D or 2D, got {part.dim()}D instead"
                )
        batched = input.dim() == 2
        if not batched:
            input = input.unsqueeze(0)
            state = state and tuple(part.unsqueeze(0) for part in state)
        if input.size(1) != self.input_size:
            raise RuntimeError(
                f"input has inconsistent input_size: got {input.size(1)} expected {self.input_size}"
            )
        step, _, count = MODES[mode]
        if state is None:
            state = (input.new_zeros((input.size(0), self.hidden_size)),) * count
        for number, part in enumerate(state):
            if part.size(0) != input.size(0):
                raise RuntimeError(
                    f"Input batch size {input.size(0)} doesn't match hidden{number} batch size "
                    f"{part.size(0)}"
                )
            if part.size(1) != self.hidden_size:
                raise RuntimeError(
                    f"hidden{number} has inconsistent hidden_size: got {part.size(1)}, expected "
                    f"{self.hidden_size}"
                )
        given = F.linear(input, self.weight_ih, self.bias_ih)
        state = step(given, state, self.weight_hh, self.bias_hh)
        return state if batched else tuple(part.squeeze(0) for part in state)


class RNNCell(RNNCellBase):
    """One step of RNN: input (n, input_size) and state (n, hidden_size) give the next state.

    >>> import pullback
    >>> pullback.nn.RNNCell(3, 4)(pullback.ones(2, 3)).shape
    pullback.Size([2, 4])
    """

    __constants__ = ("input_size", "hidden_size", "bias", "nonlinearity")

    def __init__(
        self, input_size, hidden_size, bias=True, nonlinearity="tanh", device=None, dtype=None
    ):
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input, hx=None):
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        mode = "RNN_" + self.nonlinearity.upper()
        return self._step(mode, input, None if hx is None else (hx,))[0]


class GRUCell(RNNCellBase):
    """One step of GRU: input (n, input_size) and state (n, hidden_size) give the next state.

    >>> import pullback
    >>> pullback.nn.GRUCell(3, 4)(pullback.ones(2, 3)).shape
    pullback.Size([2, 4])
    """

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input, hx=None):
        return self._step("GRU", input, None if hx is None else (hx,))[0]


class LSTMCell(RNNCellBase):
    """One step of LSTM: input (n, input_size) and state (h, c) give the next state (h, c).

    >>> import pullback
    >>> h, c = pullback.nn.LSTMCell(3, 4)(pullback.ones(2, 3))
    >>> h.shape
    pullback.Size([2, 4])
    """

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input, hx=None):
        return self._step("LSTM", input, None if hx is None else tuple(hx))
