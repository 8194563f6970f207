"""The brokers of the tests: one that many share, one of its own for a test that kills it.

A run whose broker tests were skipped says so loudly at its end, and fails where CI asked for them. Where tests run in
several processes, a file stays in one of them, and all that wait for a broker or take a page's own ports in the same.
"""

import os
from collections.abc import Iterator

import pytest
from support.kafka_broker import Cluster, KafkaBroker, NoBroker, find_classpath
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

REQUIRED = "DEID_REQUIRE_BROKER"
ONE_BY_ONE = {"broker", "chaos", "docs"}


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist tells no types
    """Hands out whole files, and those that go one by one as if they were one file."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "one by one" if file.split("/")[1] in ONE_BY_ONE else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    """For ``-n 2``; xdist's own grouping by marks does nothing under pytest 9."""
    return ByFile(config, log)


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


def _fresh(folder: pytest.TempPathFactory) -> KafkaBroker:
    broker = KafkaBroker(folder.mktemp("kafka"), find_classpath())
    broker.start()
    return broker


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker that several tests share; use topics and groups of your own."""
    if running := os.environ.get("DEID_TEST_BROKER"):
        yield Cluster(running)
        return
    try:
        broker = _fresh(tmp_path_factory)
    except NoBroker as reason:
        pytest.skip(str(reason))
    try:
        yield broker
    finally:
        broker.kill()


@pytest.fixture
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker for one test alone, which may stop, kill and restart it."""
    try:
        broker = _fresh(tmp_path_factory)
    except NoBroker as reason:
        pytest.skip(str(reason))
    try:
        yield broker
    finally:
        broker.kill()
