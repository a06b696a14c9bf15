"""Recording: observers of the core, the records they write, and the events made of these.

``recorder`` records in C for profiles, ``python_observer`` calls Python functions while a program
runs, and ``post_process`` makes events of records. Nothing here shows or writes results: it imports
``events`` and, of the core, ``pullback.abi`` and ``pullback.backend``.
"""
