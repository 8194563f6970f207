"""Any bytes in an attachment give a message or a ``MessageError``, and no attachment passes unread."""

import base64
import re
from itertools import pairwise

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.attachments import NOTE, data_of, deidentifier, oru, pdf, pdf_text, reference, rtf

from deid_agent.codec.pdf import read_pdf_text
from deid_agent.codec.rtf import RtfCodec
from deid_agent.codec.rtf.tokens import iter_tokens
from deid_agent.model.errors import MessageError
from deid_agent.model.sites import Edit, apply_edits, decode_base64, encode_base64
from deid_agent.model.spans import Replacement
from deid_agent.pipeline.attachments import NOTICE

CODEC = RtfCodec()
SEEDS = (rtf(NOTE), pdf([pdf_text(NOTE)]), NOTE.encode("utf-16"), b"\x89PNG\r\n")
FRAGMENTS = (
    b"{", b"}", b"\\", b"\\*", b"\\par ", b"\\b", b"\\'e9", b"\\'8", b"\\u233?", b"\\u-10179", b"\\uc0", b"\\uc3 ",
    b"\\bin2 ", b"\\info", b"{\\pict 89}", b"{\\*\\foo ", b"{\\fonttbl{\\f0\\fcharset128 A;}}", b"\\f0", b"{\\header ",
    b"Ada", b" ", b"\r\n", b"\xe9", b"\x82", b"\\ansicpg932", b"\\ansicpg65001", b"\\~", b"\\\n", b"\x00",
)  # fmt: skip
bodies = st.lists(st.sampled_from(FRAGMENTS) | st.binary(max_size=4), max_size=40).map(b"".join)
quick = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A real document with some bytes changed or removed."""
    raw = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, max(len(raw) - 1, 0)))
        raw[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(raw)


@quick
@given(bodies)
@example(b"\\bin2 {}")
def test_rtf_tokens_join_to_the_input(body: bytes) -> None:
    try:
        pieces = list(iter_tokens(body))
    except MessageError:
        return
    at = 0
    for _, start, end, _, _ in pieces:
        assert start == at < end
        at = end
    assert at == len(body)


@quick
@given(bodies)
def test_rtf_ranges_are_disjoint_and_inside(body: bytes) -> None:
    raw = b"{\\rtf1\\ansi " + body
    try:
        (message,) = CODEC.parse(raw)
    except MessageError:
        return
    edits = [Edit(s.start, s.end, b"") for s in message.sites]
    for narrative in message.narratives:
        mapped = narrative.mapped
        assert len(mapped.text) == len(mapped.starts) == len(mapped.ends)
        at = [Replacement(0, len(mapped.text), "x" * len(mapped.text))]
        edits += [Edit(a, b, message.encode(text)) for a, b, text in mapped.place(at)]
    apply_edits(raw, edits)
    leaves = [
        (leaf.mapped.starts[i], leaf.mapped.ends[i])
        for leaf in CODEC.parse_leaves(raw)
        for i in range(len(leaf.mapped.text))
    ]
    taken = sorted(set(leaves))
    assert all(a[1] <= b[0] for a, b in pairwise(taken))


@quick
@given(bodies, st.text(max_size=8))
def test_rtf_replacements_are_read_again(body: bytes, new: str) -> None:
    raw = b"{\\rtf1\\ansi " + body
    try:
        (message,) = CODEC.parse(raw)
    except MessageError:
        return
    found = next((n.mapped for n in message.narratives if "Ada" in n.mapped.text), None)
    if found is None:
        return
    at = found.text.index("Ada")
    edits = [Edit(a, b, message.encode(t)) for a, b, t in found.place([Replacement(at, at + 3, new)])]
    (again,) = CODEC.parse(apply_edits(raw, edits)[0])
    expected = " ".join(re.sub(r"[\x00-\x20\x7f]+", " ", new).split())
    texts = " ".join(" ".join(n.mapped.text for n in again.narratives).split())
    assert "\ufffd" in texts or any("\ud800" <= c < "\ue000" for c in new) or expected in texts


@quick
@given(damaged())
def test_a_damaged_pdf_gives_text_or_none(raw: bytes) -> None:
    try:
        found = read_pdf_text(raw, "x")
    except MessageError:
        return
    assert found is None or found.strip()


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    damaged() | st.binary(max_size=60),
    st.sampled_from([None, "text/plain", "application/pdf", "text/rtf", "image/png"]),
)
def test_any_attachment_is_published_or_refused(raw: bytes, content_type: str | None) -> None:
    try:
        done = deidentifier().message(reference(raw, content_type))
    except MessageError:
        return
    data = data_of(done.payload)
    assert data == NOTICE or b"\x00" not in data or raw[:2] in {b"\xff\xfe", b"\xfe\xff"} or raw.startswith(b"{\\rtf")


@settings(max_examples=60)
@given(st.binary(max_size=300), st.integers(20, 80), st.sampled_from(["TX", "ED", "FT"]))
def test_pieces_over_many_obx_keep_the_segments(raw: bytes, width: int, kind: str) -> None:
    coded = base64.b64encode(raw).decode()
    lines = [coded[i : i + width] for i in range(0, len(coded), width)] or [""]
    head = "^AP^PDF^Base64^" if kind == "ED" else ""
    payload = oru(*(f"OBX|{n}|{kind}|1||{head}{line}||F" for n, line in enumerate(lines, start=1)))
    try:
        done = deidentifier().message(payload).payload
    except MessageError:
        return
    assert [s.count(b"|") for s in done.split(b"\r")] == [s.count(b"|") for s in payload.split(b"\r")]


@quick
@given(st.text(alphabet="QUJD-_+/= \n\r\tabc*", max_size=40))
def test_base64_is_read_whole_or_refused(value: str) -> None:
    try:
        data, layout = decode_base64(value)
    except ValueError:
        return
    assert decode_base64(encode_base64(data, layout))[0] == data
