"""Three brokers move, die and freeze while agents and workers are killed: every message is published once, in order.

The short form of ``python -m support.chaos_run``, which takes more records and repeats each fault.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.chaos_run import run_storm
from support.cluster_chaos import ClusterFault
from support.kafka_broker import broker_or_skip, find_classpath
from support.kafka_cluster import ThreeBrokers

pytestmark = pytest.mark.broker


@pytest.fixture
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    with broker_or_skip():
        cluster = ThreeBrokers(tmp_path_factory.mktemp("kafka"), find_classpath())
        cluster.start()
    try:
        yield cluster
    finally:
        cluster.kill()


async def test_each_fault_of_three_brokers_loses_duplicates_and_reorders_nothing(
    brokers: ThreeBrokers, tmp_path: Path, seed: int
) -> None:
    chaos, verdict, leaks = await run_storm(brokers, tmp_path, ClusterFault, agents=2, times=1, count=400, seed=seed)
    assert chaos.faults == len(ClusterFault)
    assert verdict.records == 400
    assert verdict.faultless, verdict
    assert leaks == []
    await chaos.orphans_end()
