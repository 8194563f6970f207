"""A folder of notes that people review: a queue, their decisions, agreement and gold, sealed on the disk of a site.

``folder`` keeps the files, ``records`` the rules about them, ``gold`` reads what reviewers agree on. ``read_gold`` is
the function for others: it returns notes of an annotated corpus.
"""

from deid_agent.review.folder import ReviewFolder, load_review_key, make_key_file
from deid_agent.review.gold import ReviewStatus, read_agreement, read_gold, read_status
from deid_agent.review.records import RANDOM, Agreement, compare

__all__ = [
    "RANDOM",
    "Agreement",
    "ReviewFolder",
    "ReviewStatus",
    "compare",
    "load_review_key",
    "make_key_file",
    "read_agreement",
    "read_gold",
    "read_status",
]
