"""Define a REST request after routing: its target, its user and its options."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from haru.apiserver.object_store import ObjectStore
from haru.apiserver.registry.resources import Resource
from haru.apiserver.request.bodies import WRITE_OPTIONS, check_media_type, field_validation_errors
from haru.apiserver.request.http import Request
from haru.kube.errors import FieldError, StatusError, invalid, invalid_error, not_found_error, too_long
from haru.kube.meta import Obj
from haru.storage import Delete, Event, Put, Record

BuiltIn = Callable[[Obj], Awaitable[None]]
"""The server's own mutating plugins: they change the object in place."""

Owned = Callable[[Obj], Obj]
"""Returns the object with its managedFields updated."""

MANAGER_LIMIT = 128


@dataclass(slots=True)
class Call:
    """Hold a request for one resource, and what creating and changing its objects takes."""

    objects: ObjectStore
    admission: BuiltInAdmission
    request: Request
    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    verb: str = ""
    now: str = ""
    dry_run: bool = False
    manager: str = ""
    chain: DynamicAdmission | None = None
    """The webhooks and policies to call; None without any, and for the server's own writes."""
    together: list[Put] = field(default_factory=list)
    """Other keys to write in the same transaction as the object, whatever its name will be."""
    following: Sequence[Put | Delete] = ()
    """What this version of the object brings with it, in the same transaction."""
    stays: bool = False
    """Whether an apply leaves a custom resource as it is read: 1.36 fills in no defaults of its version then."""
    given: Obj = field(default_factory=dict)
    """The metadata of an update as its writer gave them, before the server adds what only it sets."""
    findings: list[FieldError] = field(default_factory=list)
    """What admission has found that is told together with what validation finds."""

    def not_found(self) -> StatusError:
        """404 for the object that the call names."""
        kind = self.resource.kind
        return not_found_error(kind.group, kind.plural, self.name)

    @property
    def told_group(self) -> str:
        """The group that refusals name: 1.36 validates and deletes events of both groups as those of the core."""
        group = self.resource.kind.group
        return "" if group == "events.k8s.io" else group

    def invalid(self, name: str, errors: list[FieldError]) -> StatusError:
        """422 with the findings of validation."""
        return invalid_error(self.told_group, self.resource.kind.kind, name, errors)

    def taken_findings(self) -> list[FieldError]:
        """What admission has found until now, each once; nothing is left."""
        taken, self.findings = list({error.field: error for error in self.findings}.values()), []
        return taken


class BuiltInAdmission(Protocol):
    """Run the server's own admission plugins; `haru.apiserver.admission.plugins` implements it.

    The `admit_` methods may change the object, the `validate_` methods do not. Each raises StatusError for a refusal.
    """

    async def admit_create(self, call: Call, obj: Obj) -> None:
        """Admit a new object before the kind's strategy sees it."""

    async def check_grant(self, call: Call, new: Obj, old: Obj | None) -> None:
        """Refuse a role or binding, as mutation left it, that grants more than its writer holds."""

    async def validate_create(self, call: Call, obj: Obj) -> None:
        """Validate a new object that is complete."""

    async def admit_update(self, call: Call, new: Obj, old: Obj) -> None:
        """Admit an update of the main resource."""

    async def validate_update(self, call: Call, new: Obj, old: Obj) -> None:
        """Validate an update of the main resource that is complete."""

    async def admit_status(self, call: Call, new: Obj, old: Obj, given: Obj) -> None:
        """Admit an update of the status; `given` is the new object with what a status does not set."""

    async def admit_posted(self, call: Call, name: str) -> None:
        """Admit what is posted to a subresource of the named object."""

    async def admit_token(self, call: Call, asked: Mapping[str, Any]) -> None:
        """Admit the spec of a TokenRequest, as it was sent."""

    async def validate_subresource(self, call: Call, new: Obj, old: Obj) -> None:
        """Validate an update through another subresource that is complete."""

    async def permit_creation(self, call: Call) -> None:
        """Refuse an update or an apply that would create, to who may not create."""

    async def admit_delete(self, call: Call) -> None:
        """Admit a deletion."""

    async def write_with_quota(self, call: Call, put: Put, new: Obj, record: Record | None) -> Sequence[Event]:
        """Store an object and charge its quotas; `record` is its version until now. Raises CompareFailed."""

    async def check_quota(self, call: Call, new: Obj, record: Record | None) -> None:
        """Refuse what `write_with_quota` would refuse, and write nothing."""


