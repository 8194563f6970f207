"""Units of a FHIR bulk export in worker processes: parts, refused lines, killers, the same bytes, the manifest."""

import gzip
import os
import shutil
import signal
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.bulk_exports import CANARIES, DOCUMENTS, ENCOUNTERS, FILES, PATIENTS, Resource, line, lines, write_export
from support.keys import KEY
from support.tables import BUILD, RULES

from deid_agent.agent import (
    Factory,
    Job,
    Process,
    PublicKey,
    Result,
    WorkerSettings,
    load_private_key,
    load_public_key,
)
from deid_agent.agent.dead_letter_keys import generate_keys
from deid_agent.app import WorkerFactory
from deid_agent.batch.audit_parts import Digests
from deid_agent.batch.bulk_export import MAX_LINE, FileRole, list_export, read_lines, survey_export
from deid_agent.batch.bulk_identities import IdentityWriter
from deid_agent.batch.bulk_lines import LineWorkerFactory
from deid_agent.batch.bulk_running import BulkRun
from deid_agent.batch.manifest import AUDIT, Head, OpenManifest
from deid_agent.batch.manifest import read_manifest as read_units
from deid_agent.batch.manifest_trail import OpenTrail
from deid_agent.batch.pacing import Pace
from deid_agent.batch.reporting import make_report
from deid_agent.batch.running import UnitReport
from deid_agent.batch.sampling import Sampler, read_sample
from deid_agent.batch.schema import check_bulk_policy
from deid_agent.batch.verifying import verify_folder
from deid_agent.config import SecretKey
from deid_agent.model import ConfigurationError, RecordTime
from deid_agent.pipeline import load_policy
from deid_agent.pipeline.policy import compile_policy

PARTS = WorkerFactory(rules=RULES, key=SecretKey(KEY), policy=load_policy("research", RULES), system="none")
HEAD = Head(BUILD, "0.1.0", "key", "research", "fhir")
FAST = WorkerSettings(deadline_s=20.0, attempts=1)
KILLER = "kills its worker"


@dataclass(frozen=True)
class KilledFactory:
    """Builds the worker of ``parts``, which dies at ``KILLER``."""

    parts: LineWorkerFactory

    def __call__(self) -> Process:
        process = self.parts()

        def run(job: Job) -> Result:
            if KILLER.encode() in job.payload:
                os.kill(os.getpid(), signal.SIGKILL)
            return process(job)

        return run


def run(
    inputs: Path,
    out: Path,
    *,
    unit_bytes: int = 1 << 20,
    again: bool = False,
    killed: bool = False,
    limit: int | None = None,
    readers: PublicKey | None = None,
) -> list[UnitReport]:
    reports: list[UnitReport] = []
    export, digests = list_export(inputs), Digests(PARTS.key)
    with OpenManifest(out, HEAD, OpenTrail(PARTS.key)) as manifest, IdentityWriter(out) as identities:
        files = list(survey_export(export.files, unit_bytes, digests, identities))
        store = identities.finish()
        work = BulkRun(export, BUILD, out, digests, identities.digest(digests), RecordTime.DAY, again)
        work = replace(work, pace=Pace(out, limit=limit))
        if readers is not None:
            work = replace(work, sampler=Sampler(out, 4, readers, digests))
        plain = LineWorkerFactory(PARTS, store)
        factory: Factory = KilledFactory(plain) if killed else plain
        work.run(files, manifest, factory, 1, reports.append, FAST)
    return reports


def outputs(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.glob("*.ndjson"))}


def read_manifest(out: Path) -> Any:
    return orjson.loads((out / "manifest.json").read_bytes())


def refusals(out: Path, report: UnitReport) -> list[tuple[str, str]]:
    assert report.entry is not None
    path = out / report.entry.file.replace(".ndjson", ".refused.ndjson")
    issues = [orjson.loads(each)["issue"][0] for each in path.read_bytes().splitlines()]
    return [(issue["diagnostics"], issue["details"]["coding"][0]["code"]) for issue in issues]


