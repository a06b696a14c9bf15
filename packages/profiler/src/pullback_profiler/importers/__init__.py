"""Importers of other profilers' files: SQLite files of Nsight Systems and of nvprof.

An importer makes events of a foreign file. It imports ``events`` and nothing else of this package.
"""
