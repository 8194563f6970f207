"""Which connection gives way to a new sender: hostile connections do, honest ones do not."""

import logging
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.mllp_agent import Agent, until
from support.mllp_listener import ScriptedSink, Start, changed
from support.mllp_world import Peer, block, message

from deid_agent.config import MllpSettings
from deid_agent.telemetry.metrics import MLLP_FAULTS, MLLP_GAVE_WAY, MLLP_GAVE_WAY_STATES
from deid_agent.telemetry.transport_events import MllpFault, MllpGaveWay
from deid_agent.transport.mllp.admission import ConnectionState, GaveWay, Progress, choose_connection, peer_of
from deid_agent.transport.mllp.protocol import FramingFault

RATE, PATIENCE_S = 500, 30.0
DEFAULT = MllpSettings.model_fields
IDLE = ConnectionState(
    0, "a", busy=False, receiving=False, behind_s=0, behind_crowded_s=0, bytes_per_s=0, quiet_s=5, proven=True
)
SLOW = replace(IDLE, receiving=True, proven=False, behind_s=8, behind_crowded_s=8, bytes_per_s=1)
THIN = replace(IDLE, receiving=True, behind_s=0, behind_crowded_s=40, bytes_per_s=2_000)
FAST = replace(IDLE, receiving=True, behind_s=0, behind_crowded_s=0, bytes_per_s=1_000_000)
NEW = replace(IDLE, proven=False, quiet_s=0.2)
UNPROVEN = replace(NEW, quiet_s=3)
BUSY = replace(IDLE, busy=True)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def numbered(*states: ConnectionState) -> list[ConnectionState]:
    return [replace(state, number=number) for number, state in enumerate(states)]


def chosen(*states: ConnectionState, peer: str = "a", own_only: bool = False) -> tuple[int, GaveWay] | None:
    return choose_connection(numbered(*states), peer, PATIENCE_S, own_only=own_only)


def paced(rate: float, seconds: float, every_s: float) -> Progress:
    """The progress of a sender that sends the bytes of ``every_s`` at once."""
    progress = Progress(RATE)
    progress.begin(0.0)
    for number in range(1, int(seconds / every_s) + 1):
        progress.receive(number * every_s, int(rate * every_s))
    return progress


@pytest.mark.parametrize(("rate", "every_s"), [(1_000, 0.1), (500, 1.0), (600, 5.0), (1_000_000, 0.01)])
def test_a_large_message_over_a_thin_line_never_falls_behind(rate: float, every_s: float) -> None:
    """Half an hour for one message is permitted: before, it had 30 s."""
    assert paced(rate, 1_800, every_s).behind_s(1_800) <= every_s


@pytest.mark.parametrize(("rate", "every_s"), [(1, 2.0), (100, 0.5), (400, 0.1)])
def test_a_byte_now_and_then_falls_behind(rate: float, every_s: float) -> None:
    assert paced(rate, 300, every_s).behind_s(300) > PATIENCE_S


def test_a_burst_gives_no_credit_for_a_later_silence() -> None:
    progress = Progress(RATE)
    progress.begin(0.0)
    progress.receive(1.0, 10_000_000)
    assert progress.behind_s(1.0) == 0
    progress.receive(21.0, 1)
    assert progress.behind_s(21.0) == pytest.approx(20, abs=0.1)


def test_a_sender_that_was_held_back_by_the_agent_is_not_behind() -> None:
    progress = Progress(RATE)
    progress.begin(0.0)
    progress.excuse(500.0)
    assert progress.behind_s(501.0) == 1.0
    progress.end()
    assert progress.behind_s(900.0) == 0.0


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ((SLOW, IDLE, FAST), (0, GaveWay.SLOW)),
        ((IDLE, replace(SLOW, behind_s=3), SLOW), (2, GaveWay.SLOW)),
        ((IDLE, UNPROVEN), (1, GaveWay.UNPROVEN)),
        ((IDLE, replace(IDLE, quiet_s=900), FAST), (1, GaveWay.IDLE)),
        ((THIN, replace(THIN, bytes_per_s=600), BUSY), (1, GaveWay.LONG)),
        ((NEW, FAST, BUSY), None),
        ((replace(SLOW, behind_s=0.5, behind_crowded_s=0.5), NEW), None),
        ((replace(SLOW, busy=True), replace(IDLE, leaving=True)), None),
    ],
)
def test_of_one_address_the_stalest_gives_way(
    states: tuple[ConnectionState, ...], expected: tuple[int, GaveWay] | None
) -> None:
    assert chosen(*states) == expected


