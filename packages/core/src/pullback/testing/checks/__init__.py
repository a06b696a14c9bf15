"""Checks of the conformance suite: each takes an op and a sample call, and raises AssertionError.

``basic`` has those of every op, and what the others share: ``compiled`` programs, ``corners`` that
no sample has, ``lazy`` operands, ``nesting`` of modes, and ``narrow``, derivatives on devices
without float64.
"""
