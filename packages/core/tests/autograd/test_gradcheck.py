"""gradcheck and gradgradcheck: what they accept, what they reject, and what they say."""

import math
import warnings

import pytest

import pullback as pb
from pullback.autograd import forward_ad, gradcheck, gradgradcheck
from pullback.autograd.gradcheck import (
    GradcheckError,
    get_analytical_jacobian,
    get_numerical_jacobian,
    get_numerical_jacobian_wrt_specific_input,
)

both_modes = pytest.mark.parametrize("fast_mode", [False, True], ids=["slow", "fast"])


def make(*shape, dtype=pb.float64):
    """Return numbers away from zero that require grad."""
    count = math.prod(shape)
    values = [0.3 + 0.17 * k for k in range(count)]
    if dtype in (pb.complex64, pb.complex128):
        values = [value + (0.9 - 0.2 * k) * 1j for k, value in enumerate(values)]
    return pb.tensor(values, dtype=dtype).reshape(shape).detach().requires_grad_()


def doubling(backward, jvp=None):
    """Return a function that doubles its input and has these derivative formulas."""

    class Doubling(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    Doubling.backward = staticmethod(backward)
    if jvp is not None:
        Doubling.jvp = staticmethod(jvp)
    return Doubling.apply


right = doubling(lambda ctx, g: g * 2)
wrong = doubling(lambda ctx, g: g * 3)


# As in torch, a failure of this check says how to switch it off.
warned = pytest.warns(UserWarning, match="New undefined gradient support checking feature")


class SquareWithoutConj(pb.autograd.Function):
    """z * z with a derivative that lacks the conjugate."""

    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return z * z

    @staticmethod
    def backward(ctx, g):
        (z,) = ctx.saved_tensors
        return g * 2 * z


class TestRightFunctions:
    @both_modes
    @pytest.mark.parametrize(
        "func",
        [
            lambda x: x.exp(),
            lambda x: (x * x, x.sum()),
            lambda x: [x.tanh(), x.reshape(-1)[1:]],
            lambda x: x,
            lambda x: x.t(),
            lambda x: x.expand(2, 2, 3),
            lambda x: x[:0],
            right,
        ],
    )
    def test_passes(self, func, fast_mode):
        assert gradcheck(func, (make(2, 3),), fast_mode=fast_mode) is True

    @both_modes
    @pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0), (2, 1, 3)])
    def test_any_shape(self, shape, fast_mode):
        assert gradcheck(lambda x: x * x * 3, make(*shape), fast_mode=fast_mode)

    @both_modes
    def test_inputs_that_are_not_checked(self, fast_mode):
        fixed = make(2).detach()
        assert gradcheck(
            lambda a, b, c, d: a * b * c, [make(2), 2.0, fixed, None], fast_mode=fast_mode
        )

    @both_modes
    def test_several_inputs_and_an_unused_one(self, fast_mode):
        assert gradcheck(
            lambda a, b, c: (a * b, b.exp()), (make(2), make(2), make(3)), fast_mode=fast_mode
        )

    @both_modes
    def test_strided_input(self, fast_mode):
        x = make(3, 4).detach().t()[::2].requires_grad_()
        assert not x.is_contiguous()
        assert gradcheck(lambda x: x * x, (x,), fast_mode=fast_mode)

    @both_modes
    def test_non_leaf_input(self, fast_mode):
        assert gradcheck(lambda x: x * x, (make(3) * 2,), fast_mode=fast_mode)

    @both_modes
    def test_input_reached_through_a_closure(self, fast_mode):
        weight = make(3)
        assert gradcheck(lambda x, _: x * weight * weight, (make(3), weight), fast_mode=fast_mode)

    @both_modes
    @pytest.mark.parametrize(
        "func",
        [
            lambda z: z * z,
            lambda z: z.conj() * (2 - 1j),
            lambda z: z.abs(),
            lambda z: (pb.real(z), pb.imag(z) * 3),
            lambda z: (z * z, pb.real(z)),
        ],
    )
    def test_complex_input(self, func, fast_mode):
        assert gradcheck(func, (make(3, dtype=pb.complex128),), fast_mode=fast_mode)

    @both_modes
    def test_complex_output_of_real_input(self, fast_mode):
        assert gradcheck(lambda x: x * (1 + 2j), (make(3),), fast_mode=fast_mode)

    @both_modes
    def test_some_outputs_without_grad(self, fast_mode):
        func = lambda x: (x.detach() * 2, x * 2, x.argmax())  # noqa: E731
        assert gradcheck(func, (make(3),), fast_mode=fast_mode)

    @both_modes
    def test_only_integer_outputs(self, fast_mode):
        assert gradcheck(lambda x: x.argmax(), (make(3),), fast_mode=fast_mode)

    @both_modes
    @pytest.mark.parametrize("masked", [None, False, True])
    def test_masked_is_accepted(self, fast_mode, masked):
        assert gradcheck(lambda x: x * 2, make(2), masked=masked, fast_mode=fast_mode)

    @both_modes
    def test_loose_tolerance_accepts_a_small_error(self, fast_mode):
        nearly = doubling(lambda ctx, g: g * 2.01)
        assert not gradcheck(nearly, make(3), fast_mode=fast_mode, raise_exception=False)
        assert gradcheck(nearly, make(3), fast_mode=fast_mode, rtol=0.02)
        assert gradcheck(nearly, make(3), fast_mode=fast_mode, atol=0.1)

    @both_modes
    def test_float32_passes_with_a_larger_step(self, fast_mode):
        x = make(3, dtype=pb.float32)
        with pytest.warns(UserWarning, match="Input #0 requires gradient and is not a double"):
            assert gradcheck(lambda x: x * x, (x,), eps=1e-2, atol=1e-2, fast_mode=fast_mode)


