"""Statistical models: features, the CRF, the recurrent network, the SVM name filter, and their stored form.

Training (``deid_agent.train``) produces the models; this package only runs them and needs NumPy alone.
"""

from deid_agent.nlp.character_features import CHARACTER_FAMILIES, CharacterFeatures, build_character_examples
from deid_agent.nlp.crf import Crf, CrfModel, WeightTable, build_crf, load_crf, save_crf
from deid_agent.nlp.crf_taggers import (
    LOW_CONFIDENCE,
    CharacterCrf,
    FirstPass,
    GatedCrf,
    ProbabilitySource,
    TokenCrf,
    is_short_value,
)
from deid_agent.nlp.labels import OUTSIDE, Schema, encode_labels
from deid_agent.nlp.model_files import is_packaged, trust_manifest
from deid_agent.nlp.name_candidates import PERSONS, find_candidates
from deid_agent.nlp.name_filter import (
    CARE_TEAM_CLASSIFIER,
    FAMILY_SCALES,
    LOW_CONFIDENCE_NAME,
    NAME_CLASSIFIER,
    CandidateFeatures,
    FilteredNames,
    NameFilter,
    ScoredCandidate,
    choose_best,
)
from deid_agent.nlp.network import SIDES, Dimensions, Network
from deid_agent.nlp.network_inputs import (
    MAX_SEQUENCE_TOKENS,
    MAX_WORD_CHARACTERS,
    UNKNOWN,
    VECTORS_NAME,
    EncodedTokens,
    Floats,
    InputEncoder,
    WordVectors,
    load_vectors,
    split_paragraphs,
)
from deid_agent.nlp.network_tagger import NetworkModel, NetworkTagger, load_network, save_network
from deid_agent.nlp.sequences import Schedule, split_sequence
from deid_agent.nlp.svm import Bits, LinearScreen, SupportVectorMachine, SvmModel, encode_rows, load_svm, save_svm
from deid_agent.nlp.templates import FeatureExtractor, select_templates, weight_groups
from deid_agent.nlp.token_features import Ints, TokenFeatures

__all__ = [
    "CARE_TEAM_CLASSIFIER",
    "CHARACTER_FAMILIES",
    "FAMILY_SCALES",
    "LOW_CONFIDENCE",
    "LOW_CONFIDENCE_NAME",
    "MAX_SEQUENCE_TOKENS",
    "MAX_WORD_CHARACTERS",
    "NAME_CLASSIFIER",
    "OUTSIDE",
    "PERSONS",
    "SIDES",
    "UNKNOWN",
    "VECTORS_NAME",
    "Bits",
    "CandidateFeatures",
    "CharacterCrf",
    "CharacterFeatures",
    "Crf",
    "CrfModel",
    "Dimensions",
    "EncodedTokens",
    "FeatureExtractor",
    "FilteredNames",
    "FirstPass",
    "Floats",
    "GatedCrf",
    "InputEncoder",
    "Ints",
    "LinearScreen",
    "NameFilter",
    "Network",
    "NetworkModel",
    "NetworkTagger",
    "ProbabilitySource",
    "Schedule",
    "Schema",
    "ScoredCandidate",
    "SupportVectorMachine",
    "SvmModel",
    "TokenCrf",
    "TokenFeatures",
    "WeightTable",
    "WordVectors",
    "build_character_examples",
    "build_crf",
    "choose_best",
    "encode_labels",
    "encode_rows",
    "find_candidates",
    "is_packaged",
    "is_short_value",
    "load_crf",
    "load_network",
    "load_svm",
    "load_vectors",
    "save_crf",
    "save_network",
    "save_svm",
    "select_templates",
    "split_paragraphs",
    "split_sequence",
    "trust_manifest",
    "weight_groups",
]
