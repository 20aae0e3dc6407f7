"""Reports: percentiles, the three forms, and two runs side by side."""

from __future__ import annotations

import json

import pytest

from haru.stress.history import Broken, History
from haru.stress.plan import Limits
from haru.stress.report import (
    Facts,
    ReportError,
    checked,
    compare,
    compare_text,
    html_of,
    make_report,
    percentiles,
    text_of,
)
from haru.stress.seeded_plan import seeded_plan


def report(*broken: Broken, slow: float = 1.0) -> dict[str, object]:
    history = History("r")
    for number in range(10):
        key = f"s/p{number}"
        history.creating("u", [key], 0)
        history.pods[key].scheduled = slow * (number + 1)
        history.pods[key].running = slow * (number + 1) + 1
    history.broken += broken
    facts = Facts(
        "default-scheduler", "Kubernetes 1.36", 4, 60, faults=({"at": 1.0, "kind": "etcd", "message": "<stopped>"},)
    )
    return make_report(seeded_plan(1, Limits(units=3)), facts, history).as_dict()


HALF = Broken("HalfGang", 12.5, "77", ("s/g",), "gang s/g: 1 <member> is bound")


def test_percentiles_are_by_nearest_rank() -> None:
    assert percentiles(range(1, 101)) == {"count": 100, "p50": 50, "p90": 90, "p99": 99, "max": 100}
    assert percentiles([3.0]) == {"count": 1, "p50": 3.0, "p90": 3.0, "p99": 3.0, "max": 3.0}
    assert percentiles([]) == {"count": 0}


def test_text_begins_with_the_verdict_and_ends_with_what_was_broken() -> None:
    assert text_of(report()).startswith("No promise was broken.")
    text = text_of(report(HALF))
    assert text.startswith("1 broken promises: HalfGang 1")
    assert text.endswith("12.500 s  HalfGang: gang s/g: 1 <member> is bound (revision 77)")


def test_page_escapes_what_objects_say() -> None:
    page = html_of(report(HALF))
    assert "1 &lt;member&gt; is bound" in page and "<member>" not in page and "&lt;stopped&gt;" in page


def test_report_survives_json_and_other_files_are_refused() -> None:
    found = report(HALF)
    assert checked(json.loads(json.dumps(found)), "a.json") == found
    with pytest.raises(ReportError, match=r"b\.json: this is no report"):
        checked({"kind": "Pod"}, "b.json")


def test_second_run_that_broke_more_is_worse() -> None:
    found = compare(report(), report(HALF, slow=2.0))
    assert found["worse"] and found["samePlan"] and found["broken"]["HalfGang"] == [0, 1]
    assert found["latencySeconds"]["creationToScheduled.p50"] == [5.0, 10.0]
    assert "+100%" in compare_text(found, ("a.json", "b.json"))
    assert not compare(report(HALF), report())["worse"]
