"""Write the digests of the shipped models into ``deid_agent/nlp/model_pins.py``. Run it after models were trained::

python .ci/pin_models.py
"""

import hashlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEAD = '''"""The SHA-256 of the manifest of each shipped model, which has the digest of its arrays.

Written by ``python .ci/pin_models.py``, which ``make models`` runs. A file of the packaged folder with another digest
is not loaded.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

PINS: Final[Mapping[str, str]] = MappingProxyType(
    {
'''


def render_pins(folder: Path) -> str:
    """The source of the module for the models in ``folder``."""
    digests = {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.json"))}
    lines = "".join(f'        "{name}": "{digest}",\n' for name, digest in digests.items())
    return f"{HEAD}{lines}    }}\n)\n"


if __name__ == "__main__":
    (ROOT / "deid_agent" / "nlp" / "model_pins.py").write_text(render_pins(ROOT / "models"), "utf-8")
