"""The scenarios of other tables of this folder, as situations."""

from __future__ import annotations

from collections.abc import Sequence

import test_explain_lines
import test_explain_scenarios
import test_explain_verdicts
import test_remedy_order
from explain_world import Obj
from situations import Situation

from haru.api.snapshot import Snapshot
from haru.explain import Explanation


def no_cluster() -> Snapshot:
    return Snapshot.of(())


def as_they_are(base: Snapshot, objects: Sequence[Obj], about: str) -> Explanation:
    """What is said if the objects are all that is there."""
    assert not list(base)
    kind, _, name = about.partition("/")
    return test_explain_verdicts.told(list(objects), kind, name)


SITUATIONS = [
    *(
        Situation(f"{table}: {case.name}", no_cluster, tuple(case.objects), f"{case.kind}/{case.subject}", as_they_are)
        for table, cases in (
            ("verdict", test_explain_verdicts.CASES),
            ("scenario", test_explain_scenarios.ROWS),
            ("lines", test_explain_lines.CASES),
        )
        for case in cases
    ),
    *(
        Situation(f"first remedy: {case.name}", case.snapshot, tuple(case.objects), case.about)
        for case in test_remedy_order.SITUATIONS
    ),
]
