"""Writing an attachment back: its data in the encoding and lines they had, its siblings after them."""

import binascii
import hashlib
from collections.abc import Iterable

from deid_agent import armor
from deid_agent.errors import MessageError
from deid_agent.sites import Attachment, Edit, Message


def inside(attachment: Attachment, problem: MessageError) -> MessageError:
    """The same refusal, with the place of the attachment before the place inside."""
    return MessageError(problem.reason, f"{attachment.path}/{problem.where}", problem.detail)


def written(attachment: Attachment, data: bytes, message: Message) -> Iterable[Edit]:
    """The new data in the old encoding and lines, over the places that the old ones had."""
    places = ((attachment.start, attachment.end), *attachment.parts)
    match attachment.encoding:
        case "hex":
            text = armor.write_hex(data, attachment.armor)
        case "text":
            text = data.decode("utf-8", "replace")
        case _:
            text = armor.write(data, attachment.armor)
    whole = attachment.encoding == "text"
    pieces = [text] + [""] * len(attachment.parts) if whole else armor.deal(text, [b - a for a, b in places])
    for (start, end), piece in zip(places, pieces, strict=True):
        yield Edit(start, end, message.encode(piece))


def siblings(attachment: Attachment, data: bytes, media: bytes, message: Message) -> Iterable[Edit]:
    """Size, hash and media type follow the data (FHIR Attachment.hash is base64 of SHA-1)."""
    if attachment.size:
        yield Edit(*attachment.size, str(len(data)).encode())
    if attachment.digest:
        sha1 = hashlib.sha1(data, usedforsecurity=False).digest()
        yield Edit(*attachment.digest, message.encode(binascii.b2a_base64(sha1, newline=False).decode()))
    for label in (attachment.media, *attachment.labels) if media else ():
        if label:
            yield Edit(*label, media)
