"""Segments without a terminator are refused. A word that ends like the name of a segment is not."""

import pytest
from support.hl7 import MSH, codec, message

from deid_agent.model.errors import MessageError, Reason

LINES = (
    MSH,
    "EVN|A08|20240311||||",
    "PID|1||8831207^^^X^MR||Quixwell^Zoriana||19530719|F",
    "PV1|1|I|4E^12^A||||1002^Hale^Ida",
)


@pytest.mark.parametrize(
    "end", ["\\r", "\\n", "\\X0D\\", "<CR>", "&#13;", "%0D", "\x1e", "\x85", "\u2028", " ", "\t", "", "|"]
)
def test_a_message_without_terminators_is_refused(end: str) -> None:
    with pytest.raises(MessageError) as caught:
        codec().parse(end.join(LINES).encode())
    assert caught.value.reason is Reason.MALFORMED


@pytest.mark.parametrize("end", ["\\r", " ", ""])
@pytest.mark.parametrize("at", range(1, len(LINES)))
def test_one_missing_terminator_is_enough(end: str, at: int) -> None:
    raw = "\r".join(LINES[:at]) + end + "\r".join(LINES[at:])
    with pytest.raises(MessageError, match="MALFORMED"):
        codec().parse(raw.encode())


@pytest.mark.parametrize(
    "line",
    [
        "OBX|1|ST|1^A^LN||7|mg||N|||FOBX|2|ST|2^B^LN||8|mg",
        "OBX|1|ST|1^A^LN||7|mg||N|||F|NTE|1||Seen by Ada Okafor",
        "GT1|1||Okafor^Sarah|||||19750627|||CHD||||||||||Walmart^LORC|NW|7^X|8^X||||||20160308180405-0500",
        "NTE|1||Unsatisfactory|RE^Remark^HL70364 NTE|2|L|more",
        "PID|1||7^^^X^MR||Okafor^Ada||19530719|F|MSH|^~\\&|A|B",
        "PID|1||7^^^X^MR||Okafor^Ada||19530719|F\\rZPI|1|x",
        "AL1|1|DRUG|7^OXYCODONE||NAUSEAAL1|2|DRUG|8^INFLUENZA VACCINE||RASH AND ITCHING",
        "NTE|1||Seen todayOBX||ST|1^A^LN||7",
        "PID|1||7^^^X^MR||Okafor^AdaPV1||I|4E",
    ],
)
def test_a_segment_after_a_value_is_refused(line: str) -> None:
    with pytest.raises(MessageError, match="MALFORMED"):
        message(line)


@pytest.mark.parametrize(
    "line",
    [
        "GT1|1||Okafor^Sarah|||||19750627|||CHD||||||||||Walmart^LORC|NW|",
        "GT1|1||Okafor^Sarah|||||19750627|||CHD||||||||||Walmart^LORC|NW|7^X|8^X",
        "PID|1||7^^^X^MR||Okafor^Ada||19530719|FORC|RE|7^X",
        "PID|1||7^^^X^MR||Okafor^Ada||19530719|FPV2||7^X",
        "OBX|1|ST|1^A^LN||7|mg||N|||FOBR||7^X|8^X|9^T^LN",
        "PID|1||7^^^X^MR||Okafor^AdaMSA|AA|17",
        "PID|1||7^^^X^MR||Okafor^AdaEVN|A08",
    ],
)
def test_a_segment_without_a_number_or_a_date_is_refused_by_its_codes(line: str) -> None:
    with pytest.raises(MessageError, match="MALFORMED"):
        message(line)


