"""For any markup: parsing changes nothing, ranges are disjoint, and only ``MessageError`` is raised."""

from collections import Counter
from itertools import pairwise
from xml.parsers import expat

from hypothesis import given
from hypothesis import strategies as st
from support.edits import apply
from support.markup import blanked, cda, html, overwritten, ranges, shape

from deid_agent.codec.markup.document import MarkupMessage
from deid_agent.model.errors import MessageError

NAMES = [
    *(
        "patient",
        "name",
        "given",
        "family",
        "addr",
        "city",
        "telecom",
        "id",
        "text",
        "td",
        "br",
        "content",
        "title",
        "value",
    ),
    *(
        "effectiveTime",
        "low",
        "originalText",
        "signatureText",
        "assignedEntity",
        "observation",
        "sdtc:birthTime",
        "odd",
    ),
]
ATTRIBUTES = [
    "value",
    "root",
    "extension",
    "unit",
    "xsi:type",
    "mediaType",
    "representation",
    "compression",
    "use",
    "x",
]
VALUES = [
    *(
        "",
        " ",
        "2031",
        "20310203040506-0500",
        "1.2.840.1",
        "36e3e930-7b14-11db-9fe1-0800200c9a66",
        "tel: 1",
        "#a",
        "93",
    ),
    *(
        "mailto:a@b.example?subject=x",
        "http://x.example/",
        "a",
        "PQ",
        "TS",
        "B64",
        "DF",
        "text/html",
        "&amp;&#241;",
        "é",
    ),
]
texts = st.one_of(
    st.sampled_from(["", " ", "Ada", "Oka&#102;or", "&amp;", "QUJDREVGR0hJSktM", "é😀", "a]>", "\n b", "]", ">"]),
    st.text("ab é<>&'\"]-\U0001f600", max_size=6).map(
        lambda t: t.replace("&", "&amp;").replace("<", "&lt;").replace("]]>", "]]&gt;")
    ),
    st.text("ab <>&-é", max_size=8).map(lambda t: f"<!--{t.replace('-', '')}-->"),
    st.sampled_from(
        ["<![CDATA[<a]]>", "<!--<b-->", "<?pi <a?>", "<![CDATA[<Ada>]]>", "<!--<!Ada>-->", "<?pi <Ada x>?>"]
    ),
    st.text("ab&<>]é", max_size=8).map(lambda t: f"<![CDATA[{t.replace(']]>', '')}]]>"),
    st.just("<?pi okafor?>"),
)
Attributes = st.SearchStrategy[dict[str, str]]
attributes = st.dictionaries(st.sampled_from(ATTRIBUTES), st.sampled_from(VALUES), max_size=3)
unembedded = st.dictionaries(
    st.sampled_from([name for name in ATTRIBUTES if name not in {"mediaType", "compression"}]),
    st.sampled_from([value for value in VALUES if value != "B64"]),
    max_size=3,
)


@st.composite
def elements(draw: st.DrawFn, attributes: Attributes = attributes, depth: int = 0) -> str:
    """A well-formed element with any content."""
    name = draw(st.sampled_from(NAMES))
    tag = name + "".join(f' {key}="{value}"' for key, value in draw(attributes).items())
    inner = st.one_of(texts, elements(attributes, depth + 1)) if depth < 4 else texts
    return f"<{tag}>{''.join(draw(st.lists(inner, max_size=4)))}</{name}>"


XML_CHARSETS = ["utf-8", "utf-16", "iso-8859-1"]  # the charsets that expat knows
charsets = st.sampled_from([*XML_CHARSETS, "shift_jis"])


@st.composite
def documents(
    draw: st.DrawFn, attributes: Attributes = attributes, charsets: st.SearchStrategy[str] = charsets
) -> bytes:
    charset = draw(charsets)
    text = f'<?xml version="1.0" encoding="{charset}"?>{draw(elements(attributes))}'
    return text.encode(charset, "xmlcharrefreplace")


def one(raw: bytes) -> MarkupMessage | None:
    try:
        (message,) = cda().parse(raw)
    except MessageError:
        return None
    return message


