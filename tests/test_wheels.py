"""What is in the wheels: everything that users need, nothing that they do not."""

import email
import zipfile

import pytest

COMPILED = ("pullback", "pullback_cpu")
PURE = ("pullback_cuda", "pullback_profiler")
MEGABYTE = 1_000_000


@pytest.fixture(params=[*COMPILED, *PURE])
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
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {wheel.import_name}


def test_wheel_leaves_sources_and_tests_out(wheel):
    # The shipped suite is part of the core; compiled sources and a package's own tests are not.
    unwanted = [
        name
        for name in wheel.namelist()
        if name.endswith((".pyx", ".c", ".in", ".tp", ".pyc", "meson.build")) or "/tests/" in name
    ]
    assert unwanted == []


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
    assert "pullback/include/pullback/abi.h" in names
    assert "pullback/include/pullback/abi.pxd" in names
    assert any(name.endswith(".pyi") for name in names)
    assert [name for name in names if name.endswith(".pxd") and "/include/" not in name] == []


@pytest.mark.parametrize(("name", "device"), [("pullback_cpu", "cpu"), ("pullback_cuda", "cuda")])
def test_backend_wheel_registers_its_device(wheels, name, device):
    with zipfile.ZipFile(wheels[name]) as archive:
        (path,) = (path for path in archive.namelist() if path.endswith("entry_points.txt"))
        text = archive.read(path).decode()
        assert "[pullback.backends]" in text
        assert f"{device} = {name}.plugin" in text
        assert f"{name}/plugin.py" in archive.namelist()


@pytest.mark.parametrize("name", ["pullback_cpu", *PURE])
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


def test_pure_wheels_are_for_any_python(wheels):
    assert all(wheels[name].name.endswith("-py3-none-any.whl") for name in PURE)


def test_wheels_stay_small(wheels):
    size = sum(wheels[name].stat().st_size for name in (*COMPILED, "pullback_profiler"))
    assert size <= 6 * MEGABYTE
