"""The pytest fixture, in a pytest of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import numpy as np

class Square:
    factor = 2
    def forward(self, x):
        self.x = x
        return x * x
    def backward(self, dy):
        return self.factor * self.x * dy

def test_right(gradcheck):
    report = gradcheck(Square(), np.array([[1.0, 2.0], [3.0, -4.0]]))
    print("seed is", report.seed)

def test_wrong(gradcheck):
    layer = Square()
    layer.factor = 3
    gradcheck(layer, np.array([[1.0, 2.0], [3.0, -4.0]]))

def test_expected(gradcheck):
    gradcheck(Square(), np.zeros((2, 2)), expect="VACUOUS")
"""


def run(folder, *options):
    (folder / "test_mine.py").write_text(TESTS, encoding="utf-8")
    words = ["-rP", "-p", "no:cacheprovider", "-p", "transformer_np.checking.pytest_plugin", *options, "test_mine.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_fixture_fails_with_the_report(tmp_path):
    result = run(tmp_path)
    assert result.returncode == 1
    assert "2 passed" in result.stdout
    assert "1 failed" in result.stdout
    assert "FAIL  Square: the gradient of x is wrong" in result.stdout
    assert "seed is 0" in result.stdout


def test_the_seed_option(tmp_path):
    result = run(tmp_path, "--gradcheck-seed", "41", "-k", "right")
    assert result.returncode == 0
    assert "seed is 41" in result.stdout
    assert "gradcheck seed: 41" in result.stdout
    assert run(tmp_path, "--gradcheck-seed", "often", "-k", "right").returncode != 0
