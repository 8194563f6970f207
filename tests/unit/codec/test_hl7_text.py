"""Charsets, escapes, and replacements inside them."""

from collections.abc import Iterable

import pytest
from support.edits import apply
from support.hl7 import MSH, codec, message

from deid_agent.codec.hl7v2.reader import Hl7Message
from deid_agent.model.errors import MessageError, Reason
from deid_agent.model.sites import Edit
from deid_agent.model.spans import Replacement


def header(charset: str) -> str:
    return f"{MSH}||||||{charset}"


def parse(raw: bytes) -> Hl7Message:
    (parsed,) = codec().parse(raw)
    return parsed


def rewrite(parsed: Hl7Message, *changes: tuple[str, str]) -> bytes:
    """The raw bytes after the replacement of each old text of the first narrative by the new one."""
    mapped = parsed.narratives[0].mapped
    items = [Replacement(i := mapped.text.index(old), i + len(old), new) for old, new in changes]
    return apply(parsed.raw, edits(parsed, mapped.place(items)))


def edits(parsed: Hl7Message, ranges: Iterable[tuple[int, int, str]]) -> list[Edit]:
    return [Edit(a, b, parsed.encode(text)) for a, b, text in ranges]


@pytest.mark.parametrize(
    ("declared", "codec_name"),
    [
        ("UNICODE UTF-8", "utf-8"),
        ("UTF-8~UNICODE", "utf-8"),
        ("8859/1", "latin-1"),
        ("8859/1", "utf-8"),
        ("ASCII", "utf-8"),
        ("ASCII", "latin-1"),
        ("", "utf-8"),
        ("", "latin-1"),
        ("no such set", "latin-1"),
        ("UNICODE UTF-8", "latin-1"),
    ],
)
def test_the_charset_of_the_bytes_is_used_with_or_without_declaration(declared: str, codec_name: str) -> None:
    raw = f"{header(declared)}\rPID|||||Núñez^José\rOBX|1|TX|1||señor José hoy\r".encode(codec_name)
    parsed = parse(raw)
    assert [s.value for s in parsed.sites] == ["Núñez", "José"]
    assert parsed.narratives[0].mapped.text == "señor José hoy"
    assert rewrite(parsed, ("José", "Luis")) == raw.replace("José hoy".encode(codec_name), b"Luis hoy")


@pytest.mark.parametrize(
    ("declared", "codec_name", "name"),
    [
        ("8859/2", "iso8859-2", "Łukasz"),
        ("8859/5", "iso8859-5", "Иванов"),
        ("8859/15", "iso8859-15", "Œuvré"),
        ("WINDOWS-1252", "cp1252", "O’Brien"),
        ("SHIFT-JIS", "shift_jis", "山田ソ"),
        ("GB 18030-2000", "gb18030", "张伟"),
        ("BIG-5", "big5", "功能"),
        ("KS X 1001", "cp949", "김철수"),
        ("~ISO IR87", "iso2022_jp", "山田"),
    ],
)
def test_other_charsets_are_read_and_written(declared: str, codec_name: str, name: str) -> None:
    raw = f"{header(declared)}\rPID|||7||{name}^X\rOBX|1|TX|1||said {name} here\r".encode(codec_name)
    parsed = parse(raw)
    assert [s.value for s in parsed.sites] == ["7", name, "X"]
    assert parsed.narratives[0].mapped.text == f"said {name} here"
    site = parsed.sites[1]
    assert parsed.raw[site.start : site.end].decode(codec_name) == name
    assert apply(raw, [Edit(site.start, site.end, parsed.encode(name))]) == raw
    assert rewrite(parsed, (name, "Ann")).endswith(b"said Ann here\r")


@pytest.mark.parametrize("declared", ["SHIFT-JIS", "GB 18030-2000", "BIG-5", "KS X 1001", "~ISO IR87"])
@pytest.mark.parametrize("name", ["山田太郎", "김철수", "สมศรี", "Çağlayan", "Šimůnková", "Иванов", "Παπαδάκη", "כהן"])
def test_utf8_under_another_declaration_is_read_as_utf8(declared: str, name: str) -> None:
    raw = f"{header(declared)}\rPID|||7||{name}^X\rOBX|1|TX|1||said {name}\r".encode()
    parsed = parse(raw)
    assert [s.value for s in parsed.sites] == ["7", name, "X"]
    assert parsed.narratives[0].mapped.text == f"said {name}"
    assert rewrite(parsed, (name, "山")).endswith("said 山\r".encode())


