"""Probes and lifecycle hooks of containers: one handler each (core/v1)."""

from __future__ import annotations

import re
from typing import Any, Final

from haru.kube import names
from haru.kube.errors import FieldError, forbidden, invalid, not_supported, required
from haru.kube.meta import Obj
from haru.kube.validation.common import in_range, items, not_negative, part, port, positive

_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "sleep")
_COUNTS: Final = (*("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"),)
_SCHEMES: Final = ("HTTP", "HTTPS")
_HEADER_FORMAT: Final = "[-A-Za-z0-9]+"
_HEADER: Final = re.compile(_HEADER_FORMAT)
_WINDOWS_SIGNALS: Final = ("SIGKILL", "SIGTERM")
_LINUX_SIGNALS: Final = (
    *("SIGABRT", "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCLD", "SIGCONT", "SIGFPE", "SIGHUP", "SIGILL", "SIGINT", "SIGIO"),
    *("SIGIOT", "SIGKILL", "SIGPIPE", "SIGPOLL", "SIGPROF", "SIGPWR", "SIGQUIT", "SIGSEGV", "SIGSTKFLT", "SIGSTOP"),
    *("SIGSYS", "SIGTERM", "SIGTRAP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGUSR1", "SIGUSR2", "SIGVTALRM"),
    *("SIGWINCH", "SIGXCPU", "SIGXFSZ", "SIGRTMIN", "SIGRTMAX"),
    *(f"SIGRTMIN+{number}" for number in range(1, 16)),
    *(f"SIGRTMAX-{number}" for number in range(1, 15)),
)


def validate_probes(field: str, container: Obj, grace_period: int | None, system: Obj | None) -> list[FieldError]:
    """The hooks and probes of a container that runs on."""
    lifecycle = part(container, "lifecycle")
    found: list[FieldError] = []
    for name in ("postStart", "preStop"):
        if lifecycle.get(name) is not None:
            found += _handler(f"{field}.lifecycle.{name}", lifecycle[name], _HOOK_HANDLERS, grace_period)
    if lifecycle.get("stopSignal") is not None:
        found += _stop_signal(f"{field}.lifecycle.stopSignal", lifecycle["stopSignal"], system)
    for name in _PROBES:
        if container.get(name) is not None:
            found += _probe(f"{field}.{name}", container[name], is_readiness=name == "readinessProbe")
    return found


def _probe(field: str, probe: Obj, *, is_readiness: bool) -> list[FieldError]:
    found = _handler(field, probe, _PROBE_HANDLERS, None)
    for member in _COUNTS:
        found += not_negative(f"{field}.{member}", probe.get(member))
    grace, threshold = probe.get("terminationGracePeriodSeconds"), probe.get("successThreshold") or 0
    found += positive(f"{field}.terminationGracePeriodSeconds", grace, "0")
    if is_readiness and grace is not None:
        found.append(invalid(f"{field}.terminationGracePeriodSeconds", grace, "must not be set for readinessProbes"))
    if not is_readiness and threshold != 1:
        found.append(invalid(f"{field}.successThreshold", threshold, "must be 1"))
    return found


def _handler(field: str, handler: Obj, known: tuple[str, ...], grace_period: int | None) -> list[FieldError]:
    present = [name for name in known if handler.get(name) is not None]
    if not present:
        return [required(field, "must specify a handler type")]
    kind = present[0]
    found = _action(f"{field}.{kind}", kind, handler[kind], grace_period)
    return found + [forbidden(f"{field}.{name}", "may not specify more than 1 handler type") for name in present[1:]]


def _action(field: str, kind: str, action: Obj, grace_period: int | None) -> list[FieldError]:
    if kind == "exec":
        return [] if action.get("command") else [required(f"{field}.command")]
    if kind == "sleep":
        return _sleep(field, action.get("seconds") or 0, grace_period)
    if kind == "grpc":
        return in_range(f"{field}.port", action.get("port") or 0, 1, 65535)
    found = port(f"{field}.port", _port_of(action))
    return found + _http(field, action) if kind == "httpGet" else found


def _port_of(action: Obj) -> Any:
    value = action.get("port")
    return 0 if value is None else value


def _sleep(field: str, seconds: int, grace_period: int | None) -> list[FieldError]:
    if grace_period is None or 0 <= seconds <= grace_period:
        return []
    why = f"must be non-negative and less than terminationGracePeriodSeconds ({grace_period})"
    return [invalid(field, seconds, why)]


def _http(field: str, action: Obj) -> list[FieldError]:
    found = [] if action.get("path") else [required(f"{field}.path")]
    if action.get("scheme") not in _SCHEMES:
        found.append(not_supported(f"{field}.scheme", action.get("scheme") or "", _SCHEMES))
    for header in items(action, "httpHeaders"):
        name = header.get("name") or ""
        if not _HEADER.fullmatch(name):
            message = "a valid HTTP header must consist of alphanumeric characters or '-'"
            why = names.regex_error(message, _HEADER_FORMAT, "X-Header-Name")
            found.append(invalid(f"{field}.httpHeaders", name, why))
    return found


def _stop_signal(field: str, signal: str, system: Obj | None) -> list[FieldError]:
    if system is None:
        return [forbidden(field, "may not be set for containers with empty `spec.os.name`")]
    signals = {"windows": _WINDOWS_SIGNALS, "linux": _LINUX_SIGNALS}.get(system.get("name") or "")
    return [] if signals is None or signal in signals else [not_supported(field, signal, sorted(signals))]
