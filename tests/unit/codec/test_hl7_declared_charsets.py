"""UTF-8 under any declared charset: it is read as UTF-8, and the bytes that no edit covers are left unchanged."""

import pytest
from support.hl7 import codec

DECLARED = ("", "ASCII", "8859/1", "8859/15", "UNICODE UTF-8", "SHIFT JIS", "GB 18030", "BIG5", "KS X 1001", "ISO IR87")
NAMES = (
    "M\u00fcller",
    "Papad\u00f3poulos",
    "\u738b\u5c0f\u660e",
    "\u4f50\u85e4",
    "\uae40\ubbfc\uc900",
    "\u0418\u0432\u0430\u043d\u043e\u0432",
)


@pytest.mark.parametrize("declared", DECLARED)
@pytest.mark.parametrize("name", NAMES)
def test_utf8_is_read_as_utf8(declared: str, name: str) -> None:
    lines = (f"MSH|^~\\&|A|B|C|D|20260102||ADT^A08|1|P|2.5||||||{declared}", f"PID|1||12^^^NG^MR||{name}^Ann")
    raw = "".join(f"{line}\r" for line in lines).encode()
    (message,) = codec().parse(raw)
    site = next(site for site in message.sites if site.path.endswith("PID-5[1].1") or site.value == name)
    assert raw[site.start : site.end].decode() == name == site.value
    assert message.encode(name).decode() == name
