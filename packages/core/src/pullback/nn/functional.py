"""Functions of neural networks: activations, losses, dropout. Filled from the op table.

What has more arguments than an op may have is written in Python.
"""

from pullback.nn._attention import multi_head_attention_forward as multi_head_attention_forward


def __getattr__(name):
    from pullback._help.names import missing

    raise missing(__name__, name)
