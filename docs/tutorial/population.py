"""The synthetic population of docs/tutorial-backfill.md: its feed, its joins, and a search for every known value.

    python population.py few EXPORT FOLDER [--visits N]        an export of the first visits of each patient
    python population.py feed CSV FOLDER [--since DAY]         HL7 v2 messages of the encounters, a file each
    python population.py joins EXPORT OUT INBOX OUTBOX [--table CSV FOLDER] [--svg FILE]   intervals, before and after
    python population.py leaks EXPORT OUT INBOX OUTBOX                                   a search for known values

CSV is the folder of Synthea's CSV files, EXPORT its FHIR bulk export and OUT the output of `deid-agent batch run`. The
originals are read as the truth: nothing here asks deid-agent. Standard library only.
"""

import argparse
import base64
import binascii
import csv
import json
import re
import sqlite3
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

Json = Any
_DAY = re.compile(r"(?:19|20)\d\d-\d\d-\d\d")
_PARTICLES = frozenset({"de", "del", "della", "di", "la", "van", "von"})
_PLACES = ("custodian", "location", "organization", "managingOrganization", "serviceProvider")
_WORD = re.compile(r"[^\W\d_]+")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


# A smaller export.


def keep_visits(export: Path, folder: Path, most: int) -> Counter[str]:
    """Copy an export with the first visits of each patient that it has, and their documents; all persons stay."""
    folder.mkdir(exist_ok=True)
    visits: Counter[str] = Counter()
    known = {
        f"Patient/{json.loads(line)['id']}"
        for path in export.glob("Patient*.ndjson")
        for line in path.read_bytes().splitlines()
    }
    kept: set[str] = set()
    written: Counter[str] = Counter()
    # The visits come before their documents.
    for path in sorted(export.glob("*.ndjson"), key=lambda path: (not path.name.startswith("Encounter"), path.name)):
        with path.open("rb") as lines, (folder / path.name).open("wb") as copy:
            for line in lines:
                found = json.loads(line)
                kind = found["resourceType"]
                if kind == "Encounter":
                    patient = found["subject"]["reference"]
                    visits[patient] += 1
                    if visits[patient] > most or patient not in known:
                        continue
                    kept.add(f"Encounter/{found['id']}")
                elif kind in {"DocumentReference", "Condition"} and kept.isdisjoint(list_visits(found)):
                    continue
                copy.write(line)
                written[kind] += 1
    return written


def list_visits(found: Json) -> list[str]:
    """The visits to which a document or a diagnosis belongs."""
    several = found.get("context", {}).get("encounter", [])
    return [each["reference"] for each in (*several, found.get("encounter", {})) if "reference" in each]


# The feed.


def write_feed(tables: Path, folder: Path, since: str) -> int:
    """One ADT message for each encounter since a day; their names hold no identifier, so they stay."""
    with (tables / "patients.csv").open(newline="", encoding="utf-8") as file:
        people = {row["Id"]: row for row in csv.DictReader(file)}
    folder.mkdir(exist_ok=True)
    with (tables / "encounters.csv").open(newline="", encoding="utf-8") as file:
        visits = sorted((row for row in csv.DictReader(file) if row["START"] >= since), key=lambda row: row["START"])
    for number, visit in enumerate(visits):
        (folder / f"adt-{number}.hl7").write_text(make_message(people[visit["PATIENT"]], visit, number), "utf-8")
    return len(visits)


def make_message(person: dict[str, str], visit: dict[str, str], number: int) -> str:
    start, born = (re.sub(r"[-:TZ]", "", text) for text in (visit["START"], person["BIRTHDATE"]))
    name = f"{person['LAST']}^{person['FIRST']}^{person.get('MIDDLE', '')}"
    address = f"{person['ADDRESS']}^^{person['CITY']}^MA^{person['ZIP']}"
    ids = f"{person['Id']}^^^SYNTHEA^MR~{person['SSN']}^^^USA^SS"
    note = f"{person['FIRST']} {person['LAST']} was seen on {visit['START'][:10]} for {visit['DESCRIPTION']}."
    return "\r".join(
        (
            rf"MSH|^~\&|EHR|SYNTHEA|||{start}||ADT^A04^ADT_A01|{number:06d}|P|2.5.1",
            f"EVN|A04|{start}",
            f"PID|1||{ids}||{name}||{born}|{person['GENDER']}|||{address}",
            f"PV1|1|O|||||||||||||||||{visit['Id']}^^^SYNTHEA^VN{'|' * 25}{start}",
            f"OBX|1|TX|11506-3^Progress note^LN||{note}||||||F",
            "",
        )
    )


