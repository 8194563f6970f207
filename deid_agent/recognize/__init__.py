"""Recognizers and taggers: from a document to the spans of its PHI. ``registry`` lists all of them."""

from deid_agent.recognize.known_people import NameLexicons, subject_of
from deid_agent.recognize.known_phi import KnownRecognizer, PlainReading, read_without_parser
from deid_agent.recognize.name_memory import NameMemory, PatientNames
from deid_agent.recognize.registry import (
    SYSTEMS,
    assemble_recognizers,
    lean_models,
    load_rules,
    load_tagger,
    takes_lean,
)
from deid_agent.recognize.remembered_names import INTRODUCING, MEMORY_SOURCE
from deid_agent.recognize.resolve import Profile, Resolver
from deid_agent.recognize.tagger import Findings, Model, Recognizer, Tagger

__all__ = [
    "INTRODUCING",
    "MEMORY_SOURCE",
    "SYSTEMS",
    "Findings",
    "KnownRecognizer",
    "Model",
    "NameLexicons",
    "NameMemory",
    "PatientNames",
    "PlainReading",
    "Profile",
    "Recognizer",
    "Resolver",
    "Tagger",
    "assemble_recognizers",
    "lean_models",
    "load_rules",
    "load_tagger",
    "read_without_parser",
    "subject_of",
    "takes_lean",
]
