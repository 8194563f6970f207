"""What a policy's method makes of one value: the one place where old text becomes new text."""

from dataclasses import dataclass, field
from datetime import date

from deid_agent.phi import PhiType
from deid_agent.policy import Method, Policy
from deid_agent.sites import Kind, Site
from deid_agent.surrogate import Scope, Surrogates
from deid_agent.surrogate.methods import generalize, mask


@dataclass(frozen=True, slots=True)
class Replacer:
    """A policy and its surrogates. ``year`` stands for a message that tells no time of its own: today's."""

    policy: Policy
    surrogates: Surrogates
    year: int = field(default_factory=lambda: date.today().year)

    def value(self, site: Site, method: Method, scope: Scope) -> str:
        """What a structured value becomes; ``site.blank`` where nothing of it may stay."""
        match method:
            case Method.SURROGATE:
                new = self.surrogates.replace(site.type, site.value, kind=site.kind, scope=scope)
                if site.type is PhiType.DATE and new.strip() == mask(site.type):
                    return site.blank  # words stand for no date in a typed field
                return new[: site.limit].rstrip() if site.limit else new
            case Method.GENERALIZE:
                new = generalize(site.type, site.value, blank=site.blank, now=self._now(scope))
                return f"{new}-01-01T00:00:00Z" if site.kind is Kind.INSTANT and len(new) == 4 else new
            case Method.MASK | Method.REDACT:
                return site.blank
            case Method.KEEP:
                return site.value

    def finding(self, type_: PhiType, old: str, method: Method, scope: Scope) -> str:
        """What a finding in text becomes."""
        match method:
            case Method.SURROGATE:
                kind = Kind.NAME if type_ in {PhiType.PATIENT, PhiType.DOCTOR} else Kind.VALUE
                return self.surrogates.replace(type_, old, kind=kind, scope=scope)
            case Method.GENERALIZE:
                return generalize(type_, old, blank=mask(type_), now=self._now(scope))
            case Method.MASK:
                return mask(type_)
            case Method.REDACT:
                return ""
            case Method.KEEP:
                return old

    def _now(self, scope: Scope) -> int:
        return scope.reference.year if scope.reference else self.year
