"""Every query of the dashboard and of the alerts names existing metrics and labels."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from support.chart import CHART, RENDERED
from support.manifests import DEPLOY, DOCS, Tree, documents

from deid_agent.model.errors import Reason
from deid_agent.telemetry.metrics import METRICS, MetricKind

DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text("utf-8"))
(ALERTS,) = documents(DEPLOY / "prometheus" / "alerts.yaml")
RULES: list[Tree] = [rule for group in ALERTS["groups"] for rule in group["rules"]]
TARGET = frozenset({"job", "instance"})  # Prometheus adds these to every series
LABELS: dict[str, set[str]] = {
    "outcome": {"published", "suppressed", "dead_lettered"},
    "state": {"up", "wanted"},
    "code": {str(code) for code in Reason},
}

SERIES: dict[str, frozenset[str]] = {}
for _metric in METRICS:
    _labels = TARGET | set(_metric.labels)
    if _metric.kind is MetricKind.HISTOGRAM:
        SERIES |= {f"{_metric.name}_bucket": _labels | {"le"}, f"{_metric.name}_sum": _labels}
        SERIES[f"{_metric.name}_count"] = _labels
    else:
        SERIES[_metric.name] = _labels
COUNTED = {m.name for m in METRICS if m.kind is MetricKind.COUNTER} | {
    n for n in SERIES if n.endswith(("_bucket", "_sum", "_count"))
}
KNOWN = SERIES | {"up": TARGET}
WORDS = {"sum", "min", "max", "avg", "count", "by", "without", "on", "ignoring", "and", "or", "unless", "offset"}
WORDS |= {"rate", "increase", "histogram_quantile", "absent", "label_values", "bool"}


def queries() -> Iterator[tuple[str, str]]:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield f"{panel['title']} {target['refId']}", target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield f"variable {variable['name']}", variable["definition"]
    for rule in RULES:
        yield rule["alert"], rule["expr"]


def faults(query: str) -> list[str]:
    """Names, matchers, groupings and ranges that do not fit the list of metrics. promtool checks the grammar."""
    found: list[str] = []
    plain = re.sub(r'"[^"]*"', '""', query)
    names = set(
        re.findall(
            r"\b[a-zA-Z_]\w*\b", re.sub(r"\{[^}]*\}|\[[^\]]*\]|\b(?:by|ignoring|on|without) \([^)]*\)", "", plain)
        )
    )
    used = {name for name in names - WORDS if not re.fullmatch(r"\d*[smhd]", name)}
    used -= {"job"} if plain.startswith("label_values(") else set()
    found += [f"no metric {name}" for name in used - set(KNOWN)]
    there: frozenset[str] = frozenset().union(*(KNOWN[name] for name in used & set(KNOWN)))
    for grouping in re.findall(r"\b(?:by|ignoring|on|without) \(([^)]*)\)", plain):
        found += [f"no label {label}" for label in map(str.strip, grouping.split(",")) if label not in there]
    for name, matchers in re.findall(r"\b(\w+)\{([^}]*)\}", query):
        for label, _, value in re.findall(r'(\w+)\s*(=~|!=|!~|=)\s*"([^"]*)"', matchers):
            if label not in KNOWN.get(name, frozenset()):
                found.append(f"no label {label} of {name}")
            elif label in LABELS:
                found += [f"no {label} {each}" for each in value.split("|") if each not in LABELS[label]]
    found += [
        f"{n} without a rate"
        for n in used & COUNTED
        if not re.search(rf"(?:rate|increase)\({n}(?:\{{[^}}]*\}})?\[", query)
    ]
    if "histogram_quantile" in plain and not re.search(r"by \([^)]*\ble\b[^)]*\)", plain):
        found.append("a quantile that lost le")
    if plain.count("(") != plain.count(")"):
        found.append("parentheses")
    return found


@pytest.mark.parametrize(("where", "query"), list(queries()), ids=lambda value: value if "(" not in value else "")
def test_every_query_names_existing_metrics(where: str, query: str) -> None:
    assert faults(query) == []


@pytest.mark.parametrize(
    "query",
    [
        "sum(rate(deid_message_total[5m]))",
        "sum by (partition) (rate(deid_messages_total[5m]))",
        'sum(rate(deid_messages_total{outcome="dead"}[5m]))',
        'increase(deid_dlq_total{reason="LEAK"}[5m])',
        "sum(deid_messages_total)",
        "rate(deid_commit_duration_seconds[5m])",
        "histogram_quantile(0.9, sum by (job) (rate(deid_commit_duration_seconds_bucket[5m])))",
        "sum(deid_ready",
    ],
)
def test_a_wrong_query_is_detected(query: str) -> None:
    assert faults(query) != []


def test_the_jobs_that_alerts_name_are_those_that_are_scraped() -> None:
    """A ServiceMonitor gives the job of the Service's name unless it names a label, and then no alert would fire."""
    named = {job for rule in RULES for job in re.findall(r'\bjob\s*=~?\s*"([^"]*)"', rule["expr"])}
    (scrapes,) = documents(DEPLOY / "prometheus" / "prometheus.yaml")
    assert named == {scrape["job_name"] for scrape in scrapes["scrape_configs"]}
    monitor = (CHART / "templates" / "servicemonitor.yaml").read_text("utf-8")
    (label,) = re.findall(r"^  jobLabel: (\S+)$", monitor, re.MULTILINE)
    services = [tree["metadata"] for path in RENDERED for tree in documents(path) if tree["kind"] == "Service"]
    assert services and named == {service["labels"][label] for service in services}


def test_every_metric_is_on_the_dashboard() -> None:
    shown = " ".join(query for where, query in queries() if where not in {rule["alert"] for rule in RULES})
    assert [metric.name for metric in METRICS if metric.name not in shown] == []


def test_the_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_has_a_runbook(rule: dict[str, Any]) -> None:
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^#+ (.+)$", (DOCS / page).read_text("utf-8"), re.MULTILINE)
    assert anchor in {heading.lower().replace(" ", "-") for heading in headings}
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
        assert any(label in KNOWN[name] for name in re.findall(r"\b(?:deid_\w+|up)\b", rule["expr"])), label


def test_every_runbook_has_its_alert() -> None:
    headings = re.findall(r"^#+ (Deid\w+)$", (DOCS / "operate.md").read_text("utf-8"), re.MULTILINE)
    assert headings == [rule["alert"] for rule in RULES]
