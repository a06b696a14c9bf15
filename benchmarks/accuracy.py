"""Writes ACCURACY.md: the worst errors of elementwise functions, ours, NumPy's and torch's.

``python -m benchmarks.accuracy [--torch-python PATH]`` needs mpmath; torch may be installed in
another Python.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
REPORT = Path(__file__).with_name("ACCURACY.md")
HEADER = """# Accuracy

Written by `python -m benchmarks.accuracy`: the largest error in units of the last place at the
points that `packages/backend-cpu/tests/ulp.py` chooses, against mpmath. NumPy's column has SciPy's
functions where NumPy has none.

| function | float32 | NumPy | torch | float64 | NumPy | torch |
| --- | --- | --- | --- | --- | --- | --- |
"""
SPECIAL_HEADER = """
## `pullback.special`

At the points that `packages/backend-cpu/tests/ulp_special.py` chooses. Next to zeros that are no
numbers of the dtype a relative error has no bound; there an error is counted in last places of an
envelope, as that module says: the amplitude of Airy's and Bessel's functions, of `sinc` and of
`spherical_bessel_j0`, the larger one of two polynomials that follow each other, the terms of
`multigammaln`, and for negative arguments of `digamma` its reflection. SciPy computes float32 in
float64 for some functions.

| function | float32 | SciPy | torch | float64 | SciPy | torch |
| --- | --- | --- | --- | --- | --- | --- |
"""
HERMITE = {"h": "", "he": "norm"}  # what SciPy's names say in place of torch's letters
TORCH = """
import sys
import numpy, torch
given = numpy.load(sys.argv[1])
names = sorted({key.rsplit(":", 1)[0] for key in given})
results = {}
for name in names:
    arguments = [given[f"{name}:{k}"] for k in range(2) if f"{name}:{k}" in given]
    arguments = [torch.from_numpy(x) for x in arguments]
    function, _, number = name.rsplit("-", 1)[0].removeprefix("special.").partition(" ")
    if number:
        arguments.insert(0, int(number))
    if function == "multigammaln":
        arguments.append(2)
    places = [torch, torch.nn.functional]
    places = [torch.special] if name.startswith("special.") else places
    function = next(getattr(place, function) for place in places if hasattr(place, function))
    results[name] = function(*arguments).numpy()
numpy.savez(sys.argv[2], **results)
"""


def numpy_functions() -> dict[str, Callable]:
    """Return the functions whose name in NumPy or SciPy differs from the primitive's."""
    from scipy import special

    names = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "atan2")
    renamed = {name: getattr(np, "arc" + name[1:]) for name in names}
    return {
        **renamed,
        "pow": np.power,
        "digamma": special.psi,
        "erf": special.erf,
        "erfc": special.erfc,
        "lgamma": special.gammaln,
        "sigmoid": special.expit,
        "softplus": lambda x: np.logaddexp(x.dtype.type(0), x),
        "rsqrt": lambda x: (1 / np.sqrt(x)).astype(x.dtype),
    }


def compute_pullback(primitive: str, arguments: tuple[np.ndarray, ...]) -> np.ndarray:
    """Return our result."""
    import pullback as pb

    function = getattr(pb if hasattr(pb, primitive) else pb.nn.functional, primitive)
    return np.asarray(function(*(pb.from_numpy(a) for a in arguments)).numpy())


def compute_numpy(primitive: str, arguments: tuple[np.ndarray, ...]) -> np.ndarray:
    """Return the result of NumPy or SciPy."""
    function = numpy_functions().get(primitive) or getattr(np, primitive)
    with np.errstate(all="ignore"):
        return np.asarray(function(*arguments))


def compute_special(name: str, module: Any, arguments: tuple) -> np.ndarray:
    """Return the result of a function of ``pullback.special``, or of SciPy's."""
    import ulp_special

    case = ulp_special.FUNCTIONS[name]
    function = getattr(module, name.partition(" ")[0])
    return np.asarray(function(*case.before, *arguments, *case.after))


