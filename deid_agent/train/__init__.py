"""Training of the components that learn: from annotated notes to ``models/``. Only the command line imports it.

The training libraries are imported when a training starts, not with this package.
"""

from deid_agent.train.augment import Augmenter
from deid_agent.train.card import CardFacts, TrainedModel, convert_disk_errors, model_card, open_store
from deid_agent.train.components import CandidateModels, tag_with_component, train_component
from deid_agent.train.crf_adapter import CrfAdaptation
from deid_agent.train.crf_trainer import CrfSettings, Progress, ignore_progress, train_crf
from deid_agent.train.examples import Example, ExampleReader, draw_share
from deid_agent.train.name_filter_trainer import FilterSettings
from deid_agent.train.recipes import (
    PUBLISHED,
    RECIPES,
    SHIPPED,
    ComponentKind,
    NetworkAblation,
    NetworkAdaptation,
    NetworkSettings,
    Recipe,
    TrainingExtra,
    find_recipe,
    require_extra,
)
from deid_agent.train.site_notes import (
    Rehearsal,
    SiteNotes,
    plan_folds,
    read_rehearsal,
    read_site_notes,
    refuse_missing_types,
)
from deid_agent.train.warm_start import (
    SHARES,
    Adaptation,
    Base,
    Models,
    Verdict,
    adapt_models,
    blend_models,
    describe_change,
    judge,
    load_default,
    record_checks,
    tag_notes,
    write_models,
)

__all__ = [
    "PUBLISHED",
    "RECIPES",
    "SHARES",
    "SHIPPED",
    "Adaptation",
    "Augmenter",
    "Base",
    "CandidateModels",
    "CardFacts",
    "ComponentKind",
    "CrfAdaptation",
    "CrfSettings",
    "Example",
    "ExampleReader",
    "FilterSettings",
    "Models",
    "NetworkAblation",
    "NetworkAdaptation",
    "NetworkSettings",
    "Progress",
    "Recipe",
    "Rehearsal",
    "SiteNotes",
    "TrainedModel",
    "TrainingExtra",
    "Verdict",
    "adapt_models",
    "blend_models",
    "convert_disk_errors",
    "describe_change",
    "draw_share",
    "find_recipe",
    "ignore_progress",
    "judge",
    "load_default",
    "model_card",
    "open_store",
    "plan_folds",
    "read_rehearsal",
    "read_site_notes",
    "record_checks",
    "refuse_missing_types",
    "require_extra",
    "tag_notes",
    "tag_with_component",
    "train_component",
    "train_crf",
    "write_models",
]
