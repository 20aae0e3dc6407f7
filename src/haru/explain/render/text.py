"""The whole explanation as text: the verdict, what is asked, where it stops, what each node says, what helps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from haru.explain.explanation import ExplanationData, Funnel, HeldClaim, NodeGroup, NodeScore, Remedy
from haru.explain.render.columns import Block, Table, blocks_text
from haru.explain.render.labels import labelled
from haru.explain.render.short import log_commands, title_text
from haru.explain.render.wording import asked_text, dropped_text, funnel_text, later_text, pods_text
from haru.kube.names import counted

_MOST_REASONS = 3
_MOST_NODES = 4
_MOST_REQUESTS = 4
_MOST_DEVICES = 8
# Reasons that the lines on devices and nodes tell with more numbers.
_TOLD_BELOW = frozenset({"DevicesUnavailable", "Quorum"})
# Reasons whose words the first line replaces by plainer ones.
_TOLD_ABOVE = frozenset(
    {
        "Gated",
        "PodGroupMissing",
        "TooFewMembers",
        "GangSchedulingOff",
        "ClaimNotCreated",
        "ClaimMissing",
        "ClaimDeleting",
        "Waiting",
        "DevicesNotReady",
        "Running",
        "Starting",
        "Completed",
        "Failed",
    }
)


def to_text(explanation: ExplanationData) -> str:
    """The lines, each with its label."""
    return blocks_text(to_blocks(explanation)) + "\n"


def to_blocks(explanation: ExplanationData) -> Iterator[Block]:
    """The lines, with tables where there are columns."""
    yield title_text(explanation)
    yield from labelled("because", _reasons(explanation))
    yield from labelled("waits", [] if explanation.age_seconds is None else [f"for {_age(explanation.age_seconds)}"])
    yield from labelled("later", later_text(explanation.later))
    yield from labelled("holds", [line for held in explanation.holds for line in _held(held)])
    yield from labelled("asks", _asks(explanation))
    yield from labelled(
        "devices", [line for funnel in explanation.requests[:_MOST_REQUESTS] for line in _funnel(funnel)]
    )
    if explanation.node and explanation.nodes:
        yield from labelled("elsewhere", ["what the nodes would say to it now, had it no place yet:"])
        yield from labelled("", _nodes(explanation.nodes))
        yield from labelled("scores", _scores(explanation))
        yield from score_table(explanation.scores)
    else:
        yield from labelled("nodes", _nodes(explanation.nodes))
    yield from labelled("read", log_commands(explanation))
    yield from labelled("helps", [line for remedy in explanation.remedies for line in _remedy(remedy)])


def _reasons(explanation: ExplanationData) -> list[str]:
    """What neither the first line nor the lines below say."""
    told = {group.text for group in explanation.nodes}
    of_nodes = {reason.type for group in explanation.nodes for reason in group.reasons}
    lines = [
        reason.message
        for reason in explanation.reasons
        if reason.message not in explanation.summary
        and (reason.type not in _TOLD_BELOW | _TOLD_ABOVE or reason.message.startswith("member "))
        and not (explanation.requests and "request" in reason.data and "needed" in reason.data)
        and (reason.type not in of_nodes or "reachable" in reason.data)
        and reason.message not in told
    ]
    if explanation.verdict in ("Runs", "Starting"):
        return lines[:_MOST_REASONS]
    lines = [line for line in lines if not line.startswith("not allowed to read ")]
    quorum = [r for r in explanation.reasons if r.type == "Quorum" and int(r.data.get("needed", 1)) > 1]
    lines += [r.message for r in quorum if not explanation.summary.startswith(str(r.data.get("fit")) + " of the ")]
    return lines[:_MOST_REASONS]


def _scores(explanation: ExplanationData) -> list[str]:
    """How the nodes that would take it compare, the best first."""
    if not explanation.scores:
        return []
    shown = [f"{score.node} {score.score}{' (here)' if score.here else ''}" for score in explanation.scores]
    most = sum(part.most for part in explanation.scores[0].parts)
    scale = f"of at most {most}, more is better; " if most else ""
    return [f"{', '.join(shown)}; {scale}of {counted(explanation.scored, 'node')} that would take it"]


def score_table(scores: Sequence[NodeScore]) -> list[Table]:
    """What each plugin gives the nodes, on which scale and for what; nothing where the parts are unknown."""
    if not scores or not scores[0].parts:
        return []
    head = ("PLUGIN", "SCALE", *(score.node for score in scores), "PREFERS")
    rows = [
        (parts[0].plugin, f"0–100 × {parts[0].weight}", *(str(part.points) for part in parts), parts[0].reason)
        for parts in zip(*(score.parts for score in scores), strict=True)
    ]
    return [(head, rows)]


def _age(seconds: int) -> str:
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * size:
            return counted(seconds // size, unit)
    return counted(seconds, "second")


def _asks(explanation: ExplanationData) -> list[str]:
    lines = [asked_text(funnel.asked) for funnel in explanation.requests]
    matters = not lines or any(
        reason.type in ("InsufficientResource", "TooManyPods") for g in explanation.nodes for reason in g.reasons
    )
    if matters:
        lines += [pods_text(asked.pods, asked.resources) for asked in explanation.pods if asked.resources]
    return lines[: 2 * _MOST_REQUESTS]


def _funnel(funnel: Funnel) -> Iterator[str]:
    name = funnel.asked.title
    if funnel.error:
        yield f"{name}: {funnel.error}"
        return
    yield f"{name}: {counted(funnel.devices, 'device')} in the cluster"
    for stage in funnel.stages:
        if stage.dropped:
            yield f"  − {dropped_text(funnel, stage, sums=True)}"
    yield f"  = {funnel_text(funnel)}"


def _nodes(groups: tuple[NodeGroup, ...]) -> Iterator[str]:
    for group in groups[:_MOST_NODES]:
        names = ", ".join(group.examples) + (", …" if group.count > len(group.examples) else "")
        yield f"{counted(group.count, 'node')} ({names}): {group.text}"
    rest = groups[_MOST_NODES:]
    if rest:
        yield f"{counted(sum(group.count for group in rest), 'node')} more, for {counted(len(rest), 'other reason')}"


def _remedy(remedy: Remedy) -> Iterator[str]:
    mark = "" if remedy.confirmed else " (not confirmed)"
    yield f"{remedy.summary}{mark}"
    if remedy.command:
        yield f"  {remedy.command}"
    if remedy.costs:
        yield f"  cost: {remedy.costs}"


def _held(held: HeldClaim) -> Iterator[str]:
    where = f" on {held.node}" if held.node else ""
    since = f", since {held.since}" if held.since else ""
    yield f"claim {held.claim}{where}{since}: {counted(len(held.devices), 'device')}"
    for device in held.devices[:_MOST_DEVICES]:
        product = f" ({device.product})" if device.product else ""
        admin = ", admin access" if device.admin else ""
        yield f"  {device.request}: {device.driver}/{device.pool}/{device.device}{product}{admin}"
    if len(held.devices) > _MOST_DEVICES:
        yield f"  and {len(held.devices) - _MOST_DEVICES} more"
    if len(held.users) > 1:
        shown = ", ".join(held.users[:4]) + (f" and {len(held.users) - 4} more" if len(held.users) > 4 else "")
        yield f"  shared by {counted(len(held.users), 'pod')}: {shown}"
