"""What `import transformer_np` brings in: NumPy and itself. All that is heavy waits until it is used."""

import subprocess
import sys

import pytest

HEAVY = ("matplotlib", "babel", "cupy", "torch", "safetensors", "tqdm", "threadpoolctl", "tokenizers", "jax", "scipy")


def heavy_after(statement):
    """Which of the heavy packages a fresh interpreter has loaded after `statement`."""
    code = f"import sys\n{statement}\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}} & {set(HEAVY)}))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize(
    "statement",
    [
        "import transformer_np",
        "import transformer_np.cli",
        "import transformer_np.data, transformer_np.plot, transformer_np.training, transformer_np.generation",
    ],
)
def test_importing_brings_in_nothing_heavy(statement):
    assert heavy_after(statement) == []


def test_the_test_itself_can_fail():
    assert heavy_after("import matplotlib") == ["matplotlib"]
