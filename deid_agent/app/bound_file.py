"""The file of ``deid-agent bound``: how far models lean, the claim that a sample allows, and the sample's counts.

The claim is about one system: its version, rules, site lists and models. With other ones the file is refused.
"""

import hashlib
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Final, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from deid_agent import __version__
from deid_agent.app.drift import DriftReference
from deid_agent.model import ConfigurationError
from deid_agent.recognize import Profile, Tagger, lean_models, takes_lean
from deid_agent.rules import data_folder, digest_folder, digest_sites

BUDGET: Final = "budget"
"""The profile whose lean is that of a bound file."""
_MOST_BYTES = 1 << 20
_REMEDY = "run deid-agent bound again with the same sample and this system"
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Name = Annotated[str, Field(max_length=128, pattern=r"^[A-Za-z0-9._:+-]*$")]
_MODEL = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class BoundSystem(BaseModel):
    """The system of a bound: all that decides the findings in a text."""

    model_config = _MODEL

    version: Name
    rules: Name
    site: Name
    models: Name
    system: Name

    @staticmethod
    def of(system: str, rules: Path, sites: Sequence[Path], models: Path | None) -> "BoundSystem":
        """The system with these folders. Raises ``ConfigurationError`` for a file that cannot be read."""
        return BoundSystem(
            version=__version__,
            rules=digest_folder(rules)[:16],
            site=digest_sites(sites)[:16] if sites else "",
            models=digest_folder(models or data_folder("models"))[:16],
            system=system,
        )


class BudgetRow(BaseModel):
    """One budget: the least lean whose ``bound`` is at most ``alpha``; without a lean nothing may be claimed."""

    model_config = _MODEL

    alpha: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
    lean: Annotated[float, Field(ge=1, le=1000, allow_inf_nan=False)] | None
    bound: Share
    mean: Share


class BoundFile(BaseModel):
    """The claims that a random sample allows.

    The first of ``budgets`` is the one of ``profile = "budget"``; it has a lean. ``words`` and ``numbers`` of 1,000
    tokens that are no PHI are altered at that lean. ``context`` names the facts that the system had beside the text,
    ``policy`` is that of the operator at the time.
    """

    model_config = _MODEL

    format: Literal[1]
    budgets: Annotated[tuple[BudgetRow, ...], Field(min_length=1, max_length=32)]
    notes: Annotated[int, Field(ge=1)]
    patients: Annotated[int, Field(ge=1)]
    day: date
    population: Annotated[str, Field(min_length=1, max_length=300)]
    context: Literal["none", "profile"]
    policy: Name
    made_with: BoundSystem
    words: Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]
    numbers: Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]
    drift: DriftReference

    @model_validator(mode="after")
    def _check(self) -> Self:
        first = self.budgets[0]
        if first.lean is None or first.bound > first.alpha:
            raise ValueError("the first budget does not hold")
        if any(abs(row.bound - (row.mean * self.patients + 1) / (self.patients + 1)) > 1e-9 for row in self.budgets):
            raise ValueError("a bound is not that of its mean and patients")
        if not self.population.isprintable() or not self.population.strip():
            raise ValueError("the population is one line of text")
        return self

    @property
    def lean(self) -> float:
        """How far models lean."""
        return self.budgets[0].lean or 1.0

    def lean_tagger(self, tagger: Tagger) -> Tagger:
        """The tagger of the profile ``recall`` with models that lean as far."""
        return lean_models(tagger, self.lean)

    @property
    def digest(self) -> str:
        """The first digits of the SHA-256 of the content."""
        return _digest(self.model_dump(mode="json"))[:16]

    @property
    def sentence(self) -> str:
        """The claim."""
        return make_claim(self.budgets[0].alpha, self.notes, self.patients, self.day, self.population)

    @property
    def cost(self) -> str:
        """The lean, and the text that is no PHI and altered at it."""
        altered = f"{self.words:.1f} words and {self.numbers:.1f} numbers of 1,000 that are no PHI are altered"
        return f"Lean {self.lean:g}: {altered}; policy {self.policy}, context {self.context}"

    def to_bytes(self) -> bytes:
        """The file, with its digest."""
        content = self.model_dump(mode="json")
        return orjson.dumps({**content, "digest": _digest(content)}, option=orjson.OPT_INDENT_2) + b"\n"


def make_claim(alpha: float, notes: int, patients: int, day: date, population: str) -> str:
    """The sentence that may be claimed: with the numbers, the day and the population of the sample."""
    return (
        f"Of a further patient drawn like the {patients} patients ({notes} notes) of the random sample of {day} from "
        f'"{population}", at most {100 * alpha:g} % of the identifiers in the notes are missed, on average over '
        "samples and patients."
    )


def _digest(content: object) -> str:
    return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()


def read_bound(path: Path) -> BoundFile:
    """The file at ``path``. Raises ``ConfigurationError`` if it is no unchanged file of ``deid-agent bound``."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as problem:
        raise ConfigurationError(f"budget {path}: cannot be read ({problem.strerror})") from None
    fault = "is not a file of deid-agent bound"
    if len(data) <= _MOST_BYTES:
        try:
            content = orjson.loads(data)
            if isinstance(content, dict):
                digest = content.pop("digest", None)
                found = BoundFile.model_validate_json(orjson.dumps(content))
                if digest == _digest(found.model_dump(mode="json")):
                    return found
                fault = "was changed after deid-agent bound wrote it"
        except ValidationError as problem:
            first = problem.errors(include_input=False, include_url=False)[0]
            place = ".".join(map(str, first["loc"])) or "the whole"
            fault = f"is not a file of deid-agent bound ({place}: {first['type']})"
        except orjson.JSONDecodeError:
            pass
    raise ConfigurationError(f"budget {path}: {fault}: {_REMEDY}")


def choose_bound(
    profile: str, budget: Path | None, system: str, rules: Path, sites: Sequence[Path], models: Path | None
) -> BoundFile | None:
    """The bound of the profile ``budget``; None for another profile.

    Raises ``ConfigurationError`` for a file that is missing, malformed, or of another system.
    """
    if profile != BUDGET:
        if budget is not None:
            raise ConfigurationError('budget: it is used with profile = "budget"; set that, or remove it')
        return None
    if budget is None:
        raise ConfigurationError('profile "budget": name the file of deid-agent bound in budget')
    found = read_bound(budget)
    check_lean(system)
    now = BoundSystem.of(system, rules, sites, models)
    for name, before in found.made_with.model_dump().items():
        if (after := getattr(now, name)) != before:
            fault = f"the bound is for other {name} ({before or 'none'}, here {after or 'none'})"
            raise ConfigurationError(f"budget {budget}: {fault}: {_REMEDY}")
    return found


def check_lean(system: str) -> None:
    """Raise ``ConfigurationError`` for a system whose models cannot lean."""
    if not takes_lean(system):
        raise ConfigurationError(f"system {system}: its findings have no threshold; use the system default")


def parse_profile(name: str) -> Profile:
    """The profile of the resolver: that of ``budget`` is ``recall``. Raises ``ConfigurationError``."""
    if name == BUDGET:
        return Profile.RECALL
    try:
        return Profile(name)
    except ValueError:
        raise ConfigurationError(f"profile {name!r}: not one of {', '.join((*Profile, BUDGET))}") from None