class DynamicAdmission(Protocol):
    """Ask the webhooks and admission policies; `haru.apiserver.admission.dynamic` implements it.

    The `change_` methods mutate, the `judge_` methods validate, the `about_` methods do both. Each raises StatusError
    when a webhook or a policy refuses the request.
    """

    async def change_new(self, call: Call, obj: Obj, built_in: BuiltIn) -> Obj:
        """Return a new object after mutation; it may have no name yet."""

    async def judge_new(self, call: Call, obj: Obj, named: str) -> None:
        """Validate a new object that is complete; `named`: as the client named it, empty where the server did."""

    async def change_update(
        self, call: Call, wanted: Obj, live: Obj, owned: Owned | None, built_in: BuiltIn | None = None
    ) -> Obj | None:
        """Return an updated object after mutation; None if nothing has changed it."""

    async def judge_update(self, call: Call, new: Obj, live: Obj) -> None:
        """Validate an updated object that is complete."""

    async def about_deletion(self, call: Call, old: Obj, options: Mapping[str, Any]) -> None:
        """Validate the deletion of an object."""

    async def about_subresource(self, call: Call, body: Obj) -> Obj:
        """Return a Binding or Eviction after mutation and validation."""

    async def change_token(self, call: Call, request: Obj) -> Obj:
        """Return a TokenRequest after mutation."""

    async def judge_token(self, call: Call, request: Obj) -> None:
        """Validate a TokenRequest."""

    async def change_scale(self, call: Call, scale: Obj, live: Obj) -> Obj:
        """Return an updated Scale after mutation."""

    async def judge_scale(self, call: Call, scale: Obj, live: Obj) -> None:
        """Validate the Scale that comes of an update."""


def read_write_options(call: Call, findings: Sequence[FieldError] = ()) -> None:
    """Take `dryRun` and `fieldManager` from the query, and the time from the clock.

    422 for `findings`, and for values that are wrong; a deletion has its options read with its body.
    """
    request = call.request
    call.now = call.objects.now()
    manager, dry_run = request.param("fieldManager"), request.query.get("dryRun") or ()
    if request.method == "POST":
        check_media_type(request)
    if kind := WRITE_OPTIONS.get(request.method):
        errors = [*findings, *_manager_errors(manager), *dry_run_errors(dry_run), *field_validation_errors(request)]
        if errors:
            raise invalid_error("meta.k8s.io", kind, "", errors)
        call.dry_run = bool(dry_run)
    call.manager = manager or default_manager(request)


def _manager_errors(manager: str) -> Iterator[FieldError]:
    if len(manager.encode()) > MANAGER_LIMIT:
        yield too_long("fieldManager", MANAGER_LIMIT)
    for place, character in enumerate(manager):
        if not character.isprintable():
            why = f"invalid character U+{ord(character):04X} (at position {place})"
            yield invalid("fieldManager", manager, why)


def dry_run_errors(values: Sequence[str]) -> list[FieldError]:
    """What is wrong with the values of `dryRun`: there is only `All`."""
    if set(values) <= {"All"}:
        return []
    return [FieldError("FieldValueNotSupported", "dryRun", list(values), 'supported values: "All"')]


def default_manager(request: Request) -> str:
    """The field manager of a client that names none: the first part of its user agent."""
    agent = request.header(b"user-agent").partition("/")[0][:MANAGER_LIMIT]
    return agent or "unknown"
