"""What observers receive: ops, nodes, ranges, changes of memory, and kernels that can be timed."""

import ctypes
import threading

import pytest

import pullback as pb
from pullback.backend import (
    attach_observer,
    begin_range,
    detach_observer,
    device_types,
    end_range,
    thread_number,
)

OP, NODE, RANGE, EVALUATION = range(4)


class Event(ctypes.Structure):
    """``pb_event`` of abi.h."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("kind", ctypes.c_int32),
        ("name", ctypes.c_char_p),
        ("sequence", ctypes.c_int64),
        ("forward_thread", ctypes.c_uint64),
        ("thread", ctypes.c_uint64),
        ("id", ctypes.c_uint64),
        ("object", ctypes.c_void_p),
        ("ninput", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("device_type", ctypes.c_int32),
        ("inputs", ctypes.POINTER(ctypes.c_void_p)),
        ("backend", ctypes.c_void_p),
        ("describe", ctypes.c_void_p),
    )


TOLD_EVENT = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Event))
TOLD_MEMORY = ctypes.PYFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_int64
)


class Struct(ctypes.Structure):
    """``pb_observer`` of abi.h."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("self", ctypes.c_void_p),
        ("begin", TOLD_EVENT),
        ("end", TOLD_EVENT),
        ("memory", TOLD_MEMORY),
    )


class Observer:
    """Writes down its notifications; a context manager that attaches it."""

    def __init__(self, log=None, name=""):
        self.log = [] if log is None else log
        self.name = name
        self.memory = []
        self.struct = Struct(
            ctypes.sizeof(Struct),
            None,
            TOLD_EVENT(lambda _, event: self.write("begin", event.contents)),
            TOLD_EVENT(lambda _, event: self.write("end", event.contents)),
            TOLD_MEMORY(lambda _, kind, device, data, delta: self.memory.append((kind, delta))),
        )
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self.capsule = new(ctypes.addressof(self.struct), b"pb_observer", None)

    def write(self, what, event):
        self.log.append(
            (self.name + what, event.kind, event.name.decode(), event.sequence, event.id)
        )

    def __enter__(self):
        attach_observer(self.capsule)
        return self

    def __exit__(self, *error):
        detach_observer(self.capsule)

    def begun(self):
        return [entry[1:3] for entry in self.log if entry[0] == "begin"]


def assert_nested(log):
    """Every end belongs to the last event that has begun and has not ended."""
    open_ids = []
    for what, *_, number in log:
        if what == "begin":
            assert number not in open_ids
            open_ids.append(number)
        else:
            assert open_ids.pop() == number
    assert open_ids == []


def test_nobody_is_told_of_nothing():
    assert begin_range("alone") == 0
    end_range(0)


def test_ops_and_nodes_are_told_in_order():
    x = pb.ones(3, requires_grad=True)
    with Observer() as observer:
        (x * x).sum().backward()
    assert_nested(observer.log)
    assert observer.begun()[:3] == [(OP, "mul"), (OP, "sum"), (OP, "ones_like")]
    assert (EVALUATION, "MulBackward0") in observer.begun()
    assert observer.begun().index((EVALUATION, "MulBackward0")) + 1 == observer.begun().index(
        (NODE, "MulBackward0")
    )
    assert observer.begun()[-2:] == [(EVALUATION, "AccumulateGrad"), (NODE, "AccumulateGrad")]


def test_an_op_has_the_sequence_number_of_its_node():
    x = pb.ones(3, requires_grad=True)
    with Observer() as observer:
        x.exp().backward(pb.ones(3))
        with pb.no_grad():
            x.sin()
        (x > 0).logical_not()
    numbers = {name: sequence for _, _, name, sequence, _ in observer.log}
    assert numbers["exp"] == numbers["ExpBackward0"] >= 0
    assert numbers["sin"] == numbers["gt"] == numbers["logical_not"] == -1


def test_composites_hold_their_parts():
    x = pb.ones(3, 4, requires_grad=True)
    with Observer() as observer:
        pb.nn.functional.mse_loss(x, pb.zeros(3, 4))
    names = [name for _, name in observer.begun()]
    assert names.count("mse_loss") == 1
    assert_nested(observer.log)


