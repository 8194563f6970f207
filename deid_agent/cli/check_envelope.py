"""The state of an envelope with a schema: the newest schema of its topic, and if it has the places of the messages."""

from collections.abc import Iterator, Sequence

from deid_agent.config import EnvelopeSettings
from deid_agent.model import parse_pointer
from deid_agent.schemas import ProtobufFormat, ProtobufMessage, SchemaError, SchemaRegistry, compile_schema

_NAMES = {"AVRO": "Avro", "JSON": "JSON Schema", "PROTOBUF": "Protobuf"}


def check_envelope(client: SchemaRegistry, topic: str, settings: EnvelopeSettings) -> tuple[str, str]:
    """A description of the schema of a topic, and the fault that would refuse its records.

    The subject is that of the topic, as serializers name it by default. Raises ``TransientError``.
    """
    subject = f"{topic}-value"
    found = client.latest(subject)
    if found is None:
        return f"no subject {subject}: its schema is not checked", ""
    id_, schema = found
    state = f"schema {id_} of {subject}, {_NAMES.get(schema.type, schema.type)}"
    try:
        compiled = compile_schema(schema)
    except SchemaError as problem:
        return state, f"schema {id_} of {subject}: {problem}"
    if compiled is None:  # JSON: a schema does not have to list all members
        return state, ""
    formats = [ProtobufFormat(each) for each in _messages(compiled)] if isinstance(compiled, Sequence) else [compiled]
    places = [parse_pointer(place) for place in settings.payload]
    if any(all(each.has(place) for place in places) for each in formats):
        return state, ""
    return state, f"schema {id_} of {subject} does not have the places {', '.join(settings.payload)}"


def _messages(types: Sequence[ProtobufMessage]) -> Iterator[ProtobufMessage]:
    """All message types of a file: a record names its own."""
    for each in types:
        yield each
        yield from _messages(each.nested)
