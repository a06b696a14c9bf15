"""The conformance suite as users run it: options, expected failures, totals."""

import io
import json
import os
import threading

import pytest

import pullback as pb
from pullback._c.graph import levels
from pullback.ops import ENTRIES
from pullback.testing import Requirements
from pullback.testing.checks import basic as checks
from pullback.testing.modes import MODES, differentiable
from pullback.testing.reference import expect
from pullback.testing.runner import Totals, run_check
from pullback.testing.samples import samples_of
from pullback_pytest import SuiteTotals

pytest_plugins = ["pytester"]

SUITE = "from pullback.testing.suite import *\n"


@pytest.fixture
def suite(pytester, monkeypatch):
    """Run the suite on two ops in this process, with what a backend would say about itself."""

    def run(requirements, *options):
        pytester.makepyfile(SUITE)
        monkeypatch.setattr(
            "pullback.testing.requirements.requirements_of", lambda device: requirements
        )
        return pytester.runpytest_inprocess("-k", "value and (expm1 or log10)", *options)

    return run


def test_marked_tests_are_shared_out_too(pytester):
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.pullback_share
        @pytest.mark.parametrize("number", range(5))
        def test_one_of_many(number): pass

        def test_of_its_own(): pass
        """
    )
    for part, passed in enumerate((4, 3)):
        result = pytester.runpytest_inprocess("--pullback-share", f"{part}/2")
        result.assert_outcomes(passed=passed, deselected=6 - passed)


def test_all_pass_and_totals_are_shown(suite):
    result = suite(Requirements())
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*conformance*", "*value: 2 ops, * samples, 0 failures*"])


def test_totals_of_several_processes_add_up():
    processes = [SuiteTotals() for _ in range(2)]
    for process in processes:
        process.count("value", Totals(1, 5, []), False)
        process.count("value", Totals(1, 4, ["failed"]), True)
    shown = SuiteTotals()
    for process in processes:
        shown.add_plain(json.loads(json.dumps(process.as_plain())))
    assert str(shown.found["value"]) == "4 ops, 16 samples, 0 failures"
    assert shown.expected == {"value": 2}


def test_shares_of_the_ops_are_all_of_them_together(suite):
    found = [suite(Requirements(), "--pullback-share", f"{i}/2").parseoutcomes() for i in range(2)]
    assert sum(share.get("passed", 0) for share in found) == 2
    result = suite(Requirements(), "--pullback-share", "2/2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--pullback-share: expected a share such as 3/10*"])


def test_device_is_chosen(suite):
    assert suite(Requirements(), "--pullback-device", "ref").ret == 0


def test_unknown_device_is_an_error(suite):
    for names in ("ref,nonsense", ","):
        result = suite(Requirements(), "--pullback-device", names)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["*--pullback-device: expected names of devices (ref, cpu*"])


def test_several_devices_are_tested_and_counted_apart(suite, monkeypatch):
    monkeypatch.setenv("PULLBACK_PLUGINS", "off")
    result = suite(Requirements(), "-v", "--pullback-device", "ref, cuda,ref")
    result.assert_outcomes(passed=2, skipped=2)
    result.stdout.fnmatch_lines(["*test_op?ref-value-expm1? PASSED*", "*ref value: 2 ops, *"])


USERS = """
    import pytest
    import pullback as pb

    @pytest.fixture
    def made(pullback_device):
        return pb.zeros(2)

    def test_device(pullback_device, made):
        assert str(made.device) == str(pb.ones(1, device=pullback_device).device)
        assert pb.get_default_device() == pb.device(pullback_device)

    def test_plain():
        assert str(pb.get_default_device()) == DEFAULT
"""


@pytest.fixture
def users_tests(pytester, monkeypatch):
    """Run tests as a user writes them, where the plugins of all devices are left out."""
    monkeypatch.setenv("PULLBACK_PLUGINS", "off")
    pytester.makepyfile(USERS.replace("DEFAULT", repr(str(pb.get_default_device()))))
    return lambda *options: pytester.runpytest_inprocess("-v", "-rs", *options)


def test_the_fixture_is_the_default_device_without_the_option(users_tests):
    users_tests().assert_outcomes(passed=2)


def test_the_fixture_goes_through_the_devices(users_tests):
    result = users_tests("--pullback-device", "ref,meta")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*::test_device?ref? PASSED*", "*::test_device?meta? PASSED*"])


def test_a_device_that_cannot_be_used_is_skipped_with_the_reason(users_tests):
    result = users_tests("--pullback-device", "cuda")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*device 'cuda' cannot be used: *"])
    result = users_tests("--pullback-device", "ref,cuda", "--pullback-device-strict")
    result.assert_outcomes(passed=2, errors=1)


def test_a_test_may_choose_its_devices_itself(pytester):
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("pullback_device", ["meta"])
        def test_own(pullback_device):
            assert pullback_device == "meta"
        """
    )
    result = pytester.runpytest_inprocess("--pullback-device", "ref,meta")
    result.assert_outcomes(passed=1)