class TestWrongFunctions:
    def test_message_shows_both_matrices(self):
        with pytest.raises(GradcheckError) as caught:
            gradcheck(wrong, (make(2),))
        assert str(caught.value) == (
            "Jacobian mismatch for output 0 with respect to input 0,\n"
            "numerical:tensor([[2.0000, 0.0000],\n"
            "        [0.0000, 2.0000]], dtype=" + str(pb.float64) + ")\n"
            "analytical:tensor([[3., 0.],\n"
            "        [0., 3.]], dtype=" + str(pb.float64) + ")\n"
        )

    @pytest.mark.beyond_torch
    def test_fast_message_has_the_matrices_of_slow_mode(self):
        with pytest.raises(GradcheckError) as caught:
            gradcheck(wrong, (make(2),), fast_mode=True)
        text = str(caught.value)
        assert text.startswith("Jacobian mismatch for output 0 with respect to input 0,\n")
        assert "Numerical:\ntensor([[2.0000, 0.0000]" in text
        assert "Analytical:\ntensor([[3., 0.]" in text
        assert "The max per-element difference (slow mode) is: 1.0" in text
        assert "agree in slow mode" not in text

    @pytest.mark.beyond_torch
    def test_fast_message_says_when_slow_mode_agrees(self):
        # Each relative error is small, but along the random vectors derivatives cancel and
        # errors do not.
        signs = pb.tensor([1000.0, -1000.0] * 10, dtype=pb.float64)

        class Signs(pb.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * signs

            @staticmethod
            def backward(ctx, g):
                return g * (signs + 0.9)

        assert gradcheck(Signs.apply, (make(20),))
        with pytest.raises(GradcheckError, match="agree in slow mode"):
            gradcheck(Signs.apply, (make(20),), fast_mode=True)

    @pytest.mark.beyond_torch
    @both_modes
    def test_positions_are_those_of_the_arguments(self, fast_mode):
        func = lambda _, a, b: (a.detach(), a * b, wrong(b) * a)  # noqa: E731
        with pytest.raises(GradcheckError, match="for output 2 with respect to input 2,"):
            gradcheck(func, (1.0, make(2), make(2)), fast_mode=fast_mode)

    @both_modes
    def test_raise_exception_false(self, fast_mode):
        assert gradcheck(wrong, (make(2),), raise_exception=False, fast_mode=fast_mode) is False

    @both_modes
    @pytest.mark.parametrize("factor", [float("nan"), float("inf")])
    def test_values_that_are_not_finite(self, factor, fast_mode):
        with pytest.raises(GradcheckError, match="Jacobian mismatch"):
            gradcheck(lambda x: x * factor, (make(2),), fast_mode=fast_mode)

    @both_modes
    def test_complex_formula_without_conj(self, fast_mode):
        message = (
            "^While considering the imaginary part of complex outputs only, "
            "Jacobian mismatch for output 0 with respect to input 0,"
        )
        with pytest.raises(GradcheckError, match=message):
            gradcheck(SquareWithoutConj.apply, (make(2, dtype=pb.complex128),), fast_mode=fast_mode)

    @both_modes
    def test_only_complex_outputs_are_named_so(self, fast_mode):
        with pytest.raises(GradcheckError, match=r"^Jacobian mismatch for output 1"):
            gradcheck(lambda x: (x * 1j, wrong(x)), (make(2),), fast_mode=fast_mode)

    @both_modes
    def test_real_output_of_complex_input(self, fast_mode):
        with pytest.raises(GradcheckError, match=r"^Jacobian mismatch for output 0"):
            gradcheck(
                lambda z: pb.real(SquareWithoutConj.apply(z)),
                (make(2, dtype=pb.complex128),),
                fast_mode=fast_mode,
            )

    @both_modes
    def test_hook_that_changes_the_gradient(self, fast_mode):
        def func(x):
            y = x.clone()
            y.register_hook(lambda g: g + 1e-2)
            return y

        with pytest.raises(GradcheckError, match="Jacobian mismatch for output 0"):
            gradcheck(func, (make(2),), fast_mode=fast_mode)
        with pytest.raises(GradcheckError, match="backward not multiplied by grad_output"):
            gradcheck(func, (make(1),), atol=1e-1, fast_mode=fast_mode)

    @both_modes
    def test_output_cut_from_the_graph(self, fast_mode):
        with pytest.raises(GradcheckError, match="Numerical gradient for function expected to be"):
            gradcheck(lambda x: x.detach() * 2, (make(2),), fast_mode=fast_mode)

    @both_modes
    def test_backward_that_ignores_a_zero_seed(self, fast_mode):
        func = doubling(lambda ctx, g: g * 2 if bool((g != 0).any()) else pb.ones_like(g))
        with pytest.raises(GradcheckError, match="backward not multiplied by grad_output"):
            gradcheck(func, (make(2),), fast_mode=fast_mode)

    @both_modes
    def test_nondeterministic_backward(self, fast_mode):
        calls = []

        def backward(ctx, g):
            calls.append(1)
            return g * (2 + 1e-7 * len(calls))

        with pytest.raises(GradcheckError, match=r"not reentrant.*nondeterminism was 0\.0"):
            gradcheck(doubling(backward), (make(2),), fast_mode=fast_mode)
        assert gradcheck(doubling(backward), (make(2),), nondet_tol=1e-5, fast_mode=fast_mode)


class TestUndefinedGrad:
    @staticmethod
    def two_outputs(backward):
        class Two(pb.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.set_materialize_grads(False)
                return x * 2, x * 3

        Two.backward = staticmethod(backward)
        return Two.apply

    @staticmethod
    def careful(ctx, g, h):
        total = None if g is None else g * 2
        if h is None:
            return total
        return h * 3 if total is None else total + h * 3

    @both_modes
    def test_careful_formula_passes(self, fast_mode):
        assert gradcheck(self.two_outputs(self.careful), (make(2),), fast_mode=fast_mode)

    @both_modes
    def test_one_missing_gradient_that_gives_ones(self, fast_mode):
        def backward(ctx, g, h):
            if g is None and (h is None or not bool((h != 0).any())):
                return pb.ones(2, dtype=pb.float64)
            return self.careful(ctx, g, h)

        func = self.two_outputs(backward)
        with warned, pytest.raises(GradcheckError, match="input grads to be undefined or zero"):
            gradcheck(func, (make(2),), fast_mode=fast_mode)
        assert gradcheck(func, (make(2),), fast_mode=fast_mode, check_undefined_grad=False)

    def test_formula_that_raises(self):
        def backward(ctx, g):
            if g is None:
                raise RuntimeError("no gradient")
            return g * 2

        class Strict(pb.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.set_materialize_grads(False)
                return x * 2

        Strict.backward = staticmethod(backward)
        with warned, pytest.raises(GradcheckError, match="handle undefined output grads"):
            gradcheck(Strict.apply, (make(2),))

    @both_modes
    def test_hook_that_raises(self, fast_mode):
        def func(x):
            def hook(g):
                if g is None:
                    raise RuntimeError("no gradient")

            y = x.clone()
            y.register_hook(hook)
            return y

        with warned, pytest.raises(GradcheckError, match="handle undefined output grads"):
            gradcheck(func, (make(1),), fast_mode=fast_mode)
        with warned:
            assert not gradcheck(func, (make(1),), fast_mode=fast_mode, raise_exception=False)


class TestMisuse:
    @both_modes
    @pytest.mark.parametrize("inputs", [(), (2.0,), [None], 3])
    def test_no_input_requires_grad(self, inputs, fast_mode):
        with pytest.raises(ValueError, match="expects at least one input tensor to require grad"):
            gradcheck(lambda *args: args, inputs, fast_mode=fast_mode, raise_exception=False)

    def test_stride_zero(self):
        x = make(1).detach().expand(3).requires_grad_()
        with pytest.raises(RuntimeError, match="0th input has a dimension with stride 0") as caught:
            gradcheck(lambda x: x * 2, (x,))
        assert not isinstance(caught.value, GradcheckError)

    @pytest.mark.beyond_torch
    @pytest.mark.parametrize("result", [3.0, None, {"a": 1}, "text"])
    def test_output_that_is_no_tensor(self, result):
        with pytest.raises(TypeError, match=f"tuple of tensors, got {type(result).__name__}"):
            gradcheck(lambda x: result, (make(2),))

    def test_errors_of_the_function_pass_through(self):
        with pytest.raises(ZeroDivisionError):
            gradcheck(lambda x: 1 / 0, (make(2),), raise_exception=False)

    @pytest.mark.parametrize(
        ("flags", "message"),
        [
            ({"check_backward_ad": False}, "check_forward_ad or check_backward_ad"),
            ({"check_batched_forward_grad": True}, "requires check_forward_ad"),
            (
                {"check_backward_ad": False, "check_forward_ad": True, "check_batched_grad": True},
                "requires check_backward_ad",
            ),
        ],
    )
    def test_flags_that_contradict(self, flags, message):
        with pytest.raises(AssertionError, match=message):
            gradcheck(lambda x: x, (make(2),), **flags)
        with pytest.raises(AssertionError, match="check_fwd_over_rev or check_rev_over_rev"):
            gradgradcheck(lambda x: x, (make(2),), check_rev_over_rev=False)

    @both_modes
    def test_output_shape_that_changes(self, fast_mode):
        calls = []

        def func(x):
            calls.append(1)
            return x[: len(calls)]

        with pytest.raises(AssertionError, match="outputs with the same shape when inputs are"):
            gradcheck(func, (make(9),), fast_mode=fast_mode)

    @both_modes
    def test_output_dtype_that_changes(self, fast_mode):
        x = pb.ones(1, dtype=pb.float64, requires_grad=True)
        func = lambda x: x.to(pb.float32) if bool((x >= 1).all()) else x  # noqa: E731
        with pytest.raises(AssertionError, match="outputs with the same dtype when inputs are"):
            gradcheck(func, (x,), fast_mode=fast_mode)


class TestInputsStayAsTheyWere:
    # -0.0 and a subnormal number show whether the very bits come back.
    VALUES = (1.0, -0.0, 1e-310, -2.5)

    def bits(self, x):
        return [value.hex() for value in x.tolist()]

    @both_modes
    def test_after_success(self, fast_mode):
        x = pb.tensor(self.VALUES, dtype=pb.float64, requires_grad=True)
        before, version = self.bits(x), x._version
        gradcheck(lambda x: x * x, (x,), fast_mode=fast_mode)
        assert self.bits(x) == before
        assert x._version == version
        assert x.grad is None

    @pytest.mark.beyond_torch
    @both_modes
    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
    def test_after_an_exception(self, fast_mode, error):
        x = pb.tensor(self.VALUES, dtype=pb.float64, requires_grad=True)
        before, calls = self.bits(x), []

        def func(x):
            calls.append(1)
            if len(calls) == 3:
                raise error
            return x * x

        with pytest.raises(error):
            gradcheck(func, (x,), fast_mode=fast_mode)
        assert len(calls) == 3
        assert self.bits(x) == before

    @both_modes
    def test_a_graph_made_before_still_works(self, fast_mode):
        x = make(3)
        y = (x * x).sum()
        gradcheck(lambda x: x * x, (x,), fast_mode=fast_mode)
        y.backward()
        assert x.grad.tolist() == (2 * x).tolist()

    def test_random_numbers_of_the_caller(self):
        pb.manual_seed(3)
        expected = pb.rand(4).tolist()
        pb.manual_seed(3)
        gradcheck(lambda x: x * x, (make(3),), fast_mode=True)
        assert pb.rand(4).tolist() == expected


class TestBatchedGrad:
    @both_modes
    def test_passes(self, fast_mode):
        assert gradcheck(
            lambda x, y: (x * y, x.exp()),
            (make(3), make(3)),
            check_batched_grad=True,
            fast_mode=fast_mode,
        )

    @both_modes
    def test_backward_that_looks_at_values(self, fast_mode):
        func = doubling(lambda ctx, g: g * 2 if g.sum().item() else 2 * g)
        message = "gradcheck or gradgradcheck failed while testing batched gradient computation"
        with pytest.raises(GradcheckError, match=message):
            gradcheck(func, (make(2),), check_batched_grad=True, fast_mode=fast_mode)
        assert gradcheck(func, (make(2),), fast_mode=fast_mode)

    @both_modes
    def test_jvp_that_draws_numbers(self, fast_mode):
        func = doubling(lambda ctx, g: g * 2, lambda ctx, t: t * 2 + 0 * pb.rand_like(t))
        flags = {"check_forward_ad": True, "fast_mode": fast_mode}
        with pytest.raises(GradcheckError, match="batched gradient computation with forward-mode"):
            gradcheck(func, (make(2),), check_batched_forward_grad=True, **flags)
        assert gradcheck(func, (make(2),), **flags)


class TestForwardMode:
    @both_modes
    @pytest.mark.parametrize("backward", [True, False])
    def test_passes(self, fast_mode, backward):
        assert gradcheck(
            lambda x, y: (x * y, x.exp()),
            (make(3), make(3)),
            check_forward_ad=True,
            check_backward_ad=backward,
            fast_mode=fast_mode,
        )

    @both_modes
    def test_complex(self, fast_mode):
        assert gradcheck(
            lambda z, x: (z * z, z.abs(), x * 1j),
            (make(2, dtype=pb.complex128), make(2)),
            check_forward_ad=True,
            fast_mode=fast_mode,
        )

    @both_modes
    def test_wrong_formula(self, fast_mode):
        func = doubling(lambda ctx, g: g * 2, lambda ctx, t: t * 3)
        message = (
            "^Jacobian computed with forward mode mismatch for output 0 with respect to input 0"
        )
        with pytest.raises(GradcheckError, match=message):
            gradcheck(func, (make(2),), check_forward_ad=True, fast_mode=fast_mode)
        assert gradcheck(func, (make(2),), fast_mode=fast_mode)

    @both_modes
    def test_wrong_complex_formula(self, fast_mode):
        func = doubling(lambda ctx, g: g * 2, lambda ctx, t: (t * 2).conj() * 1)
        message = "^While considering the imaginary part of complex inputs only, Jacobian computed"
        with pytest.raises(GradcheckError, match=message):
            gradcheck(
                func, (make(2, dtype=pb.complex128),), check_forward_ad=True, fast_mode=fast_mode
            )

    @both_modes
    def test_batched(self, fast_mode):
        assert gradcheck(
            lambda x, y: (x * y, x.exp()),
            (make(3), make(3)),
            check_forward_ad=True,
            check_batched_forward_grad=True,
            fast_mode=fast_mode,
        )

    @both_modes
    def test_inputs_are_duals_that_require_no_grad(self, fast_mode):
        seen = []

        class Both(pb.autograd.Function):
            @staticmethod
            def forward(ctx, x, y):
                if forward_ad._current_level >= 0:
                    tangents = [forward_ad.unpack_dual(value).tangent for value in (x, y)]
                    seen.append((x.requires_grad, y.requires_grad, *tangents))
                return x.clone(), y.clone()

            @staticmethod
            def jvp(ctx, x, y):
                return x, y

        flags = {"check_forward_ad": True, "check_backward_ad": False, "fast_mode": fast_mode}
        assert gradcheck(Both.apply, (make(2), make(2).detach()), **flags)
        assert seen
        assert not any(x_requires or y_requires for x_requires, y_requires, *_ in seen)

    @both_modes
    @pytest.mark.parametrize(
        ("undefined", "batched", "both", "calls"),
        [
            (False, False, True, 2),
            (True, False, True, 6),
            (True, True, True, 12),
            (True, True, False, 5),
        ],
    )
    def test_calls_of_jvp(self, fast_mode, undefined, batched, both, calls):
        # For each input: the derivative; tangents of zeros and missing ones; a batch of two and
        # both alone.
        counted = []

        class Both(pb.autograd.Function):
            @staticmethod
            def forward(ctx, x, y):
                return x.clone(), y.clone()

            @staticmethod
            def jvp(ctx, x, y):
                counted.append(1)
                return x, y

        second = make(1) if both else make(1).detach()
        assert gradcheck(
            Both.apply,
            (make(1), second),
            check_forward_ad=True,
            check_backward_ad=False,
            check_undefined_grad=undefined,
            check_batched_forward_grad=batched,
            fast_mode=fast_mode,
        )
        assert len(counted) == calls

    @both_modes
    def test_missing_tangent_that_is_not_zero(self, fast_mode):
        class Sum(pb.autograd.Function):
            @staticmethod
            def forward(ctx, x, y):
                ctx.set_materialize_grads(False)
                return x + y

            @staticmethod
            def jvp(ctx, x, y):
                return x + pb.ones_like(x) if y is None else y if x is None else x + y

        flags = {"check_forward_ad": True, "check_backward_ad": False, "fast_mode": fast_mode}
        with pytest.raises(GradcheckError, match="Mismatch in tangent values for output"):
            gradcheck(Sum.apply, (make(2), make(2)), **flags)
        assert gradcheck(Sum.apply, (make(2), make(2)), check_undefined_grad=False, **flags)

    @both_modes
    @pytest.mark.parametrize("forward", [False, True])
    @pytest.mark.parametrize("backward", [False, True])
    def test_only_what_is_asked_for_runs(self, fast_mode, forward, backward):
        def fail(what):
            def formula(ctx, g):
                raise RuntimeError(what)

            return formula

        right = lambda ctx, g: g * 2  # noqa: E731
        flags = {
            "check_forward_ad": forward,
            "check_backward_ad": backward,
            "check_undefined_grad": backward,
            "check_batched_grad": backward,
            "fast_mode": fast_mode,
        }
        if not (forward or backward):
            with pytest.raises(AssertionError, match="Expected at least one of"):
                gradcheck(doubling(right, right), (make(2),), **flags)
            return
        for back, push in ((right, fail("push")), (fail("back"), right)):
            message = "push" if back is right else "back"
            if forward if back is right else backward:
                with pytest.raises(RuntimeError, match=f"^{message}$"):
                    gradcheck(doubling(back, push), (make(2),), **flags)
            else:
                assert gradcheck(doubling(back, push), (make(2),), **flags)

    @both_modes
    def test_over_reverse(self, fast_mode):
        assert gradgradcheck(
            lambda x: x.exp(), (make(2),), check_fwd_over_rev=True, fast_mode=fast_mode
        )


class TestGradgradcheck:
    @both_modes
    @pytest.mark.parametrize(
        "func",
        [
            lambda x: x.tanh(),
            lambda x: (x * x, x.exp()),
            lambda x: x * 2,
            lambda x: (x * x, x.argmax()),
            pytest.param(lambda x: x.argmax(), marks=pytest.mark.beyond_torch),
        ],
    )
    def test_passes(self, func, fast_mode):
        assert gradgradcheck(func, (make(3),), fast_mode=fast_mode) is True

    @both_modes
    def test_complex(self, fast_mode):
        z = make(2, dtype=pb.complex128)
        assert gradgradcheck(lambda z: z * z.conj() * z, (z,), fast_mode=fast_mode)

    @pytest.mark.beyond_torch
    @both_modes
    def test_given_grad_outputs(self, fast_mode):
        seeds = (make(2), make(2))
        assert gradgradcheck(lambda x: (x.exp(), x * x), make(2), seeds, fast_mode=fast_mode)
        with pytest.raises(ValueError, match=r"each of the 1 outputs of func .*, got 2"):
            gradgradcheck(lambda x: x.exp(), make(2), seeds, fast_mode=fast_mode)

    @both_modes
    def test_non_contiguous_grad_outputs(self, fast_mode):
        seen = []

        class Exponential(pb.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                out = x.exp()
                ctx.save_for_backward(out)
                return out

            @staticmethod
            def backward(ctx, g):
                seen.append(g.is_contiguous())
                return g * ctx.saved_tensors[0]

        assert gradgradcheck(
            Exponential.apply, (make(2, 2),), fast_mode=fast_mode, gen_non_contig_grad_outputs=True
        )
        assert not seen[0]

    @both_modes
    def test_wrong_second_derivative(self, fast_mode):
        func = lambda x: wrong(x) * x  # noqa: E731
        with pytest.raises(GradcheckError, match="Jacobian mismatch for output 0"):
            gradgradcheck(func, (make(2),), fast_mode=fast_mode)
        assert not gradgradcheck(func, (make(2),), fast_mode=fast_mode, raise_exception=False)


class TestDeprecatedNames:
    def test_numerical_jacobian(self):
        x, y = make(2), make(2)
        with pytest.warns(FutureWarning, match="get_numerical_jacobian"):
            by_x, by_y = get_numerical_jacobian(lambda args: args[0] * args[1], (x, y), eps=1e-6)
        assert by_x.reshape(-1).tolist() == pytest.approx([y[0].item(), 0, 0, y[1].item()])
        assert by_y.reshape(-1).tolist() == pytest.approx([x[0].item(), 0, 0, x[1].item()])
        with pytest.warns(FutureWarning, match="get_numerical_jacobian"):
            (by_y,) = get_numerical_jacobian(lambda args: args[0] * args[1], (x, y), target=y)
        assert by_y.shape == (2, 2)
        with pytest.warns(FutureWarning, match="was part of PyTorch's private API"):
            assert get_numerical_jacobian(lambda args: args[0] * 2, (x.detach(),)) == ()

    def test_analytical_jacobian(self):
        x, y = make(2), make(3)
        with pytest.warns(FutureWarning, match="get_analytical_jacobian"):
            jacobians, *checks = get_analytical_jacobian((x, y), x * 3)
        assert jacobians[0].tolist() == [[3, 0], [0, 3]]
        assert jacobians[1].tolist() == [[0, 0]] * 3
        assert checks == [True, True, True]

    @pytest.mark.parametrize("function", [get_numerical_jacobian, get_analytical_jacobian])
    def test_refused_arguments(self, function):
        x, z = make(2), make(2, dtype=pb.complex128)
        numerical = function is get_numerical_jacobian
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            with pytest.raises(ValueError, match=r"Expected grad_out to be 1\.0"):
                function(*((lambda a: a[0], (x,)) if numerical else ((x,), x * 2)), grad_out=2.0)
            with pytest.raises(ValueError, match="Expected output to be non-complex"):
                function(*((lambda a: a[0], (z,)) if numerical else ((z,), z * 2)))

    def test_numerical_jacobian_by_one_input(self):
        x, y = make(2), make(3)
        func = lambda x, y: (x.sum() * y, x * x)  # noqa: E731
        by_x = get_numerical_jacobian_wrt_specific_input(func, 0, (x, y), func(x, y), 1e-6)
        pb.testing.assert_close(by_x[0], y.detach().expand(2, 3))
        pb.testing.assert_close(by_x[1], (2 * x.detach()).diag())
        found = get_numerical_jacobian_wrt_specific_input(func, 1, (x, y), func(x, y), 1e-6, y)
        assert [tuple(matrix.shape) for matrix in found] == [(3, 3), (3, 2)]

    def test_numerical_jacobian_of_complex_numbers(self):
        z, x = make(2, dtype=pb.complex128), make(2)
        jacobian = get_numerical_jacobian_wrt_specific_input
        (found,) = jacobian(lambda z: (z * z.conj()).real, 0, (z,), (z.abs() ** 2,), 1e-6)
        pb.testing.assert_close(found, (2 * z.detach()).diag(), rtol=1e-6, atol=1e-6)
        func = lambda x: (x * 1j,)  # noqa: E731
        with pytest.raises(AssertionError, match="Expected ds_dx to be real-valued"):
            jacobian(func, 0, (x,), func(x), 1e-6)
        (found,) = jacobian(func, 0, (x,), func(x), 1e-6, is_forward_ad=True)
        pb.testing.assert_close(found, pb.eye(2, dtype=pb.complex128) * 1j, rtol=1e-6, atol=1e-6)
        with pytest.raises(AssertionError, match="Expected input to have requires_grad=True"):
            jacobian(func, 0, (x.detach(),), func(x), 1e-6)
