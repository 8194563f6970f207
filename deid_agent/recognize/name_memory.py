"""The names of patients as keyed hashes, remembered from one document of a patient to the next.

The memory holds no names: a patient and each word of a name are BLAKE2b hashes (RFC 7693, keyed mode), and the key of
the words is derived from the secret and the patient. Without the secret no guess can be confirmed, and equal words of
two patients have unrelated hashes. The number of patients, and of the words of each, is bounded; those that were not
used for the longest time are forgotten first. Nothing is written to disk.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b

from deid_agent.model import ConfigurationError, PhiType

MAX_WORDS = 128
"""Words that are remembered of one patient."""
_TYPES = (PhiType.PATIENT, PhiType.DOCTOR)
_HASH_BYTES = 12
_DOCUMENT_BYTES = 8


@dataclass(frozen=True, slots=True)
class NameWord:
    """A word of a name, in the form in which it is compared. ``proven`` words need no second document."""

    form: str = field(repr=False)
    type: PhiType
    proven: bool


class PatientNames:
    """The remembered words of one patient's names.

    A word counts as a name once it is proven, or once two documents have it.
    """

    __slots__ = ("_key", "_limit", "_words")

    def __init__(self, key: bytes, limit: int = MAX_WORDS) -> None:
        self._key = key
        self._limit = limit
        # Hash of a word: the index of its type, then the document that has it; without a document the word counts.
        self._words: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        """The number of remembered words."""
        return len(self._words)

    def __repr__(self) -> str:
        return f"PatientNames({len(self)} words)"

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        raise TypeError("PatientNames holds a key and is not pickled")

    def learn(self, words: Iterable[NameWord], document: str) -> None:
        """Remember ``words`` of a document. The same document again proves nothing.

        The type of a word is the first that a document proves, else the first of all.
        """
        seen_in: bytes | None = None
        for word in words:
            if word.type not in _TYPES:
                continue
            if seen_in is None:
                seen_in = blake2b(_bytes(document), key=self._key, digest_size=_DOCUMENT_BYTES).digest()
            hashed = self._hash(word.form)
            found = self._words.pop(hashed, None)  # added again below, so that the first word is the oldest
            own = bytes((_TYPES.index(word.type),))
            if found is None:
                new = own if word.proven else own + seen_in
            elif len(found) == 1:
                new = found
            elif word.proven:
                new = own
            else:
                new = found if found[1:] == seen_in else found[:1]
            self._words[hashed] = new
            if len(self._words) > self._limit:
                del self._words[next(iter(self._words))]

    def type_of(self, form: str) -> PhiType | None:
        """The type of a word that counts as a name; None for any other word."""
        found = self._words.get(self._hash(form))
        return _TYPES[found[0]] if found is not None and len(found) == 1 else None

    def _hash(self, form: str) -> bytes:
        return blake2b(_bytes(form), key=self._key, digest_size=_HASH_BYTES).digest()


class NameMemory:
    """The names of at most ``patients`` patients, with at most ``words`` words each.

    Mutable, and owned by one thread: whoever de-identifies passes it in. Raises ``ConfigurationError`` for an empty
    secret.
    """

    def __init__(self, secret: bytes, patients: int, words: int = MAX_WORDS) -> None:
        if not secret:
            raise ConfigurationError("the secret of the name memory is empty: give at least 16 random bytes")
        self._key = blake2b(secret, person=b"deid-names").digest()
        self._limit = patients
        self._words = words
        self._patients: dict[bytes, PatientNames] = {}

    def __len__(self) -> int:
        """The number of patients."""
        return len(self._patients)

    def __repr__(self) -> str:
        return f"NameMemory({len(self)} of {self._limit} patients)"

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        raise TypeError("NameMemory holds a secret and is not pickled: build one in each process")

    def of_patient(self, scope: str) -> PatientNames:
        """The names of the patient with this scope, which may be none; the patient counts as used now."""
        derived = blake2b(_bytes(scope), key=self._key).digest()
        patient, key = derived[:16], derived[16:]
        names = self._patients.pop(patient, None)
        if names is None:
            names = PatientNames(key, self._words)
        self._patients[patient] = names
        if len(self._patients) > self._limit:
            del self._patients[next(iter(self._patients))]
        return names


def _bytes(value: str) -> bytes:
    """UTF-8 that also encodes lone surrogates, so that no string raises."""
    return value.encode("utf-8", "surrogatepass")
