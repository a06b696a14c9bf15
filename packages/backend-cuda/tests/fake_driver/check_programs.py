"""The fake CUDA driver: its entry points, and programs from their start to their end."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE))
try:
    import fake_driver
    from fake_driver import fixtures
finally:
    del sys.path[0]

clean = fixtures.clean
control = fixtures.control
cuda = fixtures.cuda

pytestmark = pytest.mark.usefixtures("clean")


# -- all entry points ------------------------------------------------------------------------------


def test_every_entry_point_is_there(control):
    names = (HERE / "fake_driver" / "entry_points.txt").read_text().split()
    assert names == sorted(names) and len(names) > 440
    lib = ctypes.CDLL("libcuda.so.1")
    for name in names:
        getattr(lib, name)
    assert lib.cuGraphCreate(None, 0) == lib.cuTexRefCreate(None) == 801
    found, status = ctypes.c_void_p(), ctypes.c_int()
    ask = lib.cuGetProcAddress_v2
    ask.argtypes = [
        ctypes.c_char_p,
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.c_uint64,
        ctypes.c_void_p,
    ]
    for name, exported in (
        (b"cuMemAlloc", "cuMemAlloc_v2"),
        (b"cuInit", "cuInit"),
        (b"cuCtxCreate", "cuCtxCreate_v4"),
    ):
        assert ask(name, ctypes.byref(found), 13000, 0, ctypes.byref(status)) == 0
        assert found.value == ctypes.cast(getattr(lib, exported), ctypes.c_void_p).value
    assert ask(b"cuNothing", ctypes.byref(found), 13000, 0, ctypes.byref(status)) == 500
    assert found.value is None and status.value == 1


# -- programs: how they begin and end --------------------------------------------------------------


def run_program(text, **environment):
    """Run a program on the fake; return its exit status, output and complaints."""
    command = [sys.executable, str(HERE / "fake_driver" / "run_with_fake.py"), "-c", text]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )
    return done.returncode, done.stdout.strip(), done.stderr.strip()


START = """
import pycuda.driver as cuda
cuda.init()
context = cuda.Device(0).retain_primary_context()
"""


def test_a_machine_without_devices(cuda):
    text = "import pycuda.driver as cuda\ntry: cuda.init()\nexcept cuda.Error as e: print(e)"
    outcome = run_program(text, FAKE_CUDA_DEVICES="0")
    assert outcome == (0, "cuInit failed: no CUDA-capable device is detected", "")


def test_what_the_environment_sets(cuda):
    text = START + "print(cuda.Device.count(), cuda.Device(2).total_memory())\n"
    text += "import fake_driver\nc = fake_driver.load()\ncontext.push()\nm = cuda.mem_alloc(4)\n"
    text += "cuda.memset_d8_async(m, 0, 4, cuda.Stream(1))\nprint(c.pending())\ncontext.detach()"
    outcome = run_program(
        text, FAKE_CUDA_DEVICES="3", FAKE_CUDA_MEMORY="1000", FAKE_CUDA_DEFERRED="1"
    )
    assert outcome == (0, "3 1000\n1", "")


def test_a_context_left_current_aborts(cuda):
    code, _, complaint = run_program(START + "context.push()")
    assert code == -6 and "The context stack was not empty upon module cleanup" in complaint


def test_a_context_detached_at_exit_is_clean(cuda):
    text = START + "import atexit\ncontext.push()\natexit.register(context.detach)\n"
    text += "from pycuda.tools import DeviceMemoryPool\npool = DeviceMemoryPool()\n"
    text += "kept = [pool.allocate(10), cuda.Stream(), cuda.pagelocked_empty(4, 'f4')]"
    assert run_program(text) == (0, "", "")


def test_a_pooled_block_dropped_without_a_context_aborts(cuda):
    """The first block that the pool keeps needs a context of pycuda in its thread."""
    text = START + "context.push()\nfrom pycuda.tools import DeviceMemoryPool\nimport threading\n"
    text += "blocks = [DeviceMemoryPool().allocate(10)]\n"
    text += "thread = threading.Thread(target=blocks.clear)\nthread.start()\nthread.join()"
    code, _, complaint = run_program(text)
    assert code == -6 and "no currently active context?" in complaint


@pytest.mark.parametrize("size, problem", [(100, None), (101, "over"), (100, "freed")])
def test_bad_reads_of_kernels_are_found(cuda, tmp_path, size, problem):
    """With the address sanitizer, by the line in the kernel: blocks have their exact size."""
    sys.path.insert(0, str(HERE))
    try:
        import emulation
    finally:
        del sys.path[0]
    image = emulation.image_of_text(fixtures.KERNELS, sanitize=True)
    text = START + "import atexit, struct\ncontext.push()\natexit.register(context.detach)\n"
    text += f"module = cuda.module_from_buffer(open({str(image)!r}, 'rb').read())\n"
    text += "source, target = cuda.mem_alloc(400), cuda.mem_alloc(404)\n"
    text += f"data = struct.pack('PPqfi', int(source), int(target), {size}, 1.0, 0)\n"
    text += "source.free()\n" if problem == "freed" else ""
    text += "module.get_function('scale')._launch_kernel((1,), (128,), data, 0, None)\n"
    code, _, complaint = run_program(text, **emulation.sanitizer_environment())
    assert (code == 0) == (problem is None), complaint
    if problem:
        assert "ERROR: AddressSanitizer: use-after-poison" in complaint
        assert "text.cu:9" in complaint


def test_programs_are_run_as_python_does(cuda, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import sys, neighbour\nprint(__name__, sys.argv[1:], neighbour.name)")
    (tmp_path / "neighbour.py").write_text("name = __name__")
    runner = str(HERE / "fake_driver" / "run_with_fake.py")
    for command, folder in (([str(program)], None), (["-m", "program"], tmp_path)):
        done = subprocess.run(
            [sys.executable, runner, *command, "a", "-b"],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=folder,
        )
        assert (done.stdout, done.stderr) == ("__main__ ['a', '-b'] neighbour\n", "")


def test_the_fake_is_loaded_once(control):
    assert fake_driver.load().counters() == control.counters()
    assert fake_driver.build() == control.folder
