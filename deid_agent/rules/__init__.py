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
from deid_agent.rules.learned_formats import find_clash, learn_format, require_id
from deid_agent.rules.rule_files import PatternFile, RuleCompiler, RuleFile, load_ruleset
from deid_agent.rules.rule_scan import RuleScan
from deid_agent.rules.ruleset import Regexp, Rule, Ruleset, check_samples
from deid_agent.rules.site_folder import SHIPPED, RuleFolders, RulesGiven, Site, digest_sites, find_rules
from deid_agent.rules.site_import import COLUMNS, read_import
from deid_agent.rules.site_terms import SKIPPED, Family, fits, merge_values, write_private

__all__ = [
    "AMBIGUOUS",
    "CHECKS",
    "COLUMNS",
    "HEXADECIMAL",
    "MBI",
    "NO_SENSE",
    "NPI",
    "SHIPPED",
    "SKIPPED",
    "VIN",
    "VIN_FORM",
    "Context",
    "Contexts",
    "Dictionaries",
    "DictionaryEntry",
    "Family",
    "Lexicon",
    "PatternFile",
    "Regexp",
    "Rule",
    "RuleCompiler",
    "RuleFile",
    "RuleFolders",
    "RuleScan",
    "RulesGiven",
    "Ruleset",
    "Sense",
    "Site",
    "Tags",
    "are_nicknames",
    "check_contexts",
    "check_samples",
    "checksum_scheme",
    "data_folder",
    "describe_validation",
    "digest_features",
    "digest_folder",
    "digest_sites",
    "find_clash",
    "find_nicknames",
    "find_rules",
    "fits",
    "learn_format",
    "list_of_tag",
    "lists_of_tags",
    "load_nicknames",
    "load_ruleset",
    "load_toml",
    "load_words",
    "merge_values",
    "read_import",
    "read_terms",
    "read_toml",
    "require_id",
    "select_contexts",
    "write_private",
]
