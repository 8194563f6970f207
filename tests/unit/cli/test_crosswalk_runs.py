"""A running agent with a crosswalk: refused settings, a full disk, outputs, projects."""

import base64
import json
import pickle
import re
from contextlib import suppress
from pathlib import Path

import pytest
from support.crosswalk_site import BUNDLE, CODE, Site
from support.keys import KEY
from support.projects import adt

from deid_agent.agent import (
    Job,
    KeyUse,
    PairSealer,
    PrivateKey,
    Processed,
    load_public_key,
    open_box,
)
from deid_agent.app import ProjectParts, WorkerFactory
from deid_agent.audit import (
    LineKind,
    read_entries,
)
from deid_agent.audit.storage import write_all
from deid_agent.config import SecretKey, derive_key
from deid_agent.model import CrosswalkError
from deid_agent.pipeline import load_policy
from deid_agent.rules import data_folder


def test_with_a_full_disk_no_output_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path)

    def full(file: int, data: bytes) -> None:
        if "/crosswalk/" in str(Path(f"/proc/self/fd/{file}").readlink()) and b'"kind":"crosswalk"' in data:
            raise OSError(28, "No space left on device")
        write_all(file, data)

    monkeypatch.setattr("deid_agent.audit.trail.write_all", full)
    done = site.run(a=adt(1), b=BUNDLE)
    assert done.exit_code == 3
    assert "the crosswalk trail cannot be written: No space left on device; nothing was committed" in done.stderr
    assert not list(tmp_path.glob("out/*"))
    assert not (tmp_path / "audit").exists(), "a record without its line is not audited"
    monkeypatch.undo()
    assert site.run().exit_code == 0
    assert len(list((tmp_path / "out").iterdir())) == 2
    lines = list(read_entries(tmp_path / "crosswalk", kind=LineKind.CROSSWALK))
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("seal_to", "more", "policy", "error"),
    [
        (("trust.pub",), "", "safe-harbor", "name the public keys of two custodians"),
        (("trust.pub", "privacy.pub", "third.pub"), "", "safe-harbor", "name the public keys of two custodians"),
        (("trust.pub", "privacy.pub"), "single_custodian = true\n", "safe-harbor", "name one public key"),
        (("trust.pub", "trust.pub"), "", "safe-harbor", "two persons need a key each"),
        (("trust.pub", "dead.pub"), "", "safe-harbor", "not a crosswalk key but a dead-letter key"),
        (("trust.pub", "disguised.pub"), "", "safe-harbor", "a key is that of the dead letters"),
        (("trust.pub", "rewritten.pub"), "", "safe-harbor", "two persons need a key each"),
        (("trust.pub", "shifted.pub"), "", "safe-harbor", "two persons need a key each"),
        (("trust.pub", "low.pub"), "", "safe-harbor", "nothing can be sealed to this key"),
        (("trust", "privacy.pub"), "", "safe-harbor", "holds a private key; name its .pub file"),
        (("trust.pub", "none.pub"), "", "safe-harbor", "cannot be read"),
        (("trust.pub", "privacy.pub"), "", "pseudonymised", "has no link codes, so the crosswalk would stay empty"),
        (
            ("trust.pub", "privacy.pub"),
            "[crosswalks.study]\npath='x'\nseal_to=['a','b']\n",
            "safe-harbor",
            "no project 'study'",
        ),
    ],
)
def test_settings_that_void_the_crosswalk_are_refused(
    tmp_path: Path, seal_to: tuple[str, ...], more: str, policy: str, error: str
) -> None:
    site = Site(tmp_path)
    disguised = (tmp_path / "dead.pub").read_text().replace("deid-letters", "deid-crosswalk")
    (tmp_path / "disguised.pub").write_text(disguised)
    # Other numbers that the private key of the first custodian opens: with the unused bit set, and P + (0, 0).
    key = int.from_bytes(load_public_key(tmp_path / "trust.pub", use=KeyUse.CROSSWALK).raw, "little")
    for name, number in (("rewritten", key | 1 << 255), ("shifted", pow(key, -1, 2**255 - 19)), ("low", 1)):
        raw = base64.b64encode(number.to_bytes(32, "little")).decode()
        (tmp_path / f"{name}.pub").write_text(f"{KeyUse.CROSSWALK.public}{raw}\n")
    site.configure(seal_to, more, policy)
    done = site.run(a=adt(1))
    assert done.exit_code == 2 and error in done.stderr, done.output
    assert not (tmp_path / "out").exists() and not (tmp_path / "crosswalk").exists()
    if policy == "pseudonymised":
        check = site.call("check", "--config", str(site.file))
        assert check.exit_code == 2 and error in check.stdout


