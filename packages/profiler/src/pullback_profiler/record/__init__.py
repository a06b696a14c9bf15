"""Recording: the core's observers, what they write down, and the events that become of it.

``_recorder`` records in C for profiles, ``_tap`` calls Python functions as things happen, and
``collect`` makes events of records. Nothing here shows or writes results: it imports ``events``
and, of the core, ``pullback.abi`` and ``pullback.backend``.
"""
