"""Builds ``deid_agent/schemas/dapl.json``: the elements that the profiles of HL7's DAPL support, forbid and require.

    python .ci/build_dapl_table.py FOLDER deid_agent/schemas/dapl.json

``FOLDER`` holds the StructureDefinitions (XML) of HL7/fhir-dapl, ``input/resources``; they are CC0. An element is
supported if a profile lists it and does not forbid it (max 0). Only this script reads XML; the agent reads the table.
"""

import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

_SOURCE = "HL7/fhir-dapl 1.0.0-ballot, 8776685e6a5cdd78cde6e0dd07fcdac24bd0161b, input/resources; CC0-1.0"
_FHIR = "{http://hl7.org/fhir}"
_SUMMARY = "dapl-anonymized-dataset"  # counts, not the record of a person


def _read(path: Path) -> ET.Element:
    return ET.parse(path).getroot()  # noqa: S314 - files that the caller has chosen


def _value(node: ET.Element, path: str) -> str:
    found = node.find("/".join(_FHIR + part for part in path.split("/")))
    return "" if found is None else found.get("value", "")


def _addresses(folder: Path) -> dict[str, str]:
    """The address of an extension by that of its profile: a profile of an extension of others keeps that address."""
    found = {}
    for path in sorted(folder.glob("*.xml")):
        root = _read(path)
        if _value(root, "type") == "Extension":
            base = _value(root, "baseDefinition")
            found[_value(root, "url")] = _value(root, "url") if base.endswith("/Extension") else base
    return found


def build_profile(root: ET.Element, addresses: dict[str, str]) -> dict[str, object]:
    """One profile: paths below the resource, with the permitted types of a choice."""
    supported: dict[str, str] = {}
    absent, required, single = list[str](), list[str](), list[str]()
    extensions: dict[str, str] = {}
    fixed: dict[str, str] = {}
    for element in root.iterfind(f"{_FHIR}differential/{_FHIR}element"):
        _, _, path = _value(element, "path").partition(".")
        least, most = _value(element, "min"), _value(element, "max")
        profile = _value(element, "type/profile").partition("|")[0]
        if path == "extension" and profile:
            extensions[addresses.get(profile, profile)] = least
        if not path or path.endswith("extension") or ".extension." in path:
            continue
        if most == "0":
            absent.append(path)
            continue
        types = [code.get("value", "") for code in element.iterfind(f"{_FHIR}type/{_FHIR}code")]
        supported[path] = " ".join(types) if path.endswith("[x]") else ""
        required += [path] if least == "1" else []
        single += [path] if most == "1" else []
        if code := _value(element, "fixedCode"):
            fixed[path] = code
    url = _value(root, "url")
    return {
        "type": _value(root, "type"),
        "url": url,
        "supported": supported,
        "absent": absent,
        "required": required,
        "single": single,
        "extensions": extensions,
        "fixed": fixed,
    }


def build_table(folder: Path) -> dict[str, object]:
    """All profiles of resources by name."""
    addresses = _addresses(folder)
    roots = [_read(path) for path in sorted(folder.glob("*.xml"))]
    profiles = {
        _value(root, "id"): build_profile(root, addresses)
        for root in roots
        if _value(root, "kind") == "resource" and _value(root, "id") != _SUMMARY
    }
    return {"source": _SOURCE, "profiles": profiles}


def main(arguments: list[str]) -> int:
    """Write the table."""
    folder, file = map(Path, arguments)
    file.write_text(json.dumps(build_table(folder), indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
