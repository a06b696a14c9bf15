"""A whole profile for other programs: traces, pages for a browser, ranges for NVTX and ITT.

``trace`` writes what chrome://tracing and Perfetto read, ``report`` and ``timeline`` fill the pages
in ``pages``, and ``emit`` passes ranges on while they run. What a list of events shows of itself is
in ``events``. It imports ``record`` and ``events``.
"""
