"""Says loudly at the end of a run that broker tests were skipped, and fails it where CI asked for them."""

import os

import pytest

REQUIRED = "DEID_REQUIRE_BROKER"


def _skipped(config: pytest.Config) -> list[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return []
    reports = [r for r in reporter.stats.get("skipped", []) if "broker" in r.keywords]
    return [str(r.longrepr[2]) if isinstance(r.longrepr, tuple) else "no reason" for r in reports]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """``DEID_REQUIRE_BROKER=1``: a broker test that was skipped is a failure of the run."""
    if os.environ.get(REQUIRED) == "1" and _skipped(session.config) and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """One red banner: a green run without these tests proves nothing about Kafka."""
    if not (reasons := _skipped(config)):
        return
    required = os.environ.get(REQUIRED) == "1"
    terminalreporter.section("NOT TESTED AGAINST KAFKA", sep="!", red=True, bold=True)
    terminalreporter.line(f"{len(reasons)} broker tests were skipped:", red=True)
    for reason in sorted(set(reasons)):
        terminalreporter.line("  " + reason.removeprefix("Skipped: "), red=True)
    if required:
        terminalreporter.line(f"{REQUIRED}=1: this run counts as failed.", red=True)
