"""Concurrent forward and backward passes."""

import threading

import pytest

import pullback as pb


def run_threads(count, function):
    """Run ``function(i)`` in many threads together and return the errors they raised."""
    errors, barrier = [], threading.Barrier(count)

    def guarded(i):
        try:
            barrier.wait()
            function(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_no_contribution_to_a_shared_leaf_is_lost():
    x = pb.zeros(100, dtype=pb.float64, requires_grad=True)

    def work(i):
        for _ in range(200):
            (x * 2).sum().backward()

    assert run_threads(8, work) == []
    assert x.grad.tolist() == [8 * 200 * 2.0] * 100


def test_large_leaf_shared_by_threads():
    x = pb.zeros(50_000, dtype=pb.float64, requires_grad=True)

    def work(i):
        for _ in range(10):
            (x * (i + 1)).sum().backward()

    assert run_threads(4, work) == []
    assert x.grad[::9999].tolist() == [10.0 * (1 + 2 + 3 + 4)] * 6


def test_shared_graph_with_retain_graph():
    x = pb.ones(10, dtype=pb.float64, requires_grad=True)
    y = (x * x).exp().sum()
    (expected,) = pb.autograd.grad(y, x, retain_graph=True)

    def work(i):
        for _ in range(50):
            (g,) = pb.autograd.grad(y, x, retain_graph=True)
            assert g.tolist() == expected.tolist()

    assert run_threads(4, work) == []


def test_freeing_under_another_thread_raises_at_most():
    for _ in range(30):
        x = pb.ones(10, dtype=pb.float64, requires_grad=True)
        y = x
        for _ in range(10):
            y = (y * x).tanh()
        total = y.sum()
        errors = run_threads(4, lambda i, total=total: total.backward())
        assert all(isinstance(error, RuntimeError) for error in errors)
        assert all("a second time" in str(error) for error in errors)


def test_grad_and_backward_on_disjoint_graphs():
    results = [None] * 8

    def work(i):
        x = pb.full((20,), float(i), dtype=pb.float64, requires_grad=True)
        y = x
        for _ in range(50):
            y = y * 1.0 + x
        y.sum().backward()
        results[i] = x.grad.tolist()

    assert run_threads(8, work) == []
    assert results == [[51.0] * 20] * 8


def test_graph_built_in_one_thread_runs_in_another():
    x = pb.ones(3, requires_grad=True)
    y = (x * x).sum()
    assert run_threads(1, lambda i: y.backward()) == []
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


def test_each_thread_has_its_own_modes():
    def work(i):
        assert pb.is_grad_enabled()
        for _ in range(200):
            with pb.set_grad_enabled(i % 2 == 0):
                assert (pb.ones(1, requires_grad=True) * 2).requires_grad is (i % 2 == 0)

    with pb.no_grad():
        assert run_threads(4, work) == []


def test_saved_tensor_hooks_are_thread_local():
    packed = []
    with pb.autograd.graph.saved_tensors_hooks(lambda t: packed.append(1) or t, lambda t: t):
        errors = run_threads(2, lambda i: pb.ones(1, requires_grad=True).exp())
    assert errors == []
    assert packed == []


def test_error_in_one_thread_leaves_the_others_alone():
    x = pb.ones(3, dtype=pb.float64, requires_grad=True)

    def work(i):
        for _ in range(50):
            y = x * 2
            if i == 0:
                y.register_hook(lambda g: g[:1])
                with pytest.raises(RuntimeError, match="changed the size"):
                    y.sum().backward()
            else:
                y.sum().backward()

    assert run_threads(4, work) == []
    assert x.grad.tolist() == [3 * 50 * 2.0] * 3


def test_hooks_run_in_the_thread_that_called_backward():
    x, seen = pb.ones(1, requires_grad=True), []
    x.register_hook(lambda g: seen.append(threading.get_ident()))

    def work(i):
        (x * 2).backward()
        assert threading.get_ident() in seen

    assert run_threads(2, work) == []
    assert threading.get_ident() not in seen


def test_registering_hooks_while_others_run_backward():
    x, seen = pb.ones(1, requires_grad=True), []

    def work(i):
        for _ in range(100):
            if i == 0:
                x.register_hook(seen.append).remove()
            else:
                (x * 2).backward()

    assert run_threads(3, work) == []
    assert x.grad.tolist() == [400.0]


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("create_graph", [False, True])
def test_no_contribution_is_lost_where_a_gradient_is_made_or_replaced(create_graph):
    for _ in range(10):
        x = pb.ones(400_000, requires_grad=True)  # large: kernels let go of the lock

        def work(i, x=x):
            x.sum().backward(create_graph=create_graph)

        assert run_threads(4, work) == []
        assert x.grad.eq(4).all()
