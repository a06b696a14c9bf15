"""``pullback.autograd.profiler.profile``: start and end, options, results, and files."""

import copy
import logging
import pickle
import threading

import pytest
from pullback_profiler.record.recorder import Recorder

import pullback as pb
import pullback_profiler
from pullback.autograd import profiler, profiler_util
from pullback_profiler import autograd_profiler, profile, record_function
from pullback_profiler.record import recorder


def run(**options):
    with profile(**options) as p:
        x = pb.ones(4, requires_grad=True)
        x.exp().sum().backward()
    return p


def test_names_of_torch():
    assert profiler.profile is profile
    assert profiler.record_function is record_function
    for name in ("EventList", "FunctionEvent", "FunctionEventAvg", "Interval", "Kernel"):
        assert name in dir(profiler_util)
        assert getattr(profiler_util, name) is getattr(pullback_profiler, name)
    assert pb.profiler.profile is not profile
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        pb.profiler.nothing


def test_results_come_after_the_block():
    p = profile()
    with pytest.raises(RuntimeError, match="Profiler didn't finish running"):
        p.key_averages()
    assert repr(p) == str(p) == "<unfinished pullback.autograd.profile>"
    with p as entered:
        assert entered is p
        pb.ones(1)
        with pytest.raises(RuntimeError, match="didn't finish"):
            p.table()
    assert "pullback::ones" in str(p)
    assert repr(p).startswith("[<FunctionEvent")


def test_disabled():
    with profile(enabled=False, use_device="cuda") as p:
        pb.ones(1)
    assert (p.function_events, p.table(), p.key_averages()) == ([], "", [])
    assert p.self_cpu_time_total == 0


def test_used_once():
    p = run()
    with pytest.raises(RuntimeError, match="Profiler context manager is not reentrant"):
        p.__enter__()


def test_one_at_a_time_and_the_outer_one_goes_on():
    with profile() as outer:
        with pytest.raises(RuntimeError, match="a profiler is recording already"), profile():
            pass
        pb.ones(1)
    assert [e.name for e in outer.function_events] == ["pullback::ones"]
    assert run().function_events


def test_a_forgotten_profile_stands_in_nobodys_way():
    p = profile()
    p.__enter__()
    with pytest.raises(RuntimeError, match="recording already"):
        run()
    del p
    assert run().function_events


def test_a_device_whose_kernels_are_not_timed(timed_device, monkeypatch):
    assert profile(use_device=timed_device).use_device == timed_device
    monkeypatch.setattr(autograd_profiler, "times_kernels", lambda name: False)
    with pytest.warns(UserWarning, match=r"the backend of 'timed' has no mark\(\) and elapsed\(\)"):
        assert profile(use_device=timed_device).use_device == timed_device


def test_options_that_make_no_sense():
    with pytest.raises(ValueError, match="post_processing_timeout_s must be None or at least 0"):
        profile(post_processing_timeout_s=-1)
    with pytest.raises(AssertionError, match="use_cpu=False needs use_kineto=True"):
        profile(use_cpu=False)
    with pytest.warns(UserWarning, match="'gpu' is not a valid device option"):
        assert profile(use_device="gpu").use_device is None
    with pytest.warns(UserWarning, match="XPU is not available, disabling XPU profiling"):
        assert profile(use_device="xpu").use_device is None
    with pytest.warns() as caught:
        profile(use_cuda=True)
    assert "use_cuda is deprecated" in str(caught[0].message)
    assert caught[0].category is FutureWarning
    assert profile(use_device="cpu", use_cpu=False, use_kineto=True).use_device is None


def test_time_for_results_is_bounded(caplog):
    p = run(post_processing_timeout_s=0)
    with caplog.at_level(logging.WARNING, "pullback.profiler"):
        assert p.function_events == []
    assert "partial" in caplog.text
    assert len(run(post_processing_timeout_s=60).function_events) > 5


def test_paused():
    with profile() as p:
        pb.ones(1)
        p.toggle_collection_dynamic(False, [])
        pb.zeros(1)
        with record_function("unseen"):
            p.toggle_collection_dynamic(True, [])
        pb.ones(2)
    assert [e.name for e in p.function_events] == ["pullback::ones", "pullback::ones"]
    with pytest.raises(RuntimeError, match="is not running"):
        p.toggle_collection_dynamic(True)


def test_sums_and_table():
    p = run(profile_memory=True)
    averages = p.key_averages()
    assert sum(a.count for a in averages) == len(p.function_events)
    total = p.total_average()
    assert total.count == len(p.function_events)
    assert total.self_cpu_time_total == pytest.approx(p.self_cpu_time_total)
    text = p.table(sort_by="cpu_time_total", row_limit=2)
    assert len(text.splitlines()) == 3 + 2 + 2
    assert "CPU Mem" in text
    assert "Self CPU time total" in text
    with pytest.raises(ValueError, match="sort_by should be a number"):
        p.table(sort_by="name")


def test_grouping_by_shape_and_stack():
    with profile(record_shapes=True, with_stack=True) as p:
        for n in (2, 3, 2):
            pb.ones(n).exp()
    shapes = {str(a.input_shapes): a.count for a in p.key_averages(group_by_input_shape=True)}
    assert shapes["[[2]]"] == 2 and shapes["[[3]]"] == 1
    (exp,) = (a for a in p.key_averages(group_by_stack_n=1) if a.key == "pullback::exp")
    assert len(exp.stack) == 1 and "test_grouping_by_shape_and_stack" in exp.stack[0]