def of(peer: str, *states: ConnectionState) -> list[ConnectionState]:
    return [replace(state, peer=peer) for state in states]


def test_the_address_with_the_most_connections_gives_way_first() -> None:
    """Although a connection of another address is staler."""
    assert chosen(*of("b", SLOW, replace(SLOW, behind_s=25)), *of("c", UNPROVEN, UNPROVEN, UNPROVEN)) == (
        2,
        GaveWay.UNPROVEN,
    )


def test_an_address_takes_no_slot_of_one_with_fewer() -> None:
    """An honest sender with one connection does not lose it to a flood, even while it is slow."""
    flood = of("b", NEW, FAST, BUSY)
    assert chosen(*of("a", SLOW, IDLE), *flood, peer="b") is None


def test_a_new_address_gets_a_slot_from_a_flood_of_any_kind() -> None:
    assert chosen(*of("b", NEW, FAST), peer="a") == (0, GaveWay.SHARE)
    assert chosen(*of("b", FAST, THIN, replace(FAST, bytes_per_s=9_000), BUSY), peer="a") == (1, GaveWay.LONG)
    assert chosen(*of("b", FAST, replace(FAST, bytes_per_s=9_000), BUSY), peer="a") == (1, GaveWay.SHARE)
    assert chosen(*of("b", BUSY, BUSY), peer="a") == (0, GaveWay.BUSY)
    assert chosen(*of("b", BUSY), *of("c", FAST), peer="a") is None


def test_many_interfaces_behind_one_address_keep_their_connections() -> None:
    """A proxy has all slots, all at work: a further sender of it waits, and so does one of another address that has
    none to spare.
    """
    proxy = [replace(state, peer="proxy") for state in [FAST, BUSY, NEW] * 10]
    assert chosen(*proxy, peer="proxy") is None
    assert chosen(*proxy, *of("a", IDLE), peer="proxy") is None
    assert chosen(*proxy, *of("a", replace(IDLE, quiet_s=3_000)), peer="proxy") == (30, GaveWay.IDLE)


def test_a_limit_of_an_address_takes_only_its_own_connections() -> None:
    others = of("b", SLOW, replace(IDLE, quiet_s=3_000), UNPROVEN)
    assert chosen(*others, *of("a", BUSY), own_only=True) is None
    assert chosen(*others, *of("a", BUSY, IDLE), own_only=True) == (4, GaveWay.IDLE)


@given(
    st.lists(
        st.builds(
            ConnectionState,
            st.just(0),
            st.sampled_from("abc"),
            busy=st.booleans(),
            receiving=st.booleans(),
            behind_s=st.sampled_from([0.0, 0.5, 2.0, 29.0]),
            behind_crowded_s=st.sampled_from([0.0, 4.0, 29.0]),
            bytes_per_s=st.sampled_from([0.0, 600.0, 1e6]),
            quiet_s=st.sampled_from([0.0, 5.0, 100.0]),
            proven=st.booleans(),
            leaving=st.booleans(),
        ),
        max_size=12,
    ),
    st.sampled_from("abcd"),
    st.booleans(),
)
def test_a_choice_never_takes_messages_in_progress(states: list[ConnectionState], peer: str, own_only: bool) -> None:
    found = chosen(*states, peer=peer, own_only=own_only)
    if found is not None:
        number, why = found
        taken = states[number]
        assert not taken.leaving
        assert taken.busy == (why is GaveWay.BUSY)
        assert not own_only or taken.peer == peer
    elif not own_only:
        counts = [sum(state.peer == name and not state.leaving for state in states) for name in "abcd"]
        own = sum(state.peer == peer for state in states)
        assert max(counts) <= own + 1, "a larger address has a connection to give"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (("10.1.2.3", 4), "10.1.2.3"),
        (("2001:db8:1:2:3:4:5:6", 4, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 4, 0, 0), "fe80::/64"),
        (("::ffff:10.1.2.3", 4, 0, 0), "10.1.2.3"),
        (None, ""),
        ("socket", ""),
    ],
)
def test_addresses_are_counted_by_host(address: object, expected: str) -> None:
    assert peer_of(address) == expected


