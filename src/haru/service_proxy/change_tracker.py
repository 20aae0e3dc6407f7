"""The objects that the rules are made of, by Service, and which Services have changed since they were last taken."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from haru.client.informer import object_key
from haru.kube.meta import Obj
from haru.kube.names import parse_time
from haru.service_proxy.ruleset import ProxyOptions, Rules, service_cidr_rules, service_rules
from haru.service_proxy.services import SERVICE_NAME, HealthCheck, Place, health_check, service_ports

FAMILIES = {"ip": 4, "ip6": 6}
_CHANGED_AT: Final = "endpoints.kubernetes.io/last-change-trigger-time"
_TIMED_CHANGES: Final = 64
_CIDRS = ""
"""Stands for the ServiceCIDRs among the names of Services."""


class ChangeTracker:
    """Services with their EndpointSlices."""

    def __init__(self, since: datetime | None = None) -> None:
        """`since`: when the proxy began; changes before it are not timed."""
        self._since = since
        self._changed_at: dict[str, deque[tuple[str, datetime]]] = {}
        """When the changes of a Service's endpoints happened that nobody has taken yet, and in which family."""
        self._services: dict[str, Obj] = {}
        self._slices: dict[str, dict[str, Obj]] = {}
        self._cidrs: dict[str, list[str]] = {}
        self._changed: set[str] = set()

    def note_service(self, old: Obj | None, new: Obj | None) -> None:
        """A Service has come, changed or gone."""
        for obj in filter(None, (old, new)):
            self._changed.add(object_key(obj))
            self._services.pop(object_key(obj), None)
        if new is not None:
            self._services[object_key(new)] = new

    def note_slice(self, old: Obj | None, new: Obj | None) -> None:
        """An EndpointSlice has come, changed or gone; it may belong to another Service than before."""
        if old is not None and (service := _service_of(old)):
            known = self._slices.get(service, {})
            known.pop(object_key(old), None)
            if not known:
                self._slices.pop(service, None)
            self._changed.add(service)
        if new is not None and (service := _service_of(new)):
            self._slices.setdefault(service, {})[object_key(new)] = new
            self._changed.add(service)
            if (at := _changed_at(new)) is not None and (self._since is None or at > self._since):
                times = self._changed_at.setdefault(service, deque(maxlen=_TIMED_CHANGES))
                times.append((str(new.get("addressType")), at))
        elif old is not None:
            # The time in a slice that has gone is that of the change before.
            self._changed_at.pop(_service_of(old), None)

    def note_cidrs(self, old: Obj | None, new: Obj | None) -> None:
        """A ServiceCIDR has come, changed or gone."""
        if old is not None:
            self._cidrs.pop(object_key(old), None)
        if new is not None:
            self._cidrs[object_key(new)] = (new.get("spec") or {}).get("cidrs") or []
        self._changed.add(_CIDRS)

    def note_all(self) -> None:
        """Count every Service as changed."""
        self._changed.update(self._services)

    def take(self) -> set[str]:
        """The Services that have changed since the last time."""
        changed, self._changed = self._changed, set()
        return changed

    def take_times(self) -> list[tuple[str, datetime]]:
        """When the changes of endpoints happened that came since the last time, each with its family (IPv4, IPv6)."""
        times, self._changed_at = self._changed_at, {}
        return [each for of_one in times.values() for each in of_one]

    def rules(self, services: Iterable[str], place: Place, options: ProxyOptions) -> Mapping[str, dict[str, Rules]]:
        """The rules of Services in each family, none for one that has gone."""
        found: dict[str, dict[str, Rules]] = {family: {} for family in FAMILIES}
        for name in services:
            if name == _CIDRS:
                cidrs = [cidr for of_one in self._cidrs.values() for cidr in of_one]
                for family in FAMILIES:
                    found[family][name] = service_cidr_rules(cidrs, family)
                continue
            service, slices = self._services.get(name), self._slices.get(name, {}).values()
            for family, version in FAMILIES.items():
                ports = service_ports(service, slices, place, version) if service is not None else ()
                found[family][name] = service_rules(ports, family, options)
        return found

    def health_checks(self, services: Iterable[str], place: Place) -> Mapping[str, HealthCheck | None]:
        """What load balancers are told of Services, nothing for one that has gone."""
        found: dict[str, HealthCheck | None] = {}
        for name in services:
            service, slices = self._services.get(name), self._slices.get(name, {}).values()
            found[name] = health_check(service, slices, place) if service is not None else None
        return found

    def everything(self) -> set[str]:
        """The names of all Services, and of the CIDRs, of which none counts as changed any more."""
        self._changed.clear()
        return {_CIDRS, *self._services}


def _changed_at(slice_: Obj) -> datetime | None:
    """When the pod or Service changed that a slice was written for, as its controller says."""
    text = (slice_["metadata"].get("annotations") or {}).get(_CHANGED_AT)
    with contextlib.suppress(ValueError):
        return parse_time(text) if text else None
    return None


def _service_of(slice_: Obj) -> str:
    meta = slice_["metadata"]
    name = (meta.get("labels") or {}).get(SERVICE_NAME)
    return f"{meta.get('namespace')}/{name}" if name else ""
