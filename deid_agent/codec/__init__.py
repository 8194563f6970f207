"""Message formats: each codec turns bytes into sites, narratives and attachments with their byte ranges.

A codec (``base.Codec``) guarantees three things. It never serializes a message again: each site, narrative and
attachment names a byte range, no two share a byte, and all other bytes are left unchanged. It never drops a value: one
that does not have the form of its type becomes free text. It raises ``MessageError`` and nothing else.

The packages ``hl7v2``, ``fhir``, ``cda`` and ``rtf`` have one shape. Start with ``codec.py``, the entry point. Next are
the reader or walk (one pass over a message), the table (rule files as checked values), the sink (the results), and the
values or treatments (how one value is read). ``markup`` is the common base of HTML, XHTML, C-CDA and the XML forms of
FHIR and HL7 v2, which are read as a ``rendering`` in the usual syntax (docs/decisions/0020). ``fhir_resources`` finds
the resources of finished outputs, which get labels and a Provenance.

To change how a field or element is read, edit ``rules/hl7/segments.toml``, ``rules/fhir/types.toml`` or
``rules/cda/elements.toml``. A new HL7 action is a member of ``hl7v2.table.Hl7Kind``, classified in ``hl7v2/values.py``.
A new FHIR treatment is an entry of ``HANDLERS`` in ``fhir/treatments.py`` and of ``fhir/table.py``; for C-CDA it is a
member of ``cda.table.CdaAction`` and an entry of ``HANDLERS`` in ``cda/values.py``.
"""

from typing import TYPE_CHECKING

from deid_agent import lazy_names
from deid_agent.codec.base import Codec, PlainMessage, PlainText, TableCodec
from deid_agent.codec.charsets import encode_text, is_western
from deid_agent.codec.envelope import (
    Envelope,
    EnvelopeCodec,
    EnvelopeMessage,
)
from deid_agent.codec.fhir_resources import (
    DATA_ABSENT_REASON,
    SECURITY_LABELS,
    ResourceRange,
    find_base,
    insert_all,
    insert_first,
    list_resources,
    list_targets,
    place_entry,
    place_labels,
)
from deid_agent.codec.framed import FramedRecord, list_messages, open_record
from deid_agent.codec.json_ranges import JsonRange, read_ranges, rewrite_string
from deid_agent.codec.markup.document import FHIR_NAMESPACE, read_root
from deid_agent.codec.pdf import is_pdf, read_pdf_text

if TYPE_CHECKING:
    from deid_agent.codec.html import HtmlCodec

__all__ = [
    "DATA_ABSENT_REASON",
    "FHIR_NAMESPACE",
    "SECURITY_LABELS",
    "Codec",
    "Envelope",
    "EnvelopeCodec",
    "EnvelopeMessage",
    "FramedRecord",
    "HtmlCodec",
    "JsonRange",
    "PlainMessage",
    "PlainText",
    "ResourceRange",
    "TableCodec",
    "encode_text",
    "find_base",
    "insert_all",
    "insert_first",
    "is_pdf",
    "is_western",
    "list_messages",
    "list_resources",
    "list_targets",
    "open_record",
    "place_entry",
    "place_labels",
    "read_pdf_text",
    "read_ranges",
    "read_root",
    "rewrite_string",
]

_LAZY = {"html": ("HtmlCodec",)}  # a command that reads notes does not need it

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _LAZY)
