r"""What control words mean: destinations, characters, code pages.

Rich Text Format Specification 1.9.1. A destination that is not listed here and is marked ``\*`` is removed.
"""

import codecs
from types import MappingProxyType

REMOVED = frozenset(
    {
        b"info", b"pict", b"object", b"objdata", b"shppict", b"nonshppict", b"userprops", b"xmlnstbl", b"datastore",
        b"generator", b"themedata", b"colorschememapping", b"filetbl", b"template", b"private", b"nextfile", b"docvar",
        b"revtbl", b"protusertbl", b"passwordhash", b"atnid", b"atnauthor", b"fontemb", b"listpicture", b"datafield",
        b"formfield", b"background", b"ud", b"mailmerge",
    }
)  # fmt: skip
"""What is taken out whole: properties, pictures, objects, authors. A second copy of a text (``\\ud``) too."""
OPAQUE = frozenset({b"pict", b"objdata", b"datastore", b"themedata", b"colorschememapping", b"fontemb", b"shppict"})
"""Removed ones that hold no text at all."""
APART = frozenset(
    {
        b"header", b"headerl", b"headerr", b"headerf", b"footer", b"footerl", b"footerr", b"footerf", b"footnote",
        b"annotation", b"stylesheet", b"fldinst", b"ftnsep", b"ftnsepc", b"ftncn", b"aftnsep", b"aftnsepc", b"aftncn",
        b"shptxt", b"dptxbxtext", b"sv", b"pn", b"pnseclvl", b"pntext", b"xe", b"rxe", b"txe", b"tc", b"tcn",
    }
)  # fmt: skip
"""Text that stands beside the text: read on its own, so that it does not part a name in the body."""
KEPT = frozenset(
    {
        b"fonttbl", b"colortbl", b"listtable", b"listoverridetable", b"rsidtbl", b"latentstyles", b"expandedcolortbl",
        b"sn", b"pgptbl",
    }
)  # fmt: skip
"""Tables that the text refers to: names of fonts, shapes of lists."""
THROUGH = frozenset({b"shpinst", b"do", b"cs", b"ts", b"ds", b"nesttableprops", b"falt", b"panose", b"fname"})
r"""Marked ``\*``, but part of what is around them."""
BREAKS = MappingProxyType(
    {
        **dict.fromkeys(
            (
                b"par", b"line", b"sect", b"page", b"column", b"cell", b"nestcell", b"row", b"nestrow", b"softline",
                b"softpage", b"softcol", b"lbr",
            ),
            "\n",
        ),
        b"tab": "\t",
    }
)  # fmt: skip
"""Read as white space, never written over."""
CHARACTERS = MappingProxyType(
    {
        b"emdash": "—", b"endash": "–", b"lquote": "‘", b"rquote": "’", b"ldblquote": "“", b"rdblquote": "”",
        b"bullet": "•", b"emspace": " ", b"enspace": " ", b"qmspace": " ",
    }
)  # fmt: skip
SYMBOLS = MappingProxyType({b"{": "{", b"}": "}", b"\\": "\\", b"~": " ", b"_": "-"})
FAMILIES = MappingProxyType({b"mac": "mac-roman", b"pc": "cp437", b"pca": "cp850", b"ansi": "cp1252"})
_FONTS = MappingProxyType(
    {
        77: 10000, 128: 932, 129: 949, 130: 1361, 134: 936, 136: 950, 161: 1253, 162: 1254, 163: 1258, 177: 1255,
        178: 1256, 186: 1257, 204: 1251, 222: 874, 238: 1250, 254: 437, 255: 850,
    }
)  # fmt: skip
_PAGES = MappingProxyType({10000: "mac-roman", 65001: "utf-8", 936: "gbk", 1361: "johab", 54936: "gb18030"})
SEVERAL = frozenset({"cp932", "gbk", "cp949", "cp950", "johab", "utf-8", "gb18030"})
"""Code pages with characters of several bytes."""


def page(number: int | None) -> str:
    """The charset of ``\\ansicpgN``; the Western one where nobody knows it."""
    name = _PAGES.get(number or 0, f"cp{number}")
    try:
        return name if name in SEVERAL or codecs.lookup(name).name in {name, "mac-roman"} else "cp1252"
    except LookupError:
        return "cp1252"


def font(number: int | None) -> str | None:
    """The charset of ``\\fcharsetN``; None where the document's own holds."""
    found = _FONTS.get(number or 0)
    return page(found) if found else None
