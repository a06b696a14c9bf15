"""Settings of the documentation's build: ``python -m nox -s docs``."""

project = "Pullback"
copyright = "2026, Pullback contributors"
extensions = ["myst_parser"]
exclude_patterns = ["_build"]
html_theme = "alabaster"
