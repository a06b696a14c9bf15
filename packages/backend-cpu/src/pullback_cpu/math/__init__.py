"""Functions of single numbers and of vector registers; no arrays here."""
