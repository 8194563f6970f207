"""What a walk asks: shapes of types, rules of elements, and the lists beside them. Built by ``compiled.load``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from deid_agent.phi import PhiType
from deid_agent.sites import Kind, Subject


@dataclass(frozen=True, slots=True)
class Leaf:
    """What becomes of one scalar: a treatment of ``leaves``, or ``site`` with its type.

    ``stays`` says in short which strings the treatment would keep anyway (most codes and code systems do).
    """

    name: str
    type: PhiType = PhiType.IDNUM
    kind: Kind = Kind.VALUE
    stays: Callable[[str], object] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Rule:
    """One element: ``leaf`` where it is a scalar (None: it stays), ``child`` where it is an object."""

    leaf: "Leaf | None"
    child: "Shape | None" = None
    numbers_stay: bool = True
    targets: tuple[PhiType, ...] = ()
    patient: bool = False
    default: PhiType = PhiType.IDNUM


@dataclass(slots=True, eq=False)
class Shape:
    """One type: its elements by name. Filled while the table is built, never changed after; only equal to itself.

    ``rest`` is the rule of elements that the type does not have; None: that of the unknown.
    """

    name: str
    rules: dict[str, Rule] = field(default_factory=dict, repr=False)
    subject: Subject | None = None
    composite: bool = False
    reference: bool = False
    extension: bool = False
    resource: bool = False
    rest: Rule | None = None


@dataclass(frozen=True, slots=True)
class Guess:
    """What an object of an unknown element is, by its members."""

    type: str
    all: frozenset[str]
    any: frozenset[str]
    system: frozenset[str]


@dataclass(frozen=True, slots=True, repr=False)
class Table:
    """Everything a walk asks: shapes by type name and the lists of ``types.toml``."""

    shapes: Mapping[str, Shape]
    resources: frozenset[str]
    definitions: frozenset[str]
    primitives: Mapping[str, Rule]
    anything: Shape
    nothing: Shape
    unknown: Rule
    primitive_extension: Rule
    extensions: Mapping[str, Shape]
    roles: Mapping[str, PhiType]
    patient_elements: tuple[str, ...]
    identifier_types: Mapping[str, PhiType]
    identifier_labels: Mapping[str, PhiType]
    identifier_systems: Mapping[str, PhiType]
    identifier_elements: Mapping[str, PhiType]
    vocabularies: tuple[str, ...]
    queries: Mapping[str, Leaf | None]
    inline: frozenset[str]
    tags: frozenset[str]
    text_attributes: frozenset[str]
    link_attributes: frozenset[str]
    guesses: tuple[Guess, ...]

    def extension(self, url: object, shape: Shape) -> Shape:
        """The shape of an extension under ``url``; ``shape`` where the list does not know it."""
        return self.extensions.get(url, shape) if isinstance(url, str) else shape

    def system(self, system: str) -> PhiType | None:
        """The type of identifiers under ``system``, where the list knows it."""
        found = self.identifier_systems.get(system)
        if found is None and system:
            found = next(
                (t for s, t in self.identifier_systems.items() if s[-1] == "*" and system.startswith(s[:-1])), None
            )
        return found
