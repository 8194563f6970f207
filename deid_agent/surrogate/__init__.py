"""Realistic replacements: same shape, stable in their scope, made from one secret and nothing else."""

from deid_agent.surrogate.surrogates import DateScope, Scope, Surrogates

__all__ = ["DateScope", "Scope", "Surrogates"]