@pytest.mark.parametrize(
    ("at", "error"),
    [
        ({"crosswalk": "audit"}, "crosswalks.default.path: is the folder of audit.path too"),
        ({"crosswalk": "in/x"}, "crosswalks.default.path: .* is in the input folder"),
        ({"crosswalk": "out/x"}, "crosswalks.default.path: .* is in the output folder"),
        ({"crosswalk": "trust"}, "crosswalks.default.path: .* is a file"),
    ],
)
def test_a_folder_that_cannot_be_a_crosswalk_is_refused(tmp_path: Path, at: dict[str, str], error: str) -> None:
    site = Site(tmp_path)
    site.configure(**at)
    done = site.run(a=adt(1))
    assert done.exit_code == 2 and re.search(error, done.stderr), done.output


def test_the_output_is_the_same_with_a_crosswalk(tmp_path: Path) -> None:
    site = Site(tmp_path)
    assert site.run(a=adt(1), b=BUNDLE).exit_code == 0
    with_crosswalk = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    text = site.file.read_text()
    site.file.write_text(text[: text.index("[crosswalks")].replace('out"', 'out-2"').replace('state"', 'state-2"'))
    assert site.run().exit_code == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "out-2").iterdir()} == with_crosswalk


def test_two_projects_have_two_crosswalks_with_custodians_of_their_own() -> None:
    rules = data_folder("rules")
    policy, key = load_policy("safe-harbor", rules), SecretKey(KEY)
    private = [PrivateKey(bytes([number]) * 32, KeyUse.CROSSWALK) for number in range(1, 5)]
    sealers = [PairSealer(tuple(each.public for each in pair)) for pair in (private[:2], private[2:])]
    own = ProjectParts("registry", derive_key(key, "registry", 1), policy, "none", generation=1)
    trial = ProjectParts("trial", derive_key(key, "trial", 1), policy, "none", generation=1)
    process = WorkerFactory(
        rules,
        key,
        policy,
        "none",
        projects=(own, trial),
        crosswalks=(("registry", sealers[0]), ("default", sealers[1])),
    )()
    sealed = {}
    for project in ("registry", "default", "trial"):
        result = process(Job(adt(1), project=project))
        assert isinstance(result, Processed)
        sealed[project] = result.sealed
        assert not result.sealed or json.loads(b"{%s}" % result.sealed)["codes"][0].encode() in result.payload
    assert sealed["trial"] == b""
    for project, pair in (("registry", private[:2]), ("default", private[2:])):
        box = json.loads(b"{%s}" % sealed[project])["sealed"]
        opened = []
        for each in private:
            with suppress(CrosswalkError):  # another key
                opened.append(open_box(box, each))
        assert len(opened) == 1
        assert adt(1).decode().split("|")[9].encode() in pair[1].open(opened[0], 1 << 20)


def test_a_result_of_a_program_has_no_original() -> None:
    rules = data_folder("rules")
    factory = WorkerFactory(rules, SecretKey(KEY), load_policy("safe-harbor", rules), "none")
    done = factory.deidentifier().message(BUNDLE)
    assert len(CODE.findall(done.payload.decode())) == 3
    assert b"4471902" not in pickle.dumps(done) and b"obs-77" not in pickle.dumps(done)
