"""docs/reasons.md and the closed list of reason types say the same."""

import re
from pathlib import Path
from typing import get_args

from haru.engine.dra.diagnosis.reasons import RefusalType
from haru.engine.state.decision import REASON_TYPES, Reason

DOCUMENT = Path(__file__).parents[2] / "docs" / "reasons.md"


def test_every_reason_type_is_documented_once() -> None:
    documented = re.findall(r"^\| `(\w+)`", DOCUMENT.read_text(), flags=re.MULTILINE)
    assert sorted(documented) == sorted(REASON_TYPES)


def test_device_refusal_types_are_reason_types() -> None:
    assert set(get_args(RefusalType)) <= set(REASON_TYPES)


def test_reason_json_has_data_beside_type_and_message() -> None:
    assert Reason("Quorum", "m", {"fit": 1}).to_json() == {"type": "Quorum", "message": "m", "fit": 1}
