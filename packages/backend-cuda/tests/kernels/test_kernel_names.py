"""What the host side launches is what the images have."""

import importlib
import pkgutil

import on_fake

from pullback_cuda import kernels
from pullback_cuda.kernels.common import launch


def test_host_and_images_know_the_same_kernels(images, fake_cuda):
    for module in pkgutil.walk_packages(kernels.__path__, f"{kernels.__name__}."):
        importlib.import_module(module.name)
    build = on_fake.emulation()
    found = {
        (path.stem, name)
        for path in images.glob("*.fatbin")
        for name in build.Kernels(path.resolve()).records
    }
    # Families of users have a dash in their name.
    assert sorted(found) == [known for known in launch.kernel_names() if "-" not in known[0]]
