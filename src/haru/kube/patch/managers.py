"""`metadata.managedFields`: who set which fields, read and written.

An owner is (manager, operation, apiVersion, subresource); an applier is the same owner in every version. Fields that
the server owns (name, uid, resourceVersion, ...) belong to nobody.
Source: k8s.io/apimachinery `util/managedfields`, as behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from haru.kube.meta import Obj
from haru.kube.patch.fieldset import EMPTY, FieldSet, holds, less, parsed, rendered, shares

MAX_UPDATERS: Final = 10
_ANCIENT: Final = "ancient-changes"

SERVER_OWNED: Final = FieldSet.of(
    ("f:apiVersion",),
    ("f:kind",),
    ("f:metadata",),
    *(
        ("f:metadata", f"f:{name}")
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        )
    ),
)
"""Fields that are never anyone's."""


class Owner(NamedTuple):
    """A field manager that owns fields."""

    manager: str
    operation: str
    api_version: str
    subresource: str

    @property
    def identity(self) -> Owner:
        """The owner regardless of the version it applied in last."""
        return self._replace(api_version="") if self.operation == "Apply" else self

    def __str__(self) -> str:
        text = f'"{self.manager}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == "Update" else text


@dataclass(frozen=True, slots=True)
class Holding:
    """The fields of one owner, and the time of its last change."""

    owner: Owner
    time: str
    fields: FieldSet


Holdings = dict[Owner, Holding]
"""Owner identity -> what it holds."""


def read(entries: Sequence[Mapping[str, Any]] | None) -> Holdings:
    """The holdings of a managedFields list; empty if any entry makes no sense, as for an unmanaged object."""
    found: Holdings = {}
    try:
        for entry in entries or ():
            owner = Owner(
                entry.get("manager") or "",
                entry["operation"],
                entry.get("apiVersion") or "",
                entry.get("subresource") or "",
            )
            if owner.operation not in ("Apply", "Update") or entry.get("fieldsType", "FieldsV1") != "FieldsV1":
                return {}
            fields = parsed(entry.get("fieldsV1") or {})
            present = found.get(owner.identity)
            if present is not None:
                fields = fields | present.fields
            found[owner.identity] = Holding(owner, entry.get("time") or "", fields)
    except (KeyError, ValueError, AttributeError, TypeError):
        return {}
    return found


def write(holdings: Holdings) -> list[Obj]:
    """The managedFields list: appliers first, then by time and name; nobody with nothing, not too many updaters."""
    tidy = []
    for holding in holdings.values():
        fields = less(holding.fields, SERVER_OWNED)
        if fields:
            tidy.append(Holding(holding.owner, holding.time, fields))
    tidy = _cap(tidy)
    tidy.sort(key=_order)
    return [entry(one.owner, one.time, rendered(one.fields)) for one in tidy]


def updated(entries: Sequence[Obj], owner: Owner, now: str, changed: FieldSet, removed: FieldSet) -> list[Obj]:
    """The managedFields list after an owner has changed and removed fields: others lose them, it holds what it changed.

    `entries` are as `write` makes them. Whoever has nothing to do with the fields stays as it is, unread.
    """
    found = []
    mine_before: Obj | None = None
    for each in entries:
        fields = each["fieldsV1"]
        if mine_before is None and _is_of(each, owner):
            mine_before = each
        elif not shares(fields, changed) and not shares(fields, removed):
            found.append(each)
        elif left := less(less(less(parsed(fields), changed), removed), SERVER_OWNED):
            found.append({**each, "fieldsV1": rendered(left)})
    if mine_before is None:
        if changed:
            found.append(entry(owner, now, rendered(changed)))
    elif changed and not shares(mine_before["fieldsV1"], removed) and holds(mine_before["fieldsV1"], changed):
        found.append(_at(mine_before, now))
    else:
        mine = less(parsed(mine_before["fieldsV1"]), removed)
        if changed:
            mine_before, mine = _at(mine_before, now), mine | changed
        if mine:
            found.append({**mine_before, "fieldsV1": rendered(mine)})
    found.sort(key=_entry_order)
    return found if len(found) <= MAX_UPDATERS else write(read(found))


def as_written(entries: Sequence[Obj] | None) -> Sequence[Obj]:
    """A managedFields list that may come from elsewhere as `write` makes it; empty if any entry makes no sense."""
    owners = set()
    for each in entries or ():
        operation, version = each.get("operation"), each.get("apiVersion")
        is_known = each.get("fieldsType") == "FieldsV1" and type(each.get("fieldsV1")) is dict and "manager" in each
        if is_known and operation in ("Apply", "Update"):
            owners.add((each["manager"], operation, version if operation == "Update" else "", each.get("subresource")))
    return (entries or ()) if len(owners) == len(entries or ()) else write(read(entries))


def _is_of(each: Mapping[str, Any], owner: Owner) -> bool:
    who = each["manager"], each["operation"], each.get("apiVersion", ""), each.get("subresource", "")
    return who == owner


def _at(each: Obj, now: str) -> Obj:
    """The entry with the time of a change; writes of a Scale have none, and clients of Go do not read an empty one."""
    return {**each, "time": now} if now else {name: value for name, value in each.items() if name != "time"}


def _entry_order(each: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        each["operation"],
        each.get("time", ""),
        each["manager"],
        each.get("apiVersion", ""),
        each.get("subresource", ""),
    )


def _order(holding: Holding) -> tuple[str, ...]:
    owner = holding.owner
    return owner.operation, holding.time, owner.manager, owner.api_version, owner.subresource


def entry(owner: Owner, time: str, fields: Obj) -> Obj:
    """One entry of a managedFields list; `fields` is FieldsV1."""
    made: Obj = {
        "manager": owner.manager,
        "operation": owner.operation,
        "apiVersion": owner.api_version,
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    if not time:
        del made["time"]
    if owner.subresource:
        made["subresource"] = owner.subresource
    return made


def _cap(holdings: list[Holding]) -> list[Holding]:
    """Of more than ten updaters the oldest become one, per version: `ancient-changes`."""
    updaters = sorted((h for h in holdings if h.owner.operation == "Update"), key=_order)
    surplus = len(updaters) - MAX_UPDATERS
    if surplus <= 0:
        return holdings
    result = [h for h in holdings if h.owner.operation != "Update"]
    ancient: dict[Owner, Holding] = {}
    for position, holding in enumerate(updaters):
        if len(updaters) - position + len(ancient) <= MAX_UPDATERS:
            result += updaters[position:]
            break
        owner = Owner(_ANCIENT, "Update", holding.owner.api_version, "")
        present = ancient.get(owner)
        fields = holding.fields | (present.fields if present else EMPTY)
        ancient[owner] = Holding(owner, holding.time, fields)
    for owner, holding in ancient.items():
        same = next((h for h in result if h.owner == owner), None)
        if same is not None:
            result.remove(same)
            holding = replace(same, fields=same.fields | holding.fields)
        result.append(holding)
    return result
