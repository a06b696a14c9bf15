"""Random programs give compiled what they give as they are, or run eagerly."""

import pytest


@pytest.fixture(scope="module")
def run(root):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(root / "tests" / "parity"))
        from fuzzer.compiled import run
    return run


@pytest.mark.parametrize("first", range(0, 450, 90))
def test_random_programs(run, first):
    ways = []
    for seed in range(first, first + 90):
        way, difference = run(seed)
        assert difference is None, f"seed {seed}: {difference}"
        ways.append(way)
    assert ways.count("replayed") > 60  # most can be


def test_a_difference_is_found(run, monkeypatch):
    """A function that is compiled to another one is different, in its results or gradients."""
    import pullback

    found = []
    for change in (lambda t: t * 1, lambda t: t.detach()):
        monkeypatch.setattr(
            pullback,
            "compile",
            lambda function, change=change: Changed(function, change),
        )
        found += [run(seed)[0] for seed in range(6)]
    assert found.count("different") > 6


class Changed:
    """A function whose results are changed; they are no views and no leaves any more."""

    def __init__(self, function, change):
        self.function, self.change, self.entries = function, change, [None]

    def __call__(self, *args):
        return tuple(self.change(-one) for one in self.function(*args))
