"""Diagnostics of graphs and gradients, most of them names of ``autograd.graph``, used seldom.

A module is imported when one of its names is first used.

- ``explain_grad``: ``sites`` records the source lines of ops as ``records``, in which ``lineage``
  finds where history ends; ``paths`` finds what leads from a root to a tensor; ``probe`` measures
  the gradients along it; ``causes`` finds why one becomes zero, NaN or infinite at a node;
  ``explain`` and ``unreached`` choose the answer, in the words of ``describe``; ``explanation``
  lays it out.
- Memory: ``memory`` and ``walk`` list what a graph holds, ``peak`` and ``meta_formulas`` predict
  what a backward pass will need, ``holders`` finds what keeps a tensor's memory.
- Hooks: ``composed_hooks`` of saved tensors; ``per_sample`` gradients by ``batch_rules``.
- Anomaly detection: ``nonfinite`` checks results and gradients.
"""
