"""Ranges for other tools: their order and text, the rules of the contexts, missing libraries."""

import os
import subprocess
import sys
import textwrap
import threading

import pytest
from fake_observer import NODE, OP, RANGE, FakeObserver, training_step
from range_tools import run_program

from pullback_profiler.export import emit
from pullback_profiler.export.emit import emit_itt, emit_nvtx

EMITTERS = pytest.mark.parametrize(("emitter", "tool"), [(emit_nvtx, "NVTX"), (emit_itt, "ITT")])


class Lines:
    """A sink that keeps the ranges, with the depth on the calling thread."""

    def __init__(self):
        self.lines = []
        self.depth = threading.local()

    def push(self, text):
        depth = getattr(self.depth, "value", 0)
        self.lines.append("  " * depth + text)
        self.depth.value = depth + 1

    def pop(self):
        self.depth.value -= 1  # an AttributeError if this thread never pushed
        assert self.depth.value >= 0
        self.lines.append("  " * self.depth.value + "end")


@pytest.fixture
def observer(monkeypatch):
    made = FakeObserver()
    monkeypatch.setitem(sys.modules, "pullback_profiler.record.python_observer", made)
    monkeypatch.setattr(emit, "synchronize_devices", lambda: made.log.append(("synchronize",)))
    return made


@EMITTERS
def test_ranges_of_a_step(observer, emitter, tool):
    sink = Lines()
    with emitter(sink=sink):
        training_step(observer)
    assert sink.lines == [
        "step",
        "  pullback::matmul, seq = 6",
        "    pullback::mm, seq = 6",
        "    end",
        "  end",
        "  autograd::engine::evaluate_function: MmBackward0, seq = 6",
        "    MmBackward0, stashed seq = 6",
        "      pullback::mm, seq = 0",
        "      end",
        "    end",
        "  end",
        "  autograd::engine::evaluate_function: pullback::autograd::AccumulateGrad",
        "    pullback::autograd::AccumulateGrad",
        "    end",
        "  end",
        "end",
    ]


def test_ranges_with_sizes(observer):
    sink = Lines()
    with emit_nvtx(record_shapes=True, sink=sink):
        with observer.run(OP, "mm", 6, [[8, 16], [16, 4]]):
            pass
        with observer.run(NODE, "MmBackward0", 6, [[8, 4]]):
            pass
        with observer.run(RANGE, "mine", -1, []):
            pass
    assert sink.lines[::2] == [
        "pullback::mm, seq = 6, sizes = [[8, 16], [16, 4]]",
        "MmBackward0, stashed seq = 6, sizes = [[8, 4]]",
        "mine",
    ]
    assert observer.log[1] == ("attach", True, "all")


def test_ranges_of_real_ops_pair_forward_and_backward():
    import pullback

    x = pullback.ones(2, 3, requires_grad=True)
    sink = Lines()
    with emit_nvtx(record_shapes=True, sink=sink):
        x.exp().sum().backward()
    numbered = [line.strip() for line in sink.lines if "seq = " in line]
    first = int(numbered[0].split(",")[1].removeprefix(" seq = "))
    assert numbered == [
        f"pullback::exp, seq = {first}, sizes = [[2, 3]]",
        f"pullback::sum, seq = {first + 1}, sizes = [[2, 3], [], [], []]",
        f"autograd::engine::evaluate_function: SumBackward0, seq = {first + 1}, sizes = [[]]",
        f"SumBackward0, stashed seq = {first + 1}, sizes = [[]]",
        f"autograd::engine::evaluate_function: ExpBackward0, seq = {first}, sizes = [[2, 3]]",
        f"ExpBackward0, stashed seq = {first}, sizes = [[2, 3]]",
    ]
    assert "pullback::autograd::AccumulateGrad, sizes = [[2, 3]]" in map(str.strip, sink.lines)
    assert sink.depth.value == 0


@EMITTERS
def test_devices_are_waited_for_outside_of_the_recording(observer, emitter, tool):
    with emitter(sink=Lines()):
        observer.log.append(("body",))
    assert observer.log == [
        ("synchronize",),
        ("attach", False, "all"),
        ("body",),
        ("synchronize",),
        ("detach",),
    ]


