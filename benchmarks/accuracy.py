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
TORCH = """
import sys
import numpy, torch
given = numpy.load(sys.argv[1])
names = sorted({key.rsplit(":", 1)[0] for key in given})
results = {}
for name in names:
    arguments = [given[f"{name}:{k}"] for k in range(2) if f"{name}:{k}" in given]
    function = name.split("-")[0]
    function = getattr(torch if hasattr(torch, function) else torch.nn.functional, function)
    results[name] = function(*map(torch.from_numpy, arguments)).numpy()
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
    REPORT.write_text(HEADER + "".join(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
