"""Which tests belong to the daily loop, how they are divided between processes, and the broker that they share.

``make test`` leaves out the tests marked ``full``: those of ``FULL_FOLDERS``, which take minutes (chaos, walks over all
public messages, fuzzing, wheels, every page in a browser), except for the ones marked ``smoke``; and single tests that
carry the mark themselves.

A run that skips broker tests ends with a red banner, and fails if ``DEID_REQUIRE_BROKER=1``. With several processes all
tests of one file run in the same process; so do all tests that share the broker or use the fixed ports of a page.

Property tests draw new examples in each run. With ``DEID_TEST_SAME_EXAMPLES=1``, as in the gate, they draw the same
ones in each run, so that a change is refused only for what the change did. No property test has a limit of time.
"""

import logging
import os
from collections.abc import Iterator

import hypothesis
import pytest
from support.kafka_broker import Cluster, KafkaBroker, broker_or_skip, find_classpath
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

REQUIRED = "DEID_REQUIRE_BROKER"
SAME_EXAMPLES = "DEID_TEST_SAME_EXAMPLES"
ONE_BY_ONE = {"broker", "chaos", "docs"}
FULL_FOLDERS = (
    "tests/property/fuzz/",
    "tests/security/chaos/",
    "tests/system/browser/",
    "tests/system/messages/",
    "tests/system/wheel/",
)

hypothesis.settings.register_profile("new examples", deadline=None)
hypothesis.settings.register_profile("same examples", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("same examples" if os.environ.get(SAME_EXAMPLES) == "1" else "new examples")


LEVEL = logging.getLogger().level


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    """A command in the process of the tests sets level and handlers of the root logger, which others must not see."""
    root = logging.getLogger()
    root.setLevel(LEVEL)  # a fixture of a module may have run a command
    handlers = root.handlers[:]
    yield
    root.handlers[:] = handlers
    root.setLevel(LEVEL)


@pytest.hookimpl(tryfirst=True)  # before pytest looks at -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that ``make test`` leaves out."""
    for item in items:
        if item.nodeid.startswith(FULL_FOLDERS) and item.get_closest_marker("smoke") is None:
            item.add_marker(pytest.mark.full)


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Hands out whole files; the files of ``ONE_BY_ONE`` together count as one."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "one by one" if ONE_BY_ONE & set(file.split("/")) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    """Used with ``-n 2``: xdist's own grouping by marks has no effect under pytest 9."""
    return ByFile(config, log)


def _skipped(config: pytest.Config) -> list[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return []
    reports = [r for r in reporter.stats.get("skipped", []) if "broker" in getattr(r, "keywords", ())]
    return [str(r.longrepr[2]) if isinstance(r.longrepr, tuple) else "no reason" for r in reports]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """With ``DEID_REQUIRE_BROKER=1`` a run that skipped a broker test fails."""
    if os.environ.get(REQUIRED) == "1" and _skipped(session.config) and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints one red banner: a green run without these tests proves nothing about Kafka."""
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
    """A broker that several tests share. Each test uses topics and groups of its own."""
    if running := os.environ.get("DEID_TEST_BROKER"):
        yield Cluster(running)
        return
    with broker_or_skip():
        broker = _fresh(tmp_path_factory)
    try:
        yield broker
    finally:
        broker.kill()


@pytest.fixture
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker for one test, which may stop, kill and restart it."""
    with broker_or_skip():
        broker = _fresh(tmp_path_factory)
    try:
        yield broker
    finally:
        broker.kill()


@pytest.fixture(scope="module", autouse=True)
def _clear_caches(request: pytest.FixtureRequest) -> Iterator[None]:
    """Release what the cached functions of a test module hold: a loaded system takes 150 MB."""
    yield
    for value in vars(request.module).values():
        clear = getattr(value, "cache_clear", None)
        if clear is not None and getattr(value, "__module__", "") == request.module.__name__:
            clear()