class ScipySpecial:
    """SciPy's functions under torch's names."""

    def __getattr__(self, name: str) -> Callable:
        """Return SciPy's function, which rounds to its argument's dtype."""
        from scipy import special

        plain = name.removeprefix("scaled_").removeprefix("modified_").removeprefix("bessel_")
        plain = plain + ("e" if name.startswith("scaled_modified") else "")
        other: dict[str, Callable] = {
            "airy_ai": lambda x: special.airy(x)[0],
            "exp2": np.exp2,
            "sinc": np.sinc,
            "spherical_bessel_j0": lambda x: special.spherical_jn(0, x),
        }
        if "polynomial" in name:
            family, _, kind = name.removeprefix("shifted_").partition("_polynomial_")
            kind = {"chebyshev": f"cheby{kind}", "hermite": f"hermite{HERMITE.get(kind)}"}.get(
                family, family
            )
            shifted = "sh_" if name.startswith("shifted") else ""
            found = getattr(special, f"eval_{shifted}{kind}", None)
            if found is None:
                return lambda x, n: np.full_like(x, np.nan)
            return lambda x, n: found(n.astype(np.int64), x)
        function = other.get(name) or getattr(special, plain)
        return lambda *x: function(*x).astype(x[-1 if hasattr(x[-1], "dtype") else 0].dtype)


class OurSpecial:
    """``pullback.special`` on NumPy's arrays."""

    def __getattr__(self, name: str) -> Callable:
        """Return the function of arrays."""
        import pullback as pb

        function = getattr(pb.special, name)
        return lambda *x: function(
            *(pb.from_numpy(a) if isinstance(a, np.ndarray) else a for a in x)
        ).numpy()


def special_rows(python: str, count: int = 400) -> list[str]:
    """Return the rows of ``pullback.special``."""
    import ulp
    import ulp_special

    cases = {
        f"special.{name}-{dtype}": ulp_special.arguments(name, dtype, count)
        for name in ulp_special.FUNCTIONS
        for dtype in ulp.NUMPY
    }
    torch = compute_torch(python, cases)
    rows = []
    for name in sorted(ulp_special.FUNCTIONS):
        cells = []
        for dtype in ulp.NUMPY:
            key = f"special.{name}-{dtype}"
            exact, scale = ulp_special.truth(name, dtype, cases[key])
            with np.errstate(all="ignore"):
                results = [
                    compute_special(name, module, cases[key])
                    for module in (OurSpecial(), ScipySpecial())
                ]
            results += [torch[key]] if torch else []
            worst = [ulp.errors(result, exact, scale).max() for result in results]
            cells += ["" if np.isnan(e) else f"{e:.3g}" for e in worst] + [""] * (3 - len(worst))
        rows.append(f"| {name} | {' | '.join(cells)} |\n")
    return rows


def compute_torch(python: str, cases: dict[str, tuple[np.ndarray, ...]]) -> dict[str, np.ndarray]:
    """Return torch's results, computed in its own process; none if it cannot be imported."""
    if subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        given, results = Path(folder, "given.npz"), Path(folder, "results.npz")
        arrays: dict[str, Any] = {
            f"{name}:{k}": a for name, arguments in cases.items() for k, a in enumerate(arguments)
        }
        np.savez(given, **arrays)
        subprocess.run([python, "-c", TORCH, given, results], check=True)
        return dict(np.load(results))


def main(arguments: list[str] | None = None) -> None:
    """Measure every function and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch-python", default=sys.executable)
    options = parser.parse_args(arguments)
    sys.path.insert(0, str(ROOT / "packages" / "backend-cpu" / "tests"))
    import ulp

    functions = {primitive: f.reference for primitive, f in ulp.FUNCTIONS.items()} | ulp.PAIRS
    cases = {}
    for primitive in functions:
        for dtype in ulp.NUMPY:
            cases[f"{primitive}-{dtype}"] = (
                ulp.pairs(primitive, dtype)
                if primitive in ulp.PAIRS
                else (ulp.points(primitive, dtype),)
            )
    torch = compute_torch(options.torch_python, cases)
    rows = []
    for primitive, function in sorted(functions.items()):
        cells = []
        for dtype in ulp.NUMPY:
            inputs = cases[f"{primitive}-{dtype}"]
            exact = ulp.reference(function, dtype, *inputs)
            results = [compute_pullback(primitive, inputs), compute_numpy(primitive, inputs)]
            if torch:
                results.append(torch[f"{primitive}-{dtype}"])
            worst = [ulp.errors(result, exact).max() for result in results]
            cells += [f"{error:.3g}" for error in worst] + [""] * (3 - len(worst))
        rows.append(f"| {primitive} | {' | '.join(cells)} |\n")
    rows += [SPECIAL_HEADER, *special_rows(options.torch_python)]
    REPORT.write_text(HEADER + "".join(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
