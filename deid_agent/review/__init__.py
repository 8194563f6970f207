"""A folder of notes that people review: a queue, their decisions, agreement and gold, sealed on the disk of a site.

``folder`` keeps the files, ``records`` the rules about them, ``gold`` reads the agreed annotations. ``read_gold`` is
the function for others: it returns notes of an annotated corpus.
"""

from typing import TYPE_CHECKING

from deid_agent import lazy_names
from deid_agent.review.folder import ReviewFolder, check_new, load_review_key, make_key_file
from deid_agent.review.gold import ReviewStatus, read_agreement, read_gold, read_random_sample, read_status
from deid_agent.review.records import RANDOM, Agreement, compare

if TYPE_CHECKING:
    from deid_agent.review.desk import FolderDesk, open_desk
    from deid_agent.review.exporting import EXPORTED, write_notes
    from deid_agent.review.importing import ImportForm, ImportResult, ImportSettings, import_decisions
    from deid_agent.review.queue import DrawResult, DrawSettings, SourceNote, add_notes
    from deid_agent.review.reading import NoteReading, TaggerReader

__all__ = [
    "EXPORTED",
    "RANDOM",
    "Agreement",
    "DrawResult",
    "DrawSettings",
    "FolderDesk",
    "ImportForm",
    "ImportResult",
    "ImportSettings",
    "NoteReading",
    "ReviewFolder",
    "ReviewStatus",
    "SourceNote",
    "TaggerReader",
    "add_notes",
    "check_new",
    "compare",
    "import_decisions",
    "load_review_key",
    "make_key_file",
    "open_desk",
    "read_agreement",
    "read_gold",
    "read_random_sample",
    "read_status",
    "write_notes",
]

_LAZY = {
    "desk": ("FolderDesk", "open_desk"),
    "exporting": ("EXPORTED", "write_notes"),
    "importing": ("ImportForm", "ImportResult", "ImportSettings", "import_decisions"),
    "queue": ("DrawResult", "DrawSettings", "SourceNote", "add_notes"),
    "reading": ("TaggerReader", "NoteReading"),
}
__getattr__ = lazy_names(__name__, _LAZY)
