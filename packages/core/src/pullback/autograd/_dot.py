"""Graphs of nodes as Graphviz text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback._c.graph.node import Node
from pullback._c.graph.overrides import DisableTorchFunction
from pullback._c.graph.tensor import Tensor

_LEAF = 'shape=box, style=filled, fillcolor="#cfe8cf"'
_ROOT = 'shape=box, style=filled, fillcolor="#f5d9b8"'
_BOLD = 'color="#c0392b", penwidth=2'


class Dot(str):
    """Graphviz text; ``svg()`` draws it, and notebooks show the drawing."""

    __slots__ = ()

    def svg(self) -> str:
        """Return the drawing as SVG text.

        Raises: RuntimeError when the program ``dot`` of Graphviz is not installed, or fails.
        """
        import subprocess  # slow to import

        program = _program()
        if program is None:
            raise RuntimeError(
                "Dot.svg() needs the program 'dot' of Graphviz, which is not installed"
            )
        done = subprocess.run(
            [program, "-Tsvg"], input=self, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"Dot.svg(): dot failed: {done.stderr.strip()}")
        return done.stdout

    def _repr_svg_(self) -> str | None:
        return self.svg() if _program() else None


def _program():
    import shutil

    return shutil.which("dot")


def to_dot(tensors, names=None, *, highlight=()):
    r"""Return the graph behind a tensor (or several, or edges) as Graphviz text.

    Nodes are shown by name; leaves with shape and dtype, and by name if ``names`` (a dict of name
    to tensor) has them. Arrows have the direction of gradients. The nodes in ``highlight``, and the
    arrows between them, are drawn bold. The result is a str with a method ``svg()``.

    Raises: TypeError for anything but tensors and edges, and when ``highlight`` has anything but
    nodes; RuntimeError for a tensor without a history.

    >>> import pullback
    >>> x = pullback.ones(2, requires_grad=True)
    >>> print(pullback.autograd.graph.to_dot(x.exp(), names={"x": x}))
    digraph {
      n0 [label="ExpBackward0"];
      n1 [label="x\nfloat32 [2]", shape=box, style=filled, fillcolor="#cfe8cf"];
      r0 [label="output 0\nfloat32 [2]", shape=box, style=filled, fillcolor="#f5d9b8"];
      r0 -> n0;
      n0 -> n1;
    }
    """
    if names is not None and not isinstance(names, Mapping):
        raise TypeError(
            f"to_dot(): argument 'names' must be a dict of name to Tensor, not "
            f"{type(names).__name__}"
        )
    with DisableTorchFunction():
        roots = [_root(item) for item in _listed(tensors)]
        known = {id(tensor): name for name, tensor in (names or {}).items()}
        return draw(roots, known, highlight)


def draw(roots, known, highlight):
    """Return the graph behind roots, as (node, output number, description), as Graphviz text.

    ``known`` has names of leaves by id; ``highlight`` the nodes to draw bold.
    """
    bold = _bold(highlight)
    numbers, order = _numbered([node for node, _, _ in roots])
    lines = [
        f"  n{k} [{_look(node, known)}{f', {_BOLD}' if id(node) in bold else ''}];"
        for k, node in enumerate(order)
    ]
    for position, (node, nr, what) in enumerate(roots):
        lines.append(f"  r{position} [{_label(f'output {position}', what)}, {_ROOT}];")
        lines.append(f"  r{position} -> n{numbers[id(node)]}{_mark(nr)};")
    for k, node in enumerate(order):
        lines.extend(
            f"  n{k} -> n{numbers[id(below)]}{_mark(nr, {id(node), id(below)} <= bold)};"
            for below, nr in node.next_functions
            if below is not None
        )
    return Dot("\n".join(["digraph {", *lines, "}"]))


def _listed(tensors):
    from pullback.autograd.graph import GradientEdge

    if isinstance(tensors, Sequence) and not isinstance(tensors, (str, GradientEdge)):
        return tensors
    return [tensors]


def _root(item):
    """Return (node, output number, description) of a tensor or an edge."""
    from pullback.autograd.graph import GradientEdge, get_gradient_edge

    if isinstance(item, GradientEdge):
        return item.node, item.output_nr, "edge"
    if not isinstance(item, Tensor):
        raise TypeError(
            f"to_dot(): expected a Tensor, a GradientEdge or a sequence of them, got "
            f"{type(item).__name__}"
        )
    edge = get_gradient_edge(item)
    return edge.node, edge.output_nr, _kind(item)


def _bold(highlight):
    """Return the ids of nodes to highlight."""
    for node in highlight:
        if not isinstance(node, Node):
            raise TypeError(
                f"to_dot(): argument 'highlight' must have Nodes, not {type(node).__name__}"
            )
    return {id(node) for node in highlight}


def _numbered(roots):
    """Number all nodes reachable from the roots, without recursion."""
    numbers: dict[int, int] = {}
    order: list = []
    waiting = list(reversed(roots))
    while waiting:
        node = waiting.pop()
        if id(node) not in numbers:
            numbers[id(node)] = len(order)
            order.append(node)
            waiting.extend(below for below, _ in reversed(node.next_functions) if below is not None)
    return numbers, order


def _look(node, names):
    leaf = getattr(node, "variable", None)
    if leaf is None:
        return _label(node.name())
    return f"{_label(names.get(id(leaf), 'leaf'), _kind(leaf))}, {_LEAF}"


def _kind(tensor):
    return f"{str(tensor.dtype).rpartition('.')[2]} {list(tensor.shape)}"


def _label(*lines):
    text = "\\n".join(str(line).replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return f'label="{text}"'


def _mark(number, bold=False):
    marks = [f'label="{number}"'] * bool(number) + [_BOLD] * bold
    return f" [{', '.join(marks)}]" if marks else ""
