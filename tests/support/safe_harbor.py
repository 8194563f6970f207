"""A de-identifier with the policy ``safe-harbor``."""

from functools import lru_cache

from support.surrogates import ROOT

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import SecretKey
from deid_agent.model.phi import PhiType
from deid_agent.pipeline.deidentify import Deidentifier
from deid_agent.pipeline.policy import load_policy

RULES = ROOT / "rules"
MAY_STAY = {PhiType.STATE, PhiType.COUNTRY, PhiType.PROFESSION}  # none of the 18


@lru_cache
def deidentifier(key: bytes = b"key of the attack tests, Safe Harbor") -> Deidentifier:
    return WorkerFactory(RULES, SecretKey(key), load_policy("safe-harbor", RULES)).deidentifier()


def text(note: str) -> str:
    return deidentifier().text(note, document="d").text
