"""What ``help``, ``dir`` and error messages tell of the names that there are, and are not."""