async def hold(agent: Agent, data: bytes = b"\x0bMSH|") -> Peer:
    """A connection that the listener has read from."""
    count = len(agent.transport._server._open)
    peer = await agent.peer()
    await until(lambda: len(agent.transport._server._open) > count)
    peer.writer.write(data)
    connection = agent.transport._server._open[count]
    await until(lambda: not data or connection.state().receiving)
    return peer


async def test_honest_senders_get_in_beside_slow_ones(start: Start, sink: ScriptedSink) -> None:
    """As many attempts as slots and more, each with a message: none is turned away."""
    clock = Clock()
    agent = await start(changed(max_connections=4), clock)
    for _ in range(4):
        await hold(agent)
    clock.now += 2
    for number in range(12):
        peer = await agent.peer()
        peer.send(message(b"m%d" % number, b"x"))
        assert await peer.answer() == ("AA", f"m{number}", "")
        await peer.close()
    assert agent.telemetry.registry.value(MLLP_FAULTS, "FULL") == 0
    assert agent.telemetry.registry.value(MLLP_FAULTS, "TORN") == 0
    assert 1 <= agent.telemetry.registry.value(MLLP_GAVE_WAY, "slow") <= 4


async def test_an_idle_proven_connection_survives_slow_ones(start: Start, sink: ScriptedSink) -> None:
    clock = Clock()
    agent = await start(changed(max_connections=3), clock)
    steady = await agent.peer()
    steady.send(message(b"1", b"x"))
    assert (await steady.answer())[0] == "AA"
    clock.now += 1_000
    slow = [await hold(agent) for _ in range(2)]
    clock.now += 2
    late = await agent.peer()
    late.send(message(b"2", b"x"))
    assert await late.answer() == ("AA", "2", "")
    steady.send(message(b"3", b"x"))
    assert await steady.answer() == ("AA", "3", "")
    assert await slow[0].ended() == b""


async def test_a_slow_large_message_is_accepted_however_long_it_takes(start: Start, sink: ScriptedSink) -> None:
    clock = Clock()
    agent = await start(changed(max_connections=2), clock)
    data = block(message(b"large", b"x" * 90_000))
    peer = await hold(agent, data[:1000])
    connection = agent.transport._server._open[0]
    for begin in range(1000, len(data), 1000):
        clock.now += 1.5
        before = connection._progress.size
        peer.writer.write(data[begin : begin + 1000])
        await until(lambda before=before: connection._progress.size > before or bool(sink.got))  # type: ignore[misc]
    assert await peer.answer() == ("AA", "large", "")


async def test_a_waiting_sender_gets_the_slot_that_becomes_free(start: Start, sink: ScriptedSink) -> None:
    agent = await start(changed(max_connections=1))
    busy = await agent.peer()
    busy.send(message(b"b", b"hold"))
    await until(lambda: len(agent.executor.pending) == 1)
    late = await agent.peer()
    late.send(message(b"l", b"x"))
    await until(lambda: len(agent.transport._server._waiting) == 1)
    agent.executor.release()
    assert await busy.answer() == ("AA", "b", "")
    assert await late.answer() == ("AA", "l", "")
    assert agent.telemetry.names(MllpFault, "code") == []