# The outputs beside their originals.


@dataclass(frozen=True)
class Pair:
    """An original beside its output."""

    place: str
    before: Json
    after: Json


def read_pairs(export: Path, out: Path) -> Iterator[Pair]:
    """The resources of an export beside those of the outputs: outputs keep the order of the lines."""
    groups: dict[str, list[dict[str, Json]]] = {}
    for line in (out / "_manifest.jsonl").read_text().splitlines()[1:]:
        entry = json.loads(line)
        if entry["file"]:
            groups.setdefault(entry["unit"].partition("-")[0], []).append(entry)
    files = sorted(path for path in export.iterdir() if path.suffix == ".ndjson")
    if len(files) != len(groups):
        sys.exit(f"{len(files)} files and {len(groups)} outputs: run the backfill to its end")
    for path, entries in zip(files, groups.values(), strict=True):
        made = [line for entry in entries for line in (out / entry["file"]).read_bytes().splitlines()]
        refused = set()
        for entry in entries:
            if entry["refusals"]:
                issues = (out / entry["file"].replace(".ndjson", ".refused.ndjson")).read_text().splitlines()
                refused |= {int(json.loads(each)["issue"][0]["diagnostics"].split()[1]) for each in issues}
        lines = enumerate(path.read_bytes().splitlines(), 1)
        given = [line for number, line in lines if line.strip() and number not in refused]
        if len(given) != len(made):
            sys.exit(f"{path.name}: {len(given)} lines and {len(made)} outputs")
        for before, after in zip(given, made, strict=True):
            one, two = json.loads(before), json.loads(after)
            yield Pair(one["resourceType"], one, two)


def read_messages(inbox: Path, outbox: Path) -> Iterator[tuple[dict[str, list[str]], dict[str, list[str]]]]:
    """The segments of each message beside those of its output."""
    for path in sorted(inbox.glob("*.hl7")):
        if not (outbox / path.name).is_file():
            sys.exit(f"{path.name} has no output of that name: run the feed to its end")
        yield read_segments(path), read_segments(outbox / path.name)


def read_segments(path: Path) -> dict[str, list[str]]:
    lines = path.read_bytes().decode("utf-8").split("\r")
    return {line[:3]: line.split("|") for line in lines if line}


# Joins.


def join(export: Path, out: Path, inbox: Path, outbox: Path, table: tuple[Path, Path] | None, svg: Path | None) -> bool:
    """Join feed and backfill by patient with SQL, before and after, and compare the intervals.

    The backfill is the export, and the ``table``: a CSV file and the folder of its output.
    """
    data = sqlite3.connect(":memory:")
    data.execute("CREATE TABLE visit (state, source, patient, visit, day, name)")
    names: dict[tuple[str, str], str] = {}
    visits = []
    for pair in read_pairs(export, out):
        for state, found in (("before", pair.before), ("after", pair.after)):
            if pair.place == "Patient":
                names[state, found["id"]] = found["name"][0]["family"]
            elif pair.place == "Encounter":
                key, day = found["subject"]["reference"].partition("/")[2], found["period"]["start"][:10]
                visits.append((state, "backfill", key, found["id"], day))
    rows = [(*visit, names[visit[0], visit[2]]) for visit in visits]
    for before, after in read_messages(inbox, outbox):
        for state, found in (("before", before), ("after", after)):
            day = date.fromisoformat(found["PV1"][44][:8]).isoformat()
            patient, visit = found["PID"][3].partition("^")[0], found["PV1"][19].partition("^")[0]
            rows.append((state, "feed", patient, visit, day, found["PID"][5].partition("^")[0]))
    for state, path in read_tables(table):
        with path.open(newline="", encoding="utf-8") as file:
            for row in ({key.lower(): value for key, value in each.items()} for each in csv.DictReader(file)):
                name = names[state, row["patient"]]
                rows.append((state, "backfill", row["patient"], row["id"], row["start"][:10], name))
    data.executemany("INSERT INTO visit VALUES (?, ?, ?, ?, ?, ?)", rows)
    query = """
        SELECT f.state, count(*), count(DISTINCT f.patient), sum(f.name = b.name),
               sum(f.visit = b.visit), sum(f.visit = b.visit AND f.day = b.day)
        FROM visit f JOIN visit b ON f.state = b.state AND f.patient = b.patient
        WHERE f.source = 'feed' AND b.source = 'backfill' GROUP BY f.state ORDER BY f.state DESC"""
    say(f"{'':8}{'pairs':>10}{'patients':>10}{'same name':>11}{'same visit':>12}{'and day':>9}")
    found = [row for row in data.execute(query)]
    for state, *counts in found:
        say(f"{state:8}" + "".join(f"{n:>{w}}" for n, w in zip(counts, (10, 10, 11, 12, 9), strict=True)))
    intervals = {state: read_intervals(data, state) for state in ("before", "after")}
    data.close()
    # The rows have one order in both states, so the pairs do too.
    points = list(zip(intervals["before"], intervals["after"], strict=True))
    equal = sum(one == two for one, two in points)
    say(f"intervals between a visit of the feed and one of the backfill: {len(points)}, equal after: {equal}")
    if svg is not None:
        svg.write_text(draw(points), "utf-8")
    return equal == len(points) and len(found) == 2 and found[0][1:] == found[1][1:]


