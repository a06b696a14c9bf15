"""The directive ``autograd-graph``: runs its content, draws the graph behind the tensor ``result``.

    ```{autograd-graph}
    :caption: The graph of a product.

    x = pullback.ones(2, requires_grad=True)
    result = (x * x).sum()
    ```

Leaves are named as the variables are. Raises: ExtensionError where Graphviz's ``dot`` is missing.
"""

from __future__ import annotations

import shutil
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.ext.graphviz import figure_wrapper, graphviz
from sphinx.util.docutils import SphinxDirective


class AutogradGraph(SphinxDirective):
    """Draws the graph that some statements recorded, below the statements."""

    has_content = True
    option_spec: ClassVar = {"caption": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        import pullback

        code = "\n".join(self.content)
        names: dict[str, Any] = {"pullback": pullback, "pb": pullback}
        try:
            exec(code, names)
        except Exception as error:
            raise self.error(f"the code of a graph raised {error!r}") from error
        if "result" not in names:
            raise self.error("the code of a graph must assign 'result'")
        result = names.pop("result")
        tensors = {name: value for name, value in names.items() if hasattr(value, "grad_fn")}
        drawing = graphviz()
        drawing["code"] = str(pullback.autograd.graph.to_dot(result, names=tensors))
        drawing["options"] = {"docname": self.env.docname}
        drawing["alt"] = self.options.get("caption", "a graph")
        if "caption" in self.options:
            drawing = figure_wrapper(self, drawing, self.options["caption"])
        block = nodes.literal_block(code, code, language="python")
        return [block, drawing]


def require_dot(app: Sphinx) -> None:
    """Refuse a build without Graphviz. Raises: ExtensionError."""
    if shutil.which(app.config.graphviz_dot) is None:
        raise ExtensionError(
            f"the documentation draws graphs with Graphviz, and its program "
            f"{app.config.graphviz_dot!r} is not installed: on Debian and Ubuntu `apt install "
            "graphviz`, on macOS `brew install graphviz`"
        )


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive to Sphinx."""
    app.setup_extension("sphinx.ext.graphviz")
    app.add_directive("autograd-graph", AutogradGraph)
    app.connect("builder-inited", require_dot)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
