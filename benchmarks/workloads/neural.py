"""What neural networks are made of: convolutions, pooling, normalisation, attention, losses."""

from __future__ import annotations

from benchmarks.workloads.registry import FUSED_BUDGET, PRODUCT_BUDGET, Entry, leaf, table

CONV = "jax.lax.conv_general_dilated({}, {}, {}, {}, dimension_numbers=('NCHW', 'OIHW', 'NCHW'){})"


def make_operands(m, size):
    """Return images, filters, logits and attention's inputs."""
    edge, classes = size(64), size(1000)
    return {
        "im": m.randn(8, 16, edge, edge),
        "k3": m.randn(32, 16, 3, 3),
        "k1": m.randn(32, 16, 1, 1),
        "dw": m.randn(16, 1, 3, 3),
        "back": m.randn(16, 32, 3, 3),
        "s1": m.randn(8, 16, size(4096)),
        "w1": m.randn(32, 16, 5),
        "digits": m.randn(32, 1, 28, 28),
        "few": m.randn(8, 1, 3, 3),
        "logits": m.randn(256, classes),
        "target": m.randint(0, classes, (256,)),
        "q": m.randn(8, 8, size(128), 64),
        "weight": m.ones(16),
        "bias": m.zeros(16),
    }


table(
    "neural/convolution",
    make_operands,
    [
        Entry(
            "F.conv2d(im, k3, padding=1)",
            jax=CONV.format("im", "k3", "(1, 1)", "((1, 1),) * 2", ""),
        ),
        Entry("F.conv2d(im, k3)", jax=CONV.format("im", "k3", "(1, 1)", "'VALID'", "")),
        Entry("F.conv2d(im, k3, stride=2)", jax=CONV.format("im", "k3", "(2, 2)", "'VALID'", "")),
        Entry("F.conv2d(im, k1)", jax=CONV.format("im", "k1", "(1, 1)", "'VALID'", "")),
        Entry(
            "F.conv2d(im, dw, groups=16, padding=1)",
            jax=CONV.format("im", "dw", "(1, 1)", "((1, 1),) * 2", ", feature_group_count=16"),
        ),
        "F.conv2d(digits, few)",
        "F.conv1d(s1, w1)",
        "F.conv_transpose2d(im, back)",
    ],
)
table(
    "neural/pooling and resampling",
    make_operands,
    [
        "F.max_pool2d(im, 2)",
        "F.avg_pool2d(im, 2)",
        "F.adaptive_avg_pool2d(im, 1)",
        "F.interpolate(im, scale_factor=2, mode='bilinear')",
        "F.interpolate(im, scale_factor=2)",
        "F.unfold(im, 3)",
    ],
)
table(
    "neural/normalisation and losses",
    make_operands,
    [
        "F.batch_norm(im, None, None, weight, bias, True)",
        "F.group_norm(im, 4)",
        "F.cross_entropy(logits, target)",
        "F.nll_loss(logits, target)",
        "F.mse_loss(logits, logits + 1)",
        "F.dropout(logits, 0.5)",
        Entry("F.scaled_dot_product_attention(q, q, q)", budget=FUSED_BUDGET),
        Entry("F.linear(logits, logits)", jax="logits @ logits.T", budget=PRODUCT_BUDGET),
    ],
)


def small(m, size):
    """Layers on a handful of elements."""
    return {
        "im": m.randn(1, 2, 8, 8),
        "k3": m.randn(2, 2, 3, 3),
        "logits": m.randn(4, 10),
        "target": m.randint(0, 10, (4,)),
        "w": m.randn(16, 10),
        "scale": m.ones(10),
    }


table(
    "neural/tiny",
    small,
    [
        "F.conv2d(im, k3)",
        "F.max_pool2d(im, 2)",
        "F.linear(logits, w)",
        "F.layer_norm(logits, (10,), scale, scale)",
        "F.softmax(logits, 1)",
        "F.cross_entropy(logits, target)",
        "F.dropout(logits, 0.5)",
    ],
    alone=True,
)


def leaves(m, size):
    """The operands that have floats, as leaves."""
    names = ("im", "k3", "dw", "logits", "q")
    operands = make_operands(m, size)
    return {name: leaf(value) if name in names else value for name, value in operands.items()}


table(
    "neural/forward and backward",
    leaves,
    [
        "F.conv2d(im, k3, padding=1).square().sum()",
        "F.conv2d(im, dw, groups=16, padding=1).square().sum()",
        "F.max_pool2d(im, 2).square().sum()",
        "F.avg_pool2d(im, 2).square().sum()",
        "F.batch_norm(im, None, None, None, None, True).square().sum()",
        "F.cross_entropy(logits, target)",
        "F.interpolate(im, scale_factor=2, mode='bilinear').sum()",
        Entry("F.scaled_dot_product_attention(q, q, q).square().sum()", budget=FUSED_BUDGET),
    ],
    backward=True,
)


def make_sequences(m, size):
    """Return queries, keys or values of several lengths."""
    shapes = {
        "q256": (8, 8, size(256), 64),
        "q1024": (2, 8, size(1024), 64),
        "q4096": (1, 8, size(4096), 64),
        "small": (32, 4, size(32), 16),
    }
    return {name: m.randn(*shape) for name, shape in shapes.items()}


def make_sequence_leaves(m, size):
    """The same, as leaves."""
    return {name: leaf(value) for name, value in make_sequences(m, size).items()}


ATTENTION = [
    f"F.scaled_dot_product_attention({name}, {name}, {name}{options})"
    for name, options in (
        *(("q256", ""), ("q1024", ""), ("q4096", ""), ("small", "")),
        *(("q1024", ", is_causal=True"), ("small", ", is_causal=True")),
    )
]
table("neural/attention", make_sequences, ATTENTION, budget=FUSED_BUDGET)
table(
    "neural/attention, forward and backward",
    make_sequence_leaves,
    [f"{expression}.square().sum()" for expression in ATTENTION],
    budget=FUSED_BUDGET,
    backward=True,
)