def test_parts_bad_lines_and_a_killer_cost_those_lines_only(tmp_path: Path) -> None:
    export = write_export(tmp_path / "in", {"Patient.ndjson": PATIENTS})
    killer: Resource = {"resourceType": "Basic", "id": "x", "code": {"text": KILLER}}
    content = [line(each) for each in ENCOUNTERS] * 2
    content[3:3] = [b"", line(PATIENTS[0])[:40], line(killer), b"  "]
    data = b"\xef\xbb\xbf" + b"\r\n".join(content) + b"\nQuixwell"
    (export / "Encounter.ndjson").write_bytes(data)
    reports = run(export, tmp_path / "out", unit_bytes=600, killed=True)
    parts = [each for each in reports if each.unit.source.number == 1]
    assert len(parts) > 3
    entries = [each.entry for each in parts if each.entry is not None]
    assert sum(each.rows for each in entries) == 15
    found = [each for part in parts if part.entry and part.entry.refusals for each in refusals(tmp_path / "out", part)]
    # The refused Patient is torn: its encounters, and no others, could be of any patient; all of these are known.
    assert found == [("line 5", "MALFORMED"), ("line 6", "POISON"), ("line 17", "MALFORMED")]
    whole = b"".join((tmp_path / "out" / each.file).read_bytes() for each in entries)
    plain = run(write_export(tmp_path / "plain", {"Patient.ndjson": PATIENTS, "E.ndjson": ENCOUNTERS}), tmp_path / "po")
    (file,) = [each.entry.file for each in plain if each.entry and each.entry.types == {"Encounter": 6}]
    assert whole == (tmp_path / "po" / file).read_bytes() * 2
    listed = read_manifest(tmp_path / "out")
    assert sum(each["count"] for each in listed["error"]) == 3
    assert {each["type"] for each in listed["output"]} == {"Patient", "Encounter"}
    assert not [canary for canary in CANARIES if any(canary in name for name in outputs(tmp_path / "out"))]
    text = (tmp_path / "out" / "_manifest.jsonl").read_text() + (tmp_path / "out" / "manifest.json").read_text()
    assert not [canary for canary in CANARIES if canary in text]
    assert not list((tmp_path / "out").glob(".identities*"))


def find_changes(out: Path) -> list[tuple[str, str]]:
    return [(str(each.code), each.place) for each in verify_folder(out).findings]


def check_that_changes_are_found(out: Path) -> None:
    """Each change of one file is found, and undone again."""
    (refused,) = [path.name for path in out.glob("*.refused.ndjson")]
    made = read_manifest(out)
    retyped = read_manifest(out)
    retyped["output"][0]["type"] = "Quixwell"
    made["output"][0]["count"] += 1
    shortened, longer, moved, followed, unfinished = (read_manifest(out) for _ in range(5))
    del shortened["output"][1]
    longer["output"].append({**longer["output"][0], "url": "part-x.ndjson"})
    moved["deleted"].append(moved["output"].pop())
    followed["output"][0]["continuesInFile"] = "part-x.ndjson"
    unfinished["error"] = []
    for name, content, code in [
        (refused, b"{}\n", "OUTPUT"),
        (refused, None, "MISSING"),
        ("manifest.json", orjson.dumps(made), "OUTPUT"),
        *(
            ("manifest.json", orjson.dumps(each), "OUTPUT")
            for each in (retyped, shortened, longer, moved, followed, unfinished, {**read_manifest(out), "output": {}})
        ),
        ("manifest.json", b"[]", "OUTPUT"),
        ("manifest.json", None, "MISSING"),
    ]:
        before = (out / name).read_bytes()
        (out / name).unlink()
        if content is not None:
            (out / name).write_bytes(content)
        assert find_changes(out) == [(code, name)]
        (out / name).write_bytes(before)
    (out / "part-x.refused.ndjson").touch()
    assert find_changes(out) == [("FOREIGN", "part-x.refused.ndjson")]
    (out / "part-x.refused.ndjson").unlink()


def test_a_unit_is_done_once_and_has_the_same_bytes_again(tmp_path: Path) -> None:
    export = write_export(tmp_path / "in")
    (export / "Binary.ndjson").write_bytes(b"torn\n")
    first = run(export, tmp_path / "out")
    before = outputs(tmp_path / "out")
    assert not any(each.skipped for each in first)
    assert all(each.skipped for each in run(export, tmp_path / "out"))
    assert find_changes(tmp_path / "out") == []
    check_that_changes_are_found(tmp_path / "out")
    for name in [name for name in before if ".refused" in name or before[name] == b""]:
        (tmp_path / "out" / name).unlink()
    (tmp_path / "out" / ".part-0.ndjson.unfinished").write_bytes(b"half")
    assert [each.skipped for each in run(export, tmp_path / "out")].count(False) == 1
    assert outputs(tmp_path / "out") == before
    # Compressed, the lines are the same, and the file is another input.
    (export / "Encounter-Quixwell.ndjson").unlink()
    (export / "Encounter-Quixwell.ndjson.gz").write_bytes(gzip.compress(lines(ENCOUNTERS)))
    (report,) = [each for each in run(export, tmp_path / "out") if not each.skipped]
    assert report.entry is not None
    assert list(outputs(tmp_path / "out").values()).count((tmp_path / "out" / report.entry.file).read_bytes()) == 2
    (export / "Encounter-Quixwell.ndjson.gz").write_bytes(gzip.compress(lines(ENCOUNTERS))[:-20])
    (fault,) = [each.fault for each in run(export, tmp_path / "out", again=True) if each.fault]
    assert fault.startswith("cannot be read (")


