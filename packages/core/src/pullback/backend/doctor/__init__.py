"""``python -m pullback.backend doctor NAME``: what a device does, what it lacks, what to add first.

Each module examines one side of a device and returns findings; ``report.py`` runs all and shows
them. Nothing here is imported before somebody asks.
"""

from pullback.backend.doctor.findings import Finding
from pullback.backend.doctor.report import Report, examine, main

__all__ = ["Finding", "Report", "examine", "main"]
