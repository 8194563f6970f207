"""The folders of an agent with a crosswalk, and the commands of its operator and of its custodians."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from click.testing import CliRunner, Result
from support.keys import KEY

from deid_agent.agent import KeyUse, generate_keys
from deid_agent.cli import main

BUNDLE = json.dumps(
    {
        "resourceType": "Bundle",
        "type": "collection",
        "entry": [
            {"resource": {"resourceType": "Patient", "id": "patient-4471902", "birthDate": "1957-04-22"}},
            {
                "resource": {
                    "resourceType": "Observation",
                    "id": "obs-77",
                    "status": "final",
                    "code": {"text": "weight"},
                    "subject": {"reference": "Patient/patient-4471902"},
                }
            },
        ],
    }
).encode()
CODE = re.compile(r"\b[0-9A-V]{20}\b")


class Site:
    """A folder with messages, the agent's key, and the keys of two custodians."""

    def __init__(self, root: Path) -> None:
        self.root, self.file = root, root / "agent.toml"
        (root / "in").mkdir()
        (root / "key").write_bytes(KEY)
        (root / "key").chmod(0o600)
        for name in ("trust", "privacy", "third"):
            generate_keys(root / name, KeyUse.CROSSWALK)
        generate_keys(root / "dead")
        self.configure()

    def configure(
        self,
        seal_to: Sequence[str] = ("trust.pub", "privacy.pub"),
        more: str = "",
        policy: str = "safe-harbor",
        **at: str,
    ) -> None:
        folders = {name: str(self.root / at.get(name, name)) for name in ("in", "out", "state", "audit", "crosswalk")}
        keys = json.dumps([str(self.root / name) for name in seal_to])
        self.file.write_text(
            f'transport = "directory"\nsystem = "none"\npolicy = "{policy}"\nkey_file = "{self.root / "key"}"\n'
            f'[agent]\nworkers = 0\n[directory]\ninput = "{folders["in"]}"\noutput = "{folders["out"]}"\n'
            f'dead_letters = "{self.root / "refused"}"\nstate = "{folders["state"]}"\n[http]\nenabled = false\n'
            f'[dead_letters]\npublic_key = "{self.root / "dead.pub"}"\n[audit]\npath = "{folders["audit"]}"\n'
            f'[crosswalks.default]\npath = "{folders["crosswalk"]}"\nseal_to = {keys}\n{more}'
        )

    def call(self, *words: str) -> Result:
        return CliRunner().invoke(main, [*words])

    def run(self, **messages: bytes) -> Result:
        for name, data in messages.items():
            (self.root / "in" / name).write_bytes(data)
        return self.call("run", "--log-level", "error", "--config", str(self.file))

    def open(self, source: str, key: str, out: str, *more: str, codes: Sequence[str] = ()) -> Result:
        file = self.root / "codes"
        if codes:
            file.write_text("\n".join(codes))
        paths = [str(self.root / name) for name in source.split(",")]
        where = ["--private-key", str(self.root / key), "--codes", str(file), "--out", str(self.root / out)]
        return self.call("crosswalk", "open", *paths, *where, "--reason", "ticket 17", *more)

    def codes(self, out: str = "out") -> list[str]:
        texts = [path.read_text() for path in sorted((self.root / out).iterdir()) if path.is_file()]
        return list(dict.fromkeys(code for text in texts for code in CODE.findall(text)))

    def rows(self, name: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.root / name).read_text().splitlines()]
