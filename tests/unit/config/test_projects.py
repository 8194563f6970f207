"""Projects, routes and keys in the settings: wrong ones stop the start with their place."""

from pathlib import Path

import pytest

from deid_agent.config import SecretKey, derive_key, load_project_keys, load_settings, shown_settings
from deid_agent.model import ConfigurationError, Marking, ProvenanceMode
from deid_agent.transport.kafka import kafka_options

MASTER = SecretKey(bytes(range(7, 39)))
KAFKA = """
transport = "kafka"
routes = [{routes}]
[kafka]
bootstrap_servers = "b:1"
[kafka.routes]
adt = "adt.clean"
[projects]
registry = {{ policy = "safe-harbor"{more} }}
study = {{ domain = "registry", generation = 2 }}
[dead_letters]
plain = true
[audit]
path = "audit"
"""
ROUTE = '{ from = "kafka:hl7.raw", project = "registry", to = "kafka:hl7.registry" }'
MLLP = """
transport = "mllp"
output = "kafka"
routes = [{routes}]
[mllp]
dead_letters = "letters"
[kafka]
bootstrap_servers = "b:1"
[projects.registry]
policy = "safe-harbor"
[dead_letters]
plain = true
[audit]
path = "audit"
"""
FOLDER = """
transport = "directory"
routes = [{routes}]
[directory]
input = "in"
output = "out"
dead_letters = "dead"
state = "state"
[projects.registry]
policy = "safe-harbor"
[dead_letters]
plain = true
[audit]
path = "audit"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "agent.toml"


def test_routes_join_those_of_kafka(file: Path) -> None:
    file.write_text(KAFKA.format(routes=ROUTE, more=""))
    settings = load_settings(file)
    assert settings.kafka is not None
    assert settings.kafka.routes == {"adt": "adt.clean", "hl7.raw": "hl7.registry"}
    assert [(feed.topic, feed.project, feed.target) for feed in settings.feeds] == [
        ("adt", "default", "kafka:adt.clean"),
        ("hl7.raw", "registry", "kafka:hl7.registry"),
    ]
    shown = {one.name: one.value for one in shown_settings(settings)}
    assert shown["routes"] == "kafka:hl7.raw to kafka:hl7.registry for registry"


def test_a_listener_and_a_folder_are_sources_too(file: Path) -> None:
    file.write_text(MLLP.format(routes='{ from = "mllp", project = "registry", to = "kafka:hl7.registry" }'))
    (feed,) = load_settings(file).feeds
    assert (feed.topic, feed.project, feed.target) == ("mllp", "registry", "kafka:hl7.registry")
    file.write_text(FOLDER.format(routes='{ from = "directory", project = "registry" }'))
    (feed,) = load_settings(file).feeds
    assert (feed.topic, feed.project, feed.target) == ("files", "registry", "directory:out")


@pytest.mark.parametrize("target", ["kafka:x", "mllp"])
def test_a_folder_has_no_other_output(file: Path, target: str) -> None:
    file.write_text(FOLDER.format(routes=f'{{ from = "directory", project = "registry", to = "{target}" }}'))
    with pytest.raises(ConfigurationError, match=r"routes\.0\.to: outputs go to directory: leave it out"):
        load_settings(file)


def test_a_topic_named_like_the_listener_has_one_route_too(file: Path) -> None:
    text = KAFKA.format(routes=ROUTE.replace("hl7.raw", "mllp"), more="").replace(
        'adt = "adt.clean"', 'mllp = "m.clean"'
    )
    file.write_text(text)
    with pytest.raises(
        ConfigurationError, match=r"routes\.0\.from: kafka:mllp is the source of kafka\.routes\.mllp too"
    ):
        load_settings(file)


def test_without_projects_there_is_one_feed_that_names_none(file: Path) -> None:
    file.write_text(
        FOLDER.replace("routes = [{routes}]", "").replace('[projects.registry]\npolicy = "safe-harbor"', "")
    )
    settings = load_settings(file)
    assert not settings.has_projects
    assert [feed.project for feed in settings.feeds] == ["default"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ROUTE.replace('"registry"', '"regstry"'), r"routes\.0\.project: there is no project 'regstry'"),
        (ROUTE.replace("hl7.raw", "adt"), r"routes\.0\.from: kafka:adt is the source of kafka\.routes\.adt too"),
        (f"{ROUTE}, {ROUTE}", r"routes\.1\.from: kafka:hl7\.raw is the source of routes\.0 too"),
        (
            ROUTE.replace("hl7.registry", "adt"),
            r"routes\.0\.to: kafka:adt is the source of kafka\.routes\.adt: it would",
        ),
        (ROUTE.replace("hl7.registry", "hl7.raw"), r"routes\.0\.to: kafka:hl7\.raw is the source of routes\.0"),
        (ROUTE.replace("hl7.raw", "adt.clean"), r"topic 'adt\.clean' is an input and an output"),
        (ROUTE.replace("hl7.registry", "hl7.raw.dlq"), "is a topic of dead letters"),
        (
            ROUTE.replace("hl7.registry", "adt.clean"),
            r"kafka:adt\.clean is the output of adt for default and of hl7\.raw",
        ),
        (ROUTE.replace("kafka:hl7.raw", "mllp"), r"routes\.0\.from: mllp is not a source of transport kafka"),
        (ROUTE.replace("kafka:hl7.raw", "http"), r"routes\.0\.from: http is not a source of transport kafka"),
        (
            ROUTE.replace("kafka:hl7.raw", "amqp"),
            r'routes\.0\.from: write "kafka:TOPIC", "mllp", "directory" or "http"',
        ),
        (ROUTE.replace("kafka:hl7.registry", "directory"), r"routes\.0\.to: outputs go to kafka: write kafka:TOPIC"),
        ('{ from = "kafka:x", project = "registry" }', r"routes\.0\.to: outputs go to kafka: write kafka:TOPIC"),
        (ROUTE.replace("hl7.registry", "hl7/registry"), r'routes\.0\.to: write "kafka:TOPIC"'),
        ('{ project = "registry" }', r"routes\.0\.from: is required"),
        ('{ from = "kafka:x", via = "y" }', r"routes\.0\.via: unknown setting"),
        ("3", r"routes\.0"),
    ],
)
def test_a_wrong_route_is_named(file: Path, text: str, expected: str) -> None:
    file.write_text(KAFKA.format(routes=text, more=""))
    with pytest.raises(ConfigurationError, match=expected):
        load_settings(file)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (', key = "vaulted"', r"projects\.registry\.key: there is no key 'vaulted'; add \[keys\.vaulted\]"),
        (", generation = 0", r"projects\.registry\.generation"),
        (", rules = 'x'", r"projects\.registry\.rules: unknown setting"),
        (', domain = "Registry"', r"projects\.registry\.domain"),
        (' }\ndefault = { policy = "keep"', r"projects\.default: this project is the top level"),
    ],
)
def test_a_wrong_project_is_named(file: Path, more: str, expected: str) -> None:
    file.write_text(KAFKA.format(routes=ROUTE, more=more))
    with pytest.raises(ConfigurationError, match=expected):
        load_settings(file)


def test_a_pattern_has_no_routes(file: Path) -> None:
    text = KAFKA.format(routes=ROUTE, more="").replace('[kafka.routes]\nadt = "adt.clean"', "")
    file.write_text(text.replace("[projects]", 'topics_pattern = "x.*"\noutput = "o.{topic}"\n[projects]'))
    with pytest.raises(ConfigurationError, match=r"routes, kafka\.topics_pattern: set one of them"):
        load_settings(file)


def test_a_key_depends_on_domain_and_generation_alone(file: Path) -> None:
    file.write_text(KAFKA.format(routes=ROUTE, more=", generation = 2"))
    settings = load_settings(file)
    keys = load_project_keys(settings.projects, settings.keys, MASTER)
    assert keys["registry"] == keys["study"] == derive_key(MASTER, "registry", 2)
    others = [derive_key(MASTER, *one) for one in (("registry", 1), ("registry", 3), ("registry2", 2), ("study", 2))]
    assert len({each.id for each in (MASTER, keys["study"], *others)}) == 6
    # HKDF-SHA256 (RFC 5869) with the standard library: salt deid-agent/projects/1, info domain 0 NAME 0 GENERATION
    import hmac  # noqa: PLC0415

    inner = hmac.digest(b"deid-agent/projects/1", MASTER.secret, "sha256")
    assert keys["study"].secret == hmac.digest(inner, b"domain\0registry\x002\x01", "sha256")
    assert keys["study"].secret.hex() not in repr(keys)


HTTP = """
transport = "http"
routes = [{routes}]
[service]
{service}
[projects]
darts = {{}}
registry = {{}}
[audit]
path = "audit"
"""
DARTS = '{ from = "http", project = "darts" }'


@pytest.mark.parametrize(
    ("routes", "projects"),
    [("", ["default"]), (DARTS, ["darts"]), (f'{DARTS}, {{ from = "http" }}', ["darts", "default"])],
)
def test_a_route_from_http_offers_a_project(file: Path, routes: str, projects: list[str]) -> None:
    file.write_text(HTTP.format(routes=routes, service=""))
    feeds = load_settings(file).feeds
    assert [(feed.topic, feed.project, feed.target) for feed in feeds] == [
        (f"http-{name}", name, f"http:{name}") for name in projects
    ]


def test_without_routes_and_projects_http_serves_default(file: Path) -> None:
    file.write_text('transport = "http"\n[service]\n[audit]\npath = "audit"\n')
    settings = load_settings(file)
    assert not settings.has_projects
    assert [(feed.topic, feed.project) for feed in settings.feeds] == [("http-default", "default")]


@pytest.mark.parametrize(
    ("routes", "service", "expected"),
    [
        ('{ from = "directory" }', "", r"routes\.0\.from: directory is not a source of transport http"),
        (f"{DARTS}, {DARTS}", "", r"routes\.1\.from: http for darts is the source of routes\.0 too"),
        ('{ from = "http", project = "none" }', "", r"routes\.0\.project: there is no project 'none'"),
        ('{ from = "http", to = "kafka:x" }', "", r"routes\.0\.to: outputs go to http: leave it out"),
        (
            DARTS,
            'permissions.lab = { projects = ["registry"] }',
            r"service\.permissions\.lab\.projects: registry has no route from http; the projects that have one: darts",
        ),
        (DARTS, "permissions.lab = { projects = [] }", r"service\.permissions\.lab\.projects"),
        (DARTS, "permissions.lab = {}", r"service\.permissions\.lab\.projects: is required"),
        (
            DARTS,
            'permissions.lab = { projects = ["darts"] }\n'
            'tls_certfile = "c"\ntls_keyfile = "k"\ntls_client_cafile = "a"',
            r"service: permissions limit single clients: list all names of certificates in clients",
        ),
    ],
)
def test_a_wrong_route_from_http_is_named(file: Path, routes: str, service: str, expected: str) -> None:
    file.write_text(HTTP.format(routes=routes, service=service))
    with pytest.raises(ConfigurationError, match=expected):
        load_settings(file)


# Labels and Provenance

MARKED = ', labels = true, provenance = "topic", provenance_topic = "registry.provenance"'


def test_labels_and_provenance_are_those_above_unless_a_project_sets_them(file: Path) -> None:
    file.write_text('labels = true\nprovenance = "bundle"\n' + KAFKA.format(routes=ROUTE, more=", labels = false"))
    found = {name: choice.marking for name, choice in load_settings(file).markings.items()}
    assert found == {
        "default": Marking(labels=True, provenance=ProvenanceMode.BUNDLE),
        "registry": Marking(labels=False, provenance=ProvenanceMode.BUNDLE),
        "study": Marking(labels=True, provenance=ProvenanceMode.BUNDLE),
    }
    file.write_text(KAFKA.format(routes=ROUTE, more=MARKED))
    settings = load_settings(file)
    assert settings.markings["default"].marking.adds_nothing
    assert kafka_options(settings).provenance_topics == {"hl7.raw": "registry.provenance"}


@pytest.mark.parametrize(
    ("top", "more", "expected"),
    [
        ("labels = 7", "", "labels"),
        ('provenance = "both"', "", "provenance"),
        ('provenance = "topic"', "", "provenance_topic: name a topic for the Provenance of this project alone"),
        ('provenance_topic = "p"', "", 'provenance_topic: it is used with provenance = "topic"'),
        ('provenance = "topic"\nprovenance_topic = "a/b"', "", "provenance_topic"),
        ('provenance = "topic"\nprovenance_topic = "adt"', "", "provenance_topic: adt is an input; name another topic"),
        ('provenance = "topic"\nprovenance_topic = "adt.clean"', "", "provenance_topic: adt.clean is an output"),
        ('provenance = "topic"\nprovenance_topic = "adt.dlq"', "", "provenance_topic: adt.dlq is for dead letters"),
        ("", MARKED.replace("registry.provenance", "audit.lines"), "is audit.topic; name another topic"),
        (
            'provenance = "topic"\nprovenance_topic = "registry.provenance"',
            MARKED,
            r"projects\.registry\.provenance_topic: registry\.provenance is provenance_topic; name another",
        ),
        # A project without a topic of its own never shares that above: its ids would join two feeds.
        ('provenance = "topic"\nprovenance_topic = "p"', "", r"projects\.registry\.provenance_topic: name a topic"),
    ],
)
def test_a_provenance_that_cannot_be_published_stops_the_start(file: Path, top: str, more: str, expected: str) -> None:
    text = KAFKA.format(routes=ROUTE, more=more).replace('path = "audit"', 'path = "audit"\ntopic = "audit.lines"')
    file.write_text(f"{top}\n{text}")
    with pytest.raises(ConfigurationError, match=expected):
        load_settings(file)


def test_only_topics_get_a_provenance_of_their_own(file: Path) -> None:
    for text, route in (
        (FOLDER, '{ from = "directory", project = "registry" }'),
        (MLLP, '{ from = "mllp", project = "registry", to = "kafka:hl7.registry" }'),
    ):
        marked = text.replace('policy = "safe-harbor"', f'policy = "safe-harbor"{MARKED.replace(", ", chr(10))}')
        file.write_text(marked.format(routes=route))
        with pytest.raises(
            ConfigurationError, match=r'projects\.registry\.provenance: "topic" needs transport and output'
        ):
            load_settings(file)


def test_the_inputs_of_a_pattern_have_the_topic_of_default(file: Path) -> None:
    start = 'provenance = "topic"\nprovenance_topic = "{}"\ntransport = "kafka"\n'
    text = (
        '[kafka]\nbootstrap_servers = "b:1"\ntopics_pattern = "hl7\\\\..*"\noutput = "clean.{topic}"\n'
        '[dead_letters]\nplain = true\n[audit]\npath = "audit"\n'
    )
    file.write_text(start.replace("{}", "made") + text)
    options = kafka_options(load_settings(file))
    assert options.provenance_topic("hl7.any") == "made"
    file.write_text(start.replace("{}", "hl7.made") + text)
    with pytest.raises(ConfigurationError, match=r"hl7\.made is matched by kafka\.topics_pattern"):
        load_settings(file)
