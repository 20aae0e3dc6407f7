"""Alerts and board speak of metrics and labels that the scheduler serves, and alerts name the fix."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from haru.cli.main import COMMANDS, build_parser, flags_of
from haru.install.manifests import deploy_folder
from haru.loop_lag import LoopLag
from haru.scheduler.coexistence import CoexistenceMetrics
from haru.scheduler.metric_table import METRICS

FOLDER = deploy_folder() / "chart" / "monitoring"
OF_PROMETHEUS = {"job", "pod", "le"}
_SELECTOR = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}")
_MATCHER = re.compile(r"([a-z_]+)\s*(?:=~|!=|!~|=)")


def served() -> dict[str, set[str]]:
    """Name to labels of every series."""
    found: dict[str, set[str]] = {"up": set()}
    for metric in METRICS:
        suffixes = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        found |= {f"{metric.name}{suffix}": set(metric.labels) for suffix in suffixes}
    counted = CoexistenceMetrics()
    counted.foreign_pods["other"] = 1
    for line in counted.lines():
        if not line.startswith("#"):
            name, _, labels = line.rpartition(" ")[0].partition("{")
            found[name] = set(_MATCHER.findall(labels))
    for line in LoopLag().lines():
        if not line.startswith("#"):
            found[re.split(r"[{ ]", line)[0]] = set()
    return found


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "rules.yaml").read_text())["spec"]["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    for panel in json.loads((FOLDER / "haru.json").read_text())["panels"]:
        yield from (target["expr"] for target in panel["targets"])


@pytest.mark.parametrize("expression", list(expressions()))
def test_expression_names_served_metrics_and_their_labels(expression: str) -> None:
    known = served()
    selectors = _SELECTOR.findall(expression)
    assert selectors
    labels: set[str] = set()
    for name, matchers in selectors:
        assert name in known, f"{name} is not served"
        assert set(_MATCHER.findall(matchers)) <= known[name] | OF_PROMETHEUS
        labels |= known[name]
    for by in re.findall(r"by \(([^)]*)\)", expression):
        assert {label.strip() for label in by.split(",")} <= labels | OF_PROMETHEUS
    # A name without a selector would escape: what is left are functions, keywords and durations.
    rest = re.sub(r'"[^"]*"|by \([^)]*\)', "", _SELECTOR.sub("", expression))
    assert not re.search(r"\b(scheduler|haru)_\w+", rest)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_alert_names_the_fix(rule: dict[str, Any]) -> None:
    text = rule["annotations"]["description"]
    assert re.search(r"kubectl|haru (explain|top)|--backfill|webhooks|Deployment haru-scheduler", text)
    flags = {flag for flags in flags_of(build_parser()).values() for flag in flags}
    assert set(re.findall(r"(?<!\S)--[a-z-]+", text)) <= flags
    assert set(re.findall(r"haru ([a-z]+) ", text)) <= {*COMMANDS}
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
