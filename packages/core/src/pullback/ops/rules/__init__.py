"""Rules and checks that entries of several families share, a module for each kind of argument.

Dims, dtypes, shapes, operands and other arguments; dtypes of ``out=``; helpers of elementwise ops.
A check raises what torch raises; one that belongs to a single op stays in its entry's module.
"""
