"""The elements of one resource in the form of its DAPL profile, as bytes of the resource."""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from deid_agent.codec.fhir.dapl_ages import resource_key
from deid_agent.codec.fhir.dapl_json import JsonReader, Members, members_of, write_absence, write_list, write_object
from deid_agent.codec.fhir.dapl_json import write_string as quote
from deid_agent.codec.fhir.dapl_table import DaplProfile
from deid_agent.codec.fhir.shapes import FhirTable, Shape
from deid_agent.codec.json_ranges import JsonRange
from deid_agent.model import MessageError, Reason

_UNITED_STATES = frozenset({"", "US", "USA", "U.S.", "U.S.A.", "UNITED STATES", "UNITED STATES OF AMERICA"})
_ZIP = re.compile(r"([0-9]{3})(?:[0-9]{2}(?:-?[0-9]{4})?)?")
_DATE = re.compile(rb'"([0-9]{4})-[0-9]{2}(?:-[0-9]{2}(?:T[^"\\]*)?)?"')
_UNDATED = frozenset({"code", "version", "system", "display", "reference", "url"})
"""Members that hold no date, whatever their form."""
_CHANGES_MEANING = ("modifierExtension", "implicitRules")
_IGNORED = frozenset({"id", "extension", "fhir_comments"})
_CODED = frozenset({"coding", "text", "system", "version", "code", "display", "userSelected"})
"""Members of Coding and CodeableConcept."""
_VALUES = frozenset({"valueCoding", "valueString", "valueCode", "valueDateTime"})
"""The values of extensions of DAPL and US Core that stay."""
_PAST = frozenset({"old", "temp"})


def check_meaning(names: Collection[str], path: str) -> None:
    """Raise ``MessageError(UNSUPPORTED)`` for an element that changes the meaning of the others.

    Without it they would state something else, and DAPL does not have it.
    """
    for name in _CHANGES_MEANING:
        if name in names:
            raise MessageError(
                Reason.UNSUPPORTED, f"{path}.{name}", "it changes the meaning, and DAPL does not have it"
            )


