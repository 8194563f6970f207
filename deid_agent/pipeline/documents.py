"""Documents that come without a message: each is planned as the attachment that it would be in one.

So it is read, replaced and searched for leaks as in a message. But a notice in its place would be taken for the
document: where an attachment is removed, a document is refused.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from deid_agent.codec import Codec, PlainMessage, is_pdf
from deid_agent.model import Attachment, Dropped, Fact, MessageError, Narrative, PublishedPaths, Reason
from deid_agent.pipeline.attachments import prefix_error
from deid_agent.pipeline.facts import make_scope
from deid_agent.pipeline.planning import Planner
from deid_agent.pipeline.plans import AttachmentPlan, MessagePlan, PartPlan, TextContent
from deid_agent.pipeline.policy import Pdf

PATH = "document"
"""The path of a document in remarks and errors."""
_PLAIN, _UTF8 = "text/plain", "text/plain; charset=utf-8"
_MEDIA = {"html": ("text/html",), "rtf": ("application/rtf", "text/rtf")}
"""The media types of formats, by the name of the codec. Others are plain text: a table, a message."""


@dataclass(frozen=True, slots=True)
class DocumentCodec:
    """Implements ``Codec`` for the document as the attachment of an empty message.

    ``media`` is its label, as that of an attachment.
    """

    media: str
    name: str = PATH

    def detect(self, raw: bytes) -> bool:  # noqa: ARG002
        """Always False: the caller selects this codec explicitly."""
        return False

    def parse(self, raw: bytes) -> Sequence[PlainMessage]:
        """The message with the document. The digest of the document names it."""
        document = Attachment(PATH, 0, len(raw), self.media, "raw", raw)
        return [PlainMessage(raw, hashlib.sha256(raw).hexdigest(), attachments=(document,))]

    def parse_leaves(self, raw: bytes) -> Sequence[Narrative]:  # noqa: ARG002
        """None: the values are those of the document, which its own codec reads."""
        return ()

    def find_unlisted(self, raw: bytes, listed: PublishedPaths) -> Sequence[Dropped]:  # noqa: ARG002
        """Nothing: a document has no paths."""
        return ()


def plan_document(
    planner: Planner, data: bytes, media: str, name: str, patient: str | None, facts: tuple[Fact, ...]
) -> MessagePlan:
    """The plan of a document.

    ``name`` and ``patient`` are the scopes of its surrogates, ``facts`` what is known of its persons. The default name
    is a digest.

    Raises ``MessageError``: REJECTED if the policy publishes no such document, UNSUPPORTED if it cannot be read, and
    the errors of its parts.
    """
    policy, codec = planner.policy, planner.find_attachment_codec(data, media)
    outer = DocumentCodec(media)
    with planner.timings.measure("edit"):
        if policy.published is not None:
            detail = "the policy publishes listed paths, and a document has none"
            raise MessageError(Reason.REJECTED, PATH, detail)
        if codec is None and policy.pdf is not Pdf.TEXT and not policy.changes_nothing and is_pdf(data):
            raise MessageError(Reason.REJECTED, PATH, "PDF, which the policy does not publish")
        (message,) = outer.parse(data)
        scope = make_scope(name or message.identity, patient, facts)
        part = planner.plan_part(PartPlan(outer, message, facts, scope, stated=facts), nesting=0)
        for each in part.attachments:
            if each.content is None:
                raise _explain_removal(codec, each.attachment)
    found = _find_media(media, part.attachments, codec)
    return replace(planner.make_plan(data, None, (), (part,)), media=found)


def _explain_removal(codec: Codec | None, attachment: Attachment) -> MessageError:
    """The error for which an attachment would be removed from a message."""
    try:
        if codec is not None:
            codec.parse(attachment.data)
    except MessageError as problem:
        return prefix_error(attachment, problem)
    return MessageError(Reason.UNSUPPORTED, PATH, "the document cannot be read")


def _find_media(media: str, attachments: Sequence[AttachmentPlan], codec: Codec | None) -> str:
    """The media type of the sanitized document. Its content decides, as about its reading; a PDF becomes text."""
    if not attachments:
        return media  # empty, or the policy changes nothing
    if codec is not None:
        forms = _MEDIA.get(codec.name, (_PLAIN,))
        return media if media in forms else forms[0]
    content = attachments[0].content
    decoded = content.decoded if isinstance(content, TextContent) else None
    if decoded is not None and media == "text/html":
        return media  # text without a tag with which a page begins
    return _UTF8 if decoded is None or decoded.charset in {"ascii", "utf-8"} else _PLAIN
