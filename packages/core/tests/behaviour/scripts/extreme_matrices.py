"""Give linear algebra NaN, infinities, huge and subnormal numbers at every kind of position.

Each call is named before it is made, so that one that does not end is known.
"""

import math

import numpy as np

import pullback as pb

L = pb.linalg
INF, NAN = math.inf, math.nan
rng = np.random.default_rng(4)


def ones_for(a):
    return pb.ones(a.shape[-1], 2, dtype=a.dtype)


BY_VALUES = {
    "svdvals": L.svdvals,
    "svd": lambda a: L.svd(a).S,
    "thin svd": lambda a: L.svd(a, full_matrices=False).S,
    "old svd": lambda a: pb.svd(a).S,
    "matrix_norm nuc": lambda a: L.matrix_norm(a, "nuc"),
    "matrix_norm 2": lambda a: L.matrix_norm(a, 2),
    "matrix_norm -2": lambda a: L.matrix_norm(a, -2),
    "norm 2": lambda a: L.norm(a, 2),
}
BY_ELIMINATION = {
    "inv": L.inv,
    "inverse": pb.inverse,
    "inv_ex": lambda a: L.inv_ex(a)[0],
    "solve": lambda a: L.solve(a, ones_for(a)),
    "solve left": lambda a: L.solve(a, ones_for(a).T, left=False),
    "solve_ex": lambda a: L.solve_ex(a, ones_for(a))[0],
    "matrix_power -1": lambda a: L.matrix_power(a, -1),
    "pow -2": lambda a: pb.matrix_power(a, -2),
}
BY_PRODUCTS = {
    "matmul": lambda a: a @ a.mT,
    "mv": lambda a: a @ pb.ones(a.shape[-1], dtype=a.dtype),
    "dot": lambda a: pb.dot(a.reshape(-1), a.reshape(-1)),
    "vdot": lambda a: pb.vdot(a.reshape(-1), a.reshape(-1)),
    "vecdot": lambda a: L.vecdot(a, a).sum(),
    "multi_dot": lambda a: L.multi_dot([a, a.mT, a]),
    "einsum": lambda a: pb.einsum("ij,kj->ik", a, a),
    "tensordot": lambda a: pb.tensordot(a, a.mT, 1),
    "addmm": lambda a: pb.addmm(a @ a.mT, a, a.mT),
    "baddbmm": lambda a: pb.baddbmm((a @ a.mT)[None], a[None], a.mT[None]),
}
BY_SUMS = {
    **{
        f"matrix_norm {order}": lambda a, order=order: L.matrix_norm(a, order)
        for order in ("fro", 1, -1, INF, -INF)
    },
    **{
        f"vector_norm {order}": lambda a, order=order: L.vector_norm(a, order)
        for order in (1, 2, 3, 0.5, INF, -INF)
    },
}


def run(name, call, a):
    """Return the numbers of a result, or the name of the error."""
    print(name, flush=True)
    try:
        return np.array(call(a).tolist())
    except L.LinAlgError:
        return "LinAlgError"


def check_strange(a, what, value):
    """A NaN or an infinity stands in the matrix: no result may be of numbers only."""
    for name, call in BY_VALUES.items():
        found = run(f"{name} {what}", call, a)
        if math.isnan(value):
            assert isinstance(found, str), (name, what, found)
        else:
            assert np.isnan(found).all(), (name, what, found)
    products = {**BY_PRODUCTS, **BY_SUMS}
    for name, call in products.items():
        low = "-1" in name or "-inf" in name  # the least of several is a number
        found = run(f"{name} {what}", call, a)
        assert (math.isinf(value) and low) or not np.isfinite(found).all(), (name, what, found)
    if a.shape[0] == a.shape[1]:
        for name, call in BY_ELIMINATION.items():
            found = run(f"{name} {what}", call, a)
            assert not math.isnan(value) or np.isnan(found).all(), (name, what, found)


def check_scaled(a, scale, what):
    """All numbers are huge or tiny: singular values and solutions scale with them."""
    rounding = 64 * float(np.finfo(a.real.numpy().dtype).eps)
    tiny = 64 * float(np.finfo(a.real.numpy().dtype).smallest_subnormal)
    with np.errstate(all="ignore"):
        scaled = pb.tensor(a.numpy() * scale, dtype=a.dtype)
    for name in ("svdvals", "svd", "thin svd", "old svd", "matrix_norm 2", "matrix_norm -2"):
        found = run(f"{name} {what}", BY_VALUES[name], scaled) / scale
        expected = run(name, BY_VALUES[name], a)
        room = rounding * np.max(expected) + tiny / scale
        assert (abs(found - expected) <= room).all(), (name, what, found, expected)
    if a.shape[0] == a.shape[1]:
        for name, call in BY_ELIMINATION.items():
            assert run(f"{name} {what}", call, scaled) is not None
        if scale > 1:
            solved = run(f"inv {what}", L.inv, scaled) * scale
            assert np.allclose(solved, run("inv", L.inv, a), rtol=1e-2), (what, solved)
    for name, call in {**BY_PRODUCTS, **BY_SUMS}.items():
        run(f"{name} {what}", call, scaled)


for dtype, huge, tiny in (
    (pb.float64, 2.0**1020, 2.0**-1060),
    (pb.float32, 2.0**120, 2.0**-136),
    (pb.complex128, 2.0**1020, 2.0**-1060),
):
    for shape in ((1, 1), (2, 2), (3, 3), (3, 2), (2, 4), (20, 20), (40, 7)):
        values = rng.standard_normal(shape)
        if dtype.is_complex:
            values = values + 1j * rng.standard_normal(shape)
        rows, columns = shape
        positions = {
            (0, 0),
            (rows - 1, columns - 1),
            (0, columns - 1),
            (rows - 1, 0),
            (rows // 2, 0),
        }
        for value in (NAN, INF, -INF):
            for position in sorted(positions):
                strange = values.copy()
                strange[position] = value
                check_strange(
                    pb.tensor(strange, dtype=dtype), f"{dtype} {shape} {value} {position}", value
                )
            everywhere = np.full(shape, value)
            check_strange(pb.tensor(everywhere, dtype=dtype), f"{dtype} {shape} {value}", value)
        regular = values / np.abs(values).max()
        for scale in (huge, tiny):
            check_scaled(pb.tensor(regular, dtype=dtype), scale, f"{dtype} {shape} {scale}")
