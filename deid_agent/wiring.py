"""Puts the parts together: settings in, a de-identifier or a job callable out.

The ``Workshop`` is what worker processes receive: small, picklable, and called once
in each of them, so that rules and models load once per worker.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deid_agent import resources, systems
from deid_agent.agent.job import Job, Process, Processed, Refused, Result, refused
from deid_agent.codec.cda import CdaCodec
from deid_agent.codec.fhir import FhirCodec
from deid_agent.codec.hl7v2 import Hl7Codec
from deid_agent.codec.html import HtmlCodec
from deid_agent.codec.rtf import RtfCodec
from deid_agent.deidentify import Deidentifier
from deid_agent.errors import ConfigurationError, MessageError, Reason
from deid_agent.guard import Guard
from deid_agent.key import Key
from deid_agent.laps import Laps
from deid_agent.policy import Policy
from deid_agent.recognize import registry
from deid_agent.recognize.known import KnownRecognizer
from deid_agent.recognize.knownnames import Words
from deid_agent.resolve import Profile
from deid_agent.sites import Remark
from deid_agent.surrogate import Surrogates
from deid_agent.tagger import Tagger
from deid_agent.together import Asking, alone, together
from deid_agent.validation import Validator


@dataclass(frozen=True, slots=True)
class Workshop:
    """Everything a worker needs to build its job callable."""

    rules: Path
    key: Key = field(repr=False)
    policy: Policy
    system: str = "default"
    profile: str = "recall"
    max_bytes: int = 64 * 1024 * 1024
    validate: bool = False
    models: Path | None = None

    def deidentifier(self, watched: Callable[[Tagger], Tagger] = lambda tagger: tagger) -> Deidentifier:
        """Load rules and tables; raises ``ConfigurationError`` for any that is unsound.

        ``watched`` may put something around the tagger that looks on.
        """
        loaded = registry.load_rules(self.rules)
        models = self.models or resources.folder("models")
        known = KnownRecognizer(Words.of(loaded.lexicons), exact=True)
        fhir = FhirCodec(self.rules)
        return Deidentifier(
            codecs=(Hl7Codec(self.rules), fhir, CdaCodec(self.rules)),
            tagger=watched(systems.tagger(loaded, models, self.system, _profile(self.profile))),
            surrogates=Surrogates(
                self.key.secret,
                date_scope=self.policy.date_scope.value,
                name_scope=self.policy.name_scope.value,
                rules=self.rules,
                week_shift=self.policy.whole_weeks,
                max_shift_days=self.policy.max_shift_days,
            ),
            policy=self.policy,
            inner=(RtfCodec(), HtmlCodec(self.rules)),
            resources=fhir.resources,
            guard=Guard(known.recognize, known.rules_out),
        )

    def __call__(self) -> Process:
        """The job callable, loaded; one that does jobs together where that is less work."""
        bench = Bench(self.deidentifier(), Digests(self.key), self.max_bytes, Validator() if self.validate else None)
        return bench if bench.deidentifier.gains else bench.__call__


@dataclass(frozen=True, slots=True)
class Digests:
    """Keyed digests for the audit: without the key nobody can confirm a guess of a message."""

    key: Key = field(repr=False)

    def of(self, data: bytes) -> str:
        """BLAKE2b of ``data`` under a key of its own, 128 bits, hex."""
        secret = hashlib.blake2b(self.key.secret, person=b"deid-audit", digest_size=32).digest()
        return hashlib.blake2b(data, key=secret, digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Bench:
    """The job callable of a worker: what it needs for each record, and ``Together`` for several."""

    deidentifier: Deidentifier
    digests: Digests
    max_bytes: int
    validator: Validator | None = None

    def __call__(self, job: Job) -> Result:
        """See ``run_job``."""
        return run_job(job, self.deidentifier, self.digests, self.max_bytes, self.validator)

    def together(self, jobs: Sequence[Job]) -> list[tuple[Result, float]]:
        """Each as alone; the texts of all are read together."""
        askings = [_steps(job, self.deidentifier, self.digests, self.max_bytes, self.validator) for job in jobs]
        ends = together(askings, self.deidentifier.read)
        return [(refused(end.error) if end.error else end.result(), end.seconds) for end in ends]


def run_job(
    job: Job, deidentifier: Deidentifier, digests: Digests, max_bytes: int, validator: Validator | None = None
) -> Result:
    """One record through the de-identifier (and the schemas); every expected failure becomes a ``Refused``."""
    return alone(_steps(job, deidentifier, digests, max_bytes, validator), deidentifier.read)


def _steps(
    job: Job, deidentifier: Deidentifier, digests: Digests, max_bytes: int, validator: Validator | None
) -> Asking[Result]:
    came_in = digests.of(job.payload)
    if len(job.payload) > max_bytes:
        return Refused(Reason.RESOURCE, where="payload", stage="size", input_digest=came_in)
    laps = Laps()
    try:
        if job.tombstone:
            done = deidentifier.tombstone(key=job.key, headers=job.headers)
        else:
            done = yield from deidentifier.asking(job.payload, key=job.key, headers=job.headers)
            if validator is not None:
                with laps.of("validate"):
                    validator.check(job.payload, done.payload)
    except MessageError as problem:
        return Refused(problem.reason, where=problem.where, stage="deidentify", input_digest=came_in)
    found: Counter[str] = Counter()
    for remark in done.remarks:
        found[remark.type] += remark.count
    return Processed(
        payload=done.payload,
        key=done.key,
        headers=done.headers,
        remarks=remarks_json(done.remarks),
        input_digest=came_in,
        output_digest=digests.of(done.payload),
        found=tuple(found.items()),
        timings=(*done.timings, *laps.timings),
    )


def remarks_json(remarks: Iterable[Remark]) -> bytes:
    """Remarks as one JSON array on one line."""
    return json.dumps([remark_dict(remark) for remark in remarks], separators=(",", ":")).encode()


def remark_dict(remark: Remark) -> dict[str, str | int]:
    """A remark in the form of ``message --remarks`` and of the audit."""
    return {
        "path": remark.path,
        "type": remark.type,
        "method": remark.method,
        "source": remark.source,
        "count": remark.count,
    }


def _profile(name: str) -> Profile:
    try:
        return Profile(name)
    except ValueError:
        raise ConfigurationError(f"profile {name!r}: not one of {', '.join(Profile)}") from None
