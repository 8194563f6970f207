"""Phone numbers, mail and web addresses, IP addresses. Surrogates are reserved for fiction or documentation.

Sources: NANP 555-0100 to 555-0199 (ATIS-0300115), Ofcom and ACMA numbers for drama,
RFC 2606 and 6761 (example domains), RFC 5737 and 3849 (documentation networks).
"""

import re

from deid_agent.surrogate.keyed import KeyedHash
from deid_agent.surrogate.numbers import replace_identifier

_EXTENSION = re.compile(r"(?i)(?:\s*(?:,|;)?\s*(?:x|ext\.?|extension|poste|#)\s*\d+\s*)$")
_ALONE = re.compile(r"(?i)(?:x|ext\.?|#)\s*[\d\-]+")
_COUNTRY = re.compile(r"1|7|2[07]|3[0-469]|4[013-9]|5[1-8]|6[0-6]|8[1246]|9[0-58]|\d{3}")
_TOLL_FREE = frozenset(["800", "888", "877", "866", "855", "844", "833"])
_LONGEST = 100  # a longer value is not a number or address: no backtracking search
_DOMAINS = ("example.com", "example.org", "example.net")
_MAIL = re.compile(r"(?is)(mailto:)?([^@\s]*)@(\S*)(.*)")
_URL = re.compile(r"(?is)([a-z][a-z0-9+.\-]*://)?(?:([^@/\s]*)@)?(www\.)?([^/:?#\s]+)(:\d{1,5}(?=[/?#]|\Z))?(.*)")
_KEPT_ENDING = re.compile(r"(?i)\.(?:html?|php|aspx?|pdf|jpe?g|png|json|xml)(?=$|[?#])")
_IP4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.]*\d)")
_IP6 = re.compile(r"(?i)(?<![0-9a-f:])(?=[0-9a-f:]*:[0-9a-f:]*:)[0-9a-f:]{2,39}")
_NETWORKS = ("192.0.2", "198.51.100", "203.0.113")


def replace_phone(key: KeyedHash, scope: str, value: str) -> str:
    """A phone number with the same separators, country code, number of digits and extension.

    North American, British and Australian numbers become numbers reserved for fiction. In other and in short numbers
    every digit is replaced. One number written in two ways has one surrogate.
    """
    if len(value) > _LONGEST:
        return replace_identifier(key, value, "phone")
    ext = _EXTENSION.search(value)
    end = ext.start() if ext and re.search(r"\d", value[: ext.start()]) else len(value)
    main, rest = value[:end], value[end:]
    if _ALONE.fullmatch(value):
        return re.sub(r"\d+", lambda m: replace_identifier(key, m[0], "phone"), value)
    if re.search(r"[^\W\d_]", main) or not main.isascii():
        return replace_identifier(key, value, "phone")
    digits = re.sub(r"\D", "", main)
    if rest:
        rest = re.sub(r"\d+", lambda m: replace_identifier(key, m[0], "phone"), rest)
    if not digits:
        return replace_identifier(key, value, "phone")
    new = iter(_number(key, scope, digits, international=main.lstrip(" (").startswith(("+", "00"))))
    return "".join(next(new) if c.isdigit() else c for c in main) + rest


def _number(key: KeyedHash, scope: str, digits: str, *, international: bool) -> str:
    if international:
        start = 2 if digits.startswith("00") else 0
        code = _COUNTRY.match(digits, start)
        end = code.end() if code else start
        return digits[:end] + _national(key, scope, digits[end:], digits[start:end])
    if len(digits) == 11 and digits[0] == "1":
        return "1" + _national(key, scope, digits[1:], "1")
    if len(digits) == 11 and digits[0] == "0":
        return "0" + _national(key, scope, digits[1:], "44")
    if len(digits) == 10 and digits[0] == "0":
        return "0" + _national(key, scope, digits[1:], "61")
    return _national(key, scope, digits, "1")


def _national(key: KeyedHash, scope: str, digits: str, country: str) -> str:
    """The digits after a country code or trunk zero."""
    if country == "1" and len(digits) in (7, 10):
        return _north_american(key, scope, digits)
    if country == "1" and len(digits) == 3:
        area = _area(key, scope, digits)
        return area if area != digits else replace_identifier(key, digits, "phone")
    if country == "44" and len(digits) == 10:
        fictional = {"7": "7700900", "2": "2079460", "8": "8081570"}.get(digits[0], "1632960")
        return fictional + _line_digits(key, scope, digits, 3)
    if country == "61" and len(digits) == 9:
        return ("491570" if digits[0] == "4" else digits[0] + "5550") + _line_digits(
            key, scope, digits, 3 + (digits[0] != "4")
        )
    if not digits:
        return digits
    return replace_identifier(key, digits, "phone")


