"""Notes of invented patients, just enough to train every component."""

from collections.abc import Mapping
from pathlib import Path

MARKUP = """\
@@PATIENT id={id}
{{"name": {{"given": ["Zed"], "family": "{name}"}}}}
@@NOTE id={id}-1 type=letter date=2014-02-06
Mr. [[PATIENT|{name}]] came on [[DATE|3/4/2019]], MRN: [[MEDICALRECORD|4471902]]. He was well.
Dr. [[DOCTOR|{name}]] saw Mr. [[PATIENT|{name}]] on [[DATE|3/7/2019]]. He was well and slept.
@@END
@@NOTE id={id}-2 type=note date=2014-03-06
Mr. [[PATIENT|{name}]] slept. Dr. [[DOCTOR|Quill]] came on [[DATE|4/9/2019]]. He slept and was well.
@@END
"""


def write(folder: Path, names: Mapping[str, str]) -> Path:
    """Two notes for each patient id, about a patient and a doctor with its family name."""
    folder.mkdir()
    for id_, name in names.items():
        (folder / f"{id_}.txt").write_text(MARKUP.format(id=id_, name=name), "utf-8")
    return folder