def test_marks_are_compared_by_the_names_of_parameters(pytester):
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("not_pullback_device", [1])
        def test_other_name(not_pullback_device, pullback_device):
            pass

        @pytest.mark.parametrize(argnames="n", argvalues=[1, 2])
        def test_keywords(n, pullback_device):
            pass

        @pytest.mark.parametrize("n, pullback_device", [(1, "meta")])
        def test_several_names(n, pullback_device):
            pass
        """
    )
    result = pytester.runpytest_inprocess("--pullback-device", "ref,meta")
    result.assert_outcomes(passed=2 + 4 + 1)


def test_device_with_another_index_is_an_error(pytester):
    result = pytester.runpytest_inprocess("--pullback-device", "cpu:x")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--pullback-device: expected names of devices (*'cpu:x'*"])


def test_other_peoples_tests_do_not_import_the_package(pytester):
    pytester.makepyfile(
        """
        import sys

        def test_nothing_is_imported():
            assert [name for name in sys.modules if name.split(".")[0] == "pullback"] == []
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_a_failure_shows_the_samples(suite, monkeypatch):
    monkeypatch.setattr(checks, "expect", lambda sample: 7 + expect(sample))
    result = suite(Requirements())
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*samples fail*", "*value of expm1 #0*"])


def test_an_expected_failure_must_fail(suite):
    result = suite(Requirements(expected_failures={"value:expm1": "a test of the suite"}))
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*expected to fail (a test of the suite), but every sample pas*"])


def test_expected_failures_are_named_by_op_or_by_check():
    found = Requirements(expected_failures={"sort": "slow", "grad:sort": "ties"})
    assert found.why_failing("grad", "sort") == "ties"
    assert found.why_failing("value", "sort") == "slow"
    assert found.why_failing("value", "add") is None


def test_missing_dtypes_are_left_out():
    every = run_check("value", ENTRIES["neg"])
    fewer = run_check("value", ENTRIES["neg"], without={"float64", "complex128"})
    assert 0 < fewer.samples < every.samples


def test_memory_shared_under_another_version_counter_is_seen():
    sample = next(samples_of(ENTRIES["unsafe_split"], pb.float32))
    with pytest.raises(AssertionError, match="writes to an argument"):
        checks.check_alias(sample)


def saves_copies():
    x = pb.ones(1, requires_grad=True) * 2
    return (x * x).grad_fn._saved_self.data_ptr() != x.data_ptr()


def is_checkpointed():
    runs = []
    x = pb.ones(1, requires_grad=True)
    differentiable(lambda x: (runs.append(1), x.exp())[1])(x).backward()
    return len(runs) == 2


def is_compiled():
    runs = io.StringIO()  # which compiled functions do not watch
    call = differentiable(lambda x: (runs.write("x"), x.exp())[1])
    for value in range(3):
        call(pb.full((1,), float(value)))
    return runs.getvalue() == "x"


SEEN = {
    "anomaly": pb.is_anomaly_enabled,
    "hooks": saves_copies,
    "thread": lambda: threading.current_thread() is not threading.main_thread(),
    "no-fallback": lambda: os.environ.get("PULLBACK_FALLBACK") == "error",
    "vmap": lambda: levels.level_count() == 1,
    "checkpoint": is_checkpointed,
    "compile": is_compiled,
}


def test_every_mode_is_looked_at():
    assert set(SEEN) == set(MODES) - {"plain"}


@pytest.mark.parametrize("mode", SEEN)
def test_mode_holds_while_a_check_runs(mode):
    seen = []
    assert not SEEN[mode]()
    MODES[mode](lambda: seen.append(SEEN[mode]()))
    assert seen == [True]
    assert not SEEN[mode]()


@pytest.mark.pullback_share
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("check", ["value", "grad", "inplace", "compiled"])
def test_ops_pass_under_modes(mode, check):
    for name in ("mul", "exp", "softmax", "sort", "cumsum"):
        found = run_check(check, ENTRIES[name], mode=mode)
        assert not found.failures


@pytest.mark.parametrize("mode", MODES)
def test_failures_are_seen_under_modes(mode):
    def fail():
        raise AssertionError("it fails")

    with pytest.raises(AssertionError, match="it fails"):
        MODES[mode](fail)


def test_mode_as_an_option(suite):
    result = suite(Requirements(), "--pullback-mode", "anomaly")
    assert result.ret == 0
