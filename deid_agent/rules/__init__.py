"""Rule files, dictionaries and word lists: read, checked and compiled once."""

from deid_agent.rules.checks import CHECKS, HEXADECIMAL, MBI, NPI, VIN, VIN_FORM, checksum_scheme
from deid_agent.rules.contexts import Context, Contexts, check_contexts, select_contexts
from deid_agent.rules.dictionaries import (
    AMBIGUOUS,
    Dictionaries,
    DictionaryEntry,
    Tags,
    are_nicknames,
    find_nicknames,
    list_of_tag,
    lists_of_tags,
    load_nicknames,
    load_words,
    read_terms,
)
from deid_agent.rules.files import (
    NO_SENSE,
    Lexicon,
    Sense,
    data_folder,
    describe_validation,
    digest_features,
    digest_folder,
    load_toml,
    read_toml,
)
from deid_agent.rules.rule_files import RuleCompiler, RuleFile, load_ruleset
from deid_agent.rules.rule_scan import RuleScan
from deid_agent.rules.ruleset import Regexp, Rule, Ruleset, check_samples

__all__ = [
    "AMBIGUOUS",
    "CHECKS",
    "HEXADECIMAL",
    "MBI",
    "NO_SENSE",
    "NPI",
    "VIN",
    "VIN_FORM",
    "Context",
    "Contexts",
    "Dictionaries",
    "DictionaryEntry",
    "Lexicon",
    "Regexp",
    "Rule",
    "RuleCompiler",
    "RuleFile",
    "RuleScan",
    "Ruleset",
    "Sense",
    "Tags",
    "are_nicknames",
    "check_contexts",
    "check_samples",
    "checksum_scheme",
    "data_folder",
    "describe_validation",
    "digest_features",
    "digest_folder",
    "find_nicknames",
    "list_of_tag",
    "lists_of_tags",
    "load_nicknames",
    "load_ruleset",
    "load_toml",
    "load_words",
    "read_terms",
    "read_toml",
    "select_contexts",
]
