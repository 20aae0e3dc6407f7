"""Rows of Tables that lie ready: they say what the objects say, at any time, and are made once."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from api_caller import PODS, Caller, pod
from test_api_reading import TABLE

from haru.apiserver.encoding import table_rows
from haru.kube import printers
from haru.kube.kinds import known_kind
from haru.kube.printers import PreparedRow


def cells(table: Any) -> dict[str, Any]:
    return {row["object"]["metadata"]["name"]: row["cells"] for row in table["rows"]}


async def listed(api: Caller, url: str = PODS) -> Any:
    return (await api("GET", url, accept=TABLE)).json


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the objects whose rows were prepared."""
    names: list[str] = []
    prepare: Callable[..., PreparedRow] = PreparedRow.of

    def noted(kind: Any, obj: Any) -> PreparedRow:
        names.append(obj["metadata"]["name"])
        return prepare(kind, obj)

    monkeypatch.setattr(PreparedRow, "of", noted)
    return names


async def test_row_is_prepared_again_only_when_its_object_has_changed(api: Caller, prepared: list[str]) -> None:
    for name in ("a", "b"):
        await api.create(PODS, pod(name))
    assert {name: row[2] for name, row in cells(await listed(api)).items()} == {"a": "Pending", "b": "Pending"}
    assert sorted(prepared) == ["a", "b"]
    changed = {"status": {"phase": "Running"}}
    patched = await api("PATCH", f"{PODS}/a/status", changed, type="application/merge-patch+json")
    assert patched.status == 200
    assert {name: row[2] for name, row in cells(await listed(api)).items()} == {"a": "Running", "b": "Pending"}
    assert sorted(prepared) == ["a", "a", "b"]


async def test_ages_of_rows_that_lie_ready_go_on(api: Caller, prepared: list[str]) -> None:
    await api.create(PODS, pod("a"))
    assert cells(await listed(api))["a"][4] == "0s"
    api.clock.advance(seconds=75)
    assert cells(await listed(api))["a"][4] == "75s"
    assert prepared == ["a"]


async def test_pages_of_a_table_are_made_of_the_same_rows(api: Caller, prepared: list[str]) -> None:
    for number in range(5):
        await api.create(PODS, pod(f"p{number}"))
    first = await listed(api, f"{PODS}?limit=3")
    rest = await listed(api, f"{PODS}?limit=3&continue={first['metadata']['continue']}")
    whole = await listed(api)
    assert first["rows"] + rest["rows"] == whole["rows"] and len(prepared) == 5
    assert first["metadata"]["remainingItemCount"] == 2 and "continue" not in rest["metadata"]
    assert first["columnDefinitions"] == whole["columnDefinitions"]


async def test_ready_rows_say_what_rows_of_other_requests_say(api: Caller) -> None:
    await api.create(PODS, pod("a"))
    whole = await listed(api)
    other = await listed(api, f"{PODS}?includeObject=Object")
    assert [row["cells"] for row in whole["rows"]] == [row["cells"] for row in other["rows"]]
    one = await listed(api, f"{PODS}/a")
    assert one["rows"] == whole["rows"]


async def test_managed_fields_stand_in_no_row_but_with_the_object(api: Caller) -> None:
    await api.create(PODS, pod("a"))
    (row,) = (await listed(api))["rows"]
    assert row["object"]["metadata"]["name"] == "a" and "managedFields" not in row["object"]["metadata"]
    (row,) = (await listed(api, f"{PODS}?includeObject=Object"))["rows"]
    assert row["object"]["metadata"]["managedFields"]
    accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    assert (await api("GET", f"{PODS}/a", accept=accept)).json["metadata"]["managedFields"]


async def test_no_more_rows_are_kept_than_have_room(
    api: Caller, prepared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_rows, "KEPT_BYTES", 0)
    await api.create(PODS, pod("a"))
    for _ in range(2):
        assert list(cells(await listed(api))) == ["a"]
    assert prepared == ["a", "a"]


async def test_rows_of_deleted_objects_give_their_room_back(api: Caller) -> None:
    before = table_rows.kept_bytes()
    await api.create(PODS, pod("a"))
    await listed(api)
    assert table_rows.kept_bytes() > before
    await api("DELETE", f"{PODS}/a?gracePeriodSeconds=0")
    await api.app.objects.store.compact(api.app.objects.store.revision)
    gc.collect()
    assert table_rows.kept_bytes() <= before


@pytest.mark.parametrize("name", ["é", 'a"b', "x\n"])
def test_prepared_row_is_the_row(name: str) -> None:
    kind, now = known_kind("v1", "Pod"), datetime(2026, 3, 4, tzinfo=UTC)
    obj = {"metadata": {"name": name, "creationTimestamp": "2026-03-03T23:00:00Z", "managedFields": [{}]}}
    assert json.loads(PreparedRow.of(kind, obj).encoded(now)) == printers.table(kind, [obj], now)["rows"][0]
