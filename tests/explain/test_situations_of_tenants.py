"""What `explain.haru.dev` says of a situation to somebody who may see the work's namespace only, as golden text.

Recorded as `tenants.txt` by `HARU_RECORD=1 pytest tests/explain/test_situations_of_tenants.py`, where others run beside
the work; of all other situations a tenant is told what everybody is told.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache

import pytest
from other_tenants import MINE, among_others, hidden_names
from test_situations import EVERY, HEAD, HERE, recorded

from haru.api.snapshot import Snapshot
from haru.engine import SchedulerCache
from haru.explain import Explanation, Remedy
from haru.explain.render import from_json
from haru.explain_server.answers import Told

FILE = "tenants"
SITUATIONS = {one.name: (module, one) for module, one in EVERY}


@dataclass(frozen=True)
class View:
    """What is said to everybody and to a tenant, and the names that are not the tenant's."""

    full: Explanation
    shown: Explanation
    hidden: frozenset[str]


@cache
def view(name: str) -> View:
    """As the aggregated API answers, which writes JSON, and as `haru explain` reads it."""
    one = among_others(SITUATIONS[name][1])
    full = one.explanation()
    cluster = SchedulerCache.of(list(Snapshot.of([*one.base(), *one.objects]))).snapshot()
    shown = Told(full, cluster).redacted({MINE})
    return View(full, from_json(shown.as_dict()), hidden_names(one))


def text_of(told: Explanation) -> str:
    """All that is said: sentences, tables, changes, data."""
    return f"{told.short()}\n{told}\n{told.as_dict()}"


def named(text: str, names: frozenset[str]) -> list[str]:
    return [name for name in sorted(names) if re.search(rf"(?<![-\w]){re.escape(name)}(?![-\w])", text)]


WITH_OTHERS = list(recorded(FILE))


def test_recorded_views_are_those_with_others() -> None:
    others = [name for name, (_, one) in SITUATIONS.items() if hidden_names(among_others(one))]
    if os.environ.get("HARU_RECORD") == "1":
        text = "\n".join(f"{HEAD}{name}\n{view(name).shown.short()}\n" for name in others)
        (HERE / f"{FILE}.txt").write_text(text)
    assert list(recorded(FILE)) == others
    assert len(others) >= 30


@pytest.mark.parametrize("name", SITUATIONS)
def test_tenant_is_told_recorded_text_without_names_of_others(name: str) -> None:
    module, _ = SITUATIONS[name]
    found = view(name)
    assert found.shown.short() == recorded(FILE).get(name, recorded(module)[name])
    assert not named(text_of(found.shown), found.hidden)


@pytest.mark.parametrize("name", WITH_OTHERS)
def test_numbers_of_tenant_are_those_of_everybody(name: str) -> None:
    found = view(name)
    assert numbers(found.shown) == numbers(found.full)
    short = [
        [line for line in told.short().splitlines() if line.startswith("short by")]
        for told in (found.full, found.shown)
    ]
    assert short[0] == short[1]


def numbers(told: Explanation) -> object:
    """All figures: of the requests and their stages, of the remedies, of the groups of nodes."""
    stages = [
        (stage.stage, stage.left, stage.dropped, sum(holder.devices for holder in stage.holders))
        for funnel in told.requests
        for stage in funnel.stages
    ]
    needs = [(funnel.needed, funnel.free, funnel.short) for funnel in told.requests]
    return (
        told.verdict,
        needs,
        stages,
        [ways(remedy) for remedy in told.remedies],
        [group.count for group in told.nodes],
    )


def ways(remedy: Remedy) -> tuple[str, float, bool]:
    return remedy.kind, remedy.cost, remedy.confirmed
