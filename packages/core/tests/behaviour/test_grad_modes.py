"""``no_grad``, ``enable_grad`` and ``set_grad_enabled`` as contexts and decorators."""

import asyncio
import threading

import pytest

import pullback as pb

MODES = [
    pytest.param(lambda: pb.no_grad(), False, id="no_grad"),
    pytest.param(lambda: pb.enable_grad(), True, id="enable_grad"),
    pytest.param(lambda: pb.set_grad_enabled(False), False, id="set_grad_enabled-off"),
    pytest.param(lambda: pb.set_grad_enabled(True), True, id="set_grad_enabled-on"),
]


@pytest.fixture(params=[True, False], ids=["from-on", "from-off"])
def surrounding(request):
    """Run the test inside each of the two modes."""
    pb.set_grad_enabled(request.param)
    yield request.param
    assert pb.is_grad_enabled() is request.param
    pb.set_grad_enabled(True)


@pytest.mark.parametrize(("mode", "inside"), MODES)
def test_context_sets_and_restores(mode, inside, surrounding):
    with mode():
        assert pb.is_grad_enabled() is inside
        assert (pb.ones(1, requires_grad=True) * 2).requires_grad is inside
    assert pb.is_grad_enabled() is surrounding


@pytest.mark.parametrize(("mode", "inside"), MODES)
def test_context_restores_after_an_exception(mode, inside, surrounding):
    with pytest.raises(KeyError), mode():
        raise KeyError
    assert pb.is_grad_enabled() is surrounding


@pytest.mark.parametrize(("mode", "inside"), MODES)
def test_decorator_applies_to_each_call(mode, inside, surrounding):
    decorator = mode()
    pb.set_grad_enabled(surrounding)

    @decorator
    def function(a, *, b):
        """Documented."""
        if a == 0:
            raise KeyError
        return pb.is_grad_enabled(), a, b

    pb.set_grad_enabled(surrounding)
    assert function(1, b=2) == (inside, 1, 2)
    assert function.__name__ == "function"
    assert function.__doc__ == "Documented."
    with pytest.raises(KeyError):
        function(0, b=2)
    assert pb.is_grad_enabled() is surrounding


def test_decorator_without_parentheses():
    @pb.no_grad
    def off():
        return pb.is_grad_enabled()

    @pb.enable_grad
    def on():
        return pb.is_grad_enabled()

    assert off() is False
    with pb.no_grad():
        assert on() is True


def test_decorator_does_not_leave_the_mode_changed():
    @pb.set_grad_enabled(False)
    def off():
        return pb.is_grad_enabled()

    assert pb.is_grad_enabled()
    assert off() is False
    assert pb.is_grad_enabled()


def test_function_acts_at_once():
    pb.set_grad_enabled(False)
    assert not pb.is_grad_enabled()
    pb.set_grad_enabled(True)
    assert pb.is_grad_enabled()


def test_recursive_decorated_function():
    @pb.no_grad()
    def recurse(depth):
        if depth == 0:
            return [pb.is_grad_enabled()]
        with pb.enable_grad():
            return [*recurse(depth - 1), pb.is_grad_enabled()]

    assert recurse(3) == [False, True, True, True]
    assert pb.is_grad_enabled()


def test_one_context_object_may_be_entered_again():
    context = pb.no_grad()
    with context:
        pass
    with context:
        assert not pb.is_grad_enabled()
    assert pb.is_grad_enabled()


def test_nesting():
    seen = []
    with pb.no_grad():
        seen.append(pb.is_grad_enabled())
        with pb.enable_grad():
            seen.append(pb.is_grad_enabled())
            with pb.set_grad_enabled(False):
                seen.append(pb.is_grad_enabled())
            seen.append(pb.is_grad_enabled())
        seen.append(pb.is_grad_enabled())
    assert seen == [False, True, False, True, False]


def test_generator_keeps_the_mode_only_while_its_body_runs():
    @pb.no_grad()
    def generator():
        received = yield pb.is_grad_enabled()
        try:
            yield received, pb.is_grad_enabled()
        except KeyError:
            yield "caught", pb.is_grad_enabled()
        return pb.is_grad_enabled()

    running = generator()
    assert next(running) is False
    assert pb.is_grad_enabled()
    assert running.send("sent") == ("sent", False)
    assert pb.is_grad_enabled()
    assert running.throw(KeyError()) == ("caught", False)
    with pytest.raises(StopIteration) as stopped:
        next(running)
    assert stopped.value.value is False
    assert pb.is_grad_enabled()


def test_closing_a_decorated_generator_runs_its_cleanup_in_the_mode():
    seen = []

    @pb.no_grad()
    def generator():
        try:
            yield 1
        finally:
            seen.append(pb.is_grad_enabled())

    running = generator()
    next(running)
    running.close()
    assert seen == [False]
    assert pb.is_grad_enabled()


@pytest.mark.beyond_torch
def test_coroutine_runs_in_the_mode():
    @pb.no_grad()
    async def coroutine():
        first = pb.is_grad_enabled()
        await asyncio.sleep(0)
        return first, pb.is_grad_enabled()

    async def main():
        result = await coroutine()
        return result, pb.is_grad_enabled()

    assert asyncio.run(main()) == ((False, False), True)


@pytest.mark.beyond_torch
def test_concurrent_coroutines_keep_their_own_mode():
    @pb.no_grad()
    async def without():
        for _ in range(3):
            assert not pb.is_grad_enabled()
            await asyncio.sleep(0)

    async def plain():
        for _ in range(3):
            assert pb.is_grad_enabled()
            await asyncio.sleep(0)

    async def main():
        await asyncio.gather(without(), plain(), without())

    asyncio.run(main())


def test_mode_is_thread_local():
    seen = []
    with pb.no_grad():
        thread = threading.Thread(target=lambda: seen.append(pb.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


def test_decorating_a_class_is_deprecated():
    with pytest.warns((FutureWarning, DeprecationWarning, UserWarning)):

        @pb.no_grad()
        class Thing:
            def __init__(self):
                self.mode = pb.is_grad_enabled()

            def method(self):
                return pb.is_grad_enabled()

    thing = Thing()
    assert thing.mode is False
    assert thing.method() is True


def test_repr_shows_the_mode():
    context = pb.set_grad_enabled(False)
    pb.set_grad_enabled(True)
    assert "mode=False" in repr(context)


@pytest.mark.parametrize("bad", ["yes", None, 1.5])
def test_set_grad_enabled_takes_bool_only(bad):
    with pytest.raises(TypeError):
        pb.set_grad_enabled(bad)
    assert pb.is_grad_enabled()


def test_unused_exit_is_harmless():
    with pytest.raises(TypeError):
        pb.no_grad(1, 2, 3)
    assert pb.is_grad_enabled()


def test_decorating_with_set_multithreading_enabled_leaves_the_flag():
    @pb.autograd.set_multithreading_enabled(False)
    def inside():
        return pb.autograd.is_multithreading_enabled()

    assert pb.autograd.is_multithreading_enabled()
    assert not inside()
    assert pb.autograd.is_multithreading_enabled()
