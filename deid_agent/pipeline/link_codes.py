"""Link codes: what identifiers become under ``Method.LINK``."""

import base64
import hashlib
import re
from dataclasses import dataclass, field
from uuid import UUID

from deid_agent.surrogate import Surrogates

_UUID = re.compile(r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_OID = re.compile(r"[0-2](?:\.(?:0|[1-9][0-9]*)){2,}")

LinkPairs = dict[tuple[str, str, str], None]
"""Path, original and code of each link code, each once and in order. The originals are PHI."""


@dataclass(slots=True)
class LinkCodes:
    """The codes of one record under ``Method.LINK``: one for each identifier, in the order of first occurrence.

    A code is made from the key, the digest of the whole record and that order, never from the identifier. So no two
    records share a code, the same record gets the same codes again, and no code leads back to an identifier
    (45 CFR 164.514(c)). A UUID becomes a UUID, an OID becomes one under 2.25 (ITU-T X.667), and any other identifier
    becomes 20 letters and digits. Both an HL7 control id (ST, 20 characters up to version 2.6) and a FHIR id hold that.

    With a ``common_key`` a code is made from that random key and the identifier, so that records which are processed
    with one key join. Nobody can make the codes once the key is gone (docs/decisions/0006).
    """

    surrogates: Surrogates
    payload: bytes = field(repr=False)
    common_key: bytes = field(default=b"", repr=False)
    _codes: dict[str, str] = field(default_factory=dict, repr=False)
    _record_digest: str = field(default="", repr=False)

    def code_for(self, value: str) -> str:
        """The code of ``value``: always the same for one value, never the same for two."""
        code = self._codes.get(value)
        if code is None:
            code = self._codes[value] = _format_code(value, self._derive(value))
        return code

    def _derive(self, value: str) -> bytes:
        """32 bytes for the code of the next identifier."""
        if self.common_key:
            data = value.encode("utf-8", "surrogatepass")
            return hashlib.blake2b(data, key=self.common_key, person=b"deid-job-code", digest_size=32).digest()
        self._record_digest = self._record_digest or hashlib.sha256(self.payload).hexdigest()
        return self.surrogates.derive_code_bytes(self._record_digest, len(self._codes))


def _format_code(value: str, random: bytes) -> str:
    uuid = UUID(bytes=random[:16], version=4)
    if _UUID.fullmatch(value):
        return str(uuid)
    if _OID.fullmatch(value):
        return f"2.25.{uuid.int}"
    return base64.b32hexencode(random).decode("ascii")[:20]
