"""Functions of neural networks: activations, losses, dropout. Filled from the op table.

What has more arguments than an op may have is written in Python.
"""

from pullback._c.python.overridable import wrap as _wrap
from pullback._help import explain_names as _explain_names
from pullback.nn._attention import multi_head_attention_forward as multi_head_attention_forward

_wrap(globals(), ("multi_head_attention_forward",))
_explain_names(globals())