def read_tables(table: tuple[Path, Path] | None) -> list[tuple[str, Path]]:
    if table is None:
        return []
    return [("before", table[0]), *(("after", path) for path in sorted(table[1].glob("part-*.csv")))]


def read_intervals(data: sqlite3.Connection, state: str) -> list[int]:
    query = """
        SELECT CAST(julianday(f.day) - julianday(b.day) AS INTEGER) FROM visit f
        JOIN visit b ON f.state = b.state AND f.patient = b.patient
        WHERE f.state = ? AND f.source = 'feed' AND b.source = 'backfill' ORDER BY f.rowid, b.rowid"""
    return [days for (days,) in data.execute(query, (state,))]


def draw(points: Sequence[tuple[int, int]]) -> str:
    """The intervals after against those before: all on the diagonal if they are equal."""
    values = [value for point in points for value in point] or [0]
    low, high, size, edge = min(values), max(values), 360, 50
    scale = size / max(high - low, 1)
    dots = "".join(
        f'<circle cx="{edge + (x - low) * scale:.1f}" cy="{edge + size - (y - low) * scale:.1f}" r="1.6"/>'
        for x, y in sorted(set(points))
    )
    whole, end = size + 2 * edge, edge + size
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole} {whole}" font-family="sans-serif"'
        ' font-size="12">'
        f'<rect width="{whole}" height="{whole}" fill="white"/>'
        f'<path d="M{edge} {edge}V{end}H{end}" fill="none" stroke="black"/>'
        f'<path d="M{edge} {end}L{end} {edge}" stroke="#bbb"/><g fill="#1f6feb">{dots}</g>'
        f'<text x="{edge}" y="{end + 18}">{low}</text><text x="{end}" y="{end + 18}" text-anchor="end">{high}</text>'
        f'<text x="{whole / 2}" y="{end + 36}" text-anchor="middle">days between feed and backfill, before</text>'
        f'<text x="16" y="{whole / 2}" text-anchor="middle" transform="rotate(-90 16 {whole / 2})">after</text></svg>\n'
    )


# Leaks.


@dataclass
class Person:
    """The values of a patient that no output may have."""

    names: set[str] = field(default_factory=set)
    places: set[str] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)


