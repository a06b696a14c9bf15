"""What is in the wheels: everything that users need, nothing that they do not."""

import email
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

COMPILED = ("pullback", "pullback_cpu", "pullback_cuda", "pullback_profiler")
CUDA = "pullback_cuda/"
HELP = ("/_help/examples.json", "/_help/left_out.json")
PAGES = "pullback_profiler/export/pages/"
MEGABYTE = 1_000_000


@pytest.fixture(params=COMPILED)
def wheel(request, wheels):
    """One wheel, opened, with its import name."""
    with zipfile.ZipFile(wheels[request.param]) as archive:
        archive.import_name = request.param
        yield archive


def read_metadata(archive):
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(archive.read(name))


def names_of(wheels, name):
    with zipfile.ZipFile(wheels[name]) as archive:
        return set(archive.namelist())


def test_wheel_holds_one_import_name_only(wheel):
    """But for the core's plugin of pytest, which is not to import the package."""
    tops = {name.split("/")[0] for name in wheel.namelist()}
    beside = {"pullback_pytest.py"} if wheel.import_name == "pullback" else set()
    found = {top for top in tops if not top.endswith(".dist-info")}
    assert found == {wheel.import_name, *beside}


def test_wheel_holds_modules_markers_and_nothing_else(wheel):
    """No compiled sources, no caches, no tests: the shipped suite is a module like others.

    The text of CUDA kernels is there, for a compiler on the user's machine.
    """
    inside = [name for name in wheel.namelist() if ".dist-info/" not in name]
    contract = f"{wheel.import_name}/include/"
    unwanted = [
        name
        for name in inside
        if not name.endswith((".py", ".pyi", ".so", ".pyd", "/py.typed", "/templates.txt", *HELP))
        and not (name.startswith(contract) and name.endswith((".h", ".pxd")))
        and not (name.startswith(CUDA) and name.endswith((".cu", ".cuh", ".h", ".fatbin")))
        and name != f"{CUDA}kernels/architectures.txt"
        and not (name.startswith(PAGES) and name.endswith((".html", ".css", ".js")))
    ]
    assert unwanted == []
    assert [name for name in inside if "/tests/" in name or "__pycache__" in name] == []


def test_wheel_states_licence_version_and_python(wheel):
    metadata = read_metadata(wheel)
    assert metadata["License-Expression"] == "BSD-3-Clause"
    assert metadata["Version"] == "0.1.0"
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata["Description-Content-Type"] == "text/markdown"
    (text,) = (wheel.read(name) for name in wheel.namelist() if name.endswith("licenses/LICENSE"))
    assert text.startswith(b"BSD 3-Clause License")


def test_wheel_is_typed(wheel):
    assert f"{wheel.import_name}/py.typed" in wheel.namelist()


def test_core_wheel_has_the_contract_and_stubs(wheels):
    names = names_of(wheels, "pullback")
    headers = {name for name in names if name.endswith((".h", ".pxd"))}
    folder = "pullback/include/pullback"
    contract = ("abi.h", "abi.pxd", "clock.h", "pool.h", "pool.pxd", "__init__.pxd")
    assert headers == {f"{folder}/{name}" for name in contract}
    assert any(name.endswith(".pyi") for name in names)


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        *(("core", "pullback"), ("backend-cpu", "pullback_cpu")),
        *(("backend-cuda", "pullback_cuda"), ("profiler", "pullback_profiler")),
    ],
)
def test_wheel_has_every_module_of_the_source(root, wheels, folder, name):
    source = root / "packages" / folder / "src"
    modules = {path.relative_to(source).as_posix() for path in source.rglob("*.py")}
    compiled = {
        path.relative_to(source).as_posix().partition(".")[0] for path in source.rglob("*.pyx*")
    }
    names = names_of(wheels, name)
    built = {
        name.partition(".")[0].removesuffix("_baseline")  # compiled for several instruction sets
        for name in names
        if name.endswith((".so", ".pyd"))
    }
    assert modules - names == set()
    assert compiled - built == set()


@pytest.mark.parametrize(("name", "device"), [("pullback_cpu", "cpu"), ("pullback_cuda", "cuda")])
def test_backend_wheel_registers_its_device(wheels, name, device):
    with zipfile.ZipFile(wheels[name]) as archive:
        (path,) = (path for path in archive.namelist() if path.endswith("entry_points.txt"))
        text = archive.read(path).decode()
        assert "[pullback.backends]" in text
        assert f"{device} = {name}.plugin" in text
        assert f"{name}/plugin.py" in archive.namelist()


@pytest.mark.parametrize("name", COMPILED[1:])
def test_wheel_requires_this_very_core(wheels, name):
    with zipfile.ZipFile(wheels[name]) as archive:
        requirements = read_metadata(archive).get_all("Requires-Dist")
    assert "pullback==0.1.0" in requirements


def test_core_wheel_offers_the_extras(wheels):
    with zipfile.ZipFile(wheels["pullback"]) as archive:
        metadata = read_metadata(archive)
    assert set(metadata.get_all("Provides-Extra")) >= {"cpu", "cuda", "profiler", "all"}
    required = {line.split(";")[0].strip() for line in metadata.get_all("Requires-Dist")}
    assert {"pullback-cpu==0.1.0", "pullback-cuda==0.1.0", "pullback-profiler==0.1.0"} <= required


def test_cuda_wheel_has_every_family_of_kernels_as_text(root, wheels):
    source = root / "packages" / "backend-cuda" / "src"
    names = names_of(wheels, "pullback_cuda")
    for pattern in ("*.cu", "*.cuh", "*.h"):
        for path in source.rglob(pattern):
            assert path.relative_to(source).as_posix() in names


def test_cuda_wheel_lists_the_architectures_of_its_images(wheels):
    with zipfile.ZipFile(wheels["pullback_cuda"]) as archive:
        names = archive.namelist()
        if not any(name.endswith(".fatbin") for name in names):
            pytest.skip("the wheel was built without nvcc")
        listed = archive.read(f"{CUDA}kernels/architectures.txt").decode().split()
    assert "sm_90" in listed
    assert all(name.startswith(("sm_", "compute_")) for name in listed)


@pytest.fixture(scope="module")
def packed(root, wheels, tmp_path_factory):
    """The wheels as they are published."""
    pytest.importorskip("deflate")
    folder = tmp_path_factory.mktemp("packed")
    found = {name: Path(shutil.copy(path, folder)) for name, path in wheels.items()}
    command = [sys.executable, str(root / "tools/pack_wheels.py"), *map(str, found.values())]
    subprocess.run(command, check=True)
    return found


def test_wheels_stay_small(packed):
    sizes = {name: path.stat().st_size for name, path in packed.items()}
    assert sizes["pullback"] + sizes["pullback_cpu"] + sizes["pullback_profiler"] <= 7 * MEGABYTE
    assert sizes["pullback_cuda"] <= 12 * MEGABYTE


def test_packed_wheels_are_smaller_and_hold_the_same(wheels, packed):
    for name in COMPILED:
        assert packed[name].stat().st_size < wheels[name].stat().st_size
        with zipfile.ZipFile(wheels[name]) as before, zipfile.ZipFile(packed[name]) as after:
            assert after.testzip() is None
            assert after.namelist() == before.namelist()
            for one in before.infolist():
                other = after.getinfo(one.filename)
                assert (other.CRC, other.external_attr, other.date_time) == (
                    one.CRC,
                    one.external_attr,
                    one.date_time,
                )
