"""HL7 v2 payloads for property tests: almost messages, any rule of the standard may be violated."""

from hypothesis import strategies as st

LEADS = ["", "\x0b", "\xef\xbb\xbf", "\r\n"]
ENDS = ["\r", "\n", "\r\n", "\n\r", "\r\r", "\x1c\r"]
SEGMENTS = [
    "PID",
    "PV1",
    "OBX",
    "NTE",
    "OBR",
    "ORC",
    "IN1",
    "ZZ1",
    "pid",
    "QPD",
    "MRG",
    "ADD",
    "TXA",
    "XX",
    "",
    "Ann",
    "BTS",
]
TYPES = ["TX", "ST", "NM", "CE", "CWE", "ED", "XPN", "XAD", "RP", "FT", "", "QQ", "DT"]
CHARS = '^~\\&|"#^~\\&|abzAZX 019.-\t\n\x00\x85\ufeffñàÅł山ポ表💉'
ODD = ['""', "\\X41\\", "\\.br\\", "\\T\\", "\\H\\Ada\\N\\", "a^b^^c", "1&2^x~y", "\x1b$B;3K\\\x1b(B", "A" * 300]
VALUE = st.text(st.sampled_from(CHARS), max_size=24) | st.sampled_from(ODD)


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    """Payloads that are almost messages: all levels are likely, any rule of the standard may be violated."""
    marks = draw(st.sampled_from(["|^~\\&", "|^~\\&#", "*:;!%", "|^", "|", "|&&&&", "|^~\\\\&", "@#$%^"]))
    field = marks[0]
    end = draw(st.sampled_from(ENDS))
    charset = draw(
        st.sampled_from(["", "8859/1", "UNICODE UTF-8", "SHIFT-JIS", "~ISO IR87", "GB 18030-2000", "junk", "CP1252"])
    )
    header = (
        draw(st.sampled_from(["MSH", "FHS", "BHS"]))
        + marks
        + field
        + field.join(["A", "B", "", "", "2023", "", "X", "1", "P"])
    )
    lines = [header, f"MSH{marks}" + field * 16 + charset]
    for _ in range(draw(st.integers(0, 5))):
        name = draw(st.sampled_from(SEGMENTS))
        values = draw(st.lists(VALUE, max_size=8))
        if name == "OBX":
            values = ["1", draw(st.sampled_from(TYPES)), "c", "", *values]
        lines.append(field.join([name, *values]))
    text = draw(st.sampled_from(LEADS)) + end.join(lines) + draw(st.sampled_from([end, ""]))
    return text.encode(draw(st.sampled_from(["utf-8", "shift_jis", "latin-1", "gb18030"])), "replace")
