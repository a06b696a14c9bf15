"""The order of streams in backward, where a missing wait gives wrong numbers."""

import gc
import threading

import pytest
from async_device import EXTRA, MEMORY, address, current, forget, given, leaf, on, wait

import pullback as pb
from pullback.autograd.graph import (
    save_on_cpu,
    saved_tensors_hooks,
    set_warn_on_accumulate_grad_stream_mismatch,
)
from pullback.utils.checkpoint import checkpoint

# ---- the device itself


def test_value_of_another_stream_is_missing_without_a_wait():
    x = leaf(1.0, 2.0)
    with on(1):
        y = x * 3
    assert all(value != value for value in y.detach().tolist())
    wait(0, 1)
    assert y.detach().tolist() == [3.0, 6.0]


def test_memory_is_used_again_at_once_unless_a_stream_is_told_of():
    for declared, expected in ((False, [7.0, 7.0]), (True, [1.0, 2.0])):
        x = leaf(1.0, 2.0).detach()
        with on(1):
            y = x + 0
        if declared:
            x.record_stream(address(0, 1))
        del x
        z = pb.full((2,), 7.0, device="async")
        assert z.tolist() == [7.0, 7.0]
        wait(0, 1)
        assert y.tolist() == expected


# ---- backward


def test_node_runs_on_the_stream_of_its_forward():
    x = leaf(1.0, 2.0, 3.0)
    with on(1):
        y = x.exp()
    wait(2, 1)
    with on(2):
        z = y.sin()
    wait(0, 2)
    loss = z.sum()
    forget()
    loss.backward()
    assert [name for name in given(2) if isinstance(name, str)] == ["cos", "mul"]
    assert [name for name in given(1) if isinstance(name, str)] == ["mul"]
    assert given(0)[-1] == ("wait", address(0, 1))
    assert given(2)[0] == ("wait", address(0, 0))
    assert given(1)[0] == ("wait", address(0, 2))
    there = pb.tensor([1.0, 2.0, 3.0])
    assert pb.allclose(x.grad.cpu(), there.exp().cos() * there.exp())


def test_default_streams_wait_for_nothing():
    x = leaf(1.0, 2.0)
    y = (x * x).sum()
    forget()
    y.backward()
    assert not [name for name in given(0) if not isinstance(name, str)]
    assert x.grad.tolist() == [2.0, 4.0]


def test_graph_older_than_the_first_stream_is_of_the_default_one():
    x = leaf(1.0, 2.0)
    y = (x * x).sum()
    with on(3):
        y.backward()
        assert x.grad.tolist() == [2.0, 4.0]


def test_seed_is_the_callers():
    x = leaf(1.0, 2.0)
    y = x * 3
    with on(1):
        seed = pb.tensor([5.0, 7.0]).to("async") * 2
        y.backward(seed)
        assert x.grad.tolist() == [30.0, 42.0]


def test_captured_gradients_are_the_callers():
    x = leaf(1.0, 2.0)
    with on(1):
        y = x * 3
        z = (y * y).sum()
    grads = pb.autograd.grad(z, [x, y])
    assert [g.tolist() for g in grads] == [[18.0, 36.0], [6.0, 12.0]]


def test_caller_on_a_stream_of_its_own():
    x = leaf(1.0, 2.0)
    with on(1):
        y = (x * x).sum()
    wait(2, 1)
    with on(2):
        y.backward()
        assert current() == address(0, 2)
        assert x.grad.tolist() == [2.0, 4.0]


def test_gradients_of_several_streams_are_added():
    x = leaf(1.0, 2.0)
    base = x * 1
    parts = []
    for number in range(1, EXTRA + 1):
        wait(number, 0)
        with on(number):
            parts.append(base * number)
        wait(0, number)
    pb.stack(parts).sum().backward()
    assert x.grad.tolist() == [15.0, 15.0]


