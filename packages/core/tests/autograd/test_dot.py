"""Graphs as Graphviz text."""

import re
import shutil

import pytest

import pullback as pb
from pullback.autograd.graph import get_gradient_edge, to_dot


def arrows(text):
    """The graph as pairs of labels."""
    labels = dict(re.findall(r'(\w+) \[label="([^"]*)"', text))
    return [(labels[a], labels[b]) for a, b in re.findall(r"(\w+) -> (\w+)", text)]


def test_nodes_and_leaves():
    x = pb.ones(2, requires_grad=True)
    y = pb.ones(2, 2, dtype=pb.float64, requires_grad=True)
    found = arrows(to_dot((x * y).sum(), names={"x": x, "y": y}))
    assert found == [
        (r"output 0\nfloat64 []", "SumBackward0"),
        ("SumBackward0", "MulBackward0"),
        ("MulBackward0", r"x\nfloat32 [2]"),
        ("MulBackward0", r"y\nfloat64 [2, 2]"),
    ]


def test_shared_nodes_are_drawn_once():
    x = pb.ones(2, requires_grad=True)
    y = x * 2
    text = to_dot([y * y, y + 1])
    assert text.count('label="MulBackward0"') == 2
    assert text.count("leaf") == 1
    assert len(arrows(text)) == 2 + 2 + 1 + 1


def test_numbers_of_outputs():
    x = pb.ones(2, requires_grad=True)
    assert 'r0 -> n0 [label="1"];' in to_dot(x.unbind()[1])
    assert to_dot(get_gradient_edge(x.unbind()[1])).startswith("digraph {")


def test_leaf_alone():
    assert arrows(to_dot(pb.ones(1, requires_grad=True))) == [
        (r"output 0\nfloat32 [1]", r"leaf\nfloat32 [1]")
    ]


def test_long_chain_does_not_recurse():
    y = pb.ones(1, requires_grad=True)
    for _ in range(20_000):
        y = y + 1
    assert to_dot(y).count("AddBackward0") == 20_000


def test_quotes_in_names():
    x = pb.ones(1, requires_grad=True)
    assert r'label="a\"b\\\nfloat32 [1]"' in to_dot(x * 2, names={'a"b\\': x})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((3,), TypeError, "expected a Tensor, a GradientEdge or a sequence of them, got int"),
        ((pb.ones(1),), RuntimeError, "It is not possible to get the gradient edge"),
        ((pb.ones(1, requires_grad=True), ["x"]), TypeError, "argument 'names' must be a dict"),
    ],
)
def test_wrong_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        to_dot(*arguments)


def test_svg_without_graphviz(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    drawing = to_dot(pb.ones(1, requires_grad=True))
    assert drawing._repr_svg_() is None
    with pytest.raises(RuntimeError, match="needs the program 'dot'"):
        drawing.svg()


def test_svg_comes_from_dot(monkeypatch, tmp_path):
    program = tmp_path / "dot"
    program.write_text('#!/bin/sh\nread first\n[ "$first" = \'digraph {\' ] && echo "<svg $1>"\n')
    program.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(program))
    assert to_dot(pb.ones(1, requires_grad=True)).svg() == "<svg -Tsvg>\n"


def test_dot_that_fails(monkeypatch, tmp_path):
    program = tmp_path / "dot"
    program.write_text("#!/bin/sh\necho no font >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(program))
    with pytest.raises(RuntimeError, match="dot failed: no font"):
        to_dot(pb.ones(1, requires_grad=True)).svg()


def test_highlighted_nodes_and_the_arrows_between_them():
    x, w = (pb.ones(1, requires_grad=True) for _ in range(2))
    y = x.exp() * w
    nodes = [y.grad_fn, y.grad_fn.next_functions[0][0]]
    bold = [line.split()[0] for line in to_dot(y, highlight=nodes).splitlines() if "pen" in line]
    assert bold == ["n0", "n1", "n0"]  # the two nodes, and the arrow from one to the other
    assert "pen" not in to_dot(y)
    with pytest.raises(TypeError, match="argument 'highlight' must have Nodes, not int"):
        to_dot(y, highlight=[1])
