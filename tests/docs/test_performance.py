"""``docs/performance.md`` is the newest committed run, and ``make bench-compare`` reports regressions."""

from dataclasses import replace

from support.performance import PAGE, Entry, Results, compare, last_results, render


def entry(name: str, *values: float, reference: float = 0.01) -> Entry:
    return Entry(name, name, "notes", "us a token", "cold", values, (reference,) * len(values))


def results(*entries: Entry) -> Results:
    return Results("2026-01-01 00:00 UTC", "abc", {"Processor": "x"}, entries)


def test_the_page_agrees_with_the_newest_results() -> None:
    newest = last_results()
    assert newest is not None
    found = Results.load(newest)
    assert PAGE.read_text("utf-8") == render(found)
    assert all(each.values or each.absent for each in found.entries)
    assert all(len(each.values) == len(each.reference) for each in found.entries)
    assert len({each.id for each in found.entries}) == len(found.entries)


def test_a_regression_is_a_ratio_outside_of_the_spread() -> None:
    before = results(entry("a", 10, 11, 12), entry("b", 10, 11, 12), entry("c", 10, 11, 12), entry("gone", 1))
    now = results(entry("a", 20, 21, 22), entry("b", 11, 14, 15), entry("c", 5, 6, 7), entry("new", 1))
    changes = {change.entry.id: change for change in compare(before, now)}
    assert [name for name, change in changes.items() if change.regressed] == ["a"]
    assert set(changes) == {"a", "b", "c"}
    assert round(changes["a"].ratio, 2) == 1.91


def test_a_slower_machine_changes_no_ratio() -> None:
    """Its reference loop is slower too."""
    before = results(entry("a", 10, 11, 12))
    (change,) = compare(before, results(entry("a", 20, 22, 24, reference=0.02)))
    assert not change.regressed
    assert change.ratio == 1.0


def test_an_entry_without_values_is_named_with_its_reason() -> None:
    absent = replace(entry("spacy"), absent="no model")
    page = render(results(entry("notes-1-cold", 10, 12), absent))
    assert "| notes-1-cold | cold | 11.0 [10.0, 12.0] | 1.00 [0.91, 1.09] |" in page
    assert "- spacy: no model" in page
    assert compare(results(absent), results(absent)) == []