@pytest.mark.parametrize(("charset", "codec_name"), [("GB 18030-2000", "gb18030"), ("KS X 1001", "cp949")])
def test_two_bytes_that_are_also_utf8_keep_their_declaration(charset: str, codec_name: str) -> None:
    """As UTF-8 these characters would be letters of scripts that do not occur together."""
    name = bytes([0xC2, 0xB3, 0xD0, 0xB7, 0xD7, 0xA1]).decode(codec_name)
    raw = f"{header(charset)}\rPID|||7||{name}^X\r".encode(codec_name)
    assert raw.decode("utf-8")
    assert [s.value for s in parse(raw).sites] == ["7", name, "X"]


def test_a_trail_byte_is_not_a_separator() -> None:
    # In Shift-JIS the second byte of these characters is | (0x7C) and \\ (0x5C).
    raw = f"{header('SHIFT-JIS')}\rPID|||7||ポー^表\r".encode("shift_jis")
    assert b"|" in "ポ".encode("shift_jis")
    assert [s.value for s in parse(raw).sites] == ["7", "ポー", "表"]


def test_part_of_a_shifted_run_is_rewritten_with_the_run() -> None:
    raw = f"{header('~ISO IR87')}\rOBX|1|TX|1||Dr 山田太郎 ok\r".encode("iso2022_jp")
    new = rewrite(parse(raw), ("田太", "本"))
    assert new.decode("iso2022_jp").endswith("Dr 山本郎 ok\r")


def test_a_separator_inside_a_shifted_run_is_refused() -> None:
    raw = f"{header('~ISO IR87')}\rPID|||7||".encode() + b"\x1b-Aab^cd\x1b(B\r"
    with pytest.raises(MessageError) as caught:
        parse(raw)
    assert caught.value.reason is Reason.UNSUPPORTED


@pytest.mark.parametrize("declared", ["UNICODE UTF-16", "CNS 11643-1992"])
def test_an_unsupported_charset_is_refused_unless_the_bytes_are_ascii(declared: str) -> None:
    assert parse(f"{header(declared)}\rPID|||7\r".encode()).sites
    with pytest.raises(MessageError, match="MSH-18"):
        parse(f"{header(declared)}\rPID|||7||é\r".encode())


def test_one_invalid_byte_does_not_hide_the_other_values() -> None:
    raw = f"{header('UNICODE UTF-8')}\rPID|||||Núñez^José\r".encode() + b"NK1||Pe\xf1a\r"
    assert [s.value for s in parse(raw).sites] == ["Núñez", "José", "Peña"]


@pytest.mark.parametrize(
    ("declared", "text", "written"),
    [
        ("UNICODE UTF-8", "Núñez", "Núñez".encode()),
        ("8859/1", "Núñez Łódź", b"N\xfa\xf1ez L\xf3dz"),
        ("", "Núñez “Łu”", b'Nunez "Lu"'),
        ("ASCII", "山ß＾", b"?ss\\S\\"),
        ("SHIFT-JIS", "山é", "山e".encode("shift_jis")),
        ("", "a|b^c~d\\e&f\r\ng\x1c", b"a\\F\\b\\S\\c\\R\\d\\E\\e\\T\\f\\.br\\g "),
    ],
)
def test_a_value_is_written_escaped_and_in_the_charset(declared: str, text: str, written: bytes) -> None:
    assert parse(f"{header(declared)}\rPID|1\r".encode()).encode(text) == written


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("A \\T\\ B", "A & B"),
        ("\\F\\\\S\\\\R\\\\E\\\\P\\", "|^~\\#"),
        ("O\\X27\\Brien", "O'Brien"),
        ("caf\\XC3A9\\", "café"),
        ("a\\X0D0A\\b", "a\nb"),
        ("a\\.br\\b\\.sp3\\c\\.in+4\\d", "a\nb\nc d"),
        ("\\H\\Ada\\N\\ Okafor", "Ada Okafor"),
        ("\\C2842\\x", "x"),
        ("C:\\temp\\Ada", "C:\\temp\\Ada"),
        ("\\Zada\\", "\\Zada\\"),
        ("\\X2\\ \\XZZ\\ \\", "\\X2\\ \\XZZ\\ \\"),
    ],
)
def test_escapes_are_read(raw: str, text: str) -> None:
    assert message(f"OBX|1|TX|1||{raw}", header=header("UNICODE UTF-8")).narratives[0].mapped.text == text


