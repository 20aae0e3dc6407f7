"""How often webhooks and policies were asked, and what came of it, under the names that Kubernetes gives them."""

from __future__ import annotations

from collections import Counter

_HELP = {
    "apiserver_admission_webhook_request_total": "Calls of webhooks, by what came of them.",
    "apiserver_admission_webhook_rejection_count": "Requests that webhooks refused, or that failed with them.",
    "apiserver_admission_webhook_fail_open_count": "Failures of webhooks that were passed over.",
    "apiserver_validating_admission_policy_check_total": "What policies found, by what was done about it.",
}


def error_type(message: str) -> str:
    """What kind of failure a policy's finding is."""
    if message.startswith("compilation"):
        return "compile_error"
    if message.startswith("validation failed due to running out of cost budget"):
        return "out_of_budget"
    return "invalid_error"


class Counts:
    """The counters of one server."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in _HELP}

    def _add(self, metric: str, **labels: str) -> None:
        text = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
        self._counts[metric][text] += 1

    def called(self, webhook: str, kind: str, operation: str, code: int, *, rejected: bool) -> None:
        """A webhook was called; `kind` is `admit` or `validating`."""
        self._add(
            "apiserver_admission_webhook_request_total",
            name=webhook,
            type=kind,
            operation=operation,
            code=str(code),
            rejected=str(rejected).lower(),
        )

    def rejected(self, webhook: str, kind: str, operation: str, error: str, code: int) -> None:
        """A request ended at a webhook; `error` is `no_error` where that was its wish."""
        self._add(
            "apiserver_admission_webhook_rejection_count",
            name=webhook,
            type=kind,
            operation=operation,
            error_type=error,
            rejection_code=str(code),
        )

    def failed_open(self, webhook: str, kind: str) -> None:
        """A webhook failed, and was passed over."""
        self._add("apiserver_admission_webhook_fail_open_count", name=webhook, type=kind)

    def checked(self, policy: str, binding: str, action: str, error: str) -> None:
        """A policy found something; `action` is `deny`, `warn` or `audit`."""
        self._add(
            "apiserver_validating_admission_policy_check_total",
            policy=policy,
            policy_binding=binding,
            enforcement_action=action,
            error_type=error,
        )

    def lines(self) -> list[str]:
        """The exposition in Prometheus' text form; nothing of what never happened."""
        found: list[str] = []
        for name, text in _HELP.items():
            if self._counts[name]:
                found += [f"# HELP {name} {text}", f"# TYPE {name} counter"]
                found += [f"{name}{{{labels}}} {count}" for labels, count in sorted(self._counts[name].items())]
        return found
