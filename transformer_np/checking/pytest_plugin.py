"""pytest: a fixture `gradcheck` that fails the test with the whole report, and an option for the seed.

    def test_linear(gradcheck):
        gradcheck(Linear(3, 4), x)

The seed is 0, or that of `--gradcheck-seed N`; `--gradcheck-seed random` draws one, and the report prints it.
"""

import pytest


def pytest_addoption(parser):
    """Add --gradcheck-seed."""
    parser.getgroup("gradcheck").addoption(
        "--gradcheck-seed", default="0", metavar="N", help='seed of the gradcheck fixture, an integer or "random"'
    )


def pytest_report_header(config):
    """Say which seed is used where it is not the usual one."""
    seed = config.getoption("--gradcheck-seed")
    return None if seed == "0" else f"gradcheck seed: {_seed(config)}"


def _seed(config):
    given = config.getoption("--gradcheck-seed")
    if given != "random":
        try:
            return int(given)
        except ValueError:
            raise pytest.UsageError(f'--gradcheck-seed: got {given!r}, expected an integer or "random"') from None
    if not hasattr(config, "_gradcheck_seed"):
        import secrets

        config._gradcheck_seed = secrets.randbelow(2**31)
    return config._gradcheck_seed


@pytest.fixture
def gradcheck(request):
    """Check a backward and fail the test unless the outcome is PASS.

    Called like `tnp.gradcheck`; `expect="KINK"` (or several outcomes) accepts others. Returns the report.
    """

    def check(subject, *inputs, expect="PASS", **options):
        __tracebackhide__ = True
        from transformer_np.checking import gradcheck as run

        options.setdefault("seed", _seed(request.config))
        report = run(subject, *inputs, **options)
        if report.status not in ((expect,) if isinstance(expect, str) else tuple(expect)):
            pytest.fail(str(report), pytrace=False)
        return report

    return check
