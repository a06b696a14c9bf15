"""The part of the build that has to be computed: where the core keeps ``pullback/abi.pxd``."""

from Cython.Build import cythonize
from setuptools import Extension, setup

import pullback

include = pullback.get_include()
native = Extension(
    "pullback_native._native",
    sources=["src/pullback_native/_native.pyx"],
    include_dirs=[include],
)
setup(ext_modules=cythonize([native], include_path=[include]))
