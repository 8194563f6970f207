"""``run``, ``check`` and ``audit`` with projects: the names in the audit, and refused starts."""

import hashlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.keys import KEY, OTHER_KEY

from deid_agent.agent import AuditEntry, Coordinates, Outcome
from deid_agent.audit import AuditTrail, Signer, audit_event, entry_build, read_entries, read_target_keys
from deid_agent.cli import main
from deid_agent.cli.audit_reconcile import _marks as reconcile_marks
from deid_agent.cli.check import _projects as check_projects
from deid_agent.cli.projects import check_rekey, dead_letter_builds, describe_projects, output_marks
from deid_agent.cli.service_parts import describe_build, make_worker_factory
from deid_agent.config import SecretKey, derive_key, load_settings
from deid_agent.model import ConfigurationError, Marking, ProvenanceMode
from deid_agent.telemetry import BatchCommitted, ProjectOpened, Telemetry

SAMPLES = Path(__file__).resolve().parents[3] / "deid_agent" / "samples"
GOOD = (SAMPLES / "01-adt-a01.hl7").read_bytes()
ROUTES = 'routes = [{ from = "directory", project = "registry" }]\n'
REGISTRY = '[projects.registry]\npolicy = "safe-harbor"\n'


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEID_KEY", raising=False)


class Site:
    """A folder with messages, a key and an audit that stays over changes of the settings."""

    def __init__(self, root: Path) -> None:
        self.root, self.key, self.file = root, root / "key", root / "agent.toml"
        (root / "in").mkdir()
        self.key.write_bytes(KEY)
        self.key.chmod(0o600)
        self.configure("", "")

    def configure(self, routes: str = ROUTES, projects: str = REGISTRY, output: str = "out") -> None:
        at = {name: json.dumps(str(self.root / name)) for name in ("in", output, "dead", "state", "audit", "key")}
        self.file.write_text(
            f'transport = "directory"\nsystem = "none"\nkey_file = {at["key"]}\n{routes}[http]\nenabled = false\n'
            f"[agent]\nworkers = 0\n[directory]\ninput = {at['in']}\noutput = {at[output]}\n"
            f"dead_letters = {at['dead']}\nstate = {at['state']}\n[audit]\npath = {at['audit']}\n"
            f"[dead_letters]\nplain = true\n{projects}"
        )

    def call(self, *words: str) -> Result:
        return CliRunner().invoke(main, list(words))

    def run(self, name: str, data: bytes = GOOD) -> Result:
        """Run over one more message."""
        (self.root / "in" / name).write_bytes(data)
        return self.call("run", "--config", str(self.file))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_project_is_named_in_the_audit_and_filters_it(site: Site) -> None:
    assert site.run("a.hl7").exit_code == 0  # before there were projects
    site.configure(output="registry")
    refused = site.run("b.hl7")
    assert refused.exit_code == 2
    assert "the audit shows records of files under the key" in refused.stderr
    site.configure(projects=f"{REGISTRY}allow_rekey = true\n", output="registry")
    done = site.run("bad.hl7", b"PID|no header")
    assert done.exit_code == 1, done.stderr
    audit = site.root / "audit"
    old, *new = read_entries(audit)
    assert "project" not in old
    assert [(one["project"], one["outcome"]) for one in new] == [
        ("registry", "published"),
        ("registry", "dead_lettered"),
    ]
    key = derive_key(SecretKey(KEY), "registry", 1).id
    build = new[0]["build"]
    assert isinstance(build, dict)
    assert build["projects"]["registry"]["key"] == key
    assert build["projects"]["registry"]["routes"] == {"files": f"directory:{site.root / 'registry'}"}
    default = {"key": SecretKey(KEY).id, "generation": 0, "routes": {}}
    assert {**build["projects"]["default"], **default} == build["projects"]["default"]
    assert entry_build(new[0])["key"] == key
    assert str(entry_build(new[0])["policy"]).startswith("safe-harbor:")
    assert "safe-harbor" in json.dumps(audit_event(new[0]))
    shown = [site.call("audit", "show", str(audit), "--project", name).stdout for name in ("default", "registry", "x")]
    assert [len(text.splitlines()) for text in shown] == [1, 2, 0]
    exported = site.call("audit", "export", str(audit), "--project", "default", "--form", "fhir").stdout
    assert exported.count("\n") == 1
    done = site.call("audit", "verify", str(audit), "--key-file", str(site.key))
    assert done.exit_code == 0, done.stdout
    # The dead letter names policy and key of its project.
    texts = [path.read_text() for path in (site.root / "dead").rglob("*") if path.is_file()]
    assert any(key in text and "safe-harbor" in text for text in texts)


