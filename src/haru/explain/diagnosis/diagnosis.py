"""Everything that is told of waiting work besides the verdict: what it asks for, where the devices are, what each node
says. Counted on the cluster as it is, without the unit's own tentative placements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from haru.engine import Options, Reason, Snapshot
from haru.engine.dra import REFUSAL_TYPES
from haru.engine.state import Diagnosis as NodeDiagnosis
from haru.explain.diagnosis.device_classes import DeviceClassSurvey
from haru.explain.diagnosis.funnels import funnels
from haru.explain.diagnosis.node_groups import (
    Answers,
    answers,
    most_in_a_domain,
    node_groups,
    served_by_nodes,
    unusable,
)
from haru.explain.diagnosis.pod_affinity import missing_targets
from haru.explain.diagnosis.requests import MemberKind, member_kinds, pods_asked, without
from haru.explain.diagnosis.unmet_labels import group_topology_keys, unmet_labels
from haru.explain.diagnosis.volume_claims import volume_troubles
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.explain.explanation import Funnel, FunnelStage, NodeGroup, PodsAsked
from haru.explain.render.wording import dropped_text, sum_text
from haru.kube.names import counted


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found. `answers` are those of the nodes to one more of the pods that `nodes` tells of.

    `members` are the kinds of pods with what they see of devices. `in_domain` is how many of these pods one domain of
    the group's required topology could take at most.
    """

    pods: tuple[PodsAsked, ...] = ()
    requests: tuple[Funnel, ...] = ()
    nodes: tuple[NodeGroup, ...] = ()
    troubles: tuple[Reason, ...] = ()
    answers: Answers | None = None
    members: tuple[tuple[MemberKind, DeviceClassSurvey | None], ...] = ()
    in_domain: int | None = None

    @property
    def missing(self) -> int:
        """How many more devices have to be free for the request that misses most, wherever they are."""
        return max((_missing(funnel) for funnel in self.requests), default=0)

    def reasons(self) -> tuple[Reason, ...]:
        """Why devices are missing, as typed reasons: one per request that cannot be served."""
        return (*_reasons(self.requests), *self.troubles)


_TROUBLES = ("PoolIncomplete", "PoolInvalid", "OutsidePartition")


def _missing(funnel: Funnel) -> int:
    if funnel.short is None or funnel.asked.alternative:
        return 0
    elsewhere = sum(stage.dropped for stage in funnel.stages if stage.stage in ("nodes", "constraints", "scattered"))
    return max(0, funnel.short - elsewhere)


def diagnose(
    snapshot: Snapshot, work: WorkloadUnit, options: Options, decided: NodeDiagnosis | None = None
) -> Diagnosis:
    """Tell what keeps the unit waiting; `decided` is what its decision found on the same snapshot."""
    kinds = member_kinds(snapshot, work, options)
    found: list[Funnel] = []
    beyond_devices = (
        *unmet_labels(snapshot, work),
        *missing_targets(snapshot, work),
        *volume_troubles(snapshot, work),
    )
    troubles = {reason.message: reason for reason in beyond_devices}
    members: list[tuple[MemberKind, DeviceClassSurvey | None]] = []
    told: tuple[int, MemberKind, DeviceClassSurvey | None, Answers] | None = None
    for kind in kinds:
        survey = DeviceClassSurvey.of(snapshot, kind.claims, options, kind.asked) if kind.claims else None
        members.append((kind, survey))
        said = answers(snapshot, kind, work.pod_group(snapshot), options, decided)
        if survey is not None:
            left = without(kind, served_by_nodes(snapshot, kind, said))
            found = _merged(found, funnels(survey, left, unusable(said)))
            for node in survey.kinds:
                pools = [r for r in node.funnel.refusals if r.type in _TROUBLES]
                troubles.update((r.message, Reason(r.type, r.message, r.data)) for r in pools)
        takers = sum(not failures for failures in said.values())
        if told is None or takers < told[0]:
            told = (takers, kind, survey, said)
    diagnosis = Diagnosis(pods_asked(kinds), tuple(found), (), tuple(troubles.values()), members=tuple(members))
    if told is None:
        return diagnosis
    _, kind, survey, said = told
    keys = group_topology_keys(work.pod_group(snapshot))
    most = most_in_a_domain(snapshot, kind, survey, said, keys[0]) if keys else None
    return replace(diagnosis, nodes=node_groups(snapshot, kind, survey, said), answers=said, in_domain=most)


