"""``deid-agent review export`` and ``import``: gold for other programs, decisions from annotation tools."""

from pathlib import Path

import click

from deid_agent.cli.common import Exit, echo_error, handle_errors, printable
from deid_agent.eval import CorpusFormat
from deid_agent.model import counted
from deid_agent.review import (
    EXPORTED,
    ImportForm,
    ImportSettings,
    ReviewFolder,
    import_decisions,
    load_review_key,
    read_gold,
    write_notes,
)

_FOLDER = click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
_KEY = click.option(
    "--key-file", metavar="KEY", required=True, type=click.Path(path_type=Path), help="The key of the folder."
)


@click.command("export")
@_FOLDER
@_KEY
@click.option("--format", "form", type=click.Choice([f.value for f in EXPORTED]), required=True, help="Their format.")
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), required=True, help="A new folder.")
@click.option("--random", "random_only", is_flag=True, help="Only the random sample.")
@click.option("--single", is_flag=True, help="Also notes that one reviewer alone has finished.")
@handle_errors
def export_notes(folder: Path, key_file: Path, form: str, out: Path, random_only: bool, single: bool) -> Exit:
    """Write the gold of a folder for other programs. The files hold the notes in the clear."""
    notes = read_gold(folder, load_review_key(key_file), random_only=random_only, single=single)
    files = write_notes(notes, out, CorpusFormat(form))
    echo_error(f"{printable(out)}: {counted(len(notes), 'note')} in the clear, with all PHI")
    click.echo(f"{counted(len(notes), 'note')}, {counted(len(files), 'file')}")
    return Exit.DONE


@click.command("import")
@_FOLDER
@click.argument("path", type=click.Path(path_type=Path))
@_KEY
@click.option("--reviewer", metavar="NAME", required=True, help="Whose decisions they are.")
@click.option("--format", "form", type=click.Choice([f.value for f in ImportForm]), required=True, help="Their format.")
@click.option("--map", "labels", metavar="FILE", type=click.Path(path_type=Path), help="Types of the tool's labels.")
@click.option("--annotator", metavar="ID", default="", help="Whose annotations of Label Studio.")
@click.option("--feature", metavar="NAME", default="", help="The feature of INCEpTION's layer that has the labels.")
@click.option("--new", is_flag=True, help="Take notes that are not in the folder.")
@handle_errors
def import_notes(
    folder: Path,
    path: Path,
    key_file: Path,
    reviewer: str,
    form: str,
    labels: Path | None,
    annotator: str,
    feature: str,
    new: bool,
) -> Exit:
    """Take the decisions of one reviewer from an annotation tool, as finished ones.

    Notes are found by their id in the folder or by their text. A finished decision is never changed.
    """
    opened = ReviewFolder.open(folder, load_review_key(key_file))
    settings = ImportSettings(ImportForm(form), labels, annotator, feature, new)
    done = import_decisions(opened, path, reviewer, settings)
    click.echo(f"{counted(done.decided, 'note')} decided, {done.new} of them new")
    if done.kept:
        click.echo(f"{counted(done.kept, 'note')} kept: a finished decision is never changed")
    if done.strange:
        echo_error(f"{counted(done.strange, 'note')} not in the folder: left out; --new takes them")
    return Exit.REFUSED if done.strange else Exit.DONE
