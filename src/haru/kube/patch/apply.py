"""Server-side apply, and the ownership that every other write leaves behind.

`server_side_apply` lays a configuration over the live object: its fields become the manager's, fields that the manager
applied before and that nobody holds any more are removed, and a field whose value would change under another
owner is a conflict. `track_update` records an ordinary write: the fields it changed become the writer's.
Sets of other API versions of the object are compared as they are, by field name. Source: KEP-555, and
sigs.k8s.io/structured-merge-diff `merge`, as behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from haru.kube.errors import StatusError, bad_request_error
from haru.kube.kinds import by_kind
from haru.kube.meta import Obj
from haru.kube.patch import last_applied, managers
from haru.kube.patch.fieldset import FieldSet, less, parsed, path_text, shares
from haru.kube.patch.managers import Holding, Holdings, Owner
from haru.kube.patch.shapes import Shape, shape_of
from haru.kube.patch.typed import compare, field_set, merge, new_fields, prune
from haru.kube.schema import MessageType

BEFORE_FIRST_APPLY: Final = "before-first-apply"


@dataclass(frozen=True, slots=True)
class ManagedWrite:
    """A write by a field manager: its name, version, (sub)resource, type and time."""

    manager: str
    api_version: str
    message_type: MessageType
    subresource: str
    now: str
    reset: FieldSet | None = None
    """The fields that this write cannot set; None: those of `reset_fields`."""
    also_reset: tuple[str, ...] = ()
    """Paths that the kind adds to these."""

    @property
    def ignored(self) -> FieldSet:
        """The fields that this write cannot set."""
        found = self.reset
        return reset_fields(self.message_type, self.subresource, self.also_reset) if found is None else found

    def owner(self, operation: str) -> Owner:
        """The owner of what it sets by `Apply` or `Update`."""
        return Owner(self.manager, operation, self.api_version, self.subresource)


def entries_of(obj: Obj, owner: Owner, now: str, shape: Shape, ignored: FieldSet) -> list[Obj]:
    """The managedFields list after `owner` has made an object of which nobody held anything."""
    fields = _without(_without(new_fields(obj, shape), ignored, whole=True), managers.SERVER_OWNED, whole=False)
    return [managers.entry(owner, now, fields)] if fields else []


def _without(fields: Obj, gone: FieldSet, *, whole: bool) -> Obj:
    """The fields (FieldsV1) less a set: its members alone, or with everything below them (`whole`)."""
    if not gone:
        return fields
    found: Obj = {}
    for element, inner in fields.items():
        is_gone, child = element in gone.members, gone.children.get(element)
        if not is_gone and (child is None or not inner):
            found[element] = inner
        elif inner and not (is_gone and whole):
            below = _without(inner, child, whole=whole) if child else dict(inner)
            is_member = below.pop(".", None) is not None and not is_gone
            if below:
                found[element] = {".": {}, **below} if is_member else below
            elif is_member:
                found[element] = {}
    return found


@lru_cache(maxsize=1024)
def reset_fields(message_type: MessageType, subresource: str, more: tuple[str, ...] = ()) -> FieldSet:
    """The fields that a write to this (sub)resource cannot set: status on the main one, all else on `/status`.

    `more`: paths of the kind's own, as `metadata.labels`.
    """
    names = [*more]
    if subresource == "status":
        names += [name for name in message_type.fields if name not in ("apiVersion", "kind", "metadata", "status")]
    elif subresource != "approval" and "status" in message_type.fields:
        names.append("status")
    return FieldSet.of(*(tuple("f:" + part for part in name.split(".")) for name in names))


def check_unmanaged(applied: Obj) -> None:
    """400 for a configuration that says who manages what: it is looked at first."""
    metadata = applied.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
        raise bad_request_error("metadata.managedFields must be nil")


def server_side_apply(live: Obj | None, applied: Obj, write: ManagedWrite, *, force: bool) -> Obj:
    """The object after applying a configuration, managedFields included; 409 on conflicts unless forced.

    It shares parts with the live object and the configuration.
    """
    check_unmanaged(applied)
    shape, ignored, now = shape_of(write.message_type), write.ignored, write.now
    # A new object is made of all that is given, as by a create: what that resets is the kind's own affair.
    config = {key: value for key, value in applied.items() if live is None or "f:" + key not in ignored.members}
    wanted = field_set(config, shape).without_subtrees(ignored)
    owner = write.owner("Apply")
    base = _without_managed_fields(live) if live is not None else {}
    holdings = _holdings_before_apply(live, base, write)
    last = holdings.get(owner.identity)
    merged: Obj = merge(base, config, shape)
    holdings[owner.identity] = Holding(owner, last.time if last else now, wanted)
    if last is not None:
        merged = prune(merged, last.fields, _union(holdings), shape)
    difference = compare(base, merged, shape)
    changed = difference.changed.without_subtrees(ignored)
    is_kubectl = write.manager == last_applied.MANAGER and write.subresource != "scale"
    conflicts = [] if force else _conflicts(holdings, owner, changed)
    if conflicts and is_kubectl:
        own = last_applied.applied_by_the_client(base, shape, write.api_version)
        conflicts = [(each, left) for each, fields in conflicts if (left := fields - own)]
    if conflicts:
        if write.subresource == "scale":  # they are told in the version of what is applied
            conflicts = [(each._replace(api_version=write.api_version), fields) for each, fields in conflicts]
        raise _conflict_error(conflicts)
    _take(holdings, owner.identity, changed, difference.removed)
    # An apply that changes nothing but owners is none at any time; fields that it cannot set change something here.
    is_change = merged != base or (len(config) < len(applied) and merge(base, applied, shape) != base)
    time = now if is_change else last.time if last else ""
    holdings[owner.identity] = Holding(owner, time, wanted)
    if is_kubectl:
        merged = last_applied.with_last_applied(merged, applied)
    return _with_managed_fields(merged, managers.write(holdings))


def track_update(old: Obj | None, new: Obj, write: ManagedWrite) -> Obj:
    """`new` with managedFields brought up to date for an ordinary create or update."""
    given = (new.get("metadata") or {}).get("managedFields")
    if old is not None and not write.subresource and _is_reset(given):
        return _with_managed_fields(new, [])
    present = (old.get("metadata") or {}).get("managedFields") if old is not None else None
    entries: Sequence[Obj] = ()
    is_given = False
    if given and not write.subresource and given != present:
        entries = managers.write(managers.read(given))
        is_given = bool(entries)
        if is_given:
            entries = given = [one for one in entries if _is_of_its_version(one, write)]
    if not is_given:
        entries = managers.as_written(present)
        if old is not None and not entries:
            return _with_managed_fields(new, [])
        entries = given = _of_group(entries, write)
    shape, ignored, owner = shape_of(write.message_type), write.ignored, write.owner("Update")
    if old is None and not entries:
        made = entries_of(_without_managed_fields(new), owner, write.now, shape, ignored)
        return _with_managed_fields(new, made or given or [])
    difference = compare(_without_managed_fields(old or {}), _without_managed_fields(new), shape)
    changed = difference.changed.without_subtrees(ignored) - managers.SERVER_OWNED
    removed = difference.removed.without_subtrees(ignored) - managers.SERVER_OWNED
    if write.subresource == "scale" and (new.get("spec") or {}).get("replicas") == 0:
        changed, removed = FieldSet(), removed | changed  # a Scale of none has no count that anybody could hold
    is_unowned = write.subresource == "scale" and not any(shares(one["fieldsV1"], changed | removed) for one in entries)
    if is_unowned or not (changed or removed):  # who writes a Scale owns the count only where somebody did before
        return _with_managed_fields(new, given or [])
    return _with_managed_fields(new, managers.updated(entries, owner, write.now, changed, removed))


def _of_group(entries: Sequence[Obj], write: ManagedWrite) -> Sequence[Obj]:
    """Entries without those of the other group of Events, which are not known where these are written."""
    if write.message_type.short_name != "Event":
        return entries
    group = write.api_version.rpartition("/")[0]
    return [one for one in entries if str(one.get("apiVersion")).rpartition("/")[0] == group]


def _is_of_its_version(entry: Obj, write: ManagedWrite) -> bool:
    """Whether the kind has the version of an entry: one that says otherwise is of no use to anybody."""
    kind = write.message_type.short_name
    return by_kind(write.api_version, kind) is None or by_kind(entry["apiVersion"], kind) is not None


def _is_reset(entries: Sequence[Mapping[str, Any]] | None) -> bool:
    """An empty list, or one empty entry, asks to forget all owners; an absent list says nothing."""
    return entries is not None and (len(entries) == 0 or (len(entries) == 1 and not entries[0]))


def _without_managed_fields(obj: Obj) -> Obj:
    meta = obj.get("metadata")
    if not meta or "managedFields" not in meta:
        return obj
    meta = dict(meta)
    del meta["managedFields"]
    return {**obj, "metadata": meta}


def _with_managed_fields(obj: Obj, entries: Sequence[Obj]) -> Obj:
    meta = dict(obj.get("metadata") or {})
    meta.pop("managedFields", None)
    if entries:
        meta["managedFields"] = list(entries)
    return {**obj, "metadata": meta}


def _holdings_before_apply(live: Obj | None, base: Obj, write: ManagedWrite) -> Holdings:
    """Who holds what; all of an object that nobody manages yet is held by `before-first-apply`, from now on."""
    if live is None:
        return {}
    holdings = managers.read(_of_group((live.get("metadata") or {}).get("managedFields") or (), write))
    if not holdings:
        owner = Owner(BEFORE_FIRST_APPLY, "Update", write.api_version, write.subresource)
        fields = parsed(new_fields(base, shape_of(write.message_type))).without_subtrees(write.ignored)
        holdings[owner] = Holding(owner, write.now, fields - managers.SERVER_OWNED)
    return holdings


def _union(holdings: Holdings) -> FieldSet:
    total = FieldSet()
    for holding in holdings.values():
        total = total | holding.fields
    return total


def _conflicts(holdings: Holdings, owner: Owner, changed: FieldSet) -> list[tuple[Owner, FieldSet]]:
    found = []
    for identity in sorted(holdings, key=_told_order):
        if identity != owner.identity and (both := holdings[identity].fields & changed):
            found.append((holdings[identity].owner, both))
    return found


def _told_order(owner: Owner) -> tuple[str, str, str, bool, str]:
    """The order of owners in messages: those of a subresource first."""
    return owner.manager, owner.operation, owner.api_version, not owner.subresource, owner.subresource


def _take(holdings: Holdings, taker: Owner, changed: FieldSet, removed: FieldSet) -> None:
    """Everyone else loses what was changed or removed."""
    for identity, holding in list(holdings.items()):
        if identity == taker:
            continue
        left = less(less(holding.fields, changed), removed)
        if left is holding.fields:
            continue
        if left:
            holdings[identity] = replace(holding, fields=left)
        else:
            del holdings[identity]


def _conflict_error(conflicts: list[tuple[Owner, FieldSet]]) -> StatusError:
    listed = [(owner, path_text(path)) for owner, fields in conflicts for path in fields.paths()]
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {owner}", "field": path} for owner, path in listed
    ]
    if len(listed) == 1:
        owner, path = listed[0]
        message = f"Apply failed with 1 conflict: conflict with {owner}: {path}"
    else:
        lines = []
        for owner, fields in conflicts:
            lines.append(f"conflicts with {owner}:")
            lines += [f"- {path_text(path)}" for path in fields.paths()]
        message = f"Apply failed with {len(listed)} conflicts: " + "\n".join(lines)
    return StatusError(409, "Conflict", message, {"causes": causes})
