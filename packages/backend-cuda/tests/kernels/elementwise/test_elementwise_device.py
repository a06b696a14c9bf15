"""Memory layouts of elementwise kernels: the device code, run by the emulation."""

import numpy as np
import on_fake
import pytest
from elementwise_launch import (
    CLASSES,
    COMPLEX,
    FLOATING,
    REAL,
    STORED,
    VECTOR_SIZES,
    Families,
    Scalar,
    assert_close,
    launch,
    narrow,
    placed,
    random_values,
    run,
    widen,
)

pytestmark = pytest.mark.skipif(on_fake.compiler() is None, reason="needs a C++ compiler")


@pytest.fixture(scope="module")
def kernels():
    return Families()


SIZES = (1, 3, 255, 256, 257, 1023, 2048, 4099)


@pytest.mark.parametrize("name", [*REAL, *COMPLEX])
@pytest.mark.parametrize("misaligned", [(0, 0, 0), (1, 0, 0), (0, 1, 3)])
def test_rows_of_all_sizes(kernels, name, misaligned):
    rng = np.random.default_rng(1)
    for n in SIZES:
        x, y = random_values(rng, name, n), random_values(rng, name, n)
        out = placed(np.zeros(n + 2, STORED[name]), misaligned[0])
        vector_size = VECTOR_SIZES[CLASSES[name]]
        arrays = [placed(x, misaligned[1]), placed(y, misaligned[2])]
        aligned = n >= vector_size and not any(
            m * x.itemsize % min(16, vector_size * x.itemsize) for m in misaligned
        )
        with np.errstate(all="ignore"):
            wanted = narrow(widen(x, name) + widen(y, name), name)
        launch(
            kernels("binary"),
            f"add_{CLASSES[name]}",
            out[:n],
            arrays,
            (name, name),
            vector_size,
            vectorized=aligned,
        )
        np.testing.assert_array_equal(widen(out[:n], name), widen(wanted, name))
        assert not out[n:].any()  # nothing is written behind the end


LAYOUTS = {
    "row": ((37, 64), (64,)),
    "column": ((37, 64), (37, 1)),
    "odd row": ((37, 65), (65,)),
    "odd column": ((37, 65), (37, 1)),
    "one": ((5, 6, 8), (1, 1, 1)),
    "middle": ((5, 6, 8), (5, 1, 8)),
    "many dims": ((2,) * 12, (1, 2) * 6),
    "wide": ((3, 4099), (3, 1)),
}


@pytest.mark.parametrize("name", ["u8", "i64", "bf16", "f32", "f64", "c64", "c128"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_broadcast(kernels, name, layout):
    rng = np.random.default_rng(2)
    x, y = (random_values(rng, name, shape) for shape in LAYOUTS[layout])
    with np.errstate(all="ignore"):
        wanted = widen(narrow(widen(x, name) - widen(y, name), name), name)
        backwards = widen(narrow(widen(y, name) - widen(x, name), name), name)
    np.testing.assert_array_equal(run(kernels, "binary", "sub", name, [x, y]), wanted)
    np.testing.assert_array_equal(run(kernels, "binary", "sub", name, [y, x]), backwards)


@pytest.mark.parametrize("name", ["i8", "f16", "f32", "f64", "c128"])
def test_strides(kernels, name):
    rng = np.random.default_rng(3)
    x, y = random_values(rng, name, (40, 48)), random_values(rng, name, (48, 40))
    for a, b in (
        (x, y.T),
        (x[::-1, ::2], y.T[:, :24]),
        (x[:, ::-1], y.T[::-1]),
        (x[1:, 1:], x[:-1, :-1]),
        (x[:, 4:20], y.T[:, 8:24]),
    ):
        with np.errstate(all="ignore"):
            wanted = widen(narrow(widen(a.copy(), name) * widen(b.copy(), name), name), name)
        found = run(kernels, "binary", "mul", name, [a, b])
        assert_close(found, wanted, name, 2)
    out = placed(np.zeros((40, 60), STORED[name]))
    launch(
        kernels("unary"),
        f"neg_{CLASSES[name]}",
        out[:, 5:53],
        [x],
        (name, name),
        VECTOR_SIZES[CLASSES[name]],
    )
    np.testing.assert_array_equal(widen(out[:, 5:53].copy(), name), -widen(x, name))
    assert not out[:, :5].any() and not out[:, 53:].any()


@pytest.mark.parametrize("name", [*REAL, *COMPLEX])
def test_host_scalars(kernels, name):
    rng = np.random.default_rng(4)
    for n in (3, 4099):
        x = placed(random_values(rng, name, n))
        number = 2.5 + 1.5j if name in COMPLEX else 2.5 if name in FLOATING else 3
        y = narrow(np.full(n, number), name)
        with np.errstate(all="ignore"):
            wanted = widen(narrow(widen(x, name) - widen(y, name), name), name)
            backwards = widen(narrow(widen(y, name) - widen(x, name), name), name)
        scalar = Scalar(number, name)
        assert_close(run(kernels, "binary", "sub", name, [x, scalar]), wanted, name, 1)
        assert_close(run(kernels, "binary", "sub", name, [scalar, x]), backwards, name, 1)


@pytest.mark.parametrize("name", [*REAL, *COMPLEX])
@pytest.mark.parametrize("misaligned", [0, 1])
def test_output_is_an_input(kernels, name, misaligned):
    rng = np.random.default_rng(5)
    x, y = random_values(rng, name, 4099), random_values(rng, name, 4099)
    target, other = placed(x, misaligned), placed(y, misaligned)
    for inputs in ([target, other], [other, target], [target, target]):
        target[...] = x
        with np.errstate(all="ignore"):
            first, second = (widen(array.copy(), name) for array in inputs)
            wanted = widen(narrow(first - second, name), name)
        launch(
            kernels("binary"),
            f"sub_{CLASSES[name]}",
            target,
            inputs,
            (name, name),
            VECTOR_SIZES[CLASSES[name]],
        )
        np.testing.assert_array_equal(widen(target, name), wanted)
