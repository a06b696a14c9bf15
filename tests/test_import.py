"""Importing under unusual circumstances: works, or says clearly what to do."""

import shutil
import subprocess
import sys
import zipfile

import pytest

WORK = "import pullback as pb; x = pb.ones(3, requires_grad=True); (x * x).sum().backward(); "
REPORT = "print(x.device.type, x.grad.tolist())"


def succeed(process):
    """Return the output of a run that has to end well and quietly."""
    assert process.returncode == 0, process.stderr
    assert process.stderr == ""
    return process.stdout.strip()


def test_default_device_is_cpu_when_its_backend_is_installed(run_python):
    assert succeed(run_python(WORK + REPORT)) == "cpu [2.0, 2.0, 2.0]"


@pytest.mark.parametrize("option", ["-O", "-OO", "-I", "-Werror", "-Xdev"])
def test_import_with_interpreter_option(run_python, option):
    assert succeed(run_python(WORK + REPORT, options=[option])) == "cpu [2.0, 2.0, 2.0]"


def test_plugins_off_leaves_the_reference_backend(run_python):
    output = succeed(run_python(WORK + REPORT, PULLBACK_PLUGINS="off"))
    assert output == "ref [2.0, 2.0, 2.0]"


def test_plugins_by_name_loads_only_those(run_python):
    code = WORK + REPORT + "; import sys; print('pullback_cuda' in sys.modules)"
    output = succeed(run_python(code, PULLBACK_PLUGINS="cpu"))
    assert output.splitlines() == ["cpu [2.0, 2.0, 2.0]", "False"]


def test_device_left_out_by_the_variable_names_it(run_python):
    process = run_python("import pullback as pb; pb.ones(3, device='cpu')", PULLBACK_PLUGINS="off")
    assert process.returncode == 1
    assert "RuntimeError" in process.stderr
    assert "PULLBACK_PLUGINS" in process.stderr


def test_import_is_light(run_python):
    heavy = {"numpy", "scipy", "pycuda", "logging", "pytest", "hypothesis", "rich", "torch"}
    code = f"import sys, pullback; print(sorted({heavy!r} & set(sys.modules)))"
    assert succeed(run_python(code)) == "[]"


def test_import_loads_no_plugin(run_python):
    plugins = {"pullback_cpu", "pullback_cuda", "pullback_profiler"}
    code = f"import sys, pullback; print(sorted({plugins!r} & set(sys.modules)))"
    assert succeed(run_python(code)) == "[]"


def test_import_leaves_modules_and_optimizers_for_their_first_use(run_python):
    late = {"pullback.nn.modules", "pullback.optim", "pullback.func", "pullback.array_api"}
    code = f"import sys, pullback; print(sorted({late!r} & set(sys.modules))); pullback.optim.SGD"
    assert succeed(run_python(code)) == "[]"


def test_first_tensor_scans_no_distributions(run_python):
    """Asking them for entry points takes longer than the rest of the start."""
    code = "import sys, pullback as pb; pb.ones(1); print('importlib.metadata' in sys.modules)"
    assert succeed(run_python(code)) == "False"


def test_broken_cpu_backend_says_how_to_work_without_it(run_python, tmp_path):
    (tmp_path / "pullback_cpu").mkdir()
    (tmp_path / "pullback_cpu/__init__.py").write_text("raise OSError('libblas is gone')\n")
    code = (
        "import pullback as pb\n"
        "print((pb.ones(2, device='ref') + 1).tolist())\n"
        "try:\n"
        "    pb.ones(2)\n"
        "except RuntimeError as error:\n"
        "    print(error)\n"
    )
    values, message = succeed(run_python(code, PYTHONPATH=str(tmp_path))).splitlines()
    assert values == "[2.0, 2.0]"
    assert "'cpu'" in message and "libblas is gone" in message
    assert "PULLBACK_PLUGINS=off" in message


@pytest.mark.parametrize(
    "text",
    [
        "raise ImportError('libnothing.so.7 is gone')",
        "raise RuntimeError('libnothing.so.7 is gone')",
        "this is no Python, libnothing.so.7 is gone",
    ],
    ids=["import-error", "runtime-error", "syntax-error"],
)
def test_broken_plugin_spoils_its_own_device_only(run_python, write_plugin, text):
    code = (
        "import pullback as pb\n"
        "try:\n"
        "    pb.ones(3, device='broken')\n"
        "except (RuntimeError, ImportError) as error:\n"
        "    print(type(error).__name__, '|', error)\n"
        "else:\n"
        "    print('nothing was raised')\n"
        "print((pb.ones(2) + 1).tolist(), (pb.ones(2, device='ref') + 1).tolist())\n"
    )
    output = succeed(run_python(code, PYTHONPATH=write_plugin("broken", text)))
    message, values = output.splitlines()[0], output.splitlines()[-1]
    assert "broken" in message
    assert "nothing was raised" not in output
    assert "plugin_of_broken" in output or "libnothing.so.7 is gone" in output
    assert values == "[2.0, 2.0] [2.0, 2.0]"


BAD_HOOK = (
    "from pullback.backend import hookimpl\n"
    "@hookimpl\n"
    "def pullback_backend(wrong):\n"
    "    return None\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [(BAD_HOOK, "wrong"), ("", "returned None")],
    ids=["unknown-argument", "no-hooks"],
)
def test_plugin_with_bad_hooks_is_refused(run_python, write_plugin, text, expected):
    code = "import pullback as pb; pb.ones(3, device='odd')"
    process = run_python(code, PYTHONPATH=write_plugin("odd", text))
    message = process.stderr.rpartition("RuntimeError: ")[2]
    assert message.startswith("the plugin of device 'odd' cannot be used: ")
    assert expected in message


