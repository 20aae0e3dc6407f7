"""Hold the settings and the counters of the PodSecurity admission plugin of one server."""

from __future__ import annotations

from collections import Counter

from haru.apiserver.admission_options import AdmissionOptions

_HELP = {
    "pod_security_evaluations_total": "Evaluations of pods and templates, without requests that are exempt.",
    "pod_security_exemptions_total": "Requests that were exempt.",
    "pod_security_errors_total": "Errors that kept pods from being evaluated as their namespace says.",
}


class PodSecurityState:
    """Hold defaults, exemptions and counters; `minor` is the minor version of Kubernetes that the server emulates."""

    def __init__(self, options: AdmissionOptions, minor: int) -> None:
        self.options = options
        self.minor = minor
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in _HELP}

    def count(self, metric: str, **labels: str) -> None:
        """Add one to the counter of a metric with these labels."""
        self._counts[metric][",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))] += 1

    def lines(self) -> list[str]:
        """Return the counters in the text format of Prometheus; a metric without any value is left out."""
        found: list[str] = []
        for name, text in _HELP.items():
            if self._counts[name]:
                found += [f"# HELP {name} {text}", f"# TYPE {name} counter"]
                found += [f"{name}{{{labels}}} {count}" for labels, count in sorted(self._counts[name].items())]
        return found
