"""One message or note from bytes to sanitized bytes.

The steps of one message, with the module of each:

1. ``deidentify``  receives the payload, record key and headers of a record, and runs the steps.
2. ``planning``    finds the codec that detects the format, and parses the payload into sites, narratives, attachments.
3. ``facts``       collects the identifiers that the sites name: facts, and the scope of the surrogates.
4. ``attachments`` decodes attachments that are plain text; attachments in other formats are planned like messages.
5. ``recognition`` reads the planned texts of one or several messages in batches; returns spans. ``reading`` adds the
                   names of one text to the spans of the others.
6. ``applying``    turns sites and spans into edits and writes them: the policy (``policy``) names the method of each,
7. ``replacement`` makes the new text: a surrogate, a mask, a generalized value; ``link_codes`` makes link codes.
8. ``leak_guard``  searches the edited message for the facts, scrubs each hit or refuses the message.
9. ``replacement`` sanitizes the record key; the result goes back with one remark for each kind of ``changes``.

On request, ``unexamined`` counts what no step examined, and ``validation`` compares input and output with schemas.
``envelopes`` makes the envelopes of records from their settings. ``tracing`` records changes for the playground.
``notes`` runs the same stages for notes without a message, and ``values`` replaces single values, such as the cells of
a table. ``listed_patients`` chooses the scope of a patient by the file of ``scope_table``.
``requests`` reads payloads that callers of the service send and that are not messages. ``pseudonyms`` reads those of
``$pseudonymize``, and ``anonymous_counts`` answers ``$anonymize``. ``marking`` adds security labels and the Provenance
to FHIR outputs. ``output_shape`` is the last step if outputs have the form of DAPL.
"""

from deid_agent.pipeline.anonymous_counts import anonymize
from deid_agent.pipeline.changes import DROP
from deid_agent.pipeline.deidentify import Deidentified, Deidentifier
from deid_agent.pipeline.envelopes import add_registry, check_payloads, make_envelope, make_registry_options
from deid_agent.pipeline.facts import collect_facts, facts_from_context, find_days, unite_facts
from deid_agent.pipeline.leak_guard import LeakGuard
from deid_agent.pipeline.link_codes import LinkPairs
from deid_agent.pipeline.listed_patients import ListedPatients, NumberSource, ScopeTableFile, Zeros, digest_rule
from deid_agent.pipeline.notes import MAX_GROUP, DeidentifiedText, RefusedText, TextRequest, group_requests
from deid_agent.pipeline.output_shape import NO_SHAPE, OutputShape, RestrictedZip, ShapeName, ShapeOptions
from deid_agent.pipeline.plans import FindKnown, KnownMessages, MessagePlan
from deid_agent.pipeline.policy import KeyMode, Method, Policy, load_policy, strip_numbers
from deid_agent.pipeline.policy_dates import DateBounds, Technical
from deid_agent.pipeline.pseudonyms import PseudonymInput, read_pseudonymize
from deid_agent.pipeline.recognition import MAX_BATCH_CHARACTERS, Recognition
from deid_agent.pipeline.replacement import Replacer
from deid_agent.pipeline.requests import (
    NoteLine,
    OperationInput,
    check_line,
    check_xml_resource,
    policy_names,
    read_note_line,
    read_operation,
    read_plain_note,
    write_note_line,
)
from deid_agent.pipeline.scope_table import MOST_SCOPE, ScopeCipher, ScopeTable, TableHead, open_table, write_table
from deid_agent.pipeline.tracing import Cause, DocumentTrace, RecordingTracer, Tracer
from deid_agent.pipeline.unexamined import UnexaminedCounts
from deid_agent.pipeline.validation import Validator
from deid_agent.pipeline.values import ValueDeidentifier

__all__ = [
    "DROP",
    "MAX_BATCH_CHARACTERS",
    "MAX_GROUP",
    "MOST_SCOPE",
    "NO_SHAPE",
    "Cause",
    "DateBounds",
    "Deidentified",
    "DeidentifiedText",
    "Deidentifier",
    "DocumentTrace",
    "FindKnown",
    "KeyMode",
    "KnownMessages",
    "LeakGuard",
    "LinkPairs",
    "ListedPatients",
    "MessagePlan",
    "Method",
    "NoteLine",
    "NumberSource",
    "OperationInput",
    "OutputShape",
    "Policy",
    "PseudonymInput",
    "Recognition",
    "RecordingTracer",
    "RefusedText",
    "Replacer",
    "RestrictedZip",
    "ScopeCipher",
    "ScopeTable",
    "ScopeTableFile",
    "ShapeName",
    "ShapeOptions",
    "TableHead",
    "Technical",
    "TextRequest",
    "Tracer",
    "UnexaminedCounts",
    "Validator",
    "ValueDeidentifier",
    "Zeros",
    "add_registry",
    "anonymize",
    "check_line",
    "check_payloads",
    "check_xml_resource",
    "collect_facts",
    "digest_rule",
    "facts_from_context",
    "find_days",
    "group_requests",
    "load_policy",
    "make_envelope",
    "make_registry_options",
    "open_table",
    "policy_names",
    "read_note_line",
    "read_operation",
    "read_plain_note",
    "read_pseudonymize",
    "strip_numbers",
    "unite_facts",
    "write_note_line",
    "write_table",
]
