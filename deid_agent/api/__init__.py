"""The Python interface, as ``import deid_agent`` offers it.

``load`` reads rules, models, policy and key once. Its ``Deidentifier`` takes notes (``text``, ``texts``) and whole
messages (``message``), holds no state between calls and may be shared by threads. ``AsyncDeidentifier`` is the same for
an event loop.

>>> import deid_agent
>>> deidentifier = deid_agent.load(demo_key=True, system="rules")
>>> note = deidentifier.text("Seen 3/4/2019 by Dr. Okafor.", patient="p1")
>>> [(span.start, span.end, span.type.value) for span in note.spans]
[(5, 13, 'DATE'), (21, 27, 'DOCTOR')]
>>> "Okafor" in note.text
False

A request names the document and the patient of a note, and what is known of the patient. A note that must not be
published gives a refusal, which has a reason and no text:

>>> known = deid_agent.facts_from_context({"name": {"family": "Quixwell"}})
>>> requests = [deid_agent.TextRequest("Quixwell slept.", "note-1", "p1", known), "x" * 1_000_001]
>>> first, second = deidentifier.texts(requests)
>>> [str(span.source) for span in first.spans]
['known:patient-name']
>>> second.reason.value, second.detail
('RESOURCE', 'a text of more than 1000000 characters')
>>> second.text
Traceback (most recent call last):
deid_agent.model.errors.MessageError: RESOURCE: text: a text of more than 1000000 characters

A message keeps every byte that is no PHI:

>>> done = deidentifier.message(b"MSH|^~\\\\&|LAB|||||| ORU^R01|1|P|2.5\\rPID|1||4471902^^^H^MR||Okafor^Ada\\r")
>>> done.payload.startswith(b"MSH|^~\\\\&|LAB|"), b"Okafor" in done.payload
(True, False)
>>> [(remark.path, str(remark.type), str(remark.method)) for remark in done.remarks if remark.path.startswith("PID-3")]
[('PID-3[1].1', 'MEDICALRECORD', 'surrogate')]
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from types import TracebackType

from deid_agent.app import make_factory
from deid_agent.config import DEMO_KEY, load_key
from deid_agent.model import (
    ConfigurationError,
    Fact,
    MessageError,
    PhiType,
    Reason,
    Remark,
    Source,
    Span,
)
from deid_agent.pipeline import (
    MAX_GROUP,
    Deidentified,
    DeidentifiedText,
    Deidentifier,
    RefusedText,
    TextRequest,
    facts_from_context,
)

__all__ = [
    "AsyncDeidentifier",
    "ConfigurationError",
    "Deidentified",
    "DeidentifiedText",
    "Deidentifier",
    "Fact",
    "MessageError",
    "PhiType",
    "Reason",
    "RefusedText",
    "Remark",
    "Source",
    "Span",
    "TextRequest",
    "facts_from_context",
    "load",
]


def load(
    *,
    key_file: str | Path | None = None,
    demo_key: bool = False,
    policy: str = "pseudonymised",
    profile: str = "recall",
    system: str = "default",
    rules: str | Path | Sequence[str | Path] | None = None,
    models: str | Path | None = None,
    scope_table: str | Path | None = None,
    budget: str | Path | None = None,
) -> Deidentifier:
    """A de-identifier with everything loaded: two seconds of CPU, 220 MB.

    The arguments are those of the commands (docs/reference.md): ``policy`` is a name or a file, ``profile`` one of
    ``precision``, ``balanced``, ``recall`` and ``budget``, which needs the file of a leak bound in ``budget``
    (docs/leak-bound.md). ``rules`` is a folder, or a list such as ``["shipped", "site/"]``
    (docs/site.md). The key comes from ``key_file``, else from the environment as for the
    commands. ``demo_key`` selects the public demonstration key: everyone can reverse its output.

    Raises ``ConfigurationError``, whose text names the argument or file and the remedy.
    """
    if demo_key and key_file is not None:
        raise ConfigurationError("demo_key and key_file exclude each other")
    factory = make_factory(
        DEMO_KEY if demo_key else load_key(None if key_file is None else Path(key_file)),
        policy=policy,
        profile=profile,
        system=system,
        rules=rules,
        models=models,
        scope_table=scope_table,
        budget=budget,
    )
    return factory.deidentifier()


class AsyncDeidentifier:
    """A ``Deidentifier`` for an event loop: its methods are coroutines and do not block the loop.

    The work is done by one thread, in the order of the calls, because Python runs one thread at a time. Use several
    processes for more. As an asynchronous context manager it waits for the thread to end.
    """

    def __init__(self, deidentifier: Deidentifier) -> None:
        self._deidentifier = deidentifier
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="deid-agent")

    async def text(
        self, text: str, *, facts: tuple[Fact, ...] = (), document: str = "", patient: str | None = None
    ) -> DeidentifiedText:
        """See ``Deidentifier.text``."""
        work = self._deidentifier.text
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, lambda: work(text, facts=facts, document=document, patient=patient)
        )

    async def message(self, payload: bytes, *, key: bytes | None = None) -> Deidentified:
        """See ``Deidentifier.message``."""
        work = self._deidentifier.message
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(payload, key=key))

    async def document(
        self,
        data: bytes,
        media: str = "",
        *,
        facts: tuple[Fact, ...] = (),
        document: str = "",
        patient: str | None = None,
    ) -> Deidentified:
        """See ``Deidentifier.document``."""
        work = self._deidentifier.document
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, lambda: work(data, media, facts=facts, document=document, patient=patient)
        )

    async def texts(self, requests: Iterable[TextRequest | str]) -> AsyncIterator[DeidentifiedText | RefusedText]:
        """See ``Deidentifier.texts``."""
        loop = asyncio.get_running_loop()
        results = self._deidentifier.texts(requests)
        while group := await loop.run_in_executor(self._thread, lambda: list(islice(results, MAX_GROUP))):
            for result in group:
                yield result

    async def aclose(self) -> None:
        """Wait for the thread to end. Calls that have not begun are cancelled."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    async def __aenter__(self) -> "AsyncDeidentifier":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