@given(documents())
def test_ranges_are_disjoint_inside_and_parsing_changes_nothing(raw: bytes) -> None:
    message = one(raw)
    if message is None:
        return
    assert apply(message.raw, []) == raw
    at = 0
    for start, end in sorted(ranges(message)):
        assert at <= start < end <= len(raw)
        at = end


@given(documents(), st.text("ab<>&'\"]-é\n\r\x00😀", max_size=6))
def test_any_replacement_anywhere_keeps_the_elements(raw: bytes, new: str) -> None:
    if (message := one(raw)) is None or b"shift_jis" in raw:  # expat does not know this charset
        return
    assert shape(overwritten(message, new)) == shape(raw)
    assert shape(blanked(message)) == shape(raw)


@given(documents())
def test_leaves_are_disjoint_in_order_and_contain_every_site(raw: bytes) -> None:
    if (message := one(raw)) is None:
        return
    leaves = cda().parse_leaves(raw)
    starts = [leaf.mapped.starts[0] for leaf in leaves]
    assert starts == sorted(starts)
    positions: list[tuple[int, int]] = []
    for leaf in leaves:
        every = enumerate(zip(leaf.mapped.starts, leaf.mapped.ends, strict=True))
        positions += dict.fromkeys(position for i, position in every if i not in leaf.mapped.separators)
    positions.sort()
    assert all(a[1] <= b[0] for a, b in pairwise(positions))
    everything = "\n".join(leaf.mapped.text for leaf in leaves)
    for site in message.sites:
        assert site.value in everything


pieces = st.sampled_from(
    [
        *(
            "<p>",
            "</p>",
            "<b>",
            "</b>",
            "<script>",
            "</script>",
            "<!--",
            "-->",
            "<![CDATA[",
            "]]>",
            "<br/>",
            "<",
            ">",
            '"',
        ),
        *(
            "<a href=",
            "'mailto:a@b.example?x=1'",
            "<img alt=Ada src=data:image/png;base64,iVBORw==>",
            "&nbsp",
            "&#146;",
            "&",
        ),
        *("Ada", "Okafor", " ", "\n", "é", "😀", "<ada@example.org>", "<title>", "<meta charset=shift_jis>", "=", "<?"),
    ]
)


@given(st.lists(pieces, max_size=25).map("".join), charsets)
def test_pages_are_never_changed_by_parsing(text: str, charset: str) -> None:
    raw = text.encode(charset, "replace")
    for message in html().parse(raw):
        assert apply(message.raw, []) == raw
        at = 0
        for start, end in sorted(ranges(message)):
            assert at <= start < end <= len(raw)
            at = end
    starts = [leaf.mapped.starts[0] for leaf in html().parse_leaves(raw)]
    assert starts == sorted(starts)


@given(st.one_of(st.binary(max_size=200), st.binary(max_size=100).map(lambda b: b"<section>" + b + b"</section>")))
def test_bytes_raise_nothing_but_message_errors(raw: bytes) -> None:
    for codec in (cda(), html()):
        codec.detect(raw)
        for call in (codec.parse, codec.parse_leaves):
            try:
                call(raw)
            except MessageError:
                continue


@given(documents(unembedded, st.sampled_from(XML_CHARSETS)))
def test_leaves_have_the_characters_that_expat_reads(raw: bytes) -> None:
    """Each character of text, comments, instructions and attributes is in some leaf, as often as expat finds it.

    Not so in embedded documents, and "QUJD..." may be one in any text.
    """
    if one(raw) is None:
        return
    found: list[str] = []
    parser = expat.ParserCreate()
    parser.CharacterDataHandler = parser.CommentHandler = found.append
    parser.ProcessingInstructionHandler = lambda _target, text: found.append(text)
    parser.StartElementHandler = lambda _name, attributes: found.extend(attributes.values())
    parser.Parse(raw, True)
    words = "".join("".join(found).split()).replace("QUJDREVGR0hJSktM", "")
    read = "".join("".join(leaf.mapped.text.split()) for leaf in cda().parse_leaves(raw))
    assert Counter(words) <= Counter(read)