def test_the_key_of_a_project_is_the_derived_one(site: Site) -> None:
    site.configure()
    settings = load_settings(site.file)
    parts = make_worker_factory(settings, SecretKey(KEY))
    (own,) = parts.projects
    assert own.key == derive_key(SecretKey(KEY), "registry", 1)
    assert (own.policy.name, own.generation, parts.key) == ("safe-harbor", 1, SecretKey(KEY))
    default, others = output_marks(settings, parts)
    assert others["files"].secret == own.key.secret
    assert (default.project, others["files"].project) == ("default", "registry")
    assert dict(dead_letter_builds(settings, parts)["files"])["key"] == own.key.id != parts.key.id


def test_reconcile_expects_the_ids_of_each_project(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEID_KEY_FILE", str(site.key))
    site.configure()
    marks = reconcile_marks(load_settings(site.file))
    assert marks["files"].secret == derive_key(SecretKey(KEY), "registry", 1).secret
    assert marks["adt by a pattern"].secret == KEY
    site.configure("", "")
    assert reconcile_marks(load_settings(site.file))["files"].secret == KEY


async def leave_trail(site: Site, key: bytes = KEY) -> None:
    """An entry in the audit under the settings of the site."""
    settings, secret = load_settings(site.file), SecretKey(key)
    parts = make_worker_factory(settings, secret)
    build = {**describe_build(settings, parts), **describe_projects(settings, parts)}
    trail = AuditTrail(settings.audit.path, build, Signer(secret.audit_seed), Telemetry())
    await trail.append([AuditEntry(Coordinates("files", 0, 1), Outcome.PUBLISHED, project="registry")])
    await trail.close()


def refusal(site: Site, key: bytes = KEY) -> str:
    """Why a start is refused; empty if it is not."""
    settings = load_settings(site.file)
    try:
        check_rekey(settings, make_worker_factory(settings, SecretKey(key)))
    except ConfigurationError as error:
        return str(error)
    return ""


async def test_the_next_generation_needs_another_output_or_leave(site: Site) -> None:
    site.configure()
    assert refusal(site) == ""
    await leave_trail(site)
    assert refusal(site) == ""
    before, after = (derive_key(SecretKey(KEY), "registry", number).id for number in (1, 2))
    second = f"{REGISTRY}generation = 2\n"
    site.configure(projects=second)
    assert f"under the key {before}, and its key is now {after}" in refusal(site)
    assert "set projects.registry.allow_rekey = true" in refusal(site)
    site.configure(projects=second, output="out-2")
    assert refusal(site) == ""
    site.configure(projects=f"{second}allow_rekey = true\n")
    assert refusal(site) == ""
    await leave_trail(site)
    site.configure(projects=second)
    assert refusal(site) == ""  # its last key
    site.configure()
    assert f"under the key {after}, and its key is now {before}" in refusal(site)


async def test_another_key_file_is_another_key_of_every_project(site: Site) -> None:
    default = 'routes = [{ from = "directory" }]\n'
    site.configure(default)
    await leave_trail(site)
    assert "project default" in refusal(site, OTHER_KEY)
    assert "or set allow_rekey = true" in refusal(site, OTHER_KEY)
    site.configure(f"allow_rekey = true\n{default}")
    assert refusal(site, OTHER_KEY) == ""


async def test_without_projects_another_key_starts_as_before(site: Site) -> None:
    await leave_trail(site)
    assert refusal(site, OTHER_KEY) == ""
    (entry,) = read_entries(site.root / "audit")
    assert isinstance(entry["build"], dict)
    assert "projects" not in entry["build"]


async def test_an_output_keeps_its_key_when_the_projects_go(site: Site) -> None:
    site.configure()
    await leave_trail(site)
    site.configure("", "")
    assert "project default: the audit shows directory:" in refusal(site)
    assert "project default: the audit shows directory:" in site.call("check", "--config", str(site.file)).stdout
    site.configure("allow_rekey = true\n", "")
    assert refusal(site) == ""
    await leave_trail(site)
    site.configure("", "")
    assert refusal(site) == ""  # allowed once
    site.configure()  # the newest records are those of the key file
    assert "project registry: the audit shows records of files under the key" in refusal(site)


async def test_an_output_is_one_folder_however_it_is_written(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.configure()
    await leave_trail(site)
    (site.root / "link").symlink_to(site.root / "out")
    monkeypatch.chdir(site.root)
    text = site.file.read_text().replace("[projects.registry]", "[projects.registry]\ngeneration = 2")
    for written in ("out", str(site.root / "link")):
        site.file.write_text(text.replace(json.dumps(str(site.root / "out")), json.dumps(written)))
        assert "under the key" in refusal(site)


def test_the_trail_from_before_projects_counts_by_source(tmp_path: Path) -> None:
    assert read_target_keys(tmp_path / "none", ["files"]).targets == {}
    audit = tmp_path / "audit"
    audit.mkdir()
    old, new = {"key": "aaaa"}, {"key": "bbbb", "projects": {"r": {"key": "cccc", "routes": {"adt": "kafka:x"}}}}
    lines = [
        {"kind": "segment", "build": old},
        {"kind": "entry", "topic": "adt"},
        {"kind": "entry", "topic": "oru"},
    ]
    text = [json.dumps(line, separators=(",", ":")) for line in lines]
    (audit / "00000001.jsonl").write_text("\n".join(text) + "\n")
    assert read_target_keys(audit, ["adt", "siu"]).sources == {"adt": "aaaa"}
    (audit / "00000002.jsonl").write_text(json.dumps({"kind": "segment", "build": new}) + "\n")
    found = read_target_keys(audit, ["adt", "oru"])
    assert (found.targets, found.sources) == ({"kafka:x": "cccc"}, {"oru": "aaaa"})


@pytest.mark.parametrize(
    "line", [b"", b"\xff\n", b"[]\n", b'{"build":[]}\n', b'{"build":{"projects":{"r":{"routes":[]},"q":3}}}\n', b'{"']
)
def test_a_damaged_segment_hides_no_other(line: bytes, tmp_path: Path) -> None:
    build = {"projects": {"r": {"key": "cccc", "routes": {"adt": "kafka:x"}}}}
    (tmp_path / "00000001.jsonl").write_text(json.dumps({"kind": "segment", "build": build}) + "\n")
    (tmp_path / "00000002.jsonl").write_bytes(line + b'{"kind":"entry","topic":"\xff\n')
    assert read_target_keys(tmp_path, ["adt", "oru"]).targets == {"kafka:x": "cccc"}


def test_check_shows_policy_key_and_routes_of_each_project(site: Site) -> None:
    site.configure(projects=f'{REGISTRY}[projects.idle]\nprofile = "precision"\n')
    found = list(check_projects(load_settings(site.file)))
    assert not any(each.problem for each in found)
    lines = [each.shown for each in found]
    key = derive_key(SecretKey(KEY), "registry", 1).id
    assert lines[0].startswith("default: policy pseudonymised, digest")
    assert lines[0].endswith("no route")
    assert f"key id {key} of generation 1; files to directory:" in lines[1]
    assert "idle: policy pseudonymised" in lines[2]
    assert lines[3] == "system none, profile precision"


def test_a_key_that_cannot_be_loaded_stops_check_and_run(site: Site) -> None:
    site.configure(projects='[projects.registry]\nkey = "k"\n[keys.k]\nsource = "env"\nvariable = "NO_SUCH_KEY"\n')
    expected = "keys.k (env): the variable NO_SUCH_KEY is not set"
    (finding,) = check_projects(load_settings(site.file))
    assert finding.problem.startswith(expected)
    refused = site.run("a.hl7")
    assert refused.exit_code == 2
    assert expected in refused.stderr


def test_the_configuration_digest_of_an_agent_without_projects_is_the_former_one(site: Site) -> None:
    """A setting that came later changes it only if it is set."""
    settings = load_settings(site.file)
    names = "transport output policy profile system key_file allow_demo_key rules models scope_table log_level agent"
    names += " dead_letters kafka directory mllp mllp_out service envelopes registry audit http"
    first = set(names.split())
    assert first <= settings.model_dump().keys()
    former = hashlib.sha256(settings.model_dump_json(include=first).encode()).hexdigest()
    built = describe_build(settings, make_worker_factory(settings, SecretKey(KEY)))
    assert built["configuration"] == former[:16]


def test_only_an_agent_with_projects_has_their_metrics() -> None:
    telemetry = Telemetry()
    telemetry.emit(BatchCommitted("adt", 0, 5, 3, 0, 1, 0.1))
    assert b"deid_project_messages_total{" not in telemetry.registry.exposition()
    telemetry.emit(BatchCommitted("adt", 0, 5, 3, 0, 1, 0.1, "registry"))
    telemetry.emit(ProjectOpened("registry", "safe-harbor:ab", "0badc0de", 2))
    text = telemetry.registry.exposition().decode()
    assert 'deid_project_messages_total{outcome="published",project="registry"} 3.0' in text
    assert 'deid_project_info{generation="2",key="0badc0de",policy="safe-harbor:ab",project="registry"} 1.0' in text


def test_a_dead_letter_of_another_project_is_not_put_back(site: Site) -> None:
    site.configure()
    assert site.run("bad.hl7", b"PID|no header").exit_code == 1
    replay = ("replay", "--config", str(site.file), "--all")
    site.configure(ROUTES.replace("registry", "trial"), "[projects.registry]\n[projects.trial]\n", "out-2")
    for options in (("--dry-run",), ()):
        refused = site.call(*replay, *options)
        assert refused.exit_code == 1
        assert "it is of project registry, and its input belongs to trial now" in refused.stderr
        assert "deid-agent: 0 " in refused.stderr
    site.configure("", "")
    assert "its input belongs to default now" in site.call(*replay).stderr
    site.configure()
    done = site.call(*replay)
    assert (done.exit_code, done.stdout.count("\n")) == (0, 1)


async def test_a_project_over_http_keeps_its_key(site: Site) -> None:
    """The answers of a project are its output: under another key they do not join with those before."""

    def configure(routes: str, projects: str = "", top: str = "") -> None:
        site.file.write_text(
            f'transport = "http"\nsystem = "none"\nroutes = [{routes}]\n{top}[service]\nport = 0\n'
            f"[http]\nenabled = false\n[audit]\npath = {json.dumps(str(site.root / 'audit'))}\n"
            f"[projects.darts]\n{projects}"
        )

    darts, default = '{ from = "http", project = "darts" }', '{ from = "http" }'
    configure(f"{darts}, {default}")
    settings = load_settings(site.file)
    parts = make_worker_factory(settings, SecretKey(KEY))
    assert describe_projects(settings, parts)["projects"]["darts"]["routes"] == {"http-darts": "http:darts"}  # type: ignore[index]
    _, others = output_marks(settings, parts)
    assert {topic: marks.project for topic, marks in others.items()} == {"http-darts": "darts"}
    assert refusal(site) == ""
    await leave_trail(site)
    assert refusal(site) == ""
    configure(darts, "generation = 2\n")
    assert "project darts: the audit shows http:darts under the key" in refusal(site)
    assert "name another project, or set projects.darts.allow_rekey = true" in refusal(site)
    configure(darts, "generation = 2\nallow_rekey = true\n")
    assert refusal(site) == ""
    configure(default)
    assert "project default: the audit shows http:default" in refusal(site, OTHER_KEY)
    configure("", top="allow_rekey = true\n")
    assert refusal(site, OTHER_KEY) == ""


def test_labels_and_provenance_reach_the_workers_of_their_project_and_are_shown_by_check(site: Site) -> None:
    top = 'labels = true\nprovenance = "bundle"\n'
    site.configure(top + ROUTES, REGISTRY + "labels = false\n")
    settings = load_settings(site.file)
    parts = make_worker_factory(settings, SecretKey(KEY))
    inside = ProvenanceMode.BUNDLE
    assert [each.marking for each in (parts.default, *parts.projects)] == [
        Marking(labels=True, provenance=inside),
        Marking(labels=False, provenance=inside),
    ]
    shown = site.call("check", "--offline", "--config", str(site.file)).stdout
    assert "additions     default: labels, Provenance in Bundles; registry: Provenance in Bundles\n" in shown
    site.configure()
    assert "additions" not in site.call("check", "--offline", "--config", str(site.file)).stdout
    site.configure('provenance = "topic"\nprovenance_topic = "p"\n', "")
    refused = site.call("check", "--offline", "--config", str(site.file))
    assert (refused.exit_code, "needs transport and output kafka" in refused.stdout) == (2, True)


def test_a_resource_that_an_agent_publishes_is_labelled(site: Site) -> None:
    site.configure("labels = true\n", "")
    assert site.run("a.json", b'{"resourceType":"Patient","name":[{"family":"Zyblorqvist"}]}').exit_code == 0
    (written,) = (path for path in (site.root / "out").rglob("*") if path.is_file())
    assert json.loads(written.read_bytes())["meta"]["security"][0]["code"] == "PSEUDED"
    (entry,) = read_entries(site.root / "audit")
    assert entry["output_sha256"] == hashlib.sha256(written.read_bytes()).hexdigest()


def test_the_shape_of_a_project_is_checked_shown_and_audited(site: Site) -> None:
    site.configure(projects=f'{REGISTRY}shape = "dapl"\non_restricted_zip = "drop"\n', output="registry")
    shown = site.call("check", "--config", str(site.file)).stdout
    assert "key of generation" not in shown
    assert "of generation 1; shape dapl:drop:message; files to" in shown
    assert "ok   shape" not in shown
    patient = b'{"resourceType":"Patient","id":"p","birthDate":"1957-04-22","name":[{"family":"Okafor"}]}'
    assert site.run("a.json", patient).exit_code == 0
    assert site.run("b.hl7").exit_code == 1, "HL7 v2 has no such shape"
    made = json.loads((site.root / "registry" / "a.json").read_bytes())
    assert set(made) == {"resourceType", "id", "meta", "extension", "address"}
    first, second = read_entries(site.root / "audit")
    assert (first["outcome"], second["outcome"], second["reason"]) == ("published", "dead_lettered", "UNSUPPORTED")
    build = first["build"]
    assert isinstance(build, dict)
    assert build["projects"]["registry"]["shape"] == "dapl:drop:message"
    assert "shape" not in build


def test_the_shape_of_the_top_level_is_that_of_projects_without_one(site: Site) -> None:
    top = 'policy = "safe-harbor"\nshape = "dapl"\nage_date = 2024-05-06\n'
    site.configure(f"{top}{ROUTES}", f'{REGISTRY}age_date = 2020-01-02\n[projects.plain]\nshape = "none"\n')
    settings = load_settings(site.file)
    parts = make_worker_factory(settings, SecretKey(KEY))
    assert [str(parts.shape.name), *(str(each.shape.name) for each in parts.projects)] == ["dapl", "dapl", "none"]
    assert [str(each.age_date) for each in (parts.shape, parts.projects[0].shape)] == ["2024-05-06", "2020-01-02"]
    assert describe_build(settings, parts)["shape"] == "dapl:mask:2024-05-06"
    site.configure(f'policy = "research"\nshape = "dapl"\n{ROUTES}')
    failed = site.call("check", "--config", str(site.file))
    assert failed.exit_code == 2
    assert "FAIL shape" in failed.stdout
    assert "the policy research does not generalize dates" in failed.stdout
    started = site.run("a.hl7")
    assert (started.exit_code, "does not generalize dates" in started.stderr) == (2, True)
    for wrong in ('shape = "DAPL"', 'on_restricted_zip = "keep"', "age_date = 2024"):
        site.configure(f"{wrong}\n{ROUTES}")
        assert site.run("a.hl7").exit_code == 2


def test_a_patient_of_a_restricted_area_leaves_no_output_and_no_dead_letter(site: Site) -> None:
    site.configure(
        f'policy = "safe-harbor"\nshape = "dapl"\non_restricted_zip = "drop"\n{ROUTES}',
        "[projects.registry]\n",
        "registry",
    )
    few = b'{"resourceType":"Patient","id":"p","birthDate":"1957-04-22","address":[{"postalCode":"03601"}]}'
    assert site.run("a.json", few).exit_code == 0
    assert site.run("b.json", few.replace(b"03601", b"40205")).exit_code == 0
    assert [one["outcome"] for one in read_entries(site.root / "audit")] == ["suppressed", "published"]
    assert [path.name for path in (site.root / "registry").iterdir()] == ["b.json"]
    assert not [path for path in (site.root / "dead").rglob("*") if path.is_file()]