def test_leaf_of_several_streams():
    x = leaf(1.0, 2.0)
    for number in (1, 2):
        with on(number):
            y = (x * number).sum()
        wait(0, number)
        y.backward()
    assert x.grad.tolist() == [3.0, 3.0]
    with on(1):
        first = x * 4
    with on(2):
        second = x * 5
    wait(0, 1)
    wait(0, 2)
    (first + second).sum().backward()
    assert x.grad.tolist() == [12.0, 12.0]


def test_passes_on_several_streams_add_to_a_leaf_in_turn():
    x = leaf(1.0, 2.0)
    for number in (1, 0, 2, 1):
        with on(number):
            (x * float(number + 1)).sum().backward()
    wait(0, 1)
    assert x.grad.tolist() == [8.0, 8.0]


def test_streams_go_on_side_by_side():
    x = leaf(1.0, 2.0)
    base = x * 1
    left = base.sin()
    wait(1, 0)
    with on(1):
        right = base.cos()
    wait(0, 1)
    loss = (left * right).sum()
    forget()
    loss.backward()
    names = given(0)
    # The op that made `right` has run by then, on the other stream, without a wait.
    branch = names.index("cos")
    assert ("wait", address(0, 1)) not in names[:branch]
    assert ("wait", address(0, 1)) in names[branch:]
    there = pb.tensor([1.0, 2.0])
    assert pb.allclose(x.grad.cpu(), (2 * there).cos())


def test_output_of_many_on_several_streams():
    x = leaf(1.0, 2.0, 3.0, 4.0)
    parts = (x * 1).chunk(4)
    done = []
    for number, part in enumerate(parts):
        wait(number, 0)
        with on(number):
            done.append(part * (number + 1))
        wait(0, number)
    pb.cat(done).sum().backward()
    assert x.grad.tolist() == [1.0, 2.0, 3.0, 4.0]


def large(value):
    """Return a leaf of so many elements that products with it are added as they are computed."""
    made = pb.full((5000,), value).to("async").requires_grad_()
    forget()
    return made


def test_products_are_added_at_once_on_one_stream():
    x = large(3.0)
    for _ in range(2):
        with on(1):
            wait(1, 0)
            y = x * 5
            (y * y + y * 2).sum().backward()
        wait(0, 1)
    assert given(1).count("addcmul in one") == 3
    assert x.grad[:2].tolist() == [320.0, 320.0]


def test_products_of_another_stream_are_added_by_the_stream_of_the_sum():
    x = large(3.0)
    y = x * 5
    with on(1):
        wait(1, 0)
        second = (y * 2).sum()
    first = (y * 7).sum()
    wait(0, 1)
    forget()
    (first + second).backward()
    assert x.grad[:2].tolist() == [45.0, 45.0]


def test_products_of_another_stream_are_added_by_the_stream_of_the_leaf():
    x = large(3.0)
    kept = x * 1
    kept.sum().backward()
    with on(1):
        wait(1, 0)
        y = (x * 10).sum()
    wait(0, 1)
    forget()
    y.backward()
    assert x.grad[:2].tolist() == [11.0, 11.0]


def test_products_wait_for_what_another_stream_reads():
    x = large(3.0)
    y = x * 1
    with on(1):
        wait(1, 0)
        second = y * 2
    wait(0, 1)
    first = y * 7
    loss = (first * 3 + second * second).sum()
    forget()
    loss.backward()
    assert x.grad[:2].tolist() == [45.0, 45.0]


def test_sum_does_not_write_to_what_another_stream_reads():
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    b = x * 1
    c = b * 3
    with on(1):
        a = y * 2
    wait(0, 1)
    loss = (((a + b) + c) * 1).sum()
    forget()
    loss.backward()
    assert x.grad.tolist() == [4.0, 4.0]
    assert y.grad.tolist() == [2.0, 2.0]


def test_second_derivative():
    x = leaf(1.0, 2.0)
    with on(1):
        y = x * x * x
    wait(0, 1)
    (first,) = pb.autograd.grad(y.sum(), x, create_graph=True)
    with on(2):
        wait(2, 0)
        z = (first * first).sum()
    wait(0, 2)
    z.backward()
    assert first.detach().tolist() == [3.0, 12.0]
    assert x.grad.tolist() == [36.0, 288.0]


