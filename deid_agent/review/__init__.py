"""A folder of notes that people review: a queue, their decisions, agreement and gold, sealed on the disk of a site.

``folder`` keeps the files, ``records`` the rules about them, ``gold`` reads what reviewers agree on. ``read_gold`` is
the function for others: it returns notes of an annotated corpus.
"""

from typing import TYPE_CHECKING

from deid_agent import lazy_names
from deid_agent.review.folder import ReviewFolder, load_review_key, make_key_file
from deid_agent.review.gold import ReviewStatus, read_agreement, read_gold, read_status
from deid_agent.review.records import RANDOM, Agreement, compare

if TYPE_CHECKING:
    from deid_agent.review.desk import FolderDesk, open_desk

__all__ = [
    "RANDOM",
    "Agreement",
    "FolderDesk",
    "ReviewFolder",
    "ReviewStatus",
    "compare",
    "load_review_key",
    "make_key_file",
    "open_desk",
    "read_agreement",
    "read_gold",
    "read_status",
]

_LAZY = {"desk": ("FolderDesk", "open_desk")}
__getattr__ = lazy_names(__name__, _LAZY)
