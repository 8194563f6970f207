from deid_agent.agent.health import Health
from deid_agent.agent.ports import Partition

A = Partition("adt", 0)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def healthy() -> tuple[Health, Clock]:
    clock = Clock()
    health = Health(clock, beat_limit_s=10, stall_limit_s=60)
    health.beat()
    health.started()
    health.workers(2, 2)
    health.assigned(A)
    health.lag(A, 5)
    return health, clock


def later(health: Health, clock: Clock, seconds: float) -> None:
    """Time passes with the loop beating."""
    clock.now += seconds
    health.beat()


def test_a_running_agent_is_alive_and_ready() -> None:
    health, _ = healthy()
    assert health.live().ok
    assert health.ready().ok


def test_a_loop_that_does_not_beat_is_dead() -> None:
    health, clock = healthy()
    clock.now += 11
    assert health.live().reasons == ("loop",)
    assert "loop" in health.ready().reasons


def test_missing_workers_and_partitions_are_not_ready() -> None:
    health, _ = healthy()
    health.workers(1, 2)
    health.revoked(A)
    assert health.ready().reasons == ("unassigned", "workers")
    assert health.live().ok


def test_a_position_must_move_while_there_is_lag() -> None:
    health, clock = healthy()
    health.moved(A, 1)
    later(health, clock, 61)
    health.lag(A, 5)
    assert health.ready().reasons == ("stalled adt/0",)
    health.moved(A, 1)
    assert not health.ready().ok
    health.moved(A, 2)
    assert health.ready().ok


def test_the_stall_clock_starts_with_the_lag() -> None:
    health, clock = healthy()
    for lag in (0, None, 0):
        health.lag(A, lag)
        later(health, clock, 500)
        assert health.ready().ok
    health.lag(A, 3)
    later(health, clock, 59)
    health.lag(A, 4)
    assert health.ready().ok
    later(health, clock, 2)
    assert not health.ready().ok


def test_a_draining_agent_is_alive_but_not_ready() -> None:
    health, _ = healthy()
    health.stopping()
    assert health.live().ok
    assert health.ready().reasons == ("stopping",)


def test_a_start_is_alive_and_not_ready_however_long_it_takes() -> None:
    """Workers load models and no loop beats: a probe must not kill the agent during that time."""
    clock = Clock()
    health = Health(clock, beat_limit_s=10)
    clock.now += 100
    assert health.live().ok
    assert health.ready().reasons == ("starting",)


def test_closing_is_alive_and_not_ready_however_long_it_takes() -> None:
    health, clock = healthy()
    health.closing()
    clock.now += 100
    assert health.live().ok
    assert health.ready().reasons == ("stopping",)


def test_a_broker_that_does_not_answer_is_a_reason() -> None:
    health, _ = healthy()
    health.outage("broker")
    assert health.ready().reasons == ("broker",)
    assert health.live().ok, "a restart does not help"
    health.outage("")
    assert health.ready().ok
