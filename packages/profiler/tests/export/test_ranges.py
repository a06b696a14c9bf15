"""The text of a range, word by word."""

import pytest

from pullback_profiler.export.ranges import range_text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "aten::mm"),
        ({"sequence": -1}, "aten::mm"),
        ({"sequence": 0}, "aten::mm, seq = 0"),
        ({"sequence": 6}, "aten::mm, seq = 6"),
        ({"sequence": 6, "stashed": True}, "aten::mm, stashed seq = 6"),
        ({"sequence": -1, "stashed": True}, "aten::mm"),
        ({"sequence": 2**40}, "aten::mm, seq = 1099511627776"),
        ({"op_id": 0}, "aten::mm, op_id = 0"),
        ({"sizes": None}, "aten::mm"),
        ({"sizes": []}, "aten::mm"),
        ({"sizes": [[]]}, "aten::mm, sizes = [[]]"),
        ({"sizes": [[2, 3], [], [5]]}, "aten::mm, sizes = [[2, 3], [], [5]]"),
        ({"sizes": [[[2, 3], [4, 3]], []]}, "aten::mm, sizes = [[[2, 3], [4, 3]], []]"),
        ({"input_op_ids": []}, "aten::mm"),
        ({"input_op_ids": [(3, 0)]}, "aten::mm, input_op_ids = [(3,0)]"),
        (
            {"sequence": 6, "sizes": [[8, 16], [16, 4]]},
            "aten::mm, seq = 6, sizes = [[8, 16], [16, 4]]",
        ),
        (
            {"sequence": 1, "op_id": 7, "sizes": [[2]], "input_op_ids": [(3, 0), (5, 1)]},
            "aten::mm, seq = 1, op_id = 7, sizes = [[2]], input_op_ids = [(3,0), (5,1)]",
        ),
    ],
)
def test_text_of_a_range(arguments, expected):
    assert range_text("aten::mm", **arguments) == expected
