"""The file of a scope table: contents without the key, and refusals."""

from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from support.keys import KEY, OTHER_KEY
from support.scope_tables import POLICY, SECRET, build, person

from deid_agent.config import SecretKey
from deid_agent.model import ConfigurationError, UnsafeError
from deid_agent.pipeline import ScopeTable, ScopeTableFile, open_table
from deid_agent.pipeline.policy import PatientSection

PERSONS = [person(310_000 + n, f"44719{n:02d}", fhir_id=f"pat-31{n:02d}", former=f"88{n:02d}") for n in range(20)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return build(tmp_path / "scopes", PERSONS).path


def test_a_table_finds_the_written_aliases_and_no_others(path: Path) -> None:
    table = open_table(path, SECRET)
    assert (table.aliases, table.head.persons) == (80, 20)
    assert [table.find(f"number\x1fhosp\x1f44719{n:02d}") for n in range(20)] == [f"44719{n:02d}" for n in range(20)]
    assert table.find("reference\x1f\x1fpat-3103") == "4471903"
    for unknown in ("", "reference\x1f\x1fpat-3130", "number\x1f\x1f4471903", "number\x1fcity\x1f4471903"):
        assert table.find(unknown) is None
    assert len({scope for _, scope in table.entries()}) == 20


def test_a_file_without_the_key_reveals_no_number(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    for value in (b"4471903", b"310003", b"pat-3103", b"HOSP", b"hosp", b"CITY", b"mrn"):
        assert value not in data.replace(b'"persons"', b"")
    assert path.stat().st_mode & 0o777 == 0o600
    assert "4471903" not in repr(open_table(path, SECRET))
    assert build(tmp_path / "again", PERSONS).path.read_bytes() == data, "the same content has the same bytes"


def test_another_key_is_named(path: Path) -> None:
    other = SecretKey(OTHER_KEY)
    with pytest.raises(ConfigurationError, match=f"made with another key than {other.id}"):
        open_table(path, other)


def test_a_key_of_the_same_name_does_not_open_it(path: Path) -> None:
    """The name of the key is in the open header, where anyone can write."""
    other = SecretKey(OTHER_KEY)
    path.write_bytes(path.read_bytes().replace(SECRET.id.encode(), other.id.encode()))
    with pytest.raises(ConfigurationError, match="changed after it was made"):
        open_table(path, other)


def test_every_changed_byte_and_every_cut_is_found(path: Path) -> None:
    data = path.read_bytes()
    for at in [*range(200), *range(200, len(data), 37), len(data) - 1]:
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(ConfigurationError):
            open_table(path, SECRET)
        path.write_bytes(data[:at])
        with pytest.raises(ConfigurationError):
            open_table(path, SECRET)
    for more in (b"\0", data):  # two builds in one file
        path.write_bytes(data + more)
        with pytest.raises(ConfigurationError, match="torn"):
            open_table(path, SECRET)


def headed(head: bytes) -> bytes:
    return b"deid-scope-table\n" + len(head).to_bytes(4, "big") + head


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "is empty"),
        (b"SQLite format 3\0", "is no scope table"),
        (b"deid-scope-table\n\0\0\0\xff{}", "torn"),
        (b"deid-scope-table\n\xff\xff\xff\xff", "torn"),
        (b"deid-scope-table\n\0\0\0\x02[]", "torn"),
        (headed(b'{"version":2,"key":"x","aliases":1,"slot":16,"content":""}'), "version 2"),
        (headed(b'{"version":1,"key":"x","aliases":-1,"slot":16,"content":""}'), "torn"),
        (headed(b'{"version":1,"key":"x","aliases":1e9,"slot":9,"content":""}'), "torn"),
        (headed(b'{"version":1,"key":"x","aliases":10,"slot":600,"content":""}'), "torn"),
        (headed(b'{"version":1,"key":"x"}'), "torn"),
    ],
)
def test_a_hostile_file_is_refused(content: bytes, error: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ConfigurationError, match=error):
        open_table(tmp_path / "x", SECRET)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read \\(FileNotFoundError\\); make it with"):
        open_table(tmp_path / "none", SECRET)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        open_table(tmp_path, SECRET)


def test_entries_that_are_exchanged_in_place_do_not_join_persons(path: Path) -> None:
    """A worker maps the file: a later write into it must not move one person's dates as another's."""
    table = open_table(path, SECRET)
    first, size = table._first, table._size
    with path.open("r+b") as file:
        data = file.read()
        one, two = (data[first + n * size : first + (n + 1) * size] for n in range(2))
        file.seek(first)
        file.write(one[:16] + two[16:])
    with pytest.raises(UnsafeError):
        list(table.entries())


def test_another_table_that_is_copied_into_the_file_is_not_read(path: Path, tmp_path: Path) -> None:
    """Otherwise outputs would have scopes of another table than the one in the audit."""
    table = open_table(path, SECRET)
    other = build(tmp_path / "other", [{**PERSONS[0], "mrn": "990"}, *PERSONS[1:]]).path.read_bytes()
    assert len(other) == path.stat().st_size
    with path.open("r+b") as file:
        file.write(other)
    assert open_table(path, SECRET).find("reference\x1f\x1fpat-3103") == "4471903"
    with pytest.raises(UnsafeError):
        table.find("reference\x1f\x1fpat-3103")


def test_the_remains_of_a_killed_build_are_replaced(path: Path) -> None:
    (path.parent / ".scopes.unfinished").write_bytes(b"x" * 100_000)
    build(path, PERSONS)
    assert [each.name for each in path.parent.iterdir()] == ["scopes"]


def test_another_table_than_at_the_start_and_another_rule_are_refused(path: Path, tmp_path: Path) -> None:
    found = ScopeTableFile.of(path, SECRET, POLICY)
    found.add_to(POLICY, SECRET)
    build(path, PERSONS[1:])
    with pytest.raises(ConfigurationError, match="is another one than at the start"):
        found.add_to(POLICY, SECRET)
    other = replace(POLICY, patient=PatientSection(assigners=[["HOSP"], ["CITY"]]).choice())
    with pytest.raises(ConfigurationError, match=r"made under another \[patient\] section"):
        ScopeTableFile.of(path, SECRET, other)


def test_a_header_is_json_without_secrets(path: Path) -> None:
    data = path.read_bytes()
    length = int.from_bytes(data[17:21], "big")
    head = orjson.loads(data[21 : 21 + length])
    assert set(head) == {"version", "key", "rule", "persons", "merges", "aliases", "slot", "content", "sources"}
    assert isinstance(open_table(path, SecretKey(KEY)), ScopeTable)