def list_strings(node: Json, path: str = "") -> Iterator[tuple[str, str]]:
    """The strings and numbers of a resource with their paths; encoded data is decoded."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield from list_strings(value, f"{path}.{name}" if path else name)
    elif isinstance(node, list):
        for value in node:
            yield from list_strings(value, path)
    elif path.endswith(".data") and isinstance(node, str):
        try:
            yield path, base64.b64decode(node, validate=True).decode("utf-8", "replace")
        except (binascii.Error, ValueError):
            yield path, node
    elif isinstance(node, (str, int, float)) and not isinstance(node, bool):
        yield path, str(node)


def is_narrative(path: str) -> bool:
    return path.endswith((".data", ".div", "OBX-5")) or path.rpartition(".")[2] in {"description", "comment", "text"}


def learn_people(pairs: Sequence[Pair]) -> tuple[dict[str, Person], Person]:
    """The values of each Patient, and those of all Practitioners."""
    people: dict[str, Person] = defaultdict(Person)
    staff = Person()
    for pair in pairs:
        found = pair.before
        if pair.place not in {"Patient", "Practitioner"}:
            continue
        person = people[found["id"]] if pair.place == "Patient" else staff
        person.ids |= {found["id"], *(each["value"] for each in found.get("identifier", ()))}
        person.ids |= {each["value"] for each in found.get("telecom", ())}
        for name in found["name"]:
            person.names |= set(_WORD.findall(" ".join([name["family"], *name.get("given", ())])))
        for address in found.get("address", ()):
            person.places |= {*address.get("line", ()), address.get("postalCode", "")[:5]}
            for extension in address.get("extension", ()):
                person.places |= {str(each.get("valueDecimal", "")) for each in extension.get("extension", ())}
        for extension in found.get("extension", ()):
            if extension["url"].endswith("mothersMaidenName"):
                person.names |= set(_WORD.findall(extension["valueString"]))
    for person in (*people.values(), staff):
        person.names = {name.lower() for name in person.names if len(name) > 2}
        person.places = {place for place in person.places if len(place) > 4 and place != "00000"}
    return people, staff


def find_patient(resource: Json) -> str:
    if resource["resourceType"] == "Patient":
        return str(resource["id"])
    for name in ("subject", "patient"):
        if isinstance(resource.get(name), dict):
            return str(resource[name].get("reference", "")).rpartition("/")[2]
    return ""


def search(export: Path, out: Path, inbox: Path, outbox: Path) -> bool:
    """Search every output; print each class of survivors. True if there is none in a structured place."""
    pairs = list(read_pairs(export, out))
    people, staff = learn_people(pairs)
    contexts = list_contexts(pairs, people)
    explained: Counter[tuple[str, str]] = Counter()
    every_id = {value: key for key, person in people.items() for value in person.ids} | dict.fromkeys(
        staff.ids, "staff"
    )
    searched: Counter[str] = Counter()
    found: Counter[tuple[str, str, str]] = Counter()
    shifts: dict[str, set[int]] = defaultdict(set)
    for pair in pairs:
        patient = find_patient(pair.before)
        for (path, old), (_, new) in zip(list_strings(pair.before), list_strings(pair.after), strict=True):
            where = f"{pair.place}.{path}"
            judge(where, old, new, patient, people, every_id, found, searched)
            of_person = path.rpartition(".")[0].rpartition(".")[2] not in _PLACES
            if path.endswith(".display") and "oding." not in path and of_person:
                judge_names(where, old, new, staff, "name of staff", found, searched, explained, set())
            if patient in people:
                judge_names(where, old, new, people[patient], "name", found, searched, explained, contexts)
            if patient and not is_narrative(path) and not path.endswith("birthDate"):
                learn_shift(old, new, shifts[patient])
    for before, after in read_messages(inbox, outbox):
        patient = before["PID"][3].partition("^")[0]
        for name in before:
            for number, (old, new) in enumerate(zip(before[name], after[name], strict=True)):
                where = f"{name}-{number + (name == 'MSH')}"
                judge(where, old, new, patient, people, every_id, found, searched)
                judge_names(where, old, new, people[patient], "name", found, searched, explained, contexts)
        learn_shift(
            *(f"{m['PV1'][44][:4]}-{m['PV1'][44][4:6]}-{m['PV1'][44][6:8]}" for m in (before, after)), shifts[patient]
        )
    say("searched  " + ", ".join(f"{count} {kind}" for kind, count in sorted(searched.items())))
    several = sum(len(each) > 1 for each in shifts.values())
    unmoved = sum(0 in each for each in shifts.values())
    say(f"shifts    {len(shifts)} patients, {several} with more than one, {unmoved} with 0 days")
    for (kind, why), count in sorted(explained.items()):
        say(f"no leak   {count:>6} {kind:<16} {why}")
    structured = 0
    for (kind, place, path), count in sorted(found.items()):
        say(f"found     {count:>6} {kind:<16} {place:<10} {path}")
        structured += count if place == "structure" else 0
    say(f"leaks     {structured} in structure, {sum(found.values()) - structured} in narrative")
    return not structured and not several


def judge(
    path: str,
    old: str,
    new: str,
    patient: str,
    people: dict[str, Person],
    every_id: dict[str, str],
    found: Counter[tuple[str, str, str]],
    searched: Counter[str],
) -> None:
    """Count identifiers, places and days of an output that were at this place."""
    person = people.get(patient, Person())
    place = "narrative" if is_narrative(path) else "structure"
    # A surrogate may be a value of another patient by chance: an identifier counts if it was at this place, too.
    for value in {value for value in re.findall(r"[\w@.+-]{6,}", old) if value in every_id}:
        searched["identifier"] += 1
        found["identifier", place, path] += value in new
    for value in person.places:
        if names_place(value, old):
            searched["place"] += 1
            found["place", place, path] += names_place(value, new)
    days = _DAY.findall(old)
    searched["day"] += len(days)
    if patient in people:
        found["day", place, path] += sum(one == two for one, two in zip(days, _DAY.findall(new), strict=False))
    for key in [key for key, count in found.items() if not count]:
        del found[key]


def judge_names(
    path: str,
    old: str,
    new: str,
    person: Person,
    kind: str,
    found: Counter[tuple[str, str, str]],
    searched: Counter[str],
    explained: Counter[tuple[str, str]],
    contexts: set[tuple[str, str, str]],
) -> None:
    """Count the names of a person that are in an output and were at this place.

    It is no leak if the words around it are the same for a patient without the name ("a white female"), or if a short
    value has it at another position: the surrogate of Daniel Wolff is Brent Daniel by chance.
    """
    words, kept = read_words(old), read_words(new)
    own = set(words) & person.names
    searched[kind] += len(own)
    for name in own & set(kept):
        places, stays = ([n for n, word in enumerate(each) if word == name] for each in (words, kept))
        if all(neighbours(kept, n) in contexts for n in stays):
            explained[kind, "a word of the language, which patients of other names have at the same place"] += 1
        elif name in _PARTICLES and re.search(rf"(?<=\w )(?:{name})(?= \w)", new):
            explained[kind, "a particle inside of a name: Jasmin del Lindsay for Maria del Carmen"] += 1
        elif len(words) < 8 and not set(places) & set(stays):
            explained[kind, "a surrogate of another part of the name, by chance"] += 1
        else:
            found[kind, "narrative" if is_narrative(path) else "structure", path] += 1
            sys.stderr.write(f"  {path}: {name!r} in {shorten(new, name)!r}\n")


def list_contexts(pairs: Sequence[Pair], people: dict[str, Person]) -> set[tuple[str, str, str]]:
    """The words that are names, with their neighbours, as the originals of patients without the name have them."""
    names = {name for person in people.values() for name in person.names}
    contexts = set()
    for pair in pairs:
        person = people.get(find_patient(pair.before))
        for _, text in list_strings(pair.before) if person else ():
            words = read_words(text)
            for n, word in enumerate(words):
                if word in names and person is not None and word not in person.names:
                    contexts.add(neighbours(words, n))
    return contexts


def read_words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def neighbours(words: Sequence[str], n: int) -> tuple[str, str, str]:
    return words[n - 1] if n else "", words[n], words[n + 1] if n + 1 < len(words) else ""


def names_place(value: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text, re.IGNORECASE) is not None


def shorten(text: str, word: str) -> str:
    at = text.lower().find(word)
    return text[max(at - 30, 0) : at + 30]


def learn_shift(old: str, new: str, shifts: set[int]) -> None:
    """Add the days by which a date of a field moved."""
    one, two = _DAY.match(old), _DAY.match(new)
    if one and two:
        shifts.add((date.fromisoformat(two[0]) - date.fromisoformat(one[0])).days)


def main() -> int:
    options = argparse.ArgumentParser()
    commands = options.add_subparsers(dest="command", required=True)
    few = commands.add_parser("few")
    few.add_argument("export", type=Path)
    few.add_argument("folder", type=Path)
    few.add_argument("--visits", type=int, default=3)
    feed = commands.add_parser("feed")
    feed.add_argument("tables", type=Path)
    feed.add_argument("folder", type=Path)
    feed.add_argument("--since", default="0000-00-00")
    for name in ("joins", "leaks"):
        command = commands.add_parser(name)
        for each in ("export", "out", "inbox", "outbox"):
            command.add_argument(each, type=Path)
        if name == "joins":
            command.add_argument("--table", type=Path, nargs=2)
            command.add_argument("--svg", type=Path)
    given = options.parse_args()
    if given.command == "feed":
        say(f"{write_feed(given.tables, given.folder, given.since)} messages")
        return 0
    if given.command == "few":
        say(
            ", ".join(
                f"{count} {kind}"
                for kind, count in sorted(keep_visits(given.export, given.folder, given.visits).items())
            )
        )
        return 0
    places = given.export, given.out, given.inbox, given.outbox
    return 0 if (join(*places, given.table, given.svg) if given.command == "joins" else search(*places)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