def test_a_value_is_read_unescaped() -> None:
    assert [s.value for s in message("PID|||||O\\X27\\Brien \\T\\ Co^A\\E\\B").sites] == ["O'Brien & Co", "A\\B"]


def test_a_letter_that_ends_like_a_space_is_not_trimmed() -> None:
    # In UTF-8 these end in 0xA0 and 0x85, which are white space in latin-1.
    parsed = message("PID|||||Marià ^ÅÅ", header=header("UNICODE UTF-8"))
    assert [s.value for s in parsed.sites] == ["Marià", "ÅÅ"]


def test_spaces_around_a_value_are_kept() -> None:
    (site,) = message("PID|||||  Okafor ").sites
    assert site.value == "Okafor"


@pytest.mark.parametrize(
    ("raw", "change", "expected"),
    [
        ("by O\\X27\\Brien now", ("O'Brien", "Hale"), "by Hale now"),
        ("by \\X416461\\ now", ("d", "v"), "by Ava now"),
        ("by \\H\\Ada\\N\\ Bell now", ("Ada Bell", "Eve Hale"), "by \\H\\Eve Hale\\N\\ now"),
        ("by Ada\\.br\\Bell now", ("Ada\nBell", "Eve\nHale"), "by Eve\\.br\\Hale now"),
        ("by Ada~Bell now", ("Ada\nBell", "Eve\nHale"), "by Eve~Hale now"),
        ("by Ada~Bell now", ("Ada\nBell", "Eve Hale"), "by Eve Hale~ now"),
        ("A^B Ada", ("B Ada", "C & D"), "A^C \\T\\ D"),
    ],
)
def test_replacements_change_the_right_bytes(raw: str, change: tuple[str, str], expected: str) -> None:
    parsed = message(f"OBX|1|TX|1||{raw}|x")
    assert rewrite(parsed, change) == parsed.raw.replace(raw.encode(), expected.encode())


def test_two_replacements_in_one_escape_are_merged() -> None:
    parsed = message("OBX|1|TX|1||\\X4164612042656C6C\\|x")
    assert rewrite(parsed, ("Ada", "Eve"), ("Bell", "Hale")).endswith(b"||Eve Hale|x\r")


def test_a_name_over_two_segments_is_written_back_into_both() -> None:
    parsed = message("OBX|1|TX|1||by Ada|x", "OBX|2|TX|1||Bell now|x")
    assert rewrite(parsed, ("Ada\nBell", "Eve\nHale")).endswith(b"by Eve|x\rOBX|2|TX|1||Hale now|x\r")


def test_a_text_is_read_with_its_own_separators() -> None:
    raw = b"FHS!^~\\&!A\rNTE!1!!more \\F\\ than one\r" + MSH.encode() + b"\rNTE|1||more \\F\\ than two\r"
    assert [n.mapped.text for n in parse(raw).narratives] == ["more ! than one", "more | than two"]


def test_a_long_word_takes_neither_time_nor_memory() -> None:
    parsed = message("NTE|1||" + "word " * 60_000)
    assert isinstance(parsed.narratives[0].mapped.starts, range)


@pytest.mark.parametrize("declared", ["GB 18030-2000", "BIG-5", "KS X 1001", "SHIFT-JIS", "8859/1", "UNICODE UTF-8"])
@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("M\\XC3BC\\ller", "Müller"),
        ("\\X4DC3BC6C6C6572\\", "Müller"),
        ("M\\XC3\\\\XBC\\ller", "Müller"),
        ("\\XD098D0B2D0B0D0BD\\", "Иван"),
        ("\\XE5BCA0E4BC9F\\", "张伟"),
    ],
)
def test_utf_8_in_a_hexadecimal_escape_is_read_in_every_charset(declared: str, written: str, name: str) -> None:
    parsed = message(f"PID|||1||{written}", header=f"{MSH}||||||{declared}")
    assert [site.value for site in parsed.sites][1:] == [name]


@pytest.mark.parametrize(("declared", "codec_name"), [("GB 18030-2000", "gb18030"), ("KS X 1001", "cp949")])
@pytest.mark.parametrize("name", ["张", "张伟"])
def test_a_hexadecimal_escape_in_the_declared_charset_is_read_in_it(declared: str, codec_name: str, name: str) -> None:
    name = name if codec_name == "gb18030" else "김민"[: len(name)]
    escaped = name.encode(codec_name).hex().upper()
    parsed = message(f"PID|||1||\\X{escaped}\\", header=f"{MSH}||||||{declared}")
    assert [site.value for site in parsed.sites][1:] == [name]
