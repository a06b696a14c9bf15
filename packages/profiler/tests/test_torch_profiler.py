"""``pullback.profiler.profile``: schedules, handlers, cycles."""

import copy
import gzip
import json
import pickle

import pytest

import pullback as pb
from pullback.profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)
from pullback_profiler import KinetoStepTracker
from pullback_profiler import profile as autograd_profile


def steps(p):
    return [e.trace_name for e in p.events() if e.is_user_annotation]


def train(p, count):
    for _ in range(count):
        pb.ones(2).exp()
        p.step()


def test_without_a_schedule_everything_is_recorded():
    calls = []
    with profile(on_trace_ready=calls.append) as p:
        train(p, 2)
    assert calls == [p]
    assert [e.name for e in p.events()] == ["pullback::ones", "pullback::exp"] * 2
    assert p.step_num == 2


def test_cycles():
    seen = []
    plan = schedule(wait=1, warmup=1, active=2, repeat=2, skip_first=1)
    with profile(schedule=plan, on_trace_ready=lambda p: seen.append(steps(p))) as p:
        train(p, 12)
    assert seen == [["ProfilerStep#3", "ProfilerStep#4"], ["ProfilerStep#7", "ProfilerStep#8"]]
    assert steps(p) == seen[-1]
    assert p.key_averages()[0].key == "ProfilerStep*"
    assert p.key_averages()[0].count == 2


def test_cycles_that_accumulate():
    with profile(schedule=schedule(wait=0, warmup=0, active=1), acc_events=True) as p:
        train(p, 3)
    assert steps(p) == [f"ProfilerStep#{n}" for n in range(4)]
    assert {a.key: a.count for a in p.key_averages()}["pullback::exp"] == 3


def test_ends_in_the_middle_of_a_cycle():
    calls = []
    plan = schedule(wait=0, warmup=0, active=5)
    with profile(schedule=plan, on_trace_ready=calls.append) as p:
        train(p, 2)
    assert len(calls) == 1
    assert steps(p) == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]


def test_nothing_recorded():
    with profile(schedule=schedule(wait=5, warmup=0, active=1)) as p:
        train(p, 2)
    assert p.profiler is None and p.get_trace_id() is None
    for call in (p.events, p.key_averages, lambda: p.export_chrome_trace("x")):
        with pytest.raises(RuntimeError, match="nothing has been recorded yet"):
            call()


def test_start_and_stop_by_hand():
    p = profile()
    with pytest.raises(RuntimeError, match="is not running"):
        p.step()
    p.start()
    with pytest.raises(RuntimeError, match="has started already"):
        p.start()
    pb.ones(1)
    p.stop()
    p.stop()
    assert [e.name for e in p.events()] == ["pullback::ones"]
    assert not KinetoStepTracker.erase_step_count("ProfilerStep")


def test_one_that_cannot_start_can_start_later():
    with profile() as first:
        second = profile()
        with pytest.raises(RuntimeError, match="recording already"):
            second.start()
        pb.ones(1)
    with second:
        pb.zeros(1)
    assert [e.name for e in first.events()] == ["pullback::ones"]
    assert [e.name for e in second.events()] == ["pullback::zeros"]


def test_inconsistent_schedules_warn():
    actions = [ProfilerAction.RECORD, ProfilerAction.NONE, ProfilerAction.RECORD_AND_SAVE]
    calls = []
    with profile(schedule=lambda n: actions[n], on_trace_ready=calls.append) as p:
        with pytest.warns(UserWarning, match="RECORD followed by NONE"):
            p.step()
        p.step()
        pb.ones(1)
    assert len(calls) == 1
    assert steps(p) == ["ProfilerStep#2"]


def test_bad_arguments():
    with pytest.raises(TypeError, match="schedule must be callable, got int"):
        profile(schedule=3)
    with pytest.raises(TypeError, match="on_trace_ready must be callable, got str"):
        profile(on_trace_ready="x")
    with pytest.raises(ValueError, match="at least one activity"):
        profile(activities=[])
    with pytest.raises(ValueError, match="ProfilerActivity or str, got int"):
        profile(activities=[3])
    with pytest.raises(ValueError, match="post_processing_timeout_s"):
        profile(post_processing_timeout_s=-1)
    with pytest.warns(FutureWarning, match="use_cuda is deprecated"):
        assert profile(use_cuda=False).activities == {"cpu"}


def test_activities():
    assert ProfilerActivity.CPU in supported_activities()
    assert ProfilerActivity.XPU not in supported_activities()
    with profile(activities=[ProfilerActivity.CPU]) as p:
        pb.ones(1)
    assert len(p.events()) == 1


