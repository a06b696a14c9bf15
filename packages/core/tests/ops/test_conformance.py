"""Every op of the table on the default device: the suite that backends are proved with."""

from pullback.testing.suite import *
