"""Static checks of the Containerfile. tests/system/wheel/test_image.py runs its steps."""

import re
from fnmatch import fnmatch

from support.manifests import DEPLOY, ROOT, containerfile, labels_of

from deid_agent import __version__

STEPS = containerfile()
LAST = max(step.stage for step in STEPS)


def only(name: str) -> str:
    """The value of an instruction that occurs once in the last stage."""
    (step,) = (step for step in STEPS if step.stage == LAST and step.name == name)
    return step.value


def test_three_stages_on_bases_that_are_pinned() -> None:
    python, rust = (step.value.split("=", 1)[1] for step in STEPS if step.stage == -1)
    assert re.fullmatch(r"python:3\.1[123](\.\d+)?-slim-(\w+)", python), python
    assert re.fullmatch(r"rust:1\.\d+(\.\d+)?-slim-(\w+)", rust), rust
    assert python.rpartition("-")[2] == rust.rpartition("-")[2], "the library needs the C library it was linked with"
    assert [step.value.split()[0] for step in STEPS if step.name == "FROM"] == ["${RUST}", "${PYTHON}", "${PYTHON}"]


def test_crates_are_those_of_the_lock() -> None:
    (build,) = (step.value for step in STEPS if "cargo" in step.value and step.name == "RUN")
    assert "--locked" in build


def test_it_runs_as_a_number_that_is_not_root() -> None:
    user, group = only("USER").split(":")
    assert int(user) >= 1000 and int(group) >= 1000
    assert f"--owner={user} --group={group}" in only("RUN"), "its folder is its own"


def test_entry_and_health_check_need_no_shell() -> None:
    steps = {step.name: step for step in STEPS if step.stage == LAST}
    assert steps["ENTRYPOINT"].words == ["/opt/deid-agent/bin/deid-agent"]
    assert steps["CMD"].words == ["run", "--config", "/etc/deid-agent/agent.toml"]
    options, _, command = steps["HEALTHCHECK"].value.partition(" CMD ")
    assert command == '["/opt/deid-agent/bin/python", "-m", "deid_agent.probe"]'
    assert "--timeout=5s" in options and "--retries=3" in options
    assert only("STOPSIGNAL") == "SIGTERM"


def test_one_folder_is_written_to() -> None:
    (volume,) = (step for step in STEPS if step.name == "VOLUME")
    assert volume.words == [only("WORKDIR")]
    names = [step.name for step in STEPS if step.stage == LAST]
    assert names.index("RUN") < names.index("VOLUME"), "later changes to a volume are lost"


def test_the_image_has_labels() -> None:
    (label,) = (labels_of(step) for step in STEPS if step.name == "LABEL")
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in label.items()}
    assert labels["version"] == __version__ and labels["licenses"] == "Apache-2.0" and labels["title"] == "deid-agent"


def test_only_packages_of_the_lock_are_installed() -> None:
    fetched = [step.value for step in STEPS if step.name == "RUN" and "pip" in step.value]
    assert fetched and all("--no-index" in line or "--require-hashes" in line for line in fetched)
    assert not [line for line in fetched if re.search(r"\b(curl|wget|apt-get|git)\b", line)]


def test_no_secret_is_built_in() -> None:
    for step in STEPS:
        if step.name in {"ARG", "ENV", "COPY", "ADD"}:
            assert not re.search(r"key|secret|password|token", step.value, re.IGNORECASE), step
    assert not [step for step in STEPS if step.name == "ADD"]


def test_only_copied_files_are_in_the_build_context() -> None:
    """The list excludes everything first, and then includes the files that the build copies."""
    assert (ROOT / ".dockerignore").read_bytes() == (ROOT / ".containerignore").read_bytes()
    lines = [line for line in (ROOT / ".containerignore").read_text().splitlines() if line and line[0] != "#"]
    assert lines[0] == "*"
    let_in = {line[1:] for line in lines if line[0] == "!"}
    copied = set()
    for step in STEPS:
        if step.name == "COPY" and "--from" not in step.value:
            copied.update(step.value.split()[:-1])
    assert copied == let_in
    assert all((ROOT / name).exists() for name in copied)
    left_out = [line for line in lines[1:] if line[0] != "!"]
    assert (
        any(fnmatch("rules/dead-letters.key", line.removeprefix("**/")) for line in left_out) or "**/*.key" in left_out
    )


def test_version_is_one_everywhere() -> None:
    for path in ("Containerfile", "compose.yaml", "helm/deid-agent/Chart.yaml", "kubernetes/sidecar.yaml"):
        text = (DEPLOY / path).read_text("utf-8")
        assert f"deid-agent:{__version__}" in text or f"appVersion: {__version__}" in text, path
