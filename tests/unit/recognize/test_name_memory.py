"""The memory of patients' names: keyed hashes, in bounds, that belong to one patient each."""

import pickle
from collections.abc import Iterator

import pytest

from deid_agent.model.errors import ConfigurationError
from deid_agent.model.phi import PhiType
from deid_agent.recognize.name_memory import NameMemory, NameWord, PatientNames

SECRET = bytes(range(200, 232))


def word(form: str, type_: PhiType = PhiType.PATIENT, *, proven: bool = True) -> NameWord:
    return NameWord(form, type_, proven)


def held_bytes(names: PatientNames) -> Iterator[bytes]:
    for hashed, value in names._words.items():
        yield from (hashed, value)


def test_a_proven_word_counts_at_once_and_for_its_patient_only() -> None:
    memory = NameMemory(SECRET, 10)
    memory.of_patient("4471").learn([word("keziah")], "note")
    assert memory.of_patient("4471").type_of("keziah") is PhiType.PATIENT
    assert memory.of_patient("4471").type_of("zyblorq") is None
    assert memory.of_patient("4472").type_of("keziah") is None


def test_an_unproven_word_counts_once_two_documents_have_it() -> None:
    names = NameMemory(SECRET, 10).of_patient("4471")
    for _ in range(3):  # a message that is delivered again proves nothing
        names.learn([word("keziah", proven=False), word("keziah", proven=False)], "note 1")
        assert names.type_of("keziah") is None
    names.learn([word("keziah", proven=False)], "note 2")
    assert names.type_of("keziah") is PhiType.PATIENT


def test_the_type_is_that_of_the_first_proof() -> None:
    names = NameMemory(SECRET, 10).of_patient("4471")
    names.learn([word("keziah", PhiType.PATIENT, proven=False)], "note 1")
    names.learn([word("keziah", PhiType.DOCTOR)], "note 2")
    names.learn([word("keziah", PhiType.PATIENT)], "note 3")
    assert names.type_of("keziah") is PhiType.DOCTOR


def test_only_names_of_persons_are_remembered() -> None:
    names = NameMemory(SECRET, 10).of_patient("4471")
    names.learn([word("harlow", PhiType.CITY)], "note")
    assert len(names) == 0


def test_the_patient_that_was_not_used_for_the_longest_time_is_forgotten() -> None:
    memory = NameMemory(SECRET, 2)
    for patient in ("a", "b"):
        memory.of_patient(patient).learn([word("keziah")], "note")
    memory.of_patient("a")
    memory.of_patient("c").learn([word("keziah")], "note")
    assert len(memory) == 2
    assert memory.of_patient("a").type_of("keziah") is PhiType.PATIENT
    assert memory.of_patient("b").type_of("keziah") is None
    for number in range(1_000):
        memory.of_patient(f"p{number}")
    assert len(memory) == 2


def test_the_oldest_word_of_a_patient_is_forgotten() -> None:
    names = NameMemory(SECRET, 1, words=3).of_patient("4471")
    names.learn([word("keziah"), word("osric"), word("halvard")], "note 1")
    names.learn([word("keziah"), word("ingeborg")], "note 2")
    assert len(names) == 3
    assert [names.type_of(form) is not None for form in ("keziah", "osric", "halvard", "ingeborg")] == [1, 0, 1, 1]
    names.learn([word(f"w{n}") for n in range(1_000)], "note 3")
    assert len(names) == 3


def test_hashes_differ_by_key_and_by_patient() -> None:
    hashes = set()
    for secret in (SECRET, SECRET[::-1]):
        for patient in ("4471", "4472"):
            names = NameMemory(secret, 10).of_patient(patient)
            names.learn([word("keziah")], "note")
            hashes |= set(names._words)
    assert len(hashes) == 4
    assert set(NameMemory(SECRET, 1)._patients) == set()
    keys = [
        next(iter(m._patients))
        for m in (NameMemory(s, 1) for s in (SECRET, SECRET[::-1]))
        if m.of_patient("4471") is not None
    ]
    assert keys[0] != keys[1]


def test_the_same_key_gives_the_same_hashes() -> None:
    first, second = (NameMemory(SECRET, 10).of_patient("4471") for _ in range(2))
    for names in (first, second):
        names.learn([word("keziah")], "note")
    assert first._words == second._words


def test_no_name_and_no_number_is_held_or_shown() -> None:
    memory = NameMemory(SECRET, 10)
    names = memory.of_patient("PATIENT4471")
    names.learn([word("keziah"), word("osric", proven=False)], "Keziah came with Osric.")
    shown = repr(memory) + repr(names) + repr(word("keziah")) + str(memory.__dict__)
    for plain in ("keziah", "osric", "4471", "came"):
        assert plain not in shown.lower()
        for held in (*held_bytes(names), *memory._patients):
            assert plain.encode() not in held.lower()
    assert all(len(held) <= 16 for held in (*held_bytes(names), *memory._patients)), "hashes, not texts"


@pytest.mark.parametrize("held", [NameMemory(SECRET, 10), NameMemory(SECRET, 10).of_patient("4471")])
def test_the_memory_is_not_pickled(held: object) -> None:
    with pytest.raises(TypeError, match="not pickled") as refused:
        pickle.dumps(held)
    assert "4471" not in str(refused.value)


def test_an_empty_secret_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        NameMemory(b"", 10)


def test_any_string_is_a_word_and_a_patient() -> None:
    names = NameMemory(SECRET, 10).of_patient("\ud800")
    names.learn([word("\udfff")], "\ud800")
    assert names.type_of("\udfff") is PhiType.PATIENT
