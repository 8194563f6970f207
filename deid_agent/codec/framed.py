"""Records of a schema registry for an envelope: a binary record is read as JSON, and the changes are written back.

The JSON has the members, items and texts of the record under the names of its schema. Bytes are text, a message in
bytes is base64, and a number of days or seconds with the action ``date`` is an ISO date. Each change of the JSON
becomes a change of the bytes that the value had; all other bytes are left unchanged.
"""

import base64
import math
import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import orjson

from deid_agent.codec.envelope import Envelope, EnvelopeCodec
from deid_agent.model import Attachment, FieldAction, MessageError, Place, Reason
from deid_agent.schemas import Changes, Kind, Node, TimeUnit

if TYPE_CHECKING:
    from deid_agent.schemas import BinaryFormat, OpenedRecord

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WRITTEN = re.compile(
    r"(\d{4})(?:-(\d\d))?(?:-(\d\d))?(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?)?(?:Z|[+-]\d\d:?\d\d)?"
)


@dataclass(frozen=True, slots=True)
class FramedRecord:
    """A record with the text that its envelope reads. ``codec`` reads the text."""

    raw: bytes = field(repr=False)
    text: bytes = field(repr=False)
    codec: EnvelopeCodec
    opened: "OpenedRecord | None" = None
    root: Node | None = field(default=None, repr=False)

    def restore(self, text: bytes) -> bytes:
        """The record with the changes between its own text and ``text``.

        Raises ``MessageError(UNSUPPORTED)`` for a change that its schema does not allow.
        """
        if self.opened is None:
            return text
        from deid_agent.schemas import SchemaError  # noqa: PLC0415 - an agent without a registry does not load it

        form = self.opened.form
        if form is None:
            return self.opened.head + text
        if text == self.text or self.root is None:
            return self.opened.head + self.raw[self.opened.start :]
        changes: Changes = {}
        envelope = self.codec.envelope
        restorer = _Restorer(envelope, form, changes)
        try:
            restorer.merge(self.root, orjson.loads(self.text), orjson.loads(text), envelope.root)
        except SchemaError as problem:
            raise MessageError(Reason.UNSUPPORTED, "/", str(problem)) from None
        return self.opened.head + form.write(self.raw, self.root, changes)


def open_record(envelope: Envelope, raw: bytes, *, is_output: bool = False) -> FramedRecord:
    """A record as its envelope reads it. An output has its schema already.

    Raises ``TransientError`` if the schema registry does not answer, and ``MessageError`` for a record that does not
    fit its schema or whose schema is unknown.
    """
    if not envelope.registered:
        return FramedRecord(raw, raw, EnvelopeCodec(envelope))
    if envelope.formats is None:
        raise TypeError("an envelope with a schema registry has no client")
    opened = envelope.formats.open(raw, "" if is_output else envelope.output_subject)
    if opened.form is None:
        return FramedRecord(raw, raw[opened.start :], EnvelopeCodec(envelope, shift=opened.start), opened)
    root = opened.form.read(raw, opened.start)
    text = project_node(root, envelope)
    return FramedRecord(raw, text, EnvelopeCodec(envelope, root), opened, root)


def list_messages(envelope: Envelope, raw: bytes, *, is_output: bool = False) -> list[Attachment]:
    """The messages of a record, also those of the records inside it. Raises as ``open_record``."""
    record = open_record(envelope, raw, is_output=is_output)
    found = [each for message in record.codec.parse(record.text) for each in message.attachments]
    if envelope.inside is None:
        return found
    return [inner for each in found for inner in list_messages(envelope.inside, each.data)]


def project_node(root: Node, envelope: Envelope) -> bytes:
    """A binary record as JSON. Raises ``MessageError(UNSUPPORTED)`` for a date that no calendar has."""
    out: list[bytes] = []
    _Projector(envelope, out).add(root, envelope.root, None)
    return b"".join(out)


def _action(envelope: Envelope, at: Place, inherited: FieldAction | None) -> FieldAction | None:
    return inherited if at.pointer is None else envelope.fields.get(at.pointer, inherited)


