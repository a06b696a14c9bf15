"""Settings of the documentation's build: ``python -m nox -s docs``."""

import sys
from pathlib import Path

from docutils import nodes

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "Pullback"
copyright = "2026, Pullback contributors"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.graphviz",
    "sphinx_copybutton",
    "graph_drawings",
    "mathml",
    "op_navigation",
]
exclude_patterns = ["_build"]
nb_execution_mode = "cache"  # notebooks run, and again only when they change
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True
myst_heading_anchors = 3
myst_enable_extensions = ["deflist", "dollarmath"]

html_theme = "furo"
html_title = "Pullback"
html_static_path = ["static"]
html_css_files = ["pullback.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1b6b5a", "color-brand-content": "#1b6b5a"},
    "dark_css_variables": {"color-brand-primary": "#6fcfb5", "color-brand-content": "#6fcfb5"},
}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
graphviz_output_format = "svg"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures as people write them; types stand in the stubs
autodoc_preserve_defaults = True
nitpicky = True
nitpick_ignore_regex = [("py:class", r"collections\.abc\..*")]  # bases from the standard library


def setup(app):
    """Leave out the empty line with which doctest blocks end."""

    def strip(app, doctree):
        for block in doctree.findall(nodes.literal_block):
            text = block.astext().rstrip()
            if block.rawsource == block.astext():
                block.rawsource = text
            if len(block.children) == 1:
                block.children = [nodes.Text(text)]
                block.setup_child(block.children[0])

    app.connect("doctree-read", strip)
