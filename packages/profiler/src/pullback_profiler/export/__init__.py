"""A whole profile for other programs: traces, pages for a browser, ranges for NVTX and ITT.

``trace`` writes what chrome://tracing and Perfetto read, ``report`` and ``timeline`` fill the pages
in ``pages``, and ``emit`` pushes ranges while they run. Tables and files of lists of events are in
``events``. It imports ``record`` and ``events``.
"""