def test_positional_arguments_are_torch_s():
    emitting = emit_nvtx(False, True)
    assert (emitting.enabled, emitting.record_shapes) == (False, True)


@EMITTERS
def test_disabled_context_does_nothing(observer, emitter, tool):
    sink = Lines()
    emitting = emitter(enabled=False, sink=sink)
    for _ in range(2):
        with emitting as entered:
            assert entered is emitting
            training_step(observer)
    assert sink.lines == [] and observer.log == []


@EMITTERS
def test_second_enter_is_refused_and_the_first_goes_on(observer, emitter, tool):
    sink = Lines()
    message = f"^{tool} annotation context manager is not reentrant$"
    with emitter(sink=sink) as emitting:
        for again in (emitting, emitter(sink=Lines())):
            with pytest.raises(RuntimeError, match=message):
                again.__enter__()
        with observer.run(OP, "add"):
            pass
    assert sink.lines == ["pullback::add", "end"]
    with pytest.raises(RuntimeError, match=message):
        emitting.__enter__()
    with emitter(sink=sink):
        pass
    assert observer.observers == {}


def test_nvtx_and_itt_go_together(observer):
    ours, theirs = Lines(), Lines()
    with emit_nvtx(sink=ours), emit_itt(sink=theirs):
        training_step(observer)
    assert ours.lines == theirs.lines != []


def test_exceptions_close_ranges_and_pass_through(observer):
    sink = Lines()
    with pytest.raises(KeyError, match="lost"), emit_nvtx(sink=sink):
        with observer.run(RANGE, "outer"), observer.run(RANGE, "inner"):
            raise KeyError("lost")
    assert sink.lines == ["outer", "  inner", "  end", "end"]
    assert observer.observers == {}


def test_ranges_left_open_are_closed_once_at_exit(observer):
    sink = Lines()
    outer, inner = observer.run(RANGE, "outer"), observer.run(RANGE, "inner")
    with emit_nvtx(sink=sink):
        outer.__enter__()
        inner.__enter__()
    assert sink.lines == ["outer", "  inner", "  end", "end"]
    inner.__exit__(None, None, None)
    outer.__exit__(None, None, None)
    assert sink.lines == ["outer", "  inner", "  end", "end"]


def test_range_that_the_sink_refused_is_not_popped(observer):
    class Refusing(Lines):
        def push(self, text):
            if text == "refused":
                raise MemoryError("no room")
            super().push(text)

    sink = Refusing()
    with emit_nvtx(sink=sink):
        with observer.run(RANGE, "outer"):
            ((begin, end, _),) = observer.observers.values()
            with pytest.raises(MemoryError):
                begin(RANGE, "refused", -1, 0, None)
            end()  # which the observer calls all the same
            with observer.run(RANGE, "inner"):
                pass
    assert sink.lines == ["outer", "  inner", "  end", "end"]


def test_each_thread_has_a_stack_of_its_own(observer):
    sink = Lines()
    inside, other_began = threading.Event(), threading.Event()

    def work():
        inside.wait()
        with observer.run(NODE, "worker", 3):
            other_began.set()

    thread = threading.Thread(target=work)
    thread.start()
    with emit_nvtx(sink=sink):
        with observer.run(RANGE, "caller"):
            inside.set()
            other_began.wait()
            thread.join()
            with observer.run(RANGE, "nested"):
                pass
    expected = ["caller", "worker, stashed seq = 3", "end", "  nested", "  end", "end"]
    assert sink.lines == expected


@EMITTERS
@pytest.mark.parametrize("part", ["attach", "synchronize"])
def test_failed_enter_leaves_nothing_behind(observer, monkeypatch, emitter, tool, part):
    def fail(*arguments):
        raise RuntimeError("the device is lost")

    with monkeypatch.context() as patch:
        if part == "attach":
            patch.setattr(observer, "attach", fail)
        else:
            patch.setattr(emit, "synchronize_devices", fail)
        with pytest.raises(RuntimeError, match="the device is lost"):
            emitter(sink=Lines()).__enter__()
    sink = Lines()
    with emitter(sink=sink):
        training_step(observer)
    assert len(sink.lines) == 16