def test_in_place_ops_and_out_are_told_once_each():
    x, out = pb.ones(3), pb.empty(3)
    with Observer() as observer:
        x.mul_(2)
        pb.add(x, x, out=out)
    names = [name for _, name in observer.begun()]
    assert names == ["mul_", "add"]


def test_events_end_after_exceptions():
    def fail(grad):
        raise ValueError("hook")

    x = pb.ones(3, requires_grad=True)
    y = x.exp()
    y.register_hook(fail)
    with Observer() as observer:
        with pytest.raises(RuntimeError):
            pb.ones(2, 3) @ pb.ones(2, 3)
        with pytest.raises(ValueError, match="hook"):
            y.sum().backward()
    assert_nested(observer.log)
    assert (EVALUATION, "ExpBackward0") in observer.begun()


def test_observer_that_comes_and_goes_in_the_middle():
    observer = Observer()
    x = pb.ones(3, requires_grad=True)
    y = x.exp()
    y.register_hook(lambda grad: attach_observer(observer.capsule))
    x.register_hook(lambda grad: detach_observer(observer.capsule))
    y.sum().backward()
    assert (NODE, "ExpBackward0") in observer.begun()
    assert observer.log[-1][:3] == ("begin", EVALUATION, "AccumulateGrad")
    assert pb.allclose(x.grad, x.exp())


def test_ranges_carry_their_name():
    with Observer() as observer:
        number = begin_range("größer", "args")
        assert number > 0
        pb.ones(2) + 1
        end_range(number)
    assert observer.log[0][1:3] == (RANGE, "größer")
    assert observer.log[0][-1] == observer.log[-1][-1] == number
    with pytest.raises(TypeError):
        begin_range(3)


def test_several_observers_hear_the_same():
    log = []
    with Observer(log, "a "), Observer(log, "b "):
        pb.ones(2).neg()
    whats = [(what, name) for what, _, name, _, _ in log if name == "neg"]
    assert whats == [("a begin", "neg"), ("b begin", "neg"), ("b end", "neg"), ("a end", "neg")]
    assert begin_range("gone") == 0


def test_attaching_is_checked():
    observer = Observer()
    with pytest.raises(TypeError, match="'capsule' must be a PyCapsule named 'pb_observer'"):
        attach_observer(observer)
    with pytest.raises(RuntimeError, match="not attached"):
        detach_observer(observer.capsule)
    with observer, pytest.raises(RuntimeError, match="attached already"):
        attach_observer(observer.capsule)
    many = [Observer() for _ in range(17)]
    try:
        with pytest.raises(RuntimeError, match="16 observers"):
            for each in many:
                attach_observer(each.capsule)
        assert begin_range("many") > 0
    finally:
        for each in many[:16]:
            detach_observer(each.capsule)


def test_memory_is_told_by_device_type():
    kind = device_types().index(pb.get_default_device().type)
    with Observer() as observer:
        x = pb.empty(250)
        del x
    assert observer.memory == [(kind, 1000), (kind, -1000)]


def test_failed_allocations_are_notified():
    with Observer() as observer, pytest.raises(MemoryError):
        pb.empty(1 << 58, dtype=pb.uint8)
    assert observer.memory[-1][1] == 1 << 58


def test_threads_have_numbers():
    numbers = []

    class Threads(Observer):
        def write(self, what, event):
            numbers.append(event.thread)

    with Threads():
        pb.ones(2).neg()
        other = threading.Thread(target=lambda: (numbers.append(-1), pb.ones(2).neg()))
        other.start()
        other.join()
    here, there = numbers[: numbers.index(-1)], numbers[numbers.index(-1) + 1 :]
    assert set(here) == {thread_number()}
    assert len(set(there)) == 1 and set(there) != set(here)


def test_a_pass_through_writes_to_parts_copies_the_gradient_of_their_base_once():
    x, rows = pb.ones(64, 64, requires_grad=True), pb.ones(64, 64)
    base = x * 1
    for i in range(64):
        base[i].mul_(rows[i])
    with Observer() as observer:
        base.sum().backward()
    taken = sum(delta for _, delta in observer.memory if delta > 0)
    assert taken < 8 * base.nbytes
