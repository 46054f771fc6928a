"""Run pytest, and fail where anything was skipped that is not marked `gpu`: a skip would hide a missing dependency."""

import sys

import pytest


class NoSkips:
    """Collects what was skipped."""

    def __init__(self):
        self.skipped = []

    def pytest_runtest_logreport(self, report):
        if report.skipped and "gpu" not in report.keywords and not hasattr(report, "wasxfail"):
            self.skipped.append(report.nodeid)

    def pytest_collectreport(self, report):
        if report.skipped:
            self.skipped.append(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter):
        if self.skipped:
            terminalreporter.section("skipped, which is not allowed here", red=True)
            terminalreporter.write("\n".join(self.skipped) + "\n")


plugin = NoSkips()
code = pytest.main(sys.argv[1:], plugins=[plugin])
sys.exit(code or bool(plugin.skipped))