async def test_an_address_that_keeps_all_slots_busy_gives_one_to_another(start: Start, sink: ScriptedSink) -> None:
    """Its messages in progress are answered first."""
    agent = await start(changed(max_connections=2))
    pumps = [await agent.peer() for _ in range(2)]
    for number, pump in enumerate(pumps):
        pump.send(message(b"p%d" % number, b"hold"))
    await until(lambda: len(agent.executor.pending) == 2)
    other = await agent.peer(local_addr=("127.0.0.2", 0))
    other.send(message(b"o", b"x"))
    await until(lambda: agent.telemetry.registry.value(MLLP_GAVE_WAY, "busy") == 1)
    agent.executor.release()
    assert await other.answer() == ("AA", "o", "")
    assert [await pump.answer() for pump in pumps] == [("AA", "p0", ""), ("AA", "p1", "")]


async def test_of_too_many_waiting_the_largest_address_is_turned_away(
    start: Start, sink: ScriptedSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deid_agent.transport.mllp.listener._MOST_WAITING", 2)
    agent = await start(changed(max_connections=1))
    busy = await agent.peer()
    busy.send(message(b"b", b"hold"))
    await until(lambda: len(agent.executor.pending) == 1)
    flood = [await agent.peer(local_addr=("127.0.0.2", 0)) for _ in range(2)]
    await until(lambda: len(agent.transport._server._waiting) == 2)
    honest = await agent.peer(local_addr=("127.0.0.3", 0))
    honest.send(message(b"h", b"x"))
    assert await flood[1].ended() == b""
    agent.executor.release()
    assert await honest.answer() == ("AA", "h", "")


async def test_a_waiting_sender_that_leaves_takes_no_slot(start: Start, sink: ScriptedSink) -> None:
    agent = await start(changed(max_connections=1))
    busy = await agent.peer()
    busy.send(message(b"b", b"hold"))
    await until(lambda: len(agent.executor.pending) == 1)
    gone = await agent.peer()
    await until(lambda: len(agent.transport._server._waiting) == 1)
    gone.reset()
    await until(lambda: not agent.transport._server._waiting)
    assert agent.telemetry.names(MllpFault, "code") == []
    await gone.close()


async def test_waiting_senders_are_released_by_a_stop(start: Start, sink: ScriptedSink) -> None:
    agent = await start(changed(max_connections=1))
    busy = await agent.peer()
    busy.send(message(b"b", b"hold"))
    await until(lambda: len(agent.executor.pending) == 1)
    late = await agent.peer()
    await until(lambda: len(agent.transport._server._waiting) == 1)
    agent.executor.release()
    await agent.stop()
    assert await late.ended() == b""
    assert not agent.transport._server._tasks


async def test_the_limit_of_an_address_leaves_free_slots_to_others(start: Start, sink: ScriptedSink) -> None:
    agent = await start(changed(max_connections=4, max_connections_per_address=1, read_timeout_s=5))
    first = await agent.peer()
    first.send(message(b"1", b"x"))
    assert (await first.answer())[0] == "AA"
    second = await agent.peer()
    second.send(message(b"2", b"x"))
    assert (await second.answer())[0] == "AA"
    assert await first.ended() == b""
    other = await agent.peer(local_addr=("127.0.0.2", 0))
    other.send(message(b"3", b"x"))
    assert (await other.answer())[0] == "AA"
    assert len(agent.transport._server._open) == 2


async def test_connections_that_gave_way_are_counted_and_logged_once(
    start: Start, sink: ScriptedSink, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    agent = await start(changed(max_connections=1))
    for number in range(5):
        peer = await agent.peer()
        peer.send(message(b"%d" % number, b"x"))
        assert (await peer.answer())[0] == "AA"
    assert agent.telemetry.registry.value(MLLP_GAVE_WAY, "idle") == 4
    assert caplog.text.count("MllpGaveWay") == 1
    assert agent.telemetry.names(MllpGaveWay, "of_this") == [1] * 4


def test_every_state_has_a_series_from_the_start() -> None:
    assert set(MLLP_GAVE_WAY_STATES) == {why.value for why in GaveWay}


async def test_a_sender_too_slow_without_others_is_closed_as_slow(start: Start) -> None:
    clock = Clock()
    agent = await start(changed(read_timeout_s=0.3), clock)
    peer = await hold(agent)
    clock.now += 10
    peer.writer.write(b"x")
    assert await peer.ended() == b""
    assert agent.telemetry.names(MllpFault, "code") == [FramingFault.SLOW]