def test_an_input_that_is_gone_keeps_its_place_in_the_manifest(tmp_path: Path) -> None:
    export = write_export(tmp_path / "in")
    run(export, tmp_path / "out")
    before = read_manifest(tmp_path / "out")
    (export / "Binary.ndjson").unlink()
    run(export, tmp_path / "out")
    assert read_manifest(tmp_path / "out") == before
    assert find_changes(tmp_path / "out") == []


def test_a_changed_input_is_refused_unless_it_is_wanted(tmp_path: Path) -> None:
    export = write_export(tmp_path / "in")
    first = run(export, tmp_path / "out", unit_bytes=300)
    assert len([each for each in first if each.unit.source.number == 4]) > 1
    write_export(export, {"Encounter-Quixwell.ndjson": ENCOUNTERS[:1]})
    with pytest.raises(ConfigurationError, match="input 3: changed since its output was written; use --again"):
        run(export, tmp_path / "out", unit_bytes=300)
    again = run(export, tmp_path / "out", unit_bytes=300, again=True)
    assert [each.entry.types for each in again if each.entry and not each.skipped] == [{"Encounter": 1}]
    named = {each.entry.file for each in again if each.entry}
    assert {name for name in outputs(tmp_path / "out") if ".refused" not in name} == named


def test_the_manifest_is_written_anew_with_deleted_resources_and_errors(tmp_path: Path) -> None:
    export = write_export(tmp_path / "in")
    gone = {"method": "DELETE", "url": "Patient/p100"}
    write_export(
        export,
        {
            "gone.txt": [{"resourceType": "Bundle", "type": "transaction", "entry": [{"request": gone}]}],
            "e.ndjson": [{"resourceType": "OperationOutcome", "issue": [{"severity": "error", "code": "exception"}]}],
            "by-patient.ndjson": [PATIENTS[0], DOCUMENTS[0]],
        },
    )
    base = "https://fhir.example/Quixwell"
    (export / "manifest.json").write_bytes(
        orjson.dumps(
            {
                "transactionTime": "2024-05-06T07:08:09.123-05:00",
                "request": f"{base}/$export?patient=p100",
                "outputOrganizedBy": "Patient",
                "output": [
                    {"type": "Patient", "url": f"{base}/Patient.ndjson?token=Quixwell"},
                    {"url": f"{base}/by-patient.ndjson", "continuesInFile": f"{base}/Patient.ndjson"},
                    {"type": "Group", "url": f"{base}/..%2f..%2fetc%2fpasswd"},
                    {"type": "Group", "url": f"{base}/Group.ndjson"},
                ],
                "deleted": [{"type": "Bundle", "url": f"{base}/gone.txt"}],
                "error": [{"type": "OperationOutcome", "url": f"{base}/e.ndjson"}],
            }
        )
    )
    found = list_export(export)
    assert (found.missing, found.others, len(found.files)) == (2, 0, len(FILES) + 3)
    run(export, tmp_path / "out")
    made = read_manifest(tmp_path / "out")
    assert made["transactionTime"] == "2024-05-06T00:00:00Z"
    assert made["outputOrganizedBy"] == "Patient"
    assert [each["type"] for each in made["error"]] == ["OperationOutcome"]
    (deleted,) = made["deleted"]
    (bundle,) = (tmp_path / "out" / deleted["url"]).read_bytes().splitlines()
    mapped = orjson.loads(bundle)["entry"][0]["request"]["url"]
    patient = next(each for each in made["output"] if each.get("type") == "Patient")
    first = orjson.loads((tmp_path / "out" / patient["url"]).read_bytes().splitlines()[0])
    assert mapped == f"Patient/{first['id']}"
    (mixed,) = [each for each in made["output"] if "type" not in each]
    assert mixed["continuesInFile"] == patient["url"] and mixed["count"] == 2
    assert "Quixwell" not in (tmp_path / "out" / "manifest.json").read_text()


def test_the_role_of_a_file_is_that_of_its_list(tmp_path: Path) -> None:
    export = write_export(tmp_path / "in")
    found = list_export(export)
    assert {found.role(each) for each in found.files} == {FileRole.OUTPUT}
    (export / "manifest.json").write_bytes(b"Quixwell")
    with pytest.raises(ConfigurationError, match=r"manifest.json of the export cannot be read"):
        list_export(export)
    with pytest.raises(ConfigurationError, match="one folder"):
        list_export(export / "Patient.ndjson")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigurationError, match="no NDJSON file"):
        list_export(tmp_path / "empty")


