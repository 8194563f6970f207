"""The parrot attack on made feeds: it finds leaks in unusual places and all leaks among marks, and no hidden ones."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

import pytest

from deid_agent.evidence import (
    ParrotResult,
    ParrotStrength,
    ParrotTools,
    TextPair,
    attack_feed,
    compare_learned_recall,
    compare_recall,
    find_leaks,
    learn_finder,
    make_pair,
    mark_replaced,
    plant_leaks,
    rehearse,
)
from deid_agent.evidence.pairs import ReplacedRange
from deid_agent.model import ConfigurationError, Range
from deid_agent.rules import Dictionaries, data_folder
from deid_agent.train import CrfSettings, train_crf

PATIENTS = 30
NAMES = ["Vance", "Moss", "Quill", "Hartley", "Ives", "Penn", "Colby", "Marsh", "Reyes", "Tate", "Boyd", "Kerr"]
FILLER = ["He slept well.", "No fever.", "The wound is clean and dry.", "Blood pressure was normal.", "Eats well."]


@cache
def tools(words: frozenset[str] = frozenset()) -> ParrotTools:
    settings = CrfSettings(l1=0.1, l2=0.1, iterations=30)
    return ParrotTools(
        lambda extractor, chains: train_crf(extractor, chains, settings),
        Dictionaries.load(data_folder("rules")),
        surrogate_words=words,
    )


def join_pieces(note: str, patient: str, pieces: Iterable[tuple[str, str, str]]) -> TextPair:
    """The pair of texts with these pieces: original, surrogate and type, or unchanged text."""
    original = output = ""
    ranges = []
    for before, after, kind in pieces:
        if kind:
            place = len(output), len(output) + len(after), len(original), len(original) + len(before)
            ranges.append(ReplacedRange(*place, kind))
        original, output = original + before, output + (after if kind else before)
    return TextPair(note, patient, original, output, tuple(ranges))


def make_feed(leaked: bool, seed: int = 3) -> tuple[list[TextPair], dict[str, list[Range]]]:
    """Notes with names and dates in the places where a tagger finds them; some with a name in another place."""
    draw = random.Random(seed)
    pairs, leaks = [], {}
    for n in range(PATIENTS):
        pieces: list[tuple[str, str, str]] = []
        for _ in range(4):
            pieces += [("Seen by Dr. ", "", ""), (draw.choice(NAMES), draw.choice(NAMES), "DOCTOR"), (" on ", "", "")]
            old, new = (f"{draw.randint(1, 9)}/{draw.randint(1, 9)}/{year}" for year in (2019, 2018))
            pieces += [(old, new, "DATE"), (f". {draw.choice(FILLER)}\n", "", "")]
        if leaked and n % 3 == 0:
            begin = sum(len(before) for before, _, _ in pieces) + len("went fishing with ")
            leaks[f"n{n}"] = [(begin, begin + len("Ozzie"))]
            pieces.append((f"went fishing with Ozzie at the lake. {draw.choice(FILLER)}\n", "", ""))
        pairs.append(join_pieces(f"n{n}", f"p{n}", pieces))
    return pairs, leaks


def signals(result: ParrotResult) -> dict[str, float]:
    assert not result.absent
    return {each.signal: each.ranking.value for each in result.signals}


def test_leaks_in_unusual_places_are_found() -> None:
    pairs, leaks = make_feed(leaked=True)
    result = attack_feed(pairs, leaks, tools())
    assert (result.leaks, result.seen, result.patients) == (10, 10, PATIENTS)
    assert signals(result)["untagged"] > 0.9
    best = result.best
    assert best is not None and best.precision.low > 3 * result.chance


def test_leaks_among_surrogates_of_the_same_form_stay_hidden() -> None:
    """The same names in the same places: ranks like chance, and no signal that finds more than its share."""
    pairs, leaks = plant_leaks(make_feed(leaked=False)[0], 0.1)
    result = attack_feed(pairs, leaks, tools())
    assert result.leaks > 10
    for signal, ranking in signals(result).items():
        assert 0.3 < ranking < 0.7, signal
    for each in result.signals:
        assert each.precision.low <= 1.5 * result.chance


def test_the_control_with_marks_is_solved() -> None:
    pairs, leaks = plant_leaks(make_feed(leaked=False)[0], 0.1)
    result = attack_feed(mark_replaced(pairs), leaks, tools())
    assert signals(result)["untagged"] > 0.95
    assert result.best is not None and result.best.share.value > 0.9


def test_words_in_no_list_of_surrogates_give_a_leak_away() -> None:
    """Each surrogate is of a list that everyone has, and the original is not."""
    pairs = [
        make_pair(p.note, p.patient, p.original.replace("Vance", "Ozolins"), p.output, None)
        for p in make_feed(leaked=False)[0]
    ]
    planted, leaks = plant_leaks(pairs, 0.5)
    names = {
        p.note: [span for span in leaks.get(p.note, ()) if p.original[slice(*span)].endswith("Ozolins")]
        for p in planted
    }
    known = frozenset(name.lower() for name in NAMES)
    result = attack_feed(planted, {k: v for k, v in names.items() if v}, tools(known))
    assert result.leaks
    assert signals(result)["unlisted"] > 0.9


def test_an_attacker_who_rehearsed_finds_leaks_of_the_same_kind() -> None:
    """Leaks in the places of surrogates, in small letters: only a rehearsal reveals their form."""

    def lower(seed: int) -> tuple[list[TextPair], dict[str, list[Range]]]:
        pairs, leaks = plant_leaks(make_feed(leaked=False, seed=seed)[0], 0.1, seed)
        made = []
        for pair in pairs:
            text, output = pair.original, pair.output
            for begin, end in leaks.get(pair.note, ()):
                first, last = pair.find_in_output((begin, end)) or (0, 0)
                text = text[:begin] + text[begin:end].lower() + text[end:]
                output = output[:first] + output[first:last].lower() + output[last:]
            made.append(replace(pair, original=text, output=output))
        return made, leaks

    names = frozenset(map(str.lower, NAMES))
    rehearsal = rehearse(*lower(8), tools(names))
    found = signals(attack_feed(*lower(9), tools(names), rehearsal=rehearsal))
    assert found["rehearsed"] > max(each for signal, each in found.items() if signal != "rehearsed")
    assert "rehearsed" not in signals(attack_feed(*lower(9), tools(names)))


def test_a_rehearsal_without_leaks_teaches_nothing() -> None:
    pairs, _ = make_feed(leaked=False)
    rehearsal = rehearse(pairs, {}, tools())
    assert set(rehearsal.weights) == {0.0}
    attacked, leaks = make_feed(leaked=True)
    assert signals(attack_feed(attacked, leaks, tools(), rehearsal=rehearsal))["rehearsed"] == 0.5
    with pytest.raises(ConfigurationError):
        rehearse([], {}, tools())


def find_words(words: Iterable[str]) -> ParrotTools:
    wanted = set(words)

    def find(texts: Sequence[str]) -> list[list[Range]]:
        found = []
        for text in texts:
            here, at = [], 0
            for word in text.split():
                begin = text.index(word, at)
                at = begin + len(word)
                if word.strip(".,") in wanted:
                    here.append((begin, at))
            found.append(here)
        return found

    return ParrotTools(tools().fit, tools().dictionaries, find)


def test_an_attacker_with_the_software_alone_suspects_names_that_it_does_not_find() -> None:
    pairs, leaks = make_feed(leaked=True)
    result = attack_feed(pairs, leaks, find_words(NAMES), ParrotStrength.SOFTWARE)
    assert result.candidates > result.leaks
    assert signals(result)["untagged"] > 0.7
    with pytest.raises(ValueError, match="tagger"):
        attack_feed(pairs, leaks, tools(), ParrotStrength.SOFTWARE)


def test_a_finding_of_this_tagger_between_marks_is_a_leak() -> None:
    pairs, leaks = plant_leaks(make_feed(leaked=False)[0], 0.1)
    tail = "Okonkwo criteria apply."  # looks like a name, and is not found
    pairs = [replace(pair, original=pair.original + tail, output=pair.output + tail) for pair in pairs]
    result = attack_feed(mark_replaced(pairs), leaks, find_words(NAMES), ParrotStrength.SOFTWARE)
    assert signals(result)["untagged"] > 0.9
    assert result.best is not None and result.best.found == result.seen > 5


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        ([], "patients"),
        ([TextPair(f"n{n}", "p", "same", "same") for n in range(9)], "patients"),
        ([TextPair(f"n{n}", f"p{n}", "same", "same") for n in range(9)], "no leak"),
    ],
)
def test_a_feed_that_cannot_be_attacked_has_a_reason(pairs: list[TextPair], reason: str) -> None:
    result = attack_feed(pairs, {}, tools())
    assert reason in result.absent
    assert not result.signals


def test_a_feed_in_which_nothing_is_replaced_has_a_reason() -> None:
    pairs = [TextPair(f"n{n}", f"p{n}", "Ada came", "Ada came") for n in range(9)]
    assert "replaced" in attack_feed(pairs, {"n1": [(0, 3)]}, tools()).absent
    with pytest.raises(ConfigurationError, match="nothing to learn"):
        learn_finder([("Ada came", ())], tools().fit, tools().dictionaries)


def test_results_have_no_text_and_are_the_same_again() -> None:
    pairs, leaks = make_feed(leaked=True)
    result = attack_feed(pairs, leaks, tools())
    assert result.as_json() == attack_feed(pairs, leaks, tools()).as_json()
    shown = repr(result) + str(result.as_json()) + repr(tools())
    assert not [name for name in (*NAMES, "Ozzie", "fishing") if name in shown]


def test_the_rest_of_phi_is_a_leak() -> None:
    pair = TextPair("n", "p", "Ada Okafor came", "Ruth Okafor came", (ReplacedRange(0, 4, 0, 3),))
    assert find_leaks(pair, [(0, 10)]) == [(4, 10)]
    assert find_leaks(pair, [(0, 10)], parts=False) == []
    assert find_leaks(pair, [(11, 15)], parts=False) == [(11, 15)]
    assert find_leaks(pair, [(0, 3)]) == []


def test_equal_surrogates_are_found_equally_often() -> None:
    pairs, _ = make_feed(leaked=False)
    (learned,) = [each for each in compare_learned_recall(pairs, tools()).recalls if each.type == "all"]
    assert learned.originals.value > 0.9
    assert abs(learned.difference.value) < 0.1


def test_surrogates_that_look_different_are_found_less_often() -> None:
    pairs = mark_replaced(make_feed(leaked=False)[0])
    learned = {each.type: each for each in compare_learned_recall(pairs, tools()).recalls}
    assert {"all", "DOCTOR", "DATE"} == set(learned)
    assert learned["DATE"].difference.high < -0.3
    tagged = {
        each.type: each for each in compare_recall(pairs, "names", find_words(NAMES).find or (lambda _: [])).recalls
    }
    assert (tagged["DOCTOR"].originals.value, tagged["DOCTOR"].outputs.value) == (1, 0)
    assert tagged["DATE"].originals.value == 0


@pytest.mark.parametrize("strength", ParrotStrength)
def test_hostile_texts_are_attacked_like_others(strength: ParrotStrength) -> None:
    pairs, leaks = make_feed(leaked=True)
    texts = [
        ("", ""),
        ("Ada", ""),
        ("", "Ada"),
        ("\x00 Vance\x00", "\x00 Moss\x00"),
        ("Dr. \ud800Vance came", "Dr. \ud800Moss came"),
        ("A" * 200_000 + " Vance", "A" * 200_000 + " Moss"),
        ("Dr. Vance 3/4/2019\n" * 500, "Dr. Moss 3/5/2018\n" * 500),
        ("[DATE] [NAME] Vance", "[DATE] [NAME] Moss"),
    ]
    pairs += [make_pair(f"x{n}", f"q{n}", old, new) for n, (old, new) in enumerate(texts)]
    leaks |= {"x0": [(0, 3)], "x1": [(2, 900)], "x3": [(-4, 0)], "x7": [(1, 5)]}
    result = attack_feed(pairs, leaks, find_words(NAMES), strength)
    assert not result.absent
    assert compare_learned_recall(pairs, tools()).recalls
