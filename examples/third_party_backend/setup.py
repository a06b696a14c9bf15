"""The part of the build that has to be computed: where the core keeps ``pullback/abi.h``."""

from setuptools import Extension, setup

import pullback

native = Extension(
    "pullback_example._native",
    sources=["src/pullback_example/_native.c"],
    include_dirs=[pullback.get_include()],
)
setup(ext_modules=[native])
