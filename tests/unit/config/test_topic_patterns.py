"""Input topics by regular expression, and configurations that would read their own outputs."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from deid_agent.config import KafkaSettings
from deid_agent.config.topic_patterns import literal_prefix, pattern_fault


def settings(pattern: str | None, output: str | None, **more: object) -> KafkaSettings:
    return KafkaSettings.model_validate(
        {"bootstrap_servers": "b:9092", "topics_pattern": pattern, "output": output, **more}
    )


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [
        (r"hl7\..*", "hl7."),
        (r"^hl7-adt$", "hl7-adt"),
        (r"hl7s?\..*", "hl7"),
        (r"a{2}b", ""),
        (r"a|b", ""),
        (r"hl7\.(a|b)", ""),
        (r"(?i)hl7", ""),
        (r"\d+", ""),
        (r"x\Zy", "x"),
        (".*", ""),
    ],
)
def test_the_text_with_which_every_match_begins(pattern: str, prefix: str) -> None:
    assert literal_prefix(pattern) == prefix


@pytest.mark.parametrize(
    ("pattern", "output"),
    [
        (".*", "deid.{topic}"),
        (r"hl7\..*", "{topic}.deid"),
        (r"hl7\..*", "hl7.deid.{topic}"),
        (r"hl7.*", "hl{topic}"),
        (r"hl7|deid\..*", "deid.{topic}"),
        (r"hl7\..*", "deid"),
        (r"hl7\..*", "deid.{topic}.{topic}"),
        (r"hl7\..*", "de id.{topic}"),
        (r"hl7\..*", None),
        ("hl7(", "deid.{topic}"),
        ("", "deid.{topic}"),
    ],
)
def test_a_configuration_that_could_loop_or_cannot_work_is_refused(pattern: str, output: str | None) -> None:
    with pytest.raises(ValidationError, match=r"kafka\.(output|topics_pattern)"):
        settings(pattern, output)


@given(st.from_regex(r"[ab.|*?\\(){}^$]{0,6}", fullmatch=True), st.from_regex(r"[ab.]{0,3}", fullmatch=True), st.data())
def test_no_accepted_pattern_matches_an_output(pattern: str, begin: str, data: st.DataObject) -> None:
    template = begin + "{topic}"
    if pattern_fault(pattern, template):
        return
    topic = data.draw(st.from_regex(r"[ab.]{1,6}", fullmatch=True))
    if re.fullmatch(pattern, topic):
        assert re.fullmatch(pattern, begin + topic) is None


@pytest.mark.parametrize(
    ("topic", "output"),
    [
        ("hl7.adt", "deid.hl7.adt"),
        ("hl7.adt.dlq", None),
        ("deid.hl7.adt", None),
        ("my.hl7.adt", None),
        ("__consumer_offsets", None),
    ],
)
def test_routes_of_a_pattern(topic: str, output: str | None) -> None:
    assert settings(r"hl7\..*", "deid.{topic}").route(topic) == output


@pytest.mark.parametrize(
    "more", [{"routes": {"a": "b"}, "topics_pattern": "a.*", "output": "deid.{topic}"}, {"routes": {}}, {"output": "x"}]
)
def test_routes_and_a_pattern_exclude_each_other(more: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=r"kafka\.routes"):
        KafkaSettings.model_validate({"bootstrap_servers": "b:9092", **more})
