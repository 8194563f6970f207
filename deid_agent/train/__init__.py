"""Training of the components that learn: from annotated notes to ``models/``. Only the command line imports it.

The training libraries are imported when a training starts, not with this package.
"""

from deid_agent.train.augment import Augmenter
from deid_agent.train.card import CardFacts, TrainedModel, model_card, open_store
from deid_agent.train.components import CandidateModels, tag_with_component, train_component
from deid_agent.train.crf_trainer import CrfSettings, Progress, ignore_progress, train_crf
from deid_agent.train.examples import Example, ExampleReader, draw_share
from deid_agent.train.name_filter_trainer import FilterSettings
from deid_agent.train.recipes import (
    PUBLISHED,
    SHIPPED,
    ComponentKind,
    NetworkAblation,
    NetworkSettings,
    Recipe,
    TrainingExtra,
    find_recipe,
    require_extra,
)

__all__ = [
    "PUBLISHED",
    "SHIPPED",
    "Augmenter",
    "CandidateModels",
    "CardFacts",
    "ComponentKind",
    "CrfSettings",
    "Example",
    "ExampleReader",
    "FilterSettings",
    "NetworkAblation",
    "NetworkSettings",
    "Progress",
    "Recipe",
    "TrainedModel",
    "TrainingExtra",
    "draw_share",
    "find_recipe",
    "ignore_progress",
    "model_card",
    "open_store",
    "require_extra",
    "tag_with_component",
    "train_component",
    "train_crf",
]
