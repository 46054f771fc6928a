"""How the tests of the command line run it."""

from types import SimpleNamespace

import pytest

from transformer_np.cli import main


@pytest.fixture
def command(capsys):
    """Run one command; return its exit code and what it wrote."""

    def run(*arguments):
        capsys.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as stop:  # argparse: --help and bad usage
            code = stop.code
        return SimpleNamespace(code=code, **capsys.readouterr()._asdict())

    return run