@dataclass(slots=True)
class _Projector:
    envelope: Envelope
    out: list[bytes] = field(repr=False)

    def add(self, node: Node, at: Place, inherited: FieldAction | None) -> None:
        action = _action(self.envelope, at, inherited)
        if node.kind is Kind.BYTES and action is FieldAction.KEEP and _is_wide(_bytes(node)):
            # The guard searches text, and nothing of a kept value is written back.
            self.out.append(orjson.dumps(_bytes_text(_bytes(node).replace(b"\0", b""))))
            return
        if action is FieldAction.DATE and node.unit is not None and isinstance(node.scalar, int):
            self.out.append(orjson.dumps(write_time(node.scalar, node.unit, at.path)))
            return
        match node.kind:
            case Kind.RECORD | Kind.MAP:
                self._members(node, at, action)
            case Kind.LIST:
                self.out.append(b"[")
                for number, item in enumerate(node.items):
                    self.out.append(b"," if number else b"")
                    self.add(item, at.step(number), action)
                self.out.append(b"]")
            case Kind.BYTES if at.pointer in self.envelope.payload:
                self.out.append(orjson.dumps(base64.b64encode(_bytes(node)).decode("ascii")))
            case _:
                self.out.append(_scalar_json(node))

    def _members(self, node: Node, at: Place, action: FieldAction | None) -> None:
        named = node.kind is Kind.RECORD
        separator = b"{"
        for name, member in node.members:
            self.out += (separator, orjson.dumps(name), b":")
            self.add(member, at.step(name, shown=named), action)
            separator = b","
        for name in node.absent:
            place = at.step(name, shown=True)
            if place.pointer in self.envelope.payload or place.leads_to_message:
                self.out += (separator, orjson.dumps(name), b":null")
                separator = b","
        self.out.append(b"{}" if separator == b"{" else b"}")


def _scalar_json(node: Node) -> bytes:
    value = node.scalar
    if isinstance(value, bytes):
        value = _bytes_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        value = 0  # JSON has no such number; it is kept or dropped as it is
    return orjson.dumps(value)


def _bytes(node: Node) -> bytes:
    return node.scalar if isinstance(node.scalar, bytes) else b""


def _is_wide(data: bytes) -> bool:
    """True for bytes that may be UTF-16 or UTF-32: a quarter of them is zero."""
    return len(data) <= data.count(0) * 4 < len(data) * 4


def _bytes_text(data: bytes) -> str:
    """Bytes as text: UTF-8, else one character for each byte."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


@dataclass(slots=True)
class _Restorer:
    envelope: Envelope
    form: "BinaryFormat"
    changes: Changes = field(repr=False)

    def merge(self, node: Node, old: object, new: object, at: Place) -> None:
        """Note the changes of a node between its old and its new JSON."""
        if old == new:
            return
        if new is None:
            self.form.remove(node, self.changes)
        elif isinstance(old, dict) and isinstance(new, dict):
            for name, member in node.members:
                if name in new:
                    self.merge(member, old[name], new[name], at.step(name, shown=node.kind is Kind.RECORD))
                else:
                    self.form.remove(member, self.changes)
        elif isinstance(old, list) and isinstance(new, list):
            if not new:
                self.form.clear(node, self.changes)
                return
            for number, item in enumerate(node.items):
                self.merge(item, old[number], new[number], at.step(number))
        elif isinstance(old, str) and isinstance(new, str):
            self._text(node, new, at)
        else:
            raise ValueError("a value became another kind of value")

    def _text(self, node: Node, new: str, at: Place) -> None:
        value: str | bytes | int = new
        if node.unit is not None:
            moment = read_time(new, node.unit)
            if moment is None:  # a date that the policy removed
                self.form.remove(node, self.changes)
                return
            value = moment
        elif node.kind is Kind.BYTES:
            value = self._new_bytes(node, new, at)
        try:
            self.changes[node.number] = self.form.encode(node, value)
        except ValueError:
            raise MessageError(Reason.UNSUPPORTED, at.path, "its schema does not allow the new value") from None

    def _new_bytes(self, node: Node, new: str, at: Place) -> bytes:
        if at.pointer in self.envelope.payload:
            return base64.b64decode(new)
        try:
            _bytes(node).decode("utf-8")
        except UnicodeDecodeError:
            return new.encode("latin-1", "replace")
        return new.encode("utf-8", "surrogatepass")


def write_time(value: int, unit: TimeUnit, path: str) -> str:
    """A day or a time since 1970 as an ISO date. Raises ``MessageError(UNSUPPORTED)`` out of the calendar."""
    seconds, nanos = divmod(value * unit.value, TimeUnit.SECOND.value)
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        raise MessageError(Reason.UNSUPPORTED, path, "a date that no calendar has: keep it or drop it") from None
    if unit is TimeUnit.DAY:
        return moment.date().isoformat()
    digits = {TimeUnit.MILLI: 3, TimeUnit.MICRO: 6, TimeUnit.NANO: 9}.get(unit, 0)
    fraction = f".{nanos:09}"[: digits + 1] if digits else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}".rjust(19, "0") + fraction + "Z"


def read_time(text: str, unit: TimeUnit) -> int | None:
    """The number for an ISO date; of a year or a month alone for its first day. None if it is no date."""
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction = found.groups()
    try:
        days = date(int(year), int(month or 1), int(day or 1)).toordinal() - _EPOCH.toordinal()
    except ValueError:
        return None
    seconds = days * 86_400 + int(hour or 0) * 3600 + int(minute or 0) * 60 + int(second or 0)
    return (seconds * TimeUnit.SECOND.value + int((fraction or "0").ljust(9, "0"))) // unit.value