def _merged(known: Sequence[Funnel], more: Sequence[Funnel]) -> list[Funnel]:
    """Equal requests of several kinds of pods compete for the same devices: they are told as one."""
    result = list(known)
    for funnel in more:
        for number, other in enumerate(result):
            if replace(other.asked, claims=0) == replace(funnel.asked, claims=0) and other.free == funnel.free:
                total = replace(other.asked, claims=other.asked.claims + funnel.asked.claims)
                needed = total.devices
                short = None if other.short is None or needed is None else max(0, needed - other.free)
                result[number] = replace(other, asked=total, needed=needed, short=short)
                break
        else:
            result.append(funnel)
    return result


def _reasons(requests: Sequence[Funnel]) -> list[Reason]:
    found: list[Reason] = []
    ways: dict[tuple[str, str], list[Funnel]] = {}
    for funnel in requests:
        name = funnel.asked.request.partition("/")[0] if funnel.asked.alternative else funnel.asked.request
        ways.setdefault((funnel.claim, name), []).append(funnel)
    for (_, name), own in ways.items():
        causes = [reason for funnel in own if (reason := _cause(funnel)) is not None]
        needed = own[0].asked.claims
        served = sum(f.free // max(1, f.asked.count or 1) for f in own)
        if len(causes) < len(own) or (len(own) > 1 and served >= needed):
            continue
        if len(own) == 1:
            found.append(causes[0])
        else:
            text = f"none of the {len(own)} alternatives of request {name} can be had {needed} times: "
            data: dict[str, object] = {"request": name, "alternatives": [cause.to_json() for cause in causes]}
            found.append(Reason("AlternativesExhausted", text + "; ".join(c.message for c in causes), data))
    return found


def _cause(funnel: Funnel) -> Reason | None:
    """The first condition after which too few devices are left."""
    if funnel.error:
        data: dict[str, object] = {"request": funnel.asked.request, "deviceClass": funnel.asked.device_class}
        return Reason("DeviceClassMissing" if "not found" in funnel.error else "RequestInvalid", funnel.error, data)
    needed = funnel.needed
    if needed is None:
        selected = next((s.left for s in reversed(funnel.stages) if s.stage in _SELECTING), 0)
        needed = max(1, selected)
    elif funnel.short is None:
        needed = 1
    for stage in funnel.stages:
        if stage.left < needed:
            data = {"request": funnel.asked.request, "needed": needed, "left": stage.left}
            data.update(stage_data(stage))
            return Reason(REFUSAL_TYPES.get(stage.stage, "DevicesScattered"), _sentence(funnel, stage), data)
    return None


_SELECTING = ("devices", "offered", "class", "selector", "node")


def stage_data(stage: FunnelStage) -> dict[str, object]:
    """What is known of the devices that a condition keeps back."""
    workloads = {holder.name: holder.devices for holder in stage.holders}
    pairs: dict[str, object] = {
        "expression": stage.expression,
        "errors": stage.errors,
        "taints": dict(stage.taints),
        "workloads": workloads,
        "exhausted": dict(stage.counters),
    }
    return {name: value for name, value in pairs.items() if value}


def _sentence(funnel: Funnel, stage: FunnelStage) -> str:
    total = sum_text(stage.left, funnel.needed, max(0, (funnel.needed or 0) - stage.left))
    name = funnel.asked.title
    if stage.stage == "devices":
        have = counted(stage.left, "device") if stage.left else "no device"
        return f"request {name}: the cluster has {have}, {funnel.needed or 'some'} needed"
    total = total.replace(" free,", " left,")
    return f"request {name}: {dropped_text(funnel, stage)}: {total}"