def test_two_plugins_of_one_device_are_refused(run_python, write_plugin, tmp_path):
    write_plugin("odd", "")
    other = tmp_path / "another-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: another\nVersion: 1.0\n")
    (other / "entry_points.txt").write_text("[pullback.backends]\nodd = another\n")
    code = "import pullback as pb; pb.ones(3, device='odd')"
    process = run_python(code, PYTHONPATH=str(tmp_path))
    last = process.stderr.splitlines()[-1]
    assert last.startswith("RuntimeError: device 'odd' is provided by more than one plugin")
    assert "another" in last and "plugin_of_odd" in last


def test_loaded_plugin_is_not_asked_for_other_devices(run_python, write_plugin):
    text = (
        "from pullback.backend import hookimpl\n"
        "@hookimpl\n"
        "def pullback_backend(device):\n"
        "    raise RuntimeError('asked for ' + device)\n"
        "@hookimpl\n"
        "def pullback_register_kernels(table, device):\n"
        "    raise RuntimeError('asked for ' + device)\n"
    )
    code = (
        "import pullback as pb, plugin_of_odd\n"
        "pb.backend.plugin_manager().register(plugin_of_odd)\n"
        "print((pb.ones(2) + 1).tolist(), (pb.ones(2, device='ref') + 1).tolist())\n"
    )
    output = succeed(run_python(code, PYTHONPATH=write_plugin("odd", text)))
    assert output == "[2.0, 2.0] [2.0, 2.0]"


@pytest.mark.parametrize(
    "returned", ["None", "42", "'pb_backend'", "object()"], ids=["none", "int", "str", "object"]
)
def test_plugin_that_gives_no_backend_raises(run_python, write_plugin, returned):
    text = (
        "from pullback.backend import hookimpl\n"
        "@hookimpl\n"
        "def pullback_backend(device):\n"
        f"    return {returned} if device == 'odd' else None\n"
    )
    code = (
        "import pullback as pb\n"
        "try:\n"
        "    pb.ones(3, device='odd')\n"
        "except (RuntimeError, TypeError, ValueError) as error:\n"
        "    print('raised', error)\n"
        "print((pb.ones(2) + 1).tolist())\n"
    )
    output = succeed(run_python(code, PYTHONPATH=write_plugin("odd", text)))
    assert output.startswith("raised ")
    assert "odd" in output
    assert output.splitlines()[-1] == "[2.0, 2.0]"


def test_unknown_device_is_named(run_python):
    process = run_python("import pullback as pb; pb.ones(3, device='nowhere')")
    assert process.returncode == 1
    assert "RuntimeError" in process.stderr
    assert "nowhere" in process.stderr


def test_cuda_says_what_is_missing_and_cpu_works(run_python):
    import pullback_cuda

    if pullback_cuda.is_available():
        pytest.skip("a CUDA device is here; packages/backend-cuda/tests cover this")
    code = (
        "import pullback as pb\n"
        "try:\n"
        "    pb.ones(3, device='cuda')\n"
        "except (RuntimeError, ImportError) as error:\n"
        "    print(error)\n"
        "print((pb.ones(2) + 1).tolist())\n"
    )
    output = succeed(run_python(code))
    assert pullback_cuda.why_unavailable() in output
    assert output.splitlines()[-1] == "[2.0, 2.0]"


def unpack(wheels, folder):
    """Install wheels the simplest way there is: their files in a folder."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    return str(folder)


def test_import_from_a_path_with_spaces(run_python, wheels, tmp_path):
    folder = unpack(wheels.values(), tmp_path / "a folder with späces")
    code = WORK + REPORT + "; print(pb.__file__)"
    values, path = succeed(run_python(code, PYTHONPATH=folder, PYTHONUTF8="1")).splitlines()
    assert values == "cpu [2.0, 2.0, 2.0]"
    assert path.startswith(folder)


@pytest.mark.slow
def test_core_alone_in_a_fresh_environment(wheels, tmp_path):
    """NumPy and the core's own requirements come from this environment; no backend, no scipy."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True
    )
    scripts = tmp_path / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
    code = "import sys; print([p for p in sys.path if p.endswith('site-packages')][0])"
    python = str(scripts / "python")
    site = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    site = site.stdout.strip()
    unpack([wheels["pullback"]], site)
    copy_distributions(("numpy", "pluggy", "ml_dtypes"), site)
    result = subprocess.run([python, "-c", WORK + REPORT], capture_output=True, text=True)
    assert succeed(result) == "ref [2.0, 2.0, 2.0]"
    (tmp_path / "pullback_cpu").mkdir()  # a folder of that name is no backend
    result = subprocess.run(
        [python, "-c", WORK + REPORT], capture_output=True, text=True, cwd=tmp_path
    )
    assert succeed(result) == "ref [2.0, 2.0, 2.0]"
    code = "import pullback as pb; pb.ones(3, device='cpu')"
    result = subprocess.run([python, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    assert "pullback-cpu" in result.stderr or "pullback[cpu]" in result.stderr


def copy_distributions(names, site):
    """Copy installed distributions of this environment into another one."""
    from importlib import metadata
    from pathlib import Path

    for name in names:
        distribution = metadata.distribution(name)
        for file in distribution.files:
            source = Path(distribution.locate_file(file))
            if file.parts[0] != ".." and source.is_file() and source.suffix != ".pyc":
                target = Path(site, *file.parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)


def test_profiler_absent_says_what_to_install(run_python):
    block = "import sys; sys.modules['pullback_profiler'] = None; "
    process = run_python(block + "import pullback as pb; pb.autograd.profiler.profile")
    assert process.returncode == 1
    assert "ImportError" in process.stderr
    assert "pullback-profiler" in process.stderr or "pullback[profiler]" in process.stderr
