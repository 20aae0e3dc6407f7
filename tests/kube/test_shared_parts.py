"""Decoded objects that share their equal parts stay equal to what they were."""

from __future__ import annotations

import copy
from typing import Any

from haru.kube.shared_parts import SharedParts


def fields(number: int) -> dict[str, Any]:
    container = {
        "name": "main",
        "resources": {"requests": {"cpu": "1"}},
        "volumeMounts": [{"name": f"token-{number}", "mountPath": "/token"}],
    }
    return {
        "nodeName": f"node-{number}",
        "containers": [container],
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "Scheduled", "status": str(number)}],
        "volumes": [{"name": f"token-{number}", "projected": {"sources": [{"configMap": {"name": "ca"}}]}}],
        "allocation": {"nodeSelector": {"terms": []}, "devices": {"results": [number]}},
    }


def test_members_equal_what_they_were_and_share_equal_parts() -> None:
    parts = SharedParts()
    given = [fields(1), fields(2)]
    one, two = map(parts.members, copy.deepcopy(given))
    assert [one, two] == given
    assert one["tolerations"] is two["tolerations"]
    assert one["conditions"][0] is two["conditions"][0]
    assert one["containers"][0]["resources"] is two["containers"][0]["resources"]
    assert one["volumes"][0]["projected"] is two["volumes"][0]["projected"]
    assert one["allocation"]["nodeSelector"] is two["allocation"]["nodeSelector"]
    assert one["containers"][0]["volumeMounts"] is not two["containers"][0]["volumeMounts"]


def test_members_follow_a_version_that_was_no_object() -> None:
    for before in ([1], "text", 1.5, None):  # a custom resource without a schema may have any spec
        assert SharedParts().members({"a": [1]}, before) == {"a": [1]}


def test_argument_stays_as_it_is() -> None:
    given = fields(1)
    SharedParts().members(given)
    assert given == fields(1)


def test_unusual_fields_are_kept() -> None:
    odd = {"containers": [None, 1, {"name": "a"}], "conditions": {"a": []}, "volumes": [], "allocation": {}, "x": None}
    assert SharedParts().members(odd) == odd
    large = {"amount": {"of": 2**70}}
    assert SharedParts().members(large) == large


def test_parts_stay_equal_when_more_than_are_kept_are_shared() -> None:
    parts = SharedParts()
    for number in range(9000):
        assert parts.part({"number": number}) == {"number": number}
    assert parts.part({"number": 8999}) is parts.part({"number": 8999})


def test_large_parts_that_differ_are_not_kept_for_long() -> None:
    parts = SharedParts()
    for number in range(3000):
        parts.part({"number": number, "text": "x" * 10_000})
    assert len(parts) < 300


def test_part_that_is_met_again_and_again_stays_however_many_differ() -> None:
    parts = SharedParts()
    first = parts.part({"name": "common"})
    for number in range(50_000):
        parts.part({"number": number})
        if number % 1000 == 0:
            assert parts.part({"name": "common"}) is first
