"""`lucid.nn.utils`: what is done to parameters, gradients, modules and sequences."""

from lucid.nn.utils import rnn

__all__ = ["rnn"]
