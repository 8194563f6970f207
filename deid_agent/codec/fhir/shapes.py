"""The FHIR table as values: shapes of types, rules of elements, and lists. ``table.load_fhir_table`` builds them."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from deid_agent.codec.codes import HOST, AddressNames, is_below
from deid_agent.codec.dates import BirthLabels
from deid_agent.codec.labels import LONGEST_LABEL, LabelMeaning, Labels, has_identity_cue, split_label
from deid_agent.model import PhiType, Subject, ValueKind


@dataclass(frozen=True, slots=True)
class FhirTreatment:
    """How one scalar is read: the name of a treatment of ``types.toml``, or ``site`` with its PHI type and kind.

    ``keeps`` is a fast check for strings that the treatment keeps in any case (most codes and code systems).
    ``meaning`` is the identity that a label names for the value (treatment ``labelled``).
    """

    name: str
    type: PhiType = PhiType.IDNUM
    kind: ValueKind = ValueKind.VALUE
    keeps: Callable[[str], object] | None = field(default=None, repr=False, compare=False)
    meaning: LabelMeaning | None = None


@dataclass(frozen=True, slots=True)
class FhirRule:
    """One element: ``treatment`` of a scalar (None: it is kept), ``child`` is the shape of an object.

    ``targets`` are the roles that a Reference in this element may name, ``patient`` is true if the element means the
    patient, and ``default`` is the PHI type of its identifiers.
    """

    treatment: "FhirTreatment | None"
    child: "Shape | None" = None
    keeps_numbers: bool = True
    targets: tuple[PhiType, ...] = ()
    patient: bool = False
    default: PhiType = PhiType.IDNUM


@dataclass(slots=True, eq=False)
class Shape:
    """One type: its elements by name. Filled while the table is built, constant afterwards; compared by identity.

    ``rest`` is the rule of elements that the type does not define; None: the rule for unknown elements. ``labels`` are
    the members that label its value; ``meaning`` is set in a variant for one label.
    """

    name: str
    rules: dict[str, FhirRule] = field(default_factory=dict, repr=False)
    subject: Subject | None = None
    composite: bool = False
    reference: bool = False
    extension: bool = False
    resource: bool = False
    rest: FhirRule | None = None
    labels: tuple[str, ...] = ()
    labelled: dict[LabelMeaning, "Shape"] = field(default_factory=dict, repr=False)
    meaning: LabelMeaning | None = None


_LABELLED_SCALARS = frozenset(
    {
        "String",
        "Markdown",
        "Code",
        "Integer",
        "Integer64",
        "Decimal",
        "PositiveInt",
        "UnsignedInt",
        "Id",
        "Uri",
        "Url",
        "",
    }
)
_LABELLED_SHAPES = frozenset(
    {"Quantity", "Age", "Count", "SimpleQuantity", "CodeableConcept", "Coding", "Range", "CodeableReference"}
)
_LABELLED_MEMBERS = frozenset(
    {"value", "text", "coding", "display", "code", "low", "high", "concept", "numerator", "denominator"}
)
_CHOICE = re.compile(r"(?:value|initial)(?=[A-Z]|$)|answer$|defaultValue(?=[A-Z]|$)")


def labelled_shape(shape: Shape, meaning: LabelMeaning) -> Shape:
    """The variant of a shape whose label has this meaning: its values are read as values of that identity."""
    found = shape.labelled.get(meaning)
    if found is None:
        found = shape.labelled[meaning] = replace(
            shape, rules=dict(shape.rules), labels=(), labelled={}, meaning=meaning
        )
        for element, rule in shape.rules.items():
            if choice := _CHOICE.match(element):
                found.rules[element] = labelled_rule(rule, meaning, element[choice.end() :])
    return found


def labelled_rule(rule: FhirRule, meaning: LabelMeaning, type_: str) -> FhirRule:
    """The rule of an element ``value[x]`` beside a label; other types than text, numbers and codes stay as they are."""
    child = rule.child
    if child is not None:
        if type_ == "" and not child.labels and any(map(_CHOICE.match, child.rules)):  # an answer
            return replace(rule, child=labelled_shape(child, meaning))
        if not _LABELLED_SHAPES.isdisjoint(child.name.split("|")):
            return replace(
                rule, child=_labelled_value(child, meaning), treatment=_labelled(meaning), keeps_numbers=False
            )
        return rule
    if type_ not in _LABELLED_SCALARS:
        return rule
    return replace(rule, treatment=_labelled(meaning), keeps_numbers=False)


def _labelled(meaning: LabelMeaning) -> FhirTreatment:
    return FhirTreatment("labelled", meaning.type, meaning=meaning)


def _labelled_value(shape: Shape, meaning: LabelMeaning) -> Shape:
    found = shape.labelled.get(meaning)
    if found is None:
        found = shape.labelled[meaning] = replace(shape, rules=dict(shape.rules), labels=(), labelled={})
        for element in _LABELLED_MEMBERS & shape.rules.keys():
            if element == "code" and "Coding" not in shape.name:  # the unit of a quantity
                continue
            rule = shape.rules[element]
            child = _labelled_value(rule.child, meaning) if rule.child is not None else None
            found.rules[element] = replace(rule, child=child, treatment=_labelled(meaning), keeps_numbers=False)
    return found


def valued_shape(shape: Shape, treatment: FhirTreatment) -> Shape:
    """The variant of a CodeableConcept, Coding or Quantity whose values are read by ``treatment``; else ``shape``."""
    if _LABELLED_SHAPES.isdisjoint(shape.name.split("|")):
        return shape
    found = replace(shape, rules=dict(shape.rules), labels=(), labelled={})
    for element in _LABELLED_MEMBERS & shape.rules.keys():
        if element == "code" and "Coding" not in shape.name:  # the unit of a quantity
            continue
        rule = shape.rules[element]
        child = valued_shape(rule.child, treatment) if rule.child is not None else None
        found.rules[element] = replace(rule, child=child, treatment=treatment, keeps_numbers=False)
    return found


@dataclass(frozen=True, slots=True)
class Guess:
    """A guess of the type of an object in an unknown element, by its members: all of ``all``, one of ``any``."""

    type: str
    all: frozenset[str]
    any: frozenset[str]
    system: frozenset[str]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class FhirTable:
    """Shapes by type name, and the lists of ``types.toml``."""

    shapes: Mapping[str, Shape]
    resources: frozenset[str]
    definitions: frozenset[str]
    primitives: Mapping[str, FhirRule]
    anything: Shape
    nothing: Shape
    unknown: FhirRule
    primitive_extension: FhirRule
    primitive_extensions: Mapping[str, FhirRule]
    extensions: Mapping[str, Shape]
    roles: Mapping[str, PhiType]
    patient_elements: tuple[str, ...]
    identifier_types: Mapping[str, PhiType]
    identifier_labels: Mapping[str, PhiType]
    identifier_systems: Mapping[str, PhiType]
    identifier_elements: Mapping[str, PhiType]
    vocabularies: tuple[str, ...]
    queries: Mapping[str, FhirTreatment | None]
    inline: frozenset[str]
    tags: frozenset[str]
    text_attributes: frozenset[str]
    link_attributes: frozenset[str]
    guesses: tuple[Guess, ...]
    births: BirthLabels
    dated: frozenset[str]
    labels: Labels
    addresses: AddressNames
    reserved: frozenset[str]
    registers: frozenset[str]
    kinds: frozenset[str]
    local_systems: re.Pattern[str]
    code_systems: tuple[str, ...]
    code_oids: re.Pattern[str]

    def site_host(self, address: str) -> tuple[int, int] | None:
        """The characters of the host in an address, unless it is a public or a reserved one."""
        found = HOST.match(address)
        if found is None:
            return None
        return None if self._is_public_host(found[1]) else found.span(1)

    @lru_cache(maxsize=1024)  # noqa: B019 - one table for each process
    def _is_public_host(self, host: str) -> bool:
        return is_below(host, self.addresses.hosts) or is_below(host, self.reserved) or host.startswith("127.")

    def keeps_code(self, system: object, code: str) -> bool:
        """True for a code of a standard, and for a code that does not have the form of an identifier or of a name."""
        return self._keeps_code(system if isinstance(system, str) else "", code)

    def names_register(self, system: str) -> bool:
        """True if the last words of a system name people (``.../staff``, ``.../mrn``): its codes are their numbers."""
        words = split_label(system.rstrip("/").replace("#", "/").replace(":", "/").rpartition("/")[2])
        return not self.registers.isdisjoint(words) and self.kinds.isdisjoint(words)

    @lru_cache(maxsize=8192)  # noqa: B019 - one table for each process
    def _keeps_code(self, system: str, code: str) -> bool:
        if self._is_public(system) or self.local_systems.match(system):
            return True
        if not system.startswith("urn:") and self.addresses.is_standard(system):
            return True
        if self.names_register(system) and len(code) > 3 and any(map(str.isdigit, code)):
            return False
        return self.addresses.people.is_plain_code(code)

    def keeps_coding(self, system: object, display: object) -> bool:
        """True for a standard code whose ``display`` has no cue of identity, or that has none (None)."""
        if not isinstance(system, str):
            return False
        if not isinstance(display, str):
            return display is None and self._is_public(system)
        if len(display) > LONGEST_LABEL:  # not cached
            return self._is_public(system) and not has_identity_cue(display)
        return self._is_standard_text(system, display)

    @lru_cache(maxsize=8192)  # noqa: B019 - one table for each process
    def _is_standard_text(self, system: str, display: str) -> bool:
        return self._is_public(system) and not has_identity_cue(display)

    def is_public_system(self, system: object) -> bool:
        """True for the URI or OID of a code system of a standard; its texts are no words of a sender."""
        return isinstance(system, str) and self._is_public(system)

    @lru_cache(maxsize=1024)  # noqa: B019 - one table for each process
    def _is_public(self, system: str) -> bool:
        return system.startswith(self.code_systems) or self.code_oids.fullmatch(system) is not None

    def meaning_of(self, owner: Mapping[str, object], members: tuple[str, ...]) -> LabelMeaning | None:
        """The identity that the labels of an object name."""
        if len(members) == 1 and isinstance(single := owner.get(members[0]), str) and "/" not in single:
            return self.labels.of_text(single)
        texts: list[str] = []
        codes: list[str] = []
        for member in members:
            found = owner.get(member)
            if member == "url" and isinstance(found, str):
                return _meaning_of_url(self.labels, found)
            if len(members) == 1 and (simple := _simple_concept(found)) is not None:
                return _meaning_of_concept(self.labels, *simple)
            _collect_labels(found, texts, codes)
        return self.labels.of_observation(texts, codes)

    def names_time(self, concept: object) -> bool:
        """True if the texts of a CodeableConcept name a point in time."""
        texts: list[str] = []
        _collect_labels(concept, texts, [])
        return any(map(self.labels.names_time, texts))

    def extension(self, url: object, shape: Shape) -> Shape:
        """The shape of an extension with this ``url``; ``shape`` if it is not in the list."""
        return self.extensions.get(url, shape) if isinstance(url, str) else shape

    def identifier_type_of(self, system: str) -> PhiType | None:
        """The PHI type of identifiers of ``system``; None if it is not in the list."""
        found = self.identifier_systems.get(system)
        if found is None and system:
            found = next(
                (t for s, t in self.identifier_systems.items() if s[-1] == "*" and system.startswith(s[:-1])), None
            )
        return found


@lru_cache(maxsize=4096)
def _meaning_of_url(labels: Labels, url: str) -> LabelMeaning | None:
    texts: list[str] = []
    codes: list[str] = []
    _collect_labels(url, texts, codes)
    return labels.of_observation(texts, codes)


def _simple_concept(value: object) -> tuple[str, str, str] | None:
    """The text of a CodeableConcept, and the display and the code of its only coding; None if it has other labels."""
    if not isinstance(value, dict) or "display" in value or "code" in value:
        return None
    codings, text = value.get("coding"), value.get("text", "")
    if not isinstance(codings, list) or len(codings) != 1 or not isinstance(text, str):
        return None
    coding = codings[0]
    if not isinstance(coding, dict) or "text" in coding or "coding" in coding:
        return None
    display, code = coding.get("display", ""), coding.get("code", "")
    return (text, display, code) if isinstance(display, str) and isinstance(code, str) else None


@lru_cache(maxsize=4096)
def _meaning_of_concept(labels: Labels, text: str, display: str, code: str) -> LabelMeaning | None:
    texts: list[str] = []
    codes: list[str] = []
    _collect_labels([text, display, code], texts, codes)
    return labels.of_observation(texts, codes)


_TERM = re.compile(r"(?<![0-9])[0-9]{3,7}-[0-9](?![0-9])")


def _collect_labels(value: object, texts: list[str], codes: list[str]) -> None:
    """The texts of a label (of a URL its last part), and the LOINC codes in it."""
    if isinstance(value, str):
        texts.append(value.rstrip("/").replace("#", "/").rpartition("/")[2] if "/" in value else value)
        if "-" in value:
            codes += _TERM.findall(value)
    elif isinstance(value, list):
        for item in value:
            _collect_labels(item, texts, codes)
    elif isinstance(value, dict):
        for member in ("text", "coding", "display", "code"):
            if (found := value.get(member)) is not None:
                _collect_labels(found, texts, codes)
