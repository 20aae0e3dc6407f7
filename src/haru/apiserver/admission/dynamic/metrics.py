"""How often webhooks and policies were asked, how long it took, and what came of it, under Kubernetes' names."""

from __future__ import annotations

from time import perf_counter

from haru.apiserver.admission.dynamic.attributes import Attributes
from haru.apiserver.admission.dynamic.expression_runner import CEL_METRICS
from haru.exposition import CounterOf, HistogramOf

_STEPS = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5)
_EXPRESSIONS = (5e-07, 0.001, 0.01, 0.1, 1.0)
_CODE_LIMIT = 600


def error_type(message: str) -> str:
    """What kind of failure a policy's finding is."""
    if message.startswith("compilation"):
        return "compile_error"
    if message.startswith("validation failed due to running out of cost budget"):
        return "out_of_budget"
    return "invalid_error"


class MatchConditionMetrics:
    """What is counted of the match conditions of one webhook or policy in one request."""

    __slots__ = ("_counts", "_labels")

    def __init__(self, counts: AdmissionMetrics, labels: tuple[str, str, str, str]) -> None:
        self._counts = counts
        self._labels = labels

    def failed(self) -> None:
        """A condition ended in an error."""
        self._counts.condition_errors.add(*self._labels)

    def excluded(self) -> None:
        """The conditions say that the request is of no concern."""
        self._counts.condition_exclusions.add(*self._labels)

    def took(self, seconds: float) -> None:
        """All of them were evaluated."""
        self._counts.condition_seconds.observe(seconds, *self._labels)


class WebhookMetrics:
    """Count the calls of one webhook for one operation."""

    __slots__ = ("_labels", "_metrics")

    def __init__(self, metrics: AdmissionMetrics, labels: tuple[str, str, str]) -> None:
        self._metrics = metrics
        self._labels = labels

    def called(self, code: int, *, rejected: bool, seconds: float) -> None:
        """Count a call, by the status of its answer."""
        shown = str(rejected).lower()
        self._metrics.webhook_calls.add(*self._labels, str(min(code, _CODE_LIMIT)), shown)
        self._metrics.webhook_seconds.observe(seconds, *self._labels, shown)

    def rejected(self, error: str, code: int) -> None:
        """Count a request that ended at the webhook; `error` is `no_error` for a refusal."""
        self._metrics.webhook_rejections.add(*self._labels, error, str(min(code, _CODE_LIMIT)))

    def failed_open(self) -> None:
        """Count a failure that was ignored."""
        name, kind, _ = self._labels
        self._metrics.webhooks_failed_open.add(name, kind)


class AdmissionMetrics:
    """The counters of one server."""

    def __init__(self) -> None:
        hook, policy = ("name", "type", "operation"), ("policy", "policy_binding")
        condition = ("name", "kind", "type", "operation")
        group = "apiserver_admission"
        self.webhook_calls = CounterOf(
            f"{group}_webhook_request_total", "Calls of webhooks, by what came of them.", (*hook, "code", "rejected")
        )
        self.webhook_rejections = CounterOf(
            f"{group}_webhook_rejection_count",
            "Requests that webhooks refused, or that failed with them.",
            (*hook, "error_type", "rejection_code"),
        )
        self.webhooks_failed_open = CounterOf(
            f"{group}_webhook_fail_open_count", "Failures of webhooks that were passed over.", ("name", "type")
        )
        self.webhook_seconds = HistogramOf(
            f"{group}_webhook_admission_duration_seconds",
            "How long calls of webhooks took.",
            (*hook, "rejected"),
            (*_STEPS, 10, 25),
        )
        self._controller_seconds = HistogramOf(
            f"{group}_controller_admission_duration_seconds",
            "How long admission plugins took.",
            (*hook, "rejected"),
            _STEPS,
        )
        self._step_seconds = HistogramOf(
            f"{group}_step_admission_duration_seconds",
            "How long the changing (admit) and the judging (validate) part of admission took.",
            ("type", "operation", "rejected"),
            _STEPS,
        )
        self.condition_errors = CounterOf(
            f"{group}_match_condition_evaluation_errors_total", "Errors in match conditions.", condition
        )
        self.condition_exclusions = CounterOf(
            f"{group}_match_condition_exclusions_total", "Requests that match conditions left out.", condition
        )
        self.condition_seconds = HistogramOf(
            f"{group}_match_condition_evaluation_seconds", "How long match conditions took.", condition, _STEPS
        )
        self._checks = CounterOf(
            "apiserver_validating_admission_policy_check_total",
            "What policies found, by what was done about it.",
            (*policy, "enforcement_action", "error_type"),
        )
        self._check_seconds = HistogramOf(
            "apiserver_validating_admission_policy_check_duration_seconds",
            "How long single validations took.",
            (*policy, "enforcement_action", "error_type"),
            _EXPRESSIONS,
        )
        self._mutations = CounterOf(
            "apiserver_mutating_admission_policy_check_total", "Mutations by policies.", (*policy, "error_type")
        )
        self._mutation_seconds = HistogramOf(
            "apiserver_mutating_admission_policy_check_duration_seconds",
            "How long single mutations took.",
            (*policy, "error_type"),
            _EXPRESSIONS,
        )

    def webhook(self, name: str, kind: str, operation: str) -> WebhookMetrics:
        """Metrics of the calls of one webhook; `kind` is `admit` or `validating`."""
        return WebhookMetrics(self, (name, kind, operation))

    def checked(self, policy: str, binding: str, action: str, error: str, seconds: float) -> None:
        """A policy found something; `action` is `deny`, `warn`, `audit`, or `allow` for an error that was ignored."""
        self._checks.add(policy, binding, action, error)
        self._check_seconds.observe(seconds, policy, binding, action, error)

    def mutated(self, policy: str, binding: str, error: str, seconds: float) -> None:
        """A mutation was evaluated and applied; `error` is `no_error` where it went well."""
        self._mutations.add(policy, binding, error)
        self._mutation_seconds.observe(seconds, policy, binding, error)

    def condition(self, name: str, kind: str, step: str, attributes: Attributes) -> MatchConditionMetrics:
        """Counts of match conditions: whose, of a `webhook` or a `policy`, in which step."""
        return MatchConditionMetrics(self, (name, kind, step, attributes.operation))

    def plugin(self, name: str, step: str, operation: str) -> _Timed:
        """Times an admission plugin by its name in 1.36; `step` is `admit` or `validate`. An exception is a refusal."""
        return _Timed(self._controller_seconds, (name, step, operation))

    def step(self, step: str, operation: str) -> _Timed:
        """Times all that changes (`admit`) or all that judges (`validate`) a request."""
        return _Timed(self._step_seconds, (step, operation))

    def lines(self) -> list[str]:
        """The exposition in Prometheus' text form; nothing of what never happened."""
        return [line for metric in (*vars(self).values(), *CEL_METRICS) for line in metric.lines()]


class _Timed:
    """Observes how long its block took, and whether it ended in an exception."""

    __slots__ = ("_histogram", "_labels", "_start")

    def __init__(self, histogram: HistogramOf, labels: tuple[str, ...]) -> None:
        self._histogram = histogram
        self._labels = labels

    def __enter__(self) -> None:
        self._start = perf_counter()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        rejected = "false" if kind is None else "true"
        self._histogram.observe(perf_counter() - self._start, *self._labels, rejected)
