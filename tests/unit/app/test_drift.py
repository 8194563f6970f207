"""Whether a feed is still like the sample of its bound: few false alerts on the same notes, and an alert on others.

``drift-documents.json`` has the counts of notes of the corpus, one of each patient: of many authors, and of two sites.
"""

import json
import math
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from support.bounds import make_document

from deid_agent.agent import DocumentCounts
from deid_agent.app import DriftReference, FeatureCounts, WindowComparison, add_document, compare_window, empty_window
from deid_agent.app.drift import LEVEL, chi_square_p, measure_document, stability_index

CASES = json.loads((Path(__file__).parents[2] / "cases" / "drift-documents.json").read_text("utf-8"))


def documents_of(group: str) -> list[DocumentCounts]:
    return [
        DocumentCounts("adt", "note", "", words, read, unknown, tuple(types.items()), tuple(classes.items()))
        for words, read, unknown, types, classes in CASES[group]
    ]


def compare(reference: DriftReference, documents: Sequence[DocumentCounts]) -> WindowComparison:
    features = reference.features_of("")
    window = empty_window(features)
    for each in documents:
        add_document(window, features, each)
    return compare_window(window, features)


def test_notes_like_the_sample_differ_in_at_most_one_of_a_hundred_windows() -> None:
    """The sample and the windows are draws from one population, which has the 330 notes of the file."""
    rng, documents = random.Random(3), documents_of("known")
    runs = []
    for _ in range(16):
        reference = DriftReference.of(rng.choices(documents, k=100))
        runs.append([bool(compare(reference, rng.choices(documents, k=200)).differences) for _ in range(4)])
    assert sum(map(sum, runs)) <= 1, "a level of one in a thousand for each of 64 windows, over all features"
    assert not any(one and other for run in runs for one, other in pairwise(run)), "no two in a row: no alert"


def test_a_feature_differs_by_chance_at_its_level() -> None:
    rng, low = random.Random(11), 0
    for _ in range(120):
        features = DriftReference.of([make_document(rng) for _ in range(60)]).all
        only = tuple(each for each in features if each.name == "type:DATE")
        window = empty_window(only)
        for _ in range(60):
            add_document(window, only, make_document(rng))
        low += chi_square_p(list(zip(only[0].counts, window[0], strict=True))) < 0.05
    assert 0.005 < low / 120 < 0.1


@pytest.mark.parametrize("site", ["ep", "ek"])
def test_notes_of_another_site_differ(site: str) -> None:
    rng = random.Random(5)
    known, other = documents_of("known"), documents_of(site)
    found = compare(DriftReference.of(known[:100]), rng.choices(other, k=200))
    assert len(found.differences) >= 3
    assert found.differences[0].p < LEVEL / found.tested


def test_words_that_no_list_knows_differ() -> None:
    rng = random.Random(7)
    reference = DriftReference.of([make_document(rng) for _ in range(80)])
    found = compare(reference, [make_document(rng, unknown=0.6) for _ in range(60)])
    assert [each.feature for each in found.differences] == ["unknown-words"]


def test_a_tiny_difference_does_not_count() -> None:
    """Among 40,000 documents a shift of a percent is certain and does not matter."""
    feature = FeatureCounts(name="type:DATE", edges=(1.0,), counts=(20_000, 20_000))
    found = compare_window([[20_600, 19_400]], (feature,))
    assert chi_square_p([(20_000, 20_600), (20_000, 19_400)]) < LEVEL
    assert not found.differences


@pytest.mark.parametrize(("rows", "x", "p"), [(2, 3.841459, 0.05), (3, 5.991465, 0.05), (4, 16.266236, 0.001)])
def test_the_p_value_is_that_of_the_tables(rows: int, x: float, p: float) -> None:
    """Two columns of equal size whose statistic is ``x``: the quantiles of textbooks."""
    total = 10_000.0
    cells = [(total, total)] * (rows - 2)
    shift = math.sqrt(x * total / 4)
    table = [*cells, (total - shift, total + shift), (total + shift, total - shift)]
    assert chi_square_p(table) == pytest.approx(p, rel=1e-4)  # type: ignore[arg-type]


def test_more_degrees_of_freedom_are_an_error() -> None:
    with pytest.raises(ValueError, match="4 degrees"):
        chi_square_p([(10, 10)] * 5)


def test_the_stability_index_is_0_for_equal_columns_and_finite_for_empty_classes() -> None:
    assert stability_index([(10, 20), (30, 60)]) == pytest.approx(0, abs=1e-3)
    assert 1 < stability_index([(50, 0), (0, 200)]) < 20


def test_rare_classes_are_joined_before_they_are_compared() -> None:
    feature = FeatureCounts(name="type:EMAIL", edges=(0.0,), counts=(98, 2))
    assert compare_window([[40, 10]], (feature,)).tested == 0, "4 of 50 would be expected"
    assert compare_window([[100, 100]], (feature,)).tested == 1
    assert compare_window([[0, 0]], (feature,)).tested == 0
    assert compare_window([], ()) == WindowComparison(0, 0, ())


def test_each_document_is_in_one_class_of_each_feature() -> None:
    documents = documents_of("known")
    reference = DriftReference.of(documents)
    assert all(sum(feature.counts) == len(documents) for feature in reference.all)
    assert [feature.name for feature in reference.all] == list(measure_document(documents[0]))


def test_a_template_has_a_reference_of_its_own_if_it_is_frequent() -> None:
    rng = random.Random(1)
    documents = [make_document(rng, template="MDM^T02") for _ in range(50)]
    rare = [make_document(rng, template="ORU^R01") for _ in range(5)]
    reference = DriftReference.of([*documents, *rare, *(make_document(rng, template="") for _ in range(45))])
    assert set(reference.templates) == {"MDM^T02"}
    assert reference.features_of("ORU^R01") == reference.all != reference.features_of("MDM^T02")


def test_a_template_of_words_is_left_out() -> None:
    rng = random.Random(2)
    reference = DriftReference.of([make_document(rng, template="Mrs. Okafor, ward 3") for _ in range(50)])
    assert not reference.templates
    with pytest.raises(ValueError, match="pattern"):
        DriftReference.model_validate({**reference.model_dump(), "templates": {"Mrs. Okafor": reference.all}})


@pytest.mark.parametrize(
    "bad",
    [
        {"edges": (1.0,), "counts": (1, 2, 3)},
        {"edges": (2.0, 1.0), "counts": (1, 2, 3)},
        {"edges": (1.0,), "counts": (-1, 2)},
        {"edges": (math.inf,), "counts": (1, 2)},
        {"edges": (1.0, 2.0, 3.0, 4.0), "counts": (1, 1, 1, 1, 1)},
    ],
)
def test_damaged_features_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="FeatureCounts"):
        FeatureCounts.model_validate({"name": "type:DATE", **bad})