@pytest.mark.parametrize("name", ["PID", "OBX", "ORC", "PV1", "SPM", "MSH", "ZPI"])
@pytest.mark.parametrize(
    "line",
    [
        "OBX|1|TX|1^A^LN||see {}||||||F",
        "OBX|1|ST|1^A^LN||see {}||||||F|||20240311",
        "OBX|1|TX|1^A^LN||see {}|||||||X",
        "OBX|1|FT|1^A^LN||the fields of {}||||||",
        "OBX|1|TX|1^A^LN||the segment {}|||||F",
        "OBX|1|TX|1^A^LN||{}||||||F",
        "NTE|1|L|see {}|RE^Remark^HL70364",
        "NTE|1|L|asked for {}|",
        "NTE|1|L|asked for {}",
    ],
)
def test_a_text_may_mention_a_segment(line: str, name: str) -> None:
    assert len(message(line.format(name)).narratives) == 1


@pytest.mark.parametrize(
    "line",
    [
        "PID|1||7^^^X^MR||Okafor^Ada||19530719|F|||12 Elm St^^LONDON|DON|(555)123-4567|||M",
        "OBX|1|ST|1^A^LN||CONTROL|mg|1-2|N|||F|||20240311",
        "OBX|1|TX|1^A^LN||SEE ROL||||||F|||20240311",
        "PV1|1|I|4E^12^A||||1002^Hale^Ida^^^^FACC|1003^Moss^Bo|CON|CON||||1|||||V1||||||||||||||||||||||||20240311",
        "NTE|1|L|RULE OUT GOL",
        "ERR||PID^1^3|101^Required^HL70357|E",
        "NK1|1|FALCON|MTH|12 Elm St^^BRACON|(555)123-4567||EC|20240101",
        "AL1|1|DA|7^X^L|SV|Cough by ACC|20240311",
        "OBX|1|TX|1^A^LN||read \\F\\PID\\F\\1||||||F",
    ],
)
def test_a_word_that_ends_like_a_segment_name_begins_no_segment(line: str) -> None:
    assert message(line).raw.endswith(line.encode() + b"\r")


CODED_FIELDS = (
    "OBX|1|ST|A^B^{}||7|mg||N|||F",
    "OBX|1|CE|A^B^L|1|Y^Z^{}||||||F",
    "OBX|1|ST|A^B^{}|2|7|mg||N|||F|||20240311",
    "OBX|1|NM|A^B^LN||7|mg^mg^{}|1-5|N|||F",
    "DG1|1||X9^Fever^{}|Fever|20240224|A",
    "DG1|1|L|X9^Fever^{}",
    "AL1|1|DA^Drug^{}|A^P^L|SV|rash",
    "OBR|1|O1|F1|A^B^LN^C^D^{}|||20240224",
    "PR1|1||X9^Suture^{}||20240224|A",
    "IN1|1|P^Plan^{}|C1|Ivory Mutual",
    "PV2||A^B^{}|R^x^L",
    "PID|1||7^^^X^MR||Okafor^Ada||19530719|F||R^Race^{}|12 Elm St^^BRACON",
    "AIG|1||R1^Room^{}|T1^x^L|||20240224",
    "NTE|1|L|seen|RE^Remark^{}|x",
    "ZPX|1|A^B^{}|N|1",
    "ZPX|1|x&A&B^C&D&{}|N|1",
)


@pytest.mark.parametrize("line", CODED_FIELDS)
def test_the_name_of_a_local_code_system_may_equal_that_of_a_segment(line: str) -> None:
    for name in sorted(codec()._table.names - {"MSH", "FHS", "BHS"}):
        for system in (f"99{name}", f"99{name}2", f"L-{name}", name):
            assert message(line.format(system)).raw.endswith(b"\r"), system
    for other in ("99ABC", "99LAB", "L", "LOC", "ORG", "HL79999", "99CON"):
        assert message(line.format(other))


@pytest.mark.parametrize("system", ["99LOC", "L", "99ABC"])
def test_a_segment_after_a_local_code_is_refused(system: str) -> None:
    with pytest.raises(MessageError, match="MALFORMED"):
        message(f"DG1|1||X9^Fever^{system}NTE|1||Seen by Ada Okafor|RE")
