"""Run a program of ``programs`` with ``cuda`` as the default device: ``run_on_cuda.py PROGRAM``.

``run_on_cuda.py PROGRAM 1``: one warning must come that MPI is not CUDA-aware; with 0 none may.
"""

import runpy
import sys
import warnings

import pullback as pb


def main(program, count=None):
    pb.set_default_device("cuda")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        runpy.run_path(program, run_name="__main__")
    texts = [str(each.message) for each in caught if "CUDA-aware" in str(each.message)]
    assert count is None or len(texts) == int(count), texts
    assert all(": this MPI library is not CUDA-aware" in text for text in texts), texts


main(*sys.argv[1:])