def test_a_line_that_is_too_long_is_not_read_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    path.write_bytes(b"{}\n" + b"x" * (MAX_LINE + 5) + b"\n[]\n")
    with path.open("rb") as file:
        found = [(each.number, each.start, each.content) for each in read_lines(file)]
    assert found == [(1, 0, b"{}"), (2, 3, None), (3, MAX_LINE + 9, b"[]")]


@pytest.mark.parametrize("name", ["unlinked", "minimum", "pseudonymised", "safe-harbor", "keep"])
def test_a_policy_that_joins_nothing_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="research"):
        check_bulk_policy(load_policy(name, RULES))


@pytest.mark.parametrize("paths", [{"*.id": "link"}, {"Patient.id": "redact"}, {"Encounter.identifier": "link"}])
def test_a_policy_with_codes_of_one_line_is_refused(paths: dict[str, str]) -> None:
    check_bulk_policy(load_policy("research", RULES))
    data = {"name": "own", "default": "surrogate", "dates": {"offset_days": 0}, "paths": paths}
    with pytest.raises(ConfigurationError, match="lines of an export would not join"):
        check_bulk_policy(compile_policy(data, "own.toml"))


def test_an_audit_part_has_each_line_and_its_changes_are_found(tmp_path: Path) -> None:
    export = write_export(tmp_path / "in")
    with (export / "DocumentReference.ndjson").open("ab") as file:
        file.write(b"torn Quixwell\n")
    run(export, tmp_path / "out")
    found = read_units(tmp_path / "out")
    assert found is not None
    made = make_report(found)
    assert (made.rows, made.refused) == (15, {"MALFORMED": 1})
    assert made.columns["Patient.name.family"] == 3 and made.types["DATE"] > 10 and made.words > 10
    (entry,) = [each for each in found.finished if each.types == {"DocumentReference": 3}]
    part = tmp_path / "out" / AUDIT / entry.audit
    rows = [orjson.loads(each) for each in part.read_bytes().splitlines()]
    assert [each[2:5] for each in rows] == [["done", None, None]] * 3 + [["refused", "MALFORMED", "line"]]
    sums = Counter[str]()
    for row in rows:
        sums.update({f"{c}|{t}|{m}|{r}": count for c, t, m, r, count in row[7]})
    assert {f"{c}|{t}|{m}|{r}": count for c, t, m, r, count in entry.counts} == sums
    everything = b"".join(path.read_bytes() for path in (tmp_path / "out" / AUDIT).glob("part-*"))
    everything += (tmp_path / "out" / "_manifest.jsonl").read_bytes()
    assert not [canary for canary in CANARIES if canary.encode() in everything]
    for change in (
        part.read_bytes().replace(b'"refused"', b'"done"'),
        b"".join(part.read_bytes().splitlines(keepends=True)[:-1]),
        next(each for each in part.parent.glob("part-*") if each != part).read_bytes(),
    ):
        copy = Path(shutil.copytree(tmp_path / "out", tmp_path / "copy", dirs_exist_ok=True))
        (copy / AUDIT / entry.audit).write_bytes(change)
        assert find_changes(copy) == [("PART", f"{AUDIT}/{entry.audit}")]
        shutil.rmtree(copy)
    assert find_changes(tmp_path / "out") == []


def test_a_limit_and_a_sample_are_those_of_lines(tmp_path: Path) -> None:
    export = write_export(tmp_path / "in")
    generate_keys(tmp_path / "readers.key")
    readers = load_public_key(tmp_path / "readers.key.pub")
    ends = run(export, tmp_path / "some", limit=5)
    assert [each.left_out for each in ends] == [False, False, False, True, True]
    assert sum(each.entry.rows for each in ends if each.entry) == 5
    assert find_changes(tmp_path / "some") == []
    run(export, tmp_path / "out", readers=readers)
    found = read_sample(tmp_path / "out")
    assert found is not None and len(found.rows) == 4
    assert not [canary for canary in CANARIES if canary in (tmp_path / "out" / AUDIT / "sample.jsonl").read_text()]
    units = read_units(tmp_path / "out")
    assert units is not None
    files = {each.unit: each.file for each in units.finished}
    private = load_private_key(tmp_path / "readers.key")
    for row in found.rows:
        (name, kind, before, after), *texts = row.open(private)
        assert (name, kind) == ("resource", "fhir") and before != after
        written = orjson.loads((tmp_path / "out" / files[row.unit]).read_bytes().splitlines()[row.row])
        assert written["id"] == orjson.loads(after or "")["id"]
        assert all(each[1] == "text" and each[0].endswith("data") for each in texts)
    assert find_changes(tmp_path / "out") == []
    with pytest.raises(ConfigurationError, match="has a sample of 4 rows"):
        run(export, tmp_path / "out")
