"""What programs do with parameters and sequences beside layers."""

from pullback.nn.utils import rnn

__all__ = ["rnn"]
