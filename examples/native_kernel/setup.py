"""The part of the build that has to be computed: where the core keeps ``pullback/abi.pxd``."""

import sys

from Cython.Build import cythonize
from setuptools import Extension, setup

try:
    import pullback
except ImportError:
    sys.exit(
        "pullback-native is built against the headers of pullback 0.1.0, which is not installed: "
        "install it first, or build without --no-build-isolation"
    )

include = pullback.get_include()
native = Extension(
    "pullback_native._native",
    sources=["src/pullback_native/_native.pyx"],
    include_dirs=[include],
)
setup(ext_modules=cythonize([native], include_path=[include]))
