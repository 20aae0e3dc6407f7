"""Old CertificateSigningRequests go."""

from __future__ import annotations

from typing import Any

import pytest
from signing_request_objects import REQUEST

from haru.controllers.signing_request_cleaner import SIGNING_REQUESTS, due_times
from haru.kube.names import format_time

NAME = "certificatesigningrequest-cleaner-controller"
MADE, TOLD = "2026-01-01T00:00:00Z", "2026-01-01T02:00:00Z"


@pytest.mark.parametrize(
    ("types", "certificate", "due"),
    [
        ((), "", ["2026-01-02T00:00:00Z"]),
        (("Denied",), "", ["2026-01-01T03:00:00Z"]),
        (("Approved", "Failed"), "", ["2026-01-02T02:00:00Z", "2026-01-01T03:00:00Z"]),
        (("Approved",), "", ["2026-01-02T02:00:00Z"]),
        (("Approved",), "eA==", ["2026-01-01T03:00:00Z"]),
        (("Other",), "", []),
    ],
)
def test_request_is_due_an_hour_after_its_answer_or_a_day_after_it_was_made(
    types: tuple[str, ...], certificate: str, due: list[str]
) -> None:
    conditions = [{"type": type_, "status": "True", "lastUpdateTime": TOLD} for type_ in types]
    request = {
        "metadata": {"creationTimestamp": MADE},
        "status": {"conditions": conditions, "certificate": certificate},
    }
    assert [format_time(time) for time in due_times(request)] == due


async def test_denied_request_is_deleted_and_a_new_one_stays(cluster: Any) -> None:
    spec = {"request": REQUEST, "signerName": "example.com/a", "usages": ["client auth"]}
    for name in ("old", "new"):
        await cluster.create(SIGNING_REQUESTS, {"metadata": {"name": name}, "spec": spec})
    old = await cluster.get(SIGNING_REQUESTS, "old")
    denied = {"type": "Denied", "status": "True", "reason": "x", "lastUpdateTime": "2020-01-01T00:00:00Z"}
    await cluster.client.update(SIGNING_REQUESTS, {**old, "status": {"conditions": [denied]}}, "approval")
    await cluster.start(NAME)

    async def gone() -> bool:
        return await cluster.get(SIGNING_REQUESTS, "old") is None

    await cluster.eventually(gone)
    assert await cluster.get(SIGNING_REQUESTS, "new") is not None
    assert await cluster.forbidden() == 0