def test_stacks_as_lines(tmp_path):
    p = run(with_stack=True)
    p.export_stacks(tmp_path / "stacks.txt")
    line = (tmp_path / "stacks.txt").read_text().splitlines()[-1]
    frames, _, value = line.rpartition(" ")
    assert int(value) > 0 and frames.endswith("run")
    with pytest.raises(ValueError, match="metric should be one of"):
        p.export_stacks(tmp_path / "stacks.txt", "wall")
    with pytest.raises(AssertionError, match="requires with_stack=True"):
        run().export_stacks(tmp_path / "stacks.txt")


def test_trace_ids():
    assert len(run().trace_id) == 32 and int(run().trace_id, 16)
    assert run(custom_trace_id_callback=lambda: "mine").trace_id == "mine"


def test_profiles_of_many_threads_are_apart():
    """One profile records at a time; the others raise."""
    barrier, outcomes = threading.Barrier(4), []

    def work():
        barrier.wait()
        try:
            with profile() as p:
                pb.ones(1)
                barrier.wait()
            outcomes.append([e.name for e in p.function_events])
        except RuntimeError as error:
            barrier.wait()
            outcomes.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorded = [outcome for outcome in outcomes if isinstance(outcome, list)]
    assert recorded == [["pullback::ones"]]
    assert all("recording already" in o for o in outcomes if isinstance(o, str))


def test_the_device_is_waited_for_and_recording_ends_if_it_fails(monkeypatch):
    def fail(kind):
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(autograd_profiler, "synchronize_devices", fail)
    monkeypatch.setattr(autograd_profiler, "checked_device", lambda kind: kind)
    p = profile(use_device="cuda")
    with pytest.raises(RuntimeError, match="the device is gone"), p:
        pb.ones(1)
    assert [e.name for e in p.function_events] == ["pullback::ones"]
    assert run().function_events


def test_a_trace_id_that_cannot_be_had_leaves_nothing_recording():
    def fail():
        raise LookupError("no id")

    p = profile(custom_trace_id_callback=fail)
    with pytest.raises(LookupError, match="no id"):
        p.__enter__()
    assert run().function_events


def test_a_start_that_is_interrupted_leaves_nothing_recording(monkeypatch):
    class Interrupted:
        def __init__(self, **options):
            self.real = Recorder(**options)

        def start(self):
            self.real.start()
            raise KeyboardInterrupt

        def stop(self):
            self.real.stop()

    p = profile()
    with monkeypatch.context() as patch:
        patch.setattr(recorder, "Recorder", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            p.__enter__()
    assert run().function_events
    with p:  # it may try again
        pb.ones(1)
    assert [e.name for e in p.function_events] == ["pullback::ones"]


COPIES = pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))],
    ids=["copy", "deepcopy", "pickle"],
)


@COPIES
def test_copies_have_the_results(copied, tmp_path):
    p = run(
        with_stack=True,
        record_shapes=True,
        profile_memory=True,
        custom_trace_id_callback=lambda: "mine",
    )
    other = copied(p)
    assert other.table() == p.table()
    assert [e.stack for e in other.function_events] == [e.stack for e in p.function_events]
    assert other.trace_id == "mine"
    for number, each in enumerate((p, other)):
        each.export_chrome_trace(tmp_path / f"{number}.json")
    assert (tmp_path / "0.json").read_text() == (tmp_path / "1.json").read_text()


@COPIES
def test_one_that_records_is_not_copied_and_goes_on(copied):
    with profile() as p:
        with pytest.raises(RuntimeError, match="cannot be copied or pickled while it records"):
            copied(p)
        pb.ones(1)
    assert [e.name for e in p.function_events] == ["pullback::ones"]


@COPIES
def test_copies_of_unused_ones_record_for_themselves(copied):
    p = profile(record_shapes=True)
    with copied(p) as other:
        pb.ones(1).neg()
    assert other.function_events[1].input_shapes == [[1]]
    with p:
        pb.zeros(1)
    assert [e.name for e in p.function_events] == ["pullback::zeros"]


def test_threads_that_ask_at_once_get_one_result(monkeypatch):
    """The others ask while the first one makes the results, and wait for it."""
    p, found, asking = run(), [], threading.Barrier(3)
    post_process = autograd_profiler.post_process

    def ask():
        asking.wait()
        found.append(p.function_events)

    others = [threading.Thread(target=ask) for _ in range(2)]

    def post_process_meanwhile(*arguments):
        for other in others:
            if other.ident is None:
                other.start()
        asking.wait()
        return post_process(*arguments)

    monkeypatch.setattr(autograd_profiler, "post_process", post_process_meanwhile)
    found.append(p.function_events)
    for other in others:
        other.join()
    assert len(found) == 3
    assert all(events is found[0] for events in found)


def test_steps_of_optimizers_are_ranges():
    param = pb.ones(2, requires_grad=True)
    optimizer = pb.optim.RMSprop([param], foreach=False)
    param.grad = pb.ones(2)
    with profile() as found:
        optimizer.step()
        optimizer.zero_grad()
    names = [event.name for event in found.function_events]
    assert names[0] == "Optimizer.step#RMSprop.step"
    assert names[-1] == "Optimizer.zero_grad#RMSprop.zero_grad"
    step = found.function_events[0]
    assert "pullback::sqrt" in [child.name for child in step.cpu_children]


def test_notebooks_show_averages():
    with profile() as p:
        assert p._repr_html_() is None
        pb.ones(2).exp()
    shown = p._repr_html_()
    assert shown == p.key_averages().html(sort_by="self_cpu_time_total")
    assert "pullback::exp" in shown
