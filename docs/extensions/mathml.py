"""Writes formulas as MathML, which browsers show without a script, also offline."""

from __future__ import annotations

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.writers.html5 import HTML5Translator


def visit_inline(writer: HTML5Translator, node: nodes.math) -> None:
    """Write a formula in a line of text."""
    writer.body.append(converted(node.astext(), as_block=False))
    raise nodes.SkipNode


def visit_block(writer: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula in a line of its own."""
    writer.body.append(f'<div class="math-block">{converted(node.astext(), as_block=True)}</div>\n')
    raise nodes.SkipNode


def converted(tex: str, as_block: bool) -> str:
    """Return a formula as MathML. Raises: ExtensionError for TeX that docutils does not know."""
    try:
        return tex2mathml(tex, as_block=as_block)
    except Exception as error:
        raise ExtensionError(f"the formula {tex!r} cannot be written as MathML: {error}") from error


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the writer to Sphinx."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
