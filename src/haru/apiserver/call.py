"""One REST request after routing: what it is aimed at, who asks, and the options it carries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from haru.apiserver.core import Core
from haru.apiserver.http import Request
from haru.apiserver.resources import Resource
from haru.kube.errors import FieldError, StatusError, bad_request_error, invalid_error, not_found_error
from haru.storage import Put

if TYPE_CHECKING:
    from haru.apiserver.admission.dynamic.chain import Chain

Obj = dict[str, Any]

MANAGER_LIMIT = 128


@dataclass(slots=True)
class Call:
    """A request for one resource."""

    core: Core
    request: Request
    resource: Resource
    namespace: str
    name: str
    subresource: str
    verb: str
    now: str = ""
    dry_run: bool = False
    manager: str = ""
    chain: Chain | None = None
    """The webhooks and policies that are asked; None where there are none, and for what the server does itself."""
    together: list[Put] = field(default_factory=list)
    """Other keys that are written with the object: both or neither."""

    def not_found(self) -> StatusError:
        """404 for the object that the call names."""
        kind = self.resource.kind
        return not_found_error(kind.group, kind.plural, self.name)

    def invalid(self, name: str, errors: list[FieldError]) -> StatusError:
        """422 with the findings of validation."""
        kind = self.resource.kind
        return invalid_error(kind.group, kind.kind, name, errors)


def read_write_options(call: Call) -> None:
    """Take `dryRun` and `fieldManager` from the query, and the time from the clock."""
    request = call.request
    call.now = call.core.now()
    call.dry_run = is_dry_run(request.query.get("dryRun") or ())
    manager = request.param("fieldManager")
    if len(manager) > MANAGER_LIMIT:
        raise bad_request_error(f"fieldManager must be no more than {MANAGER_LIMIT} characters")
    call.manager = manager or default_manager(request)


def is_dry_run(values: list[str] | tuple[str, ...]) -> bool:
    """Whether `dryRun` is asked for; 422 for a value other than `All`."""
    wanted = [value for value in values if value]
    if not wanted:
        return False
    if wanted != ["All"]:
        error = FieldError("FieldValueNotSupported", "dryRun", wanted, 'supported values: "All"')
        raise invalid_error("meta.k8s.io", "CreateOptions", "", [error])
    return True


def default_manager(request: Request) -> str:
    """The field manager of a client that names none: the first part of its user agent."""
    agent = request.header(b"user-agent").partition("/")[0][:MANAGER_LIMIT]
    return agent or "unknown"
