"""An Avro schema: its JSON text as types. Source: Apache Avro 1.12 specification, "Schema Declaration"."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import orjson

from deid_agent.schemas.tree import TimeUnit

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_UNITS = {
    "date": TimeUnit.DAY,
    "timestamp-millis": TimeUnit.MILLI,
    "timestamp-micros": TimeUnit.MICRO,
    "timestamp-nanos": TimeUnit.NANO,
    "local-timestamp-millis": TimeUnit.MILLI,
    "local-timestamp-micros": TimeUnit.MICRO,
    "local-timestamp-nanos": TimeUnit.NANO,
    # Kafka Connect and Debezium name their own types beside or in place of a logical type.
    "org.apache.kafka.connect.data.Date": TimeUnit.DAY,
    "org.apache.kafka.connect.data.Timestamp": TimeUnit.MILLI,
    "io.debezium.time.Date": TimeUnit.DAY,
    "io.debezium.time.Timestamp": TimeUnit.MILLI,
    "io.debezium.time.MicroTimestamp": TimeUnit.MICRO,
    "io.debezium.time.NanoTimestamp": TimeUnit.NANO,
}
_MOST_TYPES = 20_000
_DEEPEST = 200


class SchemaError(ValueError):
    """A schema cannot be used. The text names no part of a record."""


@dataclass(slots=True, eq=False)
class AvroType:
    """One type: ``parts`` are the fields of a record, ``branches`` those of a union, ``inner`` of an array or map."""

    name: str
    parts: "list[tuple[str, AvroType]]" = field(default_factory=list, repr=False)
    branches: "list[AvroType]" = field(default_factory=list, repr=False)
    inner: "AvroType | None" = field(default=None, repr=False)
    symbols: tuple[str, ...] = ()
    size: int = 0
    unit: TimeUnit | None = None


def parse_avro(text: str, references: Sequence[str] = ()) -> AvroType:
    """The type of a schema. ``references`` are the schemas whose named types it uses, each after those it uses itself.

    Raises ``SchemaError``.
    """
    parser = _Parser()
    for each in references:
        parser.read(_load(each), "", 0)
    return parser.read(_load(text), "", 0)


def _load(text: str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        if text.isidentifier():  # a primitive type without quotes, as some clients register it
            return text
        raise SchemaError("the Avro schema is not JSON") from None


@dataclass(slots=True)
class _Parser:
    names: dict[str, AvroType] = field(default_factory=dict)
    count: int = 0

    def read(self, schema: object, namespace: str, depth: int) -> AvroType:
        self.count += 1
        if self.count > _MOST_TYPES or depth > _DEEPEST:
            raise SchemaError("the Avro schema is too large")
        if isinstance(schema, str):
            return self._named(schema, namespace)
        if isinstance(schema, list):
            return AvroType("union", branches=[self.read(each, namespace, depth + 1) for each in schema])
        if not isinstance(schema, dict):
            raise SchemaError("an Avro type is neither a name, a list nor an object")
        kind = schema.get("type")
        if isinstance(kind, dict | list):
            return self.read(kind, namespace, depth + 1)
        if not isinstance(kind, str):
            raise SchemaError("an Avro type without a name")
        if kind in _PRIMITIVES:
            return AvroType(kind, unit=_unit(kind, schema))
        return self._complex(kind, schema, namespace, depth) or self._named(kind, namespace)

    def _complex(self, kind: str, schema: dict[str, object], namespace: str, depth: int) -> AvroType | None:
        match kind:
            case "record" | "error":
                return self._record(schema, namespace, depth)
            case "enum":
                symbols = schema.get("symbols")
                if not isinstance(symbols, list) or not symbols or not all(isinstance(each, str) for each in symbols):
                    raise SchemaError("an Avro enum without symbols")
                return self._define(AvroType("enum", symbols=tuple(symbols)), schema, namespace)[0]
            case "fixed":
                size = schema.get("size")
                if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                    raise SchemaError("an Avro fixed type without a size")
                return self._define(AvroType("fixed", size=size), schema, namespace)[0]
            case "array" | "map":
                inner = self.read(schema.get("items" if kind == "array" else "values"), namespace, depth + 1)
                return AvroType(kind, inner=inner)
        return None

    def _record(self, schema: dict[str, object], namespace: str, depth: int) -> AvroType:
        made, namespace = self._define(AvroType("record"), schema, namespace)
        fields = schema.get("fields")
        if not isinstance(fields, list):
            raise SchemaError("an Avro record without fields")
        for each in fields:
            if not isinstance(each, dict) or not isinstance(each.get("name"), str):
                raise SchemaError("an Avro field without a name")
            made.parts.append((each["name"], self.read(each.get("type"), namespace, depth + 1)))
        if len({name for name, _ in made.parts}) < len(made.parts):
            raise SchemaError("an Avro record has two fields of one name")
        return made

    def _define(self, made: AvroType, schema: dict[str, object], namespace: str) -> tuple[AvroType, str]:
        """``made`` under its full name, and the namespace inside it."""
        name, own = schema.get("name"), schema.get("namespace")
        if not isinstance(name, str):
            raise SchemaError("an Avro type that needs a name has none")
        if "." in name:
            namespace = name.rpartition(".")[0]
        elif isinstance(own, str):
            namespace = own
        full = f"{namespace}.{name.rpartition('.')[2]}".lstrip(".")
        if full in self.names or full in _PRIMITIVES:
            raise SchemaError("an Avro type is defined twice")
        self.names[full] = made
        return made, namespace

    def _named(self, name: str, namespace: str) -> AvroType:
        if name in _PRIMITIVES:
            return AvroType(name)
        found = self.names.get(name if "." in name or not namespace else f"{namespace}.{name}") or self.names.get(name)
        if found is None:
            raise SchemaError("the Avro schema uses a type that neither it nor its references define")
        return found


def _unit(kind: str, schema: dict[str, object]) -> TimeUnit | None:
    if kind not in {"int", "long"}:
        return None
    names = (schema.get("logicalType"), schema.get("connect.name"))
    return next((_UNITS[name] for name in names if isinstance(name, str) and name in _UNITS), None)
