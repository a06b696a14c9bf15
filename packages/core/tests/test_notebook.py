"""What notebooks show: ``_repr_html_`` of tensors and reports, as a browser would read it."""

from html.parser import HTMLParser

import pytest

import pullback as pb
from pullback._interop import notebook
from pullback.autograd import graph
from pullback.testing import compare_backends

VOID = ("br", "img")


class Page(HTMLParser):
    """The text of HTML, and the cells of its tables; tags that do not match are an error."""

    def __init__(self, html):
        super().__init__()
        self.open, self.text, self.rows = [], "", []
        self.feed(html)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def page(value):
    return Page(value._repr_html_())


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (lambda: pb.ones(2, 3), "2 x 3 · float32 · {device} · 24 bytes"),
        (lambda: pb.tensor(3, dtype=pb.int64), "scalar · int64 · {device} · 8 bytes"),
        (lambda: pb.ones(2, requires_grad=True), "2 · float32 · {device} · 8 bytes · requires"),
        (lambda: pb.ones(2, requires_grad=True).exp(), "8 bytes · ExpBackward0"),
        (lambda: pb.empty(1000, 1000, device="meta"), "1000 x 1000 · float32 · meta · 4,000,000"),
        (lambda: pb.nn.Parameter(pb.ones(1)), "1 · float32 · {device} · 4 bytes · requires grad"),
        (lambda: pb.ones(0, 3), "0 x 3 · float32 · {device} · 0 bytes"),
    ],
)
def test_tensor_shows_facts_above_its_text(make, facts):
    tensor = make()
    shown = page(tensor).text
    assert facts.format(device=pb.get_default_device()) in shown
    assert shown.endswith(repr(tensor))


def test_long_tensor_is_summarised():
    assert "..." in page(pb.arange(100_000)).text


def test_class_with_its_own_text_keeps_it():
    class Named(pb.Tensor):
        def __repr__(self):
            return "a tensor of mine"

    class Watched(pb.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise AssertionError("asked")

    class Plain(pb.Tensor):
        pass

    for kind in (Named, Watched):
        assert pb.ones(2).as_subclass(kind)._repr_html_() is None
    assert "Plain([1., 1.])" in page(pb.ones(2).as_subclass(Plain)).text


def test_batched_tensor_shows_its_text_alone():
    seen = []
    pb.vmap(lambda x: seen.append(x._repr_html_()) or x)(pb.ones(2, 3))
    assert seen == [None]


def test_looking_at_a_tensor_records_nothing():
    x = pb.ones(2, requires_grad=True)
    version = x._version
    x._repr_html_()
    assert (x.grad, x._version, x.is_leaf) == (None, version, True)


def test_text_is_escaped():
    assert Page(notebook.text("<b>&")).text == "<b>&"
    assert Page(notebook.table(["<i>"], [["&amp;"]])).rows == [["<i>"], ["&amp;"]]
    assert Page(notebook.folded("a<b", notebook.text("c"))).text == "a<bc"


def test_memory_ledger_is_a_table():
    x = pb.ones(1000, requires_grad=True)
    ledger = graph.memory(x.exp().sum())
    shown = page(ledger)
    assert ["Bytes", "op"] in shown.rows
    assert ["4.00 kB", "exp"] in [[size.strip(), name] for size, name in shown.rows] or (
        any(name.startswith("exp") for _, name in shown.rows)
    )
    for size, name in shown.rows:
        assert size.strip() in str(ledger)
        assert name in str(ledger)


def test_reports_show_their_text():
    x = pb.ones(2, requires_grad=True)
    reports = [
        graph.explain_grad(x, x.detach().sum()),
        graph.who_holds(x),
        compare_backends(pb.exp, pb.ones(2), devices=("ref", "ref")),
    ]
    for report in reports:
        assert page(report).text == str(report)


def test_compiled_function_lists_kernels():
    function = pb.compile(lambda x: (x * 2 + 1).exp().sum())
    function(pb.ones(100_000))
    explanation = function.explain()
    shown = page(explanation)
    kernels = [row[0] for row in shown.rows[1:]]
    assert len(kernels) == sum(len(p["launches"]) for p in explanation.programs) > 0
    for kernel, remark in shown.rows[1:]:
        assert kernel in str(explanation)
        assert remark in str(explanation)
    assert page(pb.compile(pb.exp).explain()).rows == []


def test_drawings_are_graphviz_text():
    function = pb.compile(lambda x: x * 2)
    function(pb.ones(2))
    x = pb.ones(2, requires_grad=True)
    for drawn in (function.to_dot(), graph.to_dot(x.exp())):
        assert drawn.startswith("digraph")
        picture = drawn._repr_svg_()
        assert picture is None or "<svg" in picture  # None without Graphviz