def test_an_exception_ends_it():
    with pytest.raises(ZeroDivisionError), profile(schedule=schedule(wait=0, warmup=0, active=3)):
        1 / 0
    with profile() as p:
        pb.ones(1)
    assert len(p.events()) == 1


def test_handler_for_tensorboard(tmp_path):
    for use_gzip, opened in ((False, open), (True, gzip.open)):
        folder = tmp_path / f"traces {use_gzip}"
        handler = tensorboard_trace_handler(str(folder), "worker", use_gzip=use_gzip)
        with profile(on_trace_ready=handler):
            pb.ones(1)
        (path,) = folder.iterdir()
        assert path.name.startswith("worker.")
        assert path.name.endswith(".pt.trace.json" + (".gz" if use_gzip else ""))
        with opened(path, "rt") as file:
            assert json.load(file)["schemaVersion"] == 1
    (tmp_path / "file").write_text("")
    handler = tensorboard_trace_handler(str(tmp_path / "file" / "folder"))
    with (
        pytest.raises(RuntimeError, match="Can't create directory"),
        profile(on_trace_ready=handler),
    ):
        pass


def test_metadata(tmp_path):
    p = profile()
    p.preset_metadata_json("early", "[1]")
    with p:
        pb.ones(1)
        p.add_metadata("text", "value")
        p.add_metadata_json("json", '{"a": 1}')
        with pytest.raises(ValueError):
            p.add_metadata_json("bad", "{")
    p.export_chrome_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert (trace["text"], trace["json"], trace["early"]) == ("value", {"a": 1}, [1])


def test_trace_ids():
    p = profile()
    p.set_custom_trace_id_callback(lambda: "mine")
    with p:
        pass
    assert p.get_trace_id() == "mine"


def test_observer_of_execution():
    calls = []

    class Observer:
        def start(self):
            calls.append("start")

        def stop(self):
            calls.append("stop")

    with profile(execution_trace_observer=Observer()):
        pb.ones(1)
    assert calls == ["start", "stop"]


def test_paused():
    with profile() as p:
        p.toggle_collection_dynamic(False, [ProfilerActivity.CPU])
        pb.ones(1)
        p.toggle_collection_dynamic(True, [ProfilerActivity.CPU])
        pb.zeros(1)
    assert [e.name for e in p.events()] == ["pullback::zeros"]
    p.toggle_collection_dynamic(False)


class Observer:
    def __init__(self):
        self.calls = []

    def start(self):
        self.calls.append("start")

    def stop(self):
        self.calls.append("stop")


def test_a_handler_may_stop_the_profiler_between_two_steps():
    calls = []

    def handler(p):
        calls.append(p.step_num)
        p.stop()

    observer = Observer()
    plan = schedule(wait=0, warmup=0, active=1)
    p = profile(schedule=plan, on_trace_ready=handler, execution_trace_observer=observer)
    with p:
        p.step()
        with pytest.raises(RuntimeError, match="is not running"):
            p.step()
        with autograd_profile() as other:
            pb.ones(1)
    assert (calls, observer.calls) == ([1], ["start", "stop"])
    assert steps(p) == ["ProfilerStep#0"]
    assert [e.name for e in other.function_events] == ["pullback::ones"]


def test_a_cycle_that_cannot_start_ends_what_was_begun_for_it():
    observer = Observer()
    p = profile(execution_trace_observer=observer)
    with autograd_profile(), pytest.raises(RuntimeError, match="recording already"):
        p.start()
    assert observer.calls == ["start", "stop"]
    assert not KinetoStepTracker.erase_step_count("ProfilerStep")


def test_a_later_cycle_that_cannot_start_is_not_ended_again():
    def name():
        names.append("id")
        if len(names) == 2:
            raise LookupError("no id")
        return "id"

    names, handled, observer = [], [], Observer()
    with profile(
        schedule=schedule(wait=0, warmup=0, active=1),
        on_trace_ready=handled.append,
        custom_trace_id_callback=name,
        execution_trace_observer=observer,
        acc_events=True,
    ) as p:
        with pytest.raises(LookupError, match="no id"):
            p.step()
    assert observer.calls == ["start", "stop"] * 2
    assert handled == [p]
    assert steps(p) == ["ProfilerStep#0"]


def test_one_that_runs_is_not_copied():
    with profile() as p:
        with pytest.raises(RuntimeError, match="cannot be copied or pickled while it runs"):
            copy.copy(p)
        pb.ones(1)
    for other in (copy.copy(p), copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert [e.name for e in other.events()] == ["pullback::ones"]
