"""``python -m pullback.backend doctor mlx`` finds nothing that fails and no kernel missing."""

import json
import subprocess
import sys


def test_the_doctor_is_content():
    command = [sys.executable, "-m", "pullback.backend", "doctor", "mlx", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["good"]
