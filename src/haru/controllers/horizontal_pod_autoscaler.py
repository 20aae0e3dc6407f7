"""horizontal-pod-autoscaler-controller: scales workloads by what their pods use, or by other metrics.

Each autoscaler is looked at every 15 seconds, or as often as is asked for: its target is found by discovery and read
through its scale subresource, every metric proposes a number of replicas, the largest one is stabilized and limited,
and the scale is written. What was recommended and changed lately is kept in memory only, as in 1.36: after a restart
nothing shrinks until the window of stabilization is over.
Source: Kubernetes 1.36, pkg/controller/podautoscaler/horizontal.go, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar, Final, NamedTuple

from prometheus_client import Metric

from haru.controllers.autoscaler_behavior import History, Wish, limited, rescaled, started
from haru.controllers.autoscaler_metrics import MetricsReader, Resources
from haru.controllers.autoscaler_monitor import AutoscalerMonitor, Result
from haru.controllers.autoscaler_proposals import MetricError, Question, propose
from haru.controllers.autoscaler_replicas import Scaled, Tolerances, UncountableError
from haru.controllers.base import Context, Controller, log
from haru.controllers.objects import PODS, ConditionText
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj, get_condition, labels_of, name_of, namespace_of, set_condition
from haru.kube.names import format_time
from haru.kube.quantity import parse_quantity
from haru.kube.selectors import NOTHING, LabelSelector, parse_label_selector

AUTOSCALERS = known_kind("autoscaling/v2", "HorizontalPodAutoscaler")
SYNC_SECONDS: Final = 15.0
_WRITES: Final = 5
_SCALED_TO_ZERO: Final = "ScaledToZero"
_FAILURES: Final = (StatusError, OSError)


class TargetError(Exception):
    """The workload cannot be scaled, or its metrics do not say how; the text says why."""


@dataclass(slots=True)
class _Look:
    """One look at one autoscaler, and the status that comes of it."""

    autoscaler: Obj
    now: datetime
    moment: float
    """The same on a clock that never jumps: what windows and periods go by."""
    conditions: list[Obj]
    history: History = field(default_factory=History)
    metrics: list[Obj] = field(default_factory=list)

    @property
    def spec(self) -> Obj:
        """What the autoscaler asks for."""
        spec: Obj = self.autoscaler["spec"]
        return spec

    @property
    def wanted(self) -> int:
        """How many replicas the last look wanted."""
        return int((self.autoscaler.get("status") or {}).get("desiredReplicas") or 0)

    def tell(self, type_: str, status: bool, reason: str, message: str) -> None:
        """Set a condition."""
        self.put(ConditionText(type_, str(status), reason, message))

    def put(self, condition: ConditionText) -> None:
        """Set a condition."""
        self.conditions = set_condition(self.conditions, condition._asdict(), format_time(self.now))

    def drop(self, type_: str) -> None:
        """Remove a condition."""
        self.conditions = [one for one in self.conditions if one["type"] != type_]

    def status(self, current: int, desired: int, *, scaled: bool = False) -> Obj:
        """The whole status after this look."""
        known = self.autoscaler.get("status") or {}
        last = format_time(self.now) if scaled else known.get("lastScaleTime")
        return {
            "currentReplicas": current,
            "desiredReplicas": desired,
            **({"lastScaleTime": last} if last else {}),
            **({"currentMetrics": self.metrics} if self.metrics else {}),
            "conditions": self.conditions,
        }


class _Target(NamedTuple):
    """The workload of an autoscaler, and its scale."""

    kind: Kind
    scale: Obj

    @property
    def replicas(self) -> int:
        return int((self.scale.get("spec") or {}).get("replicas") or 0)


class _Plan(NamedTuple):
    """How many replicas there are to be, and why; `None` leaves them as they are."""

    desired: int | None
    reason: str = ""


class HorizontalPodAutoscalerController(Controller):
    """Scales workloads."""

    name: ClassVar[str] = "horizontal-pod-autoscaler-controller"
    component: ClassVar[str] = "horizontal-pod-autoscaler"
    needs: ClassVar[tuple[Kind, ...]] = (AUTOSCALERS,)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.autoscalers = self.informer(AUTOSCALERS)
        self.pods = self.informer(PODS)
        self.pods.add_index("namespace", lambda pod: [namespace_of(pod)])
        self._resources = Resources(self.client, context.monotonic)
        self._reader = MetricsReader(self.client, self._resources)
        self._period: float = context.options.get("horizontal-pod-autoscaler-sync-period", SYNC_SECONDS)
        self._histories: dict[str, History] = {}
        self._selectors: dict[str, dict[str, LabelSelector]] = {}
        """The selectors of the autoscalers of each namespace, as their targets last had them."""
        self._monitor = AutoscalerMonitor()
        self.autoscalers.add_handler(self._changed, lambda _, new: self._changed(new), self._gone)

    def metrics(self) -> Iterable[Metric]:
        """How often autoscalers were looked at, and what they want."""
        return self._monitor.collect()

    def _changed(self, autoscaler: Obj) -> None:
        """Look at it within the period: a change does not hasten the next look."""
        known = self._selectors.setdefault(namespace_of(autoscaler), {})
        known.setdefault(name_of(autoscaler), NOTHING)
        self._monitor.count_autoscalers(len(self.autoscalers.store))
        self.queue.add_after(f"{namespace_of(autoscaler)}/{name_of(autoscaler)}", self._period)

    def _gone(self, autoscaler: Obj) -> None:
        namespace, name = namespace_of(autoscaler), name_of(autoscaler)
        self._histories.pop(f"{namespace}/{name}", None)
        known = self._selectors.get(namespace, {})
        known.pop(name, None)
        if not known:
            self._selectors.pop(namespace, None)
        self._monitor.forget(namespace, name)
        self._monitor.count_autoscalers(len(self.autoscalers.store))

    async def sync(self, key: str) -> float | None:
        """Look at one autoscaler, and again after the period, whatever came of it."""
        namespace, _, name = key.partition("/")
        autoscaler = self.autoscalers.get(name, namespace)
        if autoscaler is None:
            return None
        with self._monitor.reconciliation() as result:
            try:
                await self._reconcile(key, autoscaler, result)
            except (TargetError, *_FAILURES) as error:
                result.error = "internal"
                log.debug("%s: %s: %s", self.name, key, error)
        return self._period

    async def _reconcile(self, key: str, autoscaler: Obj, result: Result) -> None:
        known = list((autoscaler.get("status") or {}).get("conditions") or ())
        look = _Look(autoscaler, self.now(), self.context.monotonic(), known)
        target = await self._target(look)
        look.history = started(self._histories.get(key), target.replicas, look.moment)
        try:
            plan = self._without_metrics(look, target.replicas) or await self._by_metrics(look, target)
            if plan.desired is not None:
                await self._rescale(look, target, plan.desired, plan.reason)
                result.action = "scale_up" if plan.desired > target.replicas else "scale_down"
        finally:
            if self.autoscalers.store.get(key) is not None:
                self._histories[key] = look.history
        desired = target.replicas if plan.desired is None else plan.desired
        self._monitor.desire(namespace_of(autoscaler), name_of(autoscaler), desired)
        await self._write(look, look.status(target.replicas, desired, scaled=plan.desired is not None))

    # -- the target ---------------------------------------------------------------------------------------------------

    async def _target(self, look: _Look) -> _Target:
        reference, namespace = look.spec["scaleTargetRef"], namespace_of(look.autoscaler)
        group = str(reference.get("apiVersion") or "").rpartition("/")[0]
        first = ""
        try:
            for kind in await self._resources.of_kind(group, reference["kind"]):
                try:
                    scale = await self.client.get(kind, reference["name"], namespace, "scale")
                except _FAILURES as error:
                    first = first or str(error)
                else:
                    text = "the HPA controller was able to get the target's current scale"
                    look.tell("AbleToScale", True, "SucceededGetScale", text)
                    return _Target(kind, scale)
        except (UncountableError, *_FAILURES) as error:
            first = str(error)
        self.events.event(look.autoscaler, "Warning", "FailedGetScale", first)
        text = f"the HPA controller was unable to get the target's current scale: {first}"
        look.tell("AbleToScale", False, "FailedGetScale", text)
        await self._write(look, {**(look.autoscaler.get("status") or {}), "conditions": look.conditions})
        raise TargetError(f"failed to query scale subresource: {first}")

    async def _rescale(self, look: _Look, target: _Target, desired: int, reason: str) -> None:
        current, autoscaler = target.replicas, look.autoscaler
        try:
            await self._write_scale(target, desired)
        except _FAILURES as error:
            text = f"New size: {desired}; reason: {reason}; error: {error}"
            self.events.event(autoscaler, "Warning", "FailedRescale", text)
            text = f"the HPA controller was unable to update the target scale: {error}"
            look.tell("AbleToScale", False, "FailedUpdateScale", text)
            await self._write(look, look.status(current, look.wanted))
            raise
        behavior = look.spec.get("behavior")
        look.history = rescaled(look.history, behavior, current, desired, look.moment)
        text = f"the HPA controller was able to update the target scale to {desired}"
        look.tell("AbleToScale", True, "SucceededRescale", text)
        self.events.event(autoscaler, "Normal", "SuccessfulRescale", f"New size: {desired}; reason: {reason}")
        if not self.gates.enabled("HPAScaleToZero"):
            look.drop(_SCALED_TO_ZERO)
        elif current > 0 and desired == 0 and _follows_outside(look.spec):
            look.tell(_SCALED_TO_ZERO, True, "ScaledToZero", "the HPA controller scaled the workload to zero")
        else:
            text = "the HPA controller did not scale the workload to zero"
            look.tell(_SCALED_TO_ZERO, False, "NotScaledToZero", text)

    async def _write_scale(self, target: _Target, desired: int) -> None:
        scale = target.scale
        for attempt in range(_WRITES):
            wanted = {**scale, "spec": {**(scale.get("spec") or {}), "replicas": desired}}
            try:
                await self.client.update(target.kind, wanted, "scale")
            except StatusError as error:
                if error.code != 409 or attempt + 1 == _WRITES:
                    raise
                scale = await self.client.get(target.kind, name_of(scale), namespace_of(scale), "scale")
            else:
                return

    # -- how many -----------------------------------------------------------------------------------------------------

    def _without_metrics(self, look: _Look, current: int) -> _Plan | None:
        """What is to be done whatever the metrics say; None if they are to be asked."""
        low, high = _least(look.spec), look.spec["maxReplicas"]
        if current == 0:
            gate = self.gates.enabled("HPAScaleToZero")
            if gate and _was_scaled_to_zero(look) and (low != 0 or _follows_outside(look.spec)):
                return None
            text = "scaling is disabled since the replica count of the target is zero"
            look.tell("ScalingActive", False, "ScalingDisabled", text)
            if not gate:
                look.drop(_SCALED_TO_ZERO)
            return _Plan(None)
        if current > high:
            return _Plan(high, "Current number of replicas above Spec.MaxReplicas")
        if current < low:
            return _Plan(low, "Current number of replicas below Spec.MinReplicas")
        return None

    async def _by_metrics(self, look: _Look, target: _Target) -> _Plan:
        current, low = target.replicas, _least(look.spec)
        try:
            desired, metric = await self._proposed(look, target)
        except TargetError as error:
            await self._write(look, look.status(current, look.wanted))
            self.events.event(look.autoscaler, "Warning", "FailedComputeMetricsReplicas", str(error))
            raise
        reason = ""
        if desired > current:
            reason = f"{metric} above target"
        elif desired < current:
            reason = "All metrics below target"
        wish = Wish(current, desired, low, look.spec["maxReplicas"])
        found = limited(wish, look.spec.get("behavior"), look.history, look.moment)
        look.history = found.history
        for condition in found.conditions:
            look.put(condition)
        replicas = found.replicas
        if current == 0 and replicas < low:
            # It was the autoscaler that went to zero, and zero is allowed no more.
            replicas, reason = low, reason or "Current number of replicas below Spec.MinReplicas"
        return _Plan(None if replicas == current else replicas, reason)

    async def _proposed(self, look: _Look, target: _Target) -> tuple[int, str]:
        """The largest proposal of all metrics; a failed one keeps the workload from shrinking."""
        question = self._question(look, target)
        replicas, name, failures = 0, "", list[MetricError]()
        for metric in look.spec.get("metrics") or ():
            with self._monitor.computation(str(metric.get("type") or "")) as result:
                try:
                    proposal = await propose(metric, question)
                except MetricError as error:
                    result.error = "internal"
                    self.events.event(look.autoscaler, "Warning", error.reason, error.told)
                    failures.append(error)
                    look.metrics.append({"type": ""})
                    continue
                result.action = _direction(proposal.replicas, look.autoscaler)
            look.metrics.append(proposal.status)
            if replicas == 0 or proposal.replicas > replicas:
                replicas, name = proposal.replicas, proposal.metric
        if len(failures) == len(look.metrics) or (failures and replicas < target.replicas):
            text = f"the HPA was unable to compute the replica count: {failures[0].told}"
            look.tell("ScalingActive", False, failures[0].reason, text)
            counts = f"{len(failures)} invalid out of {len(look.metrics)}"
            raise TargetError(f"invalid metrics ({counts}), first error is: {failures[0]}")
        text = f"the HPA was able to successfully calculate a replica count from {name}"
        look.tell("ScalingActive", True, "ValidMetricFound", text)
        return replicas, name

    def _question(self, look: _Look, target: _Target) -> Question:
        status = target.scale.get("status") or {}
        namespace, text = namespace_of(look.autoscaler), str(status.get("selector") or "")
        pods = self._selected(look, text)
        tolerances = _tolerances(look.spec) if self.gates.enabled("HPAConfigurableTolerance") else Tolerances()
        scaled = Scaled(
            target.replicas,
            int(status.get("replicas") or 0),
            pods,
            look.now,
            tolerances,
            self.gates.enabled("PodLevelResources"),
        )
        return Question(self._reader, namespace, text, scaled)

    def _selected(self, look: _Look, text: str) -> list[Obj]:
        """The pods of the workload, which no other autoscaler may scale as well."""
        if not text:
            why = "the HPA target's scale is missing a selector"
            raise self._unselected(look, "SelectorRequired", "InvalidSelector", "selector is required", why)
        try:
            selector = parse_label_selector(text)
        except StatusError as error:
            why = f"couldn't convert selector into a corresponding internal selector object: {error}"
            raise self._unselected(look, "InvalidSelector", "InvalidSelector", why, why) from error
        namespace, name = namespace_of(look.autoscaler), name_of(look.autoscaler)
        known = self._selectors.setdefault(namespace, {})
        known[name] = selector
        pods = [pod for pod in self.pods.among("namespace", namespace) if selector.matches(labels_of(pod))]
        # Pods of one template have the same labels: a few sets of them stand for all.
        labels = {tuple(sorted(labels_of(pod).items())): labels_of(pod) for pod in pods}.values()
        others = sorted(one for one, given in known.items() if any(map(given.matches, labels)))
        if len(others) > 1:
            listed = " ".join(f"{namespace}/{one}" for one in others)
            why = f"pods by selector {text} are controlled by multiple HPAs: [{listed}]"
            raise self._unselected(look, "AmbiguousSelector", "AmbiguousSelector", why, why)
        return pods

    def _unselected(self, look: _Look, event: str, reason: str, told: str, message: str) -> TargetError:
        self.events.event(look.autoscaler, "Warning", event, told)
        look.tell("ScalingActive", False, reason, message)
        return TargetError(told)

    async def _write(self, look: _Look, status: Obj) -> None:
        try:
            await self.update_status(self.autoscalers, look.autoscaler, status)
        except _FAILURES as error:
            self.events.event(look.autoscaler, "Warning", "FailedUpdateStatus", str(error))
            raise


def _least(spec: Obj) -> int:
    least = spec.get("minReplicas")
    return 1 if least is None else int(least)


def _follows_outside(spec: Obj) -> bool:
    """Whether a metric can be there although no pod is."""
    return any(metric.get("type") in ("Object", "External") for metric in spec.get("metrics") or ())


def _was_scaled_to_zero(look: _Look) -> bool:
    condition = get_condition(look.conditions, _SCALED_TO_ZERO)
    return condition is not None and condition.get("status") == "True"


def _tolerances(spec: Obj) -> Tolerances:
    behavior = spec.get("behavior") or {}
    found = Tolerances()
    for member, name in (("scaleDown", "down"), ("scaleUp", "up")):
        given = (behavior.get(member) or {}).get("tolerance")
        if given is not None:
            found = replace(found, **{name: parse_quantity(given).nano / 10**9})
    return found


def _direction(replicas: int, autoscaler: Obj) -> str:
    current = (autoscaler.get("status") or {}).get("currentReplicas") or 0
    if replicas == current:
        return "none"
    return "scale_up" if replicas > current else "scale_down"
