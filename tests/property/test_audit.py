"""Any change to a trail without its signing key is detected and located."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from support.changed_trails import (
    ENTRIES,
    Trail,
    at,
    codes,
    lines_of_trail,
    names,
    often,
    original,
    seldom,
    true_head,
    verify_changed,
)

from deid_agent.audit.faults import TrailFault


def test_the_unchanged_trail_verifies() -> None:
    report = verify_changed(lambda trail: None)
    assert (report.faults, report.warnings) == ([], [])
    assert (report.entries, report.segments) == (ENTRIES, len(names()))
    assert report.segments >= 4
    assert {name: stream.entries for name, stream in report.streams.items()} == {"adt/0": 150, "adt/1": 150}


@often
@given(lines_of_trail(), st.integers(0, 10**6), st.integers(1, 255), st.booleans())
def test_a_flipped_byte_is_detected_in_its_line(where: tuple[str, int], byte: int, bits: int, key: bool) -> None:
    name, index = where

    def flip(trail: Trail) -> None:
        line = bytearray(trail[name][index])
        line[byte % len(line)] ^= bits
        trail[name][index] = bytes(line)

    report = verify_changed(flip, key=key)
    assert at(report, name) & {index + 1, index + 2}, report.faults


@often
@given(lines_of_trail(), st.booleans())
def test_a_removed_line_is_detected_at_its_position(where: tuple[str, int], key: bool) -> None:
    name, index = where
    report = verify_changed(lambda trail: trail[name].pop(index), key=key)
    assert report.faults
    if index < len(original()[name]) - 1:
        assert min(at(report, name)) == index + 1
        assert "CHAIN" in codes(report)
    elif name == names()[-1]:
        assert codes(report) == {"TRUNCATED"}
    else:
        assert at(report, names()[names().index(name) + 1]) == {1}


@often
@given(lines_of_trail(), st.data())
def test_two_swapped_lines_are_detected(where: tuple[str, int], data: st.DataObject) -> None:
    name, one = where
    other = data.draw(st.integers(0, len(original()[name]) - 1).filter(lambda n: n != one))

    def swap(trail: Trail) -> None:
        lines = trail[name]
        lines[one], lines[other] = lines[other], lines[one]

    report = verify_changed(swap)
    assert min(at(report, name)) == min(one, other) + 1
    assert codes(report) >= {"CHAIN"}


@often
@given(lines_of_trail(), st.data())
def test_a_duplicated_line_is_detected(where: tuple[str, int], data: st.DataObject) -> None:
    name, index = where
    goal = data.draw(st.integers(1, len(original()[name])))
    report = verify_changed(lambda trail: trail[name].insert(goal, trail[name][index]))
    # If a line is duplicated next to itself, the second copy breaks the chain.
    assert min(at(report, name)) == (goal + 2 if goal == index else goal + 1)
    assert "CHAIN" in codes(report)


@often
@given(st.data())
def test_a_trail_truncated_at_any_position_is_detected(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(names()))
    size = sum(map(len, original()[name]))
    end = data.draw(st.integers(0, size - 1))
    also = data.draw(st.booleans())

    def cut(trail: Trail) -> None:
        trail[name] = [b"".join(trail[name])[:end]]
        for later in names():
            if also and later > name:
                del trail[later]

    report = verify_changed(cut)
    if also or name == names()[-1]:
        assert codes(report) >= {"TRUNCATED"}
    else:
        assert report.faults[0].segment in {name, names()[names().index(name) + 1]}


@seldom
@given(st.sampled_from(range(4)), st.booleans())
def test_a_removed_segment_is_named(index: int, key: bool) -> None:
    name = names()[index]
    report = verify_changed(lambda trail: trail.pop(name), key=key)
    if name == names()[-1]:
        assert codes(report) == {"TRUNCATED"}
    else:
        first, *others = report.faults
        assert (first.code, first.detail) == ("SEGMENT", f"missing: {name}")
        assert [str(fault.code) for fault in others] == (["KEY"] if key else []), "the first key leads no further"


@seldom
@given(st.sampled_from(range(3)))
def test_two_segments_with_exchanged_names_are_detected(index: int) -> None:
    one, other = names()[index : index + 2]

    def swap(trail: Trail) -> None:
        trail[one], trail[other] = trail[other], trail[one]

    report = verify_changed(swap)
    assert {(fault.code, fault.segment, fault.line) for fault in report.faults} >= {
        ("SEGMENT", one, 1),
        ("SEGMENT", other, 1),
    }


@seldom
@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_changed_head_is_detected(byte: int, bits: int) -> None:
    def flip(trail: Trail) -> None:
        line = bytearray(trail["head.json"][0])
        line[byte % len(line)] ^= bits
        trail["head.json"] = [bytes(line)]

    report = verify_changed(flip)
    assert [fault.segment for fault in report.faults] == ["head.json"]


def test_an_older_head_of_this_trail_verifies_and_one_of_another_trail_does_not() -> None:
    name, lines = names()[0], original()[names()[0]]
    index = next(i for i, line in enumerate(lines) if i > 5 and line.startswith(b'{"kind":"key"'))
    older = true_head(index + 1)
    assert not verify_changed(lambda trail: None, kept=older).faults
    several = older + true_head(index + 2) + original()["head.json"][0] + b'{"kind":"head","torn'
    assert not verify_changed(lambda trail: None, kept=several).faults, "a witness keeps many"
    for wrong in (older.replace(b'"size":', b'"size":1'), older.replace(b'"epoch":', b'"epoch":1')):
        faults = verify_changed(lambda trail: None, kept=wrong).faults
        assert [(fault.code, Path(fault.segment).name) for fault in faults] == [("HEAD", "kept.json")]
    assert name in {fault.segment for fault in verify_changed(lambda trail: trail[name].pop(3)).faults}


def test_a_fault_names_the_record_if_it_is_known() -> None:
    name = names()[1]
    index = next(i for i, line in enumerate(original()[name]) if line.startswith(b'{"kind":"entry"'))

    def change(trail: Trail) -> None:
        trail[name][index] = trail[name][index].replace(b'"count":2', b'"count":1')

    (fault,) = verify_changed(change).faults
    assert isinstance(fault, TrailFault)
    assert (fault.where, fault.code) == (f"{name}:{index + 1}", "CHAIN")
    assert fault.coordinates.startswith("adt/")
