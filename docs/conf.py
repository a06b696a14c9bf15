"""Settings of the documentation's build: ``python -m nox -s docs``."""

project = "Pullback"
copyright = "2026, Pullback contributors"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
html_theme = "alabaster"

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures as people write them; types stand in the stubs
autodoc_preserve_defaults = True