def test_failed_wait_at_exit_still_ends_the_recording(observer, monkeypatch):
    def wait():
        if observer.observers:
            raise RuntimeError("a kernel failed")

    monkeypatch.setattr(emit, "synchronize_devices", wait)
    with pytest.raises(RuntimeError, match="a kernel failed"), emit_nvtx(sink=Lines()):
        pass
    assert observer.observers == {}
    monkeypatch.setattr(emit, "synchronize_devices", lambda: None)
    with emit_nvtx(sink=Lines()):  # the failed one no longer counts as active
        pass


@pytest.mark.parametrize(("emitter", "package"), [(emit_nvtx, "nvtx"), (emit_itt, "ittapi")])
def test_missing_library_is_named(observer, monkeypatch, emitter, package):
    monkeypatch.setitem(sys.modules, package, None)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=rf"{emitter.__name__} needs.*pip install {package}"):
            emitter().__enter__()
    assert observer.log == []
    with emitter(sink=Lines()):  # which needs no library
        pass


START = """
import sys
from fake_observer import OP, RANGE, FakeObserver, training_step
from pullback_profiler.export import emit
from pullback_profiler.export.emit import emit_itt, emit_nvtx
observer = sys.modules["pullback_profiler.record.python_observer"] = FakeObserver()
emit.synchronize_devices = lambda: None
"""


def test_nvtx_receives_exactly_the_ranges(nvtx_tool, tmp_path):
    program = START + "with emit_nvtx(record_shapes=True): training_step(observer)"
    events = nvtx_tool.run(program, tmp_path)
    assert {(event.thread, event.domain, event.payload) for event in events} == {
        (1, "pullback", "-")
    }
    assert [(event.kind, event.depth, event.name) for event in events] == [
        ("push", 0, "step"),
        ("push", 1, "pullback::matmul, seq = 6, sizes = [[8, 16], [16, 4]]"),
        ("push", 2, "pullback::mm, seq = 6, sizes = [[8, 16], [16, 4]]"),
        ("pop", 2, "-"),
        ("pop", 1, "-"),
        ("push", 1, "autograd::engine::evaluate_function: MmBackward0, seq = 6, sizes = [[8, 4]]"),
        ("push", 2, "MmBackward0, stashed seq = 6, sizes = [[8, 4]]"),
        ("push", 3, "pullback::mm, seq = 0, sizes = [[8, 4], [4, 16]]"),
        ("pop", 3, "-"),
        ("pop", 2, "-"),
        ("pop", 1, "-"),
        ("push", 1, "autograd::engine::evaluate_function: pullback::autograd::AccumulateGrad"),
        ("push", 2, "pullback::autograd::AccumulateGrad"),
        ("pop", 2, "-"),
        ("pop", 1, "-"),
        ("pop", 0, "-"),
    ]


def test_nvtx_threads_have_stacks_of_their_own(nvtx_tool, tmp_path):
    program = """
    import threading
    def work(number):
        for step in range(200):
            with observer.run(RANGE, f"outer {number}", step):
                with observer.run(RANGE, f"inner {number}", step):
                    pass
    with emit_nvtx():
        threads = [threading.Thread(target=work, args=[number]) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    """
    events = nvtx_tool.run(START + textwrap.dedent(program), tmp_path)
    threads = {event.thread for event in events}
    assert threads == {1, 2, 3}
    numbers = set()
    for thread in threads:
        own = [event for event in events if event.thread == thread]
        number = own[0].name.split(",")[0].split()[1]
        numbers.add(number)
        assert [(event.kind, event.depth, event.name) for event in own] == [
            line
            for step in range(200)
            for line in (
                ("push", 0, f"outer {number}, seq = {step}"),
                ("push", 1, f"inner {number}, seq = {step}"),
                ("pop", 1, "-"),
                ("pop", 0, "-"),
            )
        ]
    assert numbers == {"0", "1", "2"}