def _north_american(key: KeyedHash, scope: str, digits: str) -> str:
    """Area code, 555, 01xx. The last seven digits depend only on the last seven, because local numbers have no more."""
    line = _line_digits(key, scope, digits[-7:], 2)
    if digits[-7:-2] == "55501":
        line = f"{(int(digits[-2:]) + 1 + key.index(99, 'line', scope)) % 100:02d}"
    local = "55501" + line
    if len(digits) == 7:
        return local
    if digits[:3] in _TOLL_FREE:
        return digits[:3] + local
    return _area(key, scope, digits[:3]) + local


def _area(key: KeyedHash, scope: str, area: str) -> str:
    """The area code depends only on the area code: HL7 sends it in a field of its own (XTN-6, XTN-7)."""
    choice = key.number("area", scope, area)
    return f"{2 + choice % 8}{choice // 8 % 9}{2 + choice // 72 % 8}"


def _line_digits(key: KeyedHash, scope: str, digits: str, width: int) -> str:
    """``width`` digits by key that differ from the last digits of the original."""
    size = 10**width
    new = key.index(size, "line", scope, digits)
    return f"{new if new != int(digits[-width:]) else (new + 1) % size:0{width}d}"


def replace_email(key: KeyedHash, value: str) -> str:
    """A mail address at an example domain. Local part and trailing text keep their shape."""
    found = _MAIL.fullmatch(value)
    if not found:
        return replace_identifier(key, value, "email")
    local = replace_identifier(key, found[2], "email")
    rest = replace_identifier(
        key, found[4], "email"
    )  # another address, or text ("or call Ngozi"): no recognizer reads this field again
    return f"{found[1] or ''}{local}@{_host(key, found[3])}{rest}"


def replace_url(key: KeyedHash, value: str) -> str:
    """A web address at an example domain. Scheme, port, www, depth of the path and file ending stay."""
    found = _URL.fullmatch(value)
    if not found:
        return replace_identifier(key, value, "url")
    scheme, user, www, host, port, path = (part or "" for part in found.groups())
    if not scheme:  # tel:5550184, mrn:4471: not a port
        port, path = "", port + path
    user = replace_identifier(key, user, "url") + "@" if user else ""
    new_host = _ip(key, host) if _IP4.fullmatch(host) else _host(key, host)
    return f"{scheme}{user}{www}{new_host}{port}{_path(key, path)}"


def _path(key: KeyedHash, path: str) -> str:
    ending = _KEPT_ENDING.search(path)
    at = ending.start() if ending else len(path)
    words = re.sub(r"[^\W_]+", lambda m: replace_identifier(key, m[0], "path"), path[:at])
    tail = ending[0] if ending else ""
    return words + tail + re.sub(r"[^\W_]+", lambda m: replace_identifier(key, m[0], "path"), path[at + len(tail) :])


def _host(key: KeyedHash, host: str) -> str:
    """An example domain with the same number of labels. Labels before the last two are replaced one by one."""
    labels = host.lower().rstrip(".").split(".")
    at = key.index(len(_DOMAINS), "host", ".".join(labels))
    if _DOMAINS[at] == ".".join(labels[-2:]):
        at = (at + 1) % len(_DOMAINS)
    before = [replace_identifier(key, label, "host") for label in labels[:-2]]
    return ".".join([*before, _DOMAINS[at]])


def replace_ip_address(key: KeyedHash, value: str) -> str:
    """An address of a documentation network. A port or mask stays."""
    new = _ip(key, value) if len(value) <= _LONGEST else value
    return new if new != value else replace_identifier(key, value, "ip")


def _ip(key: KeyedHash, value: str) -> str:
    value = _IP4.sub(lambda m: _ip4(key, m[0]), value)
    return _IP6.sub(lambda m: _ip6(key, m[0]), value)


def _ip4(key: KeyedHash, address: str) -> str:
    choice = key.number("ip4", address)
    new = f"{_NETWORKS[choice % 3]}.{choice // 3 % 254 + 1}"
    return new if new != address else f"{_NETWORKS[(choice + 1) % 3]}.{choice // 3 % 254 + 1}"


def _ip6(key: KeyedHash, address: str) -> str:
    groups = address.split(":")
    full = [n for n, group in enumerate(groups) if group]
    if len(full) < 3 or not groups[0] or not groups[1]:
        return f"2001:db8::{key.index(0xFFFF, 'ip6', address) + 1:x}"
    for n in full:
        width = len(groups[n])
        low = 16 ** (width - 1)
        groups[n] = f"{low + key.index(15 * low, 'ip6', address.lower(), str(n)):x}"
    new = ":".join(["2001", "db8", *groups[2:]])
    return new if new != address else new[:-1] + ("1" if new[-1] != "1" else "2")
