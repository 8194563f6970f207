"""One broker for all tests of a run, and one of its own for a test that kills it."""

import os
from collections.abc import Iterator

import pytest
from support.kafka_broker import Cluster, KafkaBroker, NoBroker, find_classpath


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
