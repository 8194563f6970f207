"""Recognizers and taggers: from a document to the spans of its PHI. ``registry`` lists all of them."""

from deid_agent.recognize.known_people import NameLexicons, subject_of
from deid_agent.recognize.known_phi import KnownRecognizer, PlainReading, read_without_parser
from deid_agent.recognize.registry import SYSTEMS, assemble_recognizers, load_rules, load_tagger
from deid_agent.recognize.resolve import Profile, Resolver
from deid_agent.recognize.tagger import Model, Recognizer, Tagger

__all__ = [
    "SYSTEMS",
    "KnownRecognizer",
    "Model",
    "NameLexicons",
    "PlainReading",
    "Profile",
    "Recognizer",
    "Resolver",
    "Tagger",
    "assemble_recognizers",
    "load_rules",
    "load_tagger",
    "read_without_parser",
    "subject_of",
]
