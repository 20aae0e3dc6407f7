"""The scenarios of other tables of this folder, as situations."""

from __future__ import annotations

import test_explain_lines
import test_explain_scenarios
import test_explain_verdicts
import test_remedy_order
from explain_world import told
from situations import Situation

SITUATIONS = [
    *(
        Situation(
            f"verdict: {case.name}", lambda case=case: test_explain_verdicts.told(case.objects, case.kind, case.subject)
        )
        for case in test_explain_verdicts.CASES
    ),
    *(
        Situation(f"scenario: {row.name}", lambda row=row: test_explain_scenarios.answer_of(row))
        for row in test_explain_scenarios.ROWS
    ),
    *(
        Situation(f"lines: {case.name}", lambda case=case: test_explain_lines.told(case))
        for case in test_explain_lines.CASES
    ),
    *(
        Situation(
            f"first remedy: {case.name}",
            lambda case=case: told(case.snapshot(), *case.objects, about=case.about),
            case.snapshot,
            tuple(case.objects),
            case.about,
        )
        for case in test_remedy_order.SITUATIONS
    ),
]