def test_hooks_are_on_the_nodes_stream():
    x = leaf(1.0, 2.0)
    seen = {}

    def note(name):
        return lambda *grads: seen.update({name: current()})

    with on(1):
        y = x * 3
    with on(2):
        wait(2, 1)
        z = y * 2
    wait(0, 2)
    y.register_hook(note("tensor"))
    z.grad_fn.register_hook(note("node"))
    x.register_post_accumulate_grad_hook(note("leaf"))
    z.sum().backward()
    assert seen == {"tensor": address(0, 1), "node": address(0, 2), "leaf": address(0, 1)}


def test_function_is_on_its_stream():
    class Double(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            where.append(current())
            with on(3):
                wait(3, 1)
                result = grad * 2
            wait(1, 3)
            return result

    where = []
    x = leaf(1.0, 2.0)
    with on(1):
        y = Double.apply(x)
    wait(0, 1)
    y.sum().backward()
    assert where == [address(0, 1)]
    assert x.grad.tolist() == [2.0, 2.0]


def test_stream_that_a_hook_leaves_current_is_taken_back():
    x = leaf(1.0, 2.0)
    y = x * 3
    y.register_hook(lambda grad: pb.backend.set_stream("async", address(0, 1)) and None)
    y.sum().backward()
    assert current() == address(0, 0)


def test_failure_gives_the_streams_back():
    def fail(grad):
        raise KeyError("no")

    x, y = leaf(1.0), leaf(2.0)
    with on(1):
        a = x * 3
    with on(2):
        b = y * 3
        b.register_hook(fail)
        a = a * 1
    wait(0, 1)
    wait(0, 2)
    with pytest.raises(KeyError):
        (b + a).sum().backward()
    assert current() == address(0, 0)
    x.grad = None
    with on(1):
        (x * 2).backward()
        assert x.grad.tolist() == [2.0]


def test_backward_inside_of_backward():
    x, other = leaf(1.0, 2.0), leaf(3.0)

    class Inner(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            with pb.enable_grad(), on(2):
                (other * other).sum().backward()
                inside.append(current())
            inside.append(current())
            return grad * 2

    inside = []
    with on(1):
        y = Inner.apply(x)
    wait(0, 1)
    y.sum().backward()
    assert inside == [address(0, 2), address(0, 1)]
    assert x.grad.tolist() == [2.0, 2.0]
    wait(0, 2)
    assert other.grad.tolist() == [6.0]


def test_gradient_left_by_an_inner_pass_is_the_outer_callers():
    x, other = leaf(1.0, 2.0), leaf(3.0)
    with on(2):
        square = (other * other).sum()

    def inner(grad):
        square.backward()

    with on(1):
        y = x * 2
    wait(0, 1)
    y.register_hook(inner)
    y.sum().backward()
    assert other.grad.tolist() == [6.0]


def test_gradient_left_by_an_inner_pass_whose_node_gives_none():
    class Nothing(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            square.backward()

    x, other = leaf(1.0, 2.0), leaf(3.0)
    with on(2):
        square = (other * other).sum()
    with on(1):
        y = Nothing.apply(x)
    wait(0, 1)
    y.sum().backward()
    assert other.grad.tolist() == [6.0]


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_is_on_the_nodes_stream(reentrant):
    where = []

    def part(x):
        where.append(current())
        return (x * x).sin()

    x = leaf(1.0, 2.0)
    with on(1):
        y = checkpoint(part, x, use_reentrant=reentrant)
    wait(0, 1)
    y.sum().backward()
    assert where == [address(0, 1)] * 2
    there = pb.tensor([1.0, 2.0])
    assert pb.allclose(x.grad.cpu(), (there * there).cos() * 2 * there)


def test_saved_tensors_hooks_are_on_the_nodes_stream():
    where = []

    def unpack(saved):
        where.append(current())
        return saved

    x = leaf(1.0, 2.0)
    with saved_tensors_hooks(lambda saved: saved, unpack), on(1):
        y = x * x
    wait(0, 1)
    y.sum().backward()
    assert set(where) == {address(0, 1)}
    assert x.grad.tolist() == [2.0, 4.0]


@pytest.mark.parametrize("pin_memory", [True, False])
def test_save_on_cpu(pin_memory):
    x = leaf(1.0, 2.0)
    with save_on_cpu(pin_memory=pin_memory), on(1):
        y = (x * 2) * (x * 3)
    wait(0, 1)
    y.sum().backward()
    assert x.grad.tolist() == [12.0, 24.0]
    del y
    forget()
    gc.collect()
    assert not MEMORY.pinned


def test_functional_transforms():
    x = leaf(1.0, 2.0).detach()

    def function(x):
        with on(1):
            wait(1, 0)
            y = x * x
        wait(0, 1)
        return (y * x).sum()

    assert pb.func.grad(function)(x).tolist() == [3.0, 12.0]
    rows = pb.func.vmap(pb.func.grad(function))(pb.stack([x, 2 * x]))
    assert rows.tolist() == [[3.0, 12.0], [12.0, 48.0]]


def test_threads_have_streams_of_their_own():
    x = leaf(1.0, 2.0)
    failures = []

    def work(number):
        try:
            for _ in range(5):
                with on(number):
                    wait(number, 0)
                    y = (x * number).sum()
                    y.backward()
                    assert current() == address(0, number)
            assert current() == address(0, 0)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    MEMORY.synchronize(0)


def test_leaf_on_another_stream_is_warned_of_once():
    set_warn_on_accumulate_grad_stream_mismatch(True)
    x = leaf(1.0, 2.0)
    with on(1):
        kept = x * 1
    with on(2):
        y = (x * 2).sum()
    wait(0, 2)
    with pytest.warns(UserWarning, match="another stream"):
        y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4.0, 4.0]
    assert kept.requires_grad


def test_leaf_on_several_streams_at_once_is_not_warned_of():
    set_warn_on_accumulate_grad_stream_mismatch(True)
    x = leaf(1.0, 2.0)
    parts = []
    for number in (1, 2, 3):
        with on(number):
            parts.append(x * number)
        wait(0, number)
    pb.stack(parts).sum().backward()
    assert x.grad.tolist() == [6.0, 6.0]


def test_warning_as_an_error_leaves_the_pass_usable():
    set_warn_on_accumulate_grad_stream_mismatch(True)
    x = leaf(1.0, 2.0)
    with on(1):
        kept = x * 1
    with on(2):
        y = (x * 2).sum()
    wait(0, 2)
    with pytest.raises(UserWarning):  # the tests make errors of warnings
        y.backward(retain_graph=True)
    assert current() == address(0, 0)
    y.backward()
    assert x.grad.tolist() == [2.0, 2.0]
    assert kept.requires_grad


@pytest.mark.parametrize("device", ["async", "ref"])
def test_streams_go_along_when_passes_nest_into_other_threads(device):
    """On the host a pass sets no stream: the caller's must be the current one all the same."""
    seen = []

    class Nest(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x, levels):
            ctx.save_for_backward(x)
            ctx.levels = levels
            return x * 2

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            if ctx.levels:
                with pb.enable_grad():
                    inner = x.detach().requires_grad_()
                    Nest.apply(inner, ctx.levels - 1).sum().backward()
            else:
                seen.append((threading.get_ident() == here, current()))
            return g * x, None

    here = threading.get_ident()
    wait(1, 0)
    with on(1):
        x = pb.tensor([1.0, 2.0]).to(device).requires_grad_()
        Nest.apply(x, 130).sum().backward()
        assert x.grad.tolist() == [1.0, 2.0]
    assert seen == [(False, address(0, 1))]
    assert current() == address(0, 0)