@dataclass(frozen=True, slots=True)
class DaplElements:
    """Writes the elements of a resource of ``profile``. Methods return None for an element that is left out.

    ``required`` has the required members of each type, ``restricted`` the ZIP prefixes of few people, ``gone`` the
    references to resources that are left out. ``dropped`` counts elements by path.
    """

    fhir: FhirTable
    required: Mapping[str, tuple[str, ...]]
    restricted: frozenset[str]
    json: JsonReader
    profile: DaplProfile
    gone: Collection[str] = field(repr=False)
    dropped: Counter[str]

    def member(self, key: str, value: JsonRange, shape: Shape | None, path: str = "") -> bytes | None:
        """A member of an object of a type, or the object beside it whose name begins with ``_``."""
        name = key.removeprefix("_")
        where = f"{path}.{name}" if path else name
        rule = shape.rules.get(name) if shape is not None else None
        if rule is None or not self.profile.allows(where):
            self.drop(where if rule is not None else f"{path}.?".lstrip("."))
            return None
        if key.startswith("_"):
            return self._absent_reasons(value)
        if value.items is None:
            return self._value(value, rule.child, where, name)
        items = value.items
        if where in self.profile.single and len(items) > 1:
            items = [min(items, key=self.rank)]
            self.drop(where, len(value.items) - 1)
        written = [each for item in items if (each := self._value(item, rule.child, where, name)) is not None]
        return write_list(written) if written else None

    def rank(self, node: JsonRange) -> int:
        """A present home address before others, and past ones last; else the order in the list."""
        members = members_of(node)
        use = self.json.text(members.get("use"))
        return 2 if use in _PAST or "end" in members_of(members.get("period")) else 0 if use == "home" else 1

    def _value(self, node: JsonRange, shape: Shape | None, path: str, name: str) -> bytes | None:
        if node.items is not None:  # FHIR has no lists of lists
            self.drop(path)
            return None
        if node.members is None:
            return self._scalar(node, name) if shape is None else self._misplaced(node, shape, path)
        members = members_of(node)
        check_meaning(members.keys(), f"{self.profile.type}.{path}")
        if shape is not None and shape.reference and not ({"coding", "concept"} & members.keys()):
            return self._reference(members, path)
        if shape is not None and shape.name == "Address":
            return self.address(members, path)
        reasons = self.json.reasons(members.get("extension"))
        parts = {"extension": write_list(reasons)} if reasons else {}
        for key, value in members.items():
            if key not in _IGNORED and (written := self.member(key, value, shape, path)) is not None:
                parts[key] = written
        if not parts or self._lacks_required(shape, members.keys() - parts.keys()):
            self.drop(path)
            return None
        return write_object(parts)

    def _misplaced(self, node: JsonRange, shape: Shape, path: str) -> bytes:
        """What stays of a scalar in place of an object, such as a text in place of a code or a reference."""
        if self.json.slice(node) == b"null":
            return b"null"
        self.drop(path)
        return self.address({}, path) if shape.name == "Address" else write_absence("masked")

    def _lacks_required(self, shape: Shape | None, lost: Collection[str]) -> bool:
        """True if an element that FHIR requires was left out, such as the actor of a performer."""
        required = self.required.get(shape.name, ()) if shape is not None else ()
        return any(
            name == each or (each.endswith("[x]") and name.startswith(each[:-3])) for name in lost for each in required
        )

    def _scalar(self, node: JsonRange, name: str) -> bytes:
        text = self.json.slice(node)
        found = _DATE.fullmatch(text) if name not in _UNDATED else None
        return text if found is None else b'"' + found[1] + b'"'

    def _reference(self, members: Members, path: str) -> bytes | None:
        """A reference without names and identifiers; None if it leads to nothing that is published."""
        target = self.json.text(members.get("reference"))
        if not target and (reasons := self.json.reasons(members.get("extension"))):
            return write_object({"extension": write_list(reasons)})
        # A search by an identifier finds nothing: identifiers are not published.
        leads_nowhere = not target or target.startswith("#") or "?" in target
        if leads_nowhere or target in self.gone or resource_key(target) in self.gone:
            self.drop(path)
            return None
        kept = self.json.scalars(members, ("reference", "type"))
        if self.json.text(members.get("type")) not in self.fhir.resources:
            kept.pop("type", None)
        return write_object(kept)

    def address(self, members: Members, path: str = "address") -> bytes:
        """A postal code of three digits and 00, or a masked one, with state and country."""
        parts: dict[str, bytes] = {}
        for key, value in members.items():
            if key in {"use", "state", "country"} and value.is_scalar and self.profile.allows(f"{path}.{key}"):
                parts[key] = self.json.slice(value)
            elif key.removeprefix("_") != "postalCode":
                self.drop(f"{path}.{key}" if key in self.fhir.shapes["Address"].rules else f"{path}.?")
        code = _ZIP.fullmatch(self.json.text(members.get("postalCode")))
        ours = self.json.text(members.get("country")).strip().upper() in _UNITED_STATES
        if code is not None and ours and not self.is_restricted(members):
            parts["postalCode"] = quote(f"{code[1]}00")
        else:
            # DAPL's constraint demands five digits even if there is no code.
            parts["postalCode"] = quote("00000")
            parts["_postalCode"] = write_absence("masked" if "postalCode" in members else "unknown")
        return write_object(parts)

    def is_restricted(self, address: Members) -> bool:
        """True for the postal code of an area of few people, original or as the policy wrote it."""
        code = self.json.text(address.get("postalCode"))[:3]
        return code == "000" or code in self.restricted

    def extension(self, node: JsonRange, inside: Collection[str] = ()) -> bytes:
        """An extension with the values that those of DAPL have, and of the extensions inside it those named."""
        members = members_of(node)
        check_meaning(members.keys(), f"{self.profile.type}.extension")
        parts: dict[str, bytes] = {}
        for key, value in members.items():
            if key == "extension":
                listed = self.json.objects(value)
                written = [self.extension(each) for each in listed if self._url(each) in inside]
                parts |= {key: write_list(written)} if written else {}
                if len(written) < len(listed):
                    self.drop("extension.extension", len(listed) - len(written))
            elif key == "url" or key in _VALUES:
                copied = self.copy(value, key)
                parts |= {key: copied} if copied is not None else {}
            elif key not in _IGNORED:
                self.drop("extension.?")
        return write_object(parts)

    def _url(self, node: JsonRange) -> str:
        return self.json.text(members_of(node).get("url"))

    def copy(self, node: JsonRange, name: str) -> bytes | None:
        """A code with its texts, or a scalar, with dates as years."""
        if node.items is not None:
            written = [each for item in node.items if (each := self.copy(item, name)) is not None]
            return write_list(written) if written else None
        if node.members is None:
            return self._scalar(node, name)
        members = members_of(node)
        check_meaning(members.keys(), f"{self.profile.type}.{name}")
        parts = {
            key: each for key, value in members.items() if key in _CODED and (each := self.copy(value, key)) is not None
        }
        return write_object(parts) if parts else None

    def _absent_reasons(self, node: JsonRange) -> bytes | None:
        """The object beside a primitive value, or each of a list, with nothing but reasons for its absence."""
        if node.items is not None:
            written = [self._absent_reasons(each) or b"null" for each in node.items]
            return write_list(written) if set(written) - {b"null"} else None
        members = members_of(node)
        check_meaning(members.keys(), self.profile.type)
        reasons = self.json.reasons(members.get("extension"))
        return write_object({"extension": write_list(reasons)}) if reasons else None

    def drop(self, path: str, count: int = 1) -> None:
        """Count an element that is left out."""
        self.dropped[f"{self.profile.type}.{path}"] += count