def test_nvtx_keeps_no_texts(nvtx_tool, tmp_path):
    program = """
    import nvtx
    with emit_nvtx():
        for number in range(500):
            with observer.run(OP, "mul", number):
                pass
    kept = type(nvtx.get_domain("pullback")).get_registered_string.cache_info().currsize
    assert kept == 0, kept
    """
    events = nvtx_tool.run(START + textwrap.dedent(program), tmp_path)
    assert [event.name for event in events[::2]] == [
        f"pullback::mul, seq = {number}" for number in range(500)
    ]


def test_nothing_is_observed_where_no_nvtx_tool_is_attached():
    pytest.importorskip("nvtx")
    program = """
    with emit_nvtx():
        assert observer.observers == {}
        training_step(observer)
    assert observer.log == [], observer.log
    """
    run_program(START + textwrap.dedent(program))


def test_itt_receives_exactly_the_tasks(itt_tool, tmp_path):
    program = START + "with emit_itt(record_shapes=True): training_step(observer)"
    events = itt_tool.run(program, tmp_path)
    assert {event.domain for event in events} == {"pullback"}
    assert [(event.kind, event.name) for event in events] == [
        ("push", "step"),
        ("push", "pullback::matmul, seq = 6, sizes = [[8, 16], [16, 4]]"),
        ("push", "pullback::mm, seq = 6, sizes = [[8, 16], [16, 4]]"),
        ("pop", "-"),
        ("pop", "-"),
        ("push", "autograd::engine::evaluate_function: MmBackward0, seq = 6, sizes = [[8, 4]]"),
        ("push", "MmBackward0, stashed seq = 6, sizes = [[8, 4]]"),
        ("push", "pullback::mm, seq = 0, sizes = [[8, 4], [4, 16]]"),
        ("pop", "-"),
        ("pop", "-"),
        ("pop", "-"),
        ("push", "autograd::engine::evaluate_function: pullback::autograd::AccumulateGrad"),
        ("push", "pullback::autograd::AccumulateGrad"),
        ("pop", "-"),
        ("pop", "-"),
        ("pop", "-"),
    ]


def test_itt_works_without_a_collector():
    pytest.importorskip("ittapi")
    run_program(START + "with emit_itt(): training_step(observer)\nassert len(observer.log) == 2")


@EMITTERS
def test_an_interrupted_enter_leaves_nothing_taken(observer, monkeypatch, emitter, tool):
    def interrupt():
        raise KeyboardInterrupt

    interrupted = emitter(sink=Lines())
    with monkeypatch.context() as patch:
        patch.setattr(interrupted._leave, "close", interrupt)  # an interrupt of what ends it
        patch.setattr(emit, "synchronize_devices", interrupt)
        with pytest.raises(KeyboardInterrupt):
            interrupted.__enter__()
    with emitter(sink=Lines()) as other:
        assert other.entered


@EMITTERS
def test_a_forgotten_context_ends(observer, emitter, tool):
    forgotten = emitter(sink=Lines())
    forgotten.__enter__()
    del forgotten
    sink = Lines()
    with emitter(sink=sink), observer.run(OP, "mul", 1, []):
        pass
    assert sink.lines == ["pullback::mul, seq = 1", "end"]


FORKED = """
import os
from pullback_profiler.export import emit

class Lines:
    def push(self, text): pass
    def pop(self): pass

with emit.emit_nvtx(sink=Lines()):
    child = os.fork()
    if child == 0:
        assert not emit._inside and not emit._taking.locked()
        with emit.emit_nvtx(sink=Lines()):
            pass
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    try:
        emit.emit_nvtx(sink=Lines()).__enter__()
    except RuntimeError as error:
        print(error)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked")
def test_a_forked_process_has_not_entered():
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True)
    shown = ["7", "NVTX annotation context manager is not reentrant"]
    assert (done.stdout.splitlines(), done.stderr) == (shown, "")
