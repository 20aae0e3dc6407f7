"""Remove the names of other namespaces' objects from an explanation; counts and priorities stay.

What is known to be a name (holders, the targets of remedies, awaited pods) is replaced by numbers. Sentences and data
of reasons are searched for the names that the snapshot knows in hidden namespaces. Nodes, devices, classes, and the
labels and taints of nodes belong to no namespace and stay.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from haru.engine import Reason, Snapshot
from haru.engine.state import workload_of
from haru.explain.explanation import Funnel, FunnelStage, HeldClaim, Holder, Later, Remedy
from haru.explain.render.name_index import NameIndex, parts_of
from haru.explain.results import Explanation
from haru.kube.meta import Obj
from haru.kube.names import counted

HIDDEN = "of another namespace"
_WORD = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_TOKEN = re.compile(rf"{_WORD}(?:[/:]{_WORD})*")
_PLAIN = re.compile(r"[A-Za-z]+|[0-9.]+[A-Za-z]{0,2}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT")
_VERBS = {"Evict": "end", "MoveWork": "move"}
_KINDS = (
    "namespace|pod|claim|resource claim|resourceclaim|resourceclaimtemplate|podgroup|workload|job|jobset|cronjob|"
    "deployment|daemonset|replicaset|statefulset|leaderworkerset|raycluster|trainjob|quota|resourcequota|pvc|"
    "persistentvolumeclaim|poddisruptionbudget|localqueue|service"
)
_AFTER_KIND = re.compile(rf"(?:^|[^-A-Za-z0-9])(?:{_KINDS})s?[ /]+[\"']?$", re.IGNORECASE)
_KIND = re.compile(rf"(?:{_KINDS})s?", re.IGNORECASE)
_NAMES = frozenset(
    {
        "claim",
        "claims",
        "for",
        "holders",
        "namespace",
        "owner",
        "persistentVolumeClaim",
        "persistentVolumeClaims",
        "pod",
        "podGroup",
        "pods",
        "quota",
        "users",
        "workload",
        "workloads",
    }
)
"""Data of reasons in which a plain word is the name of an object in a namespace."""


def named_namespaces(told: Explanation) -> tuple[str, ...]:
    """Return the other namespaces whose objects an explanation names, those with the most devices first."""
    holders = (holder for funnel in told.requests for stage in funnel.stages for holder in stage.holders)
    found = [holder.namespace for holder in holders]
    found += [_namespace(change) for remedy in told.remedies for change in remedy.changes]
    found += [path.partition("/")[0] for path in (told.later.pods if told.later is not None else ())]
    return tuple(dict.fromkeys(name for name in found if name and name != told.namespace))


def redacted(told: Explanation, snapshot: Snapshot, shown: Collection[str]) -> Explanation:
    """Return the explanation as somebody may read it who may see the objects of the namespaces `shown` only.

    `snapshot` is the one that was explained: it knows which words are names.
    """
    plain = replace(
        told,
        requests=tuple(replace(f, stages=tuple(_stage(stage, shown) for stage in f.stages)) for f in told.requests),
        later=_later(told.later, shown),
        holds=tuple(_held(held, shown) for held in told.holds),
    )
    words = HiddenWords.of(plain, snapshot, shown)
    return replace(
        plain,
        summary=words.hidden(plain.summary),
        reasons=tuple(map(words.reason, plain.reasons)),
        nodes=tuple(
            replace(group, text=words.hidden(group.text), reasons=tuple(map(words.reason, group.reasons)))
            for group in plain.nodes
        ),
        requests=tuple(words.funnel(funnel) for funnel in plain.requests),
        remedies=tuple(_remedy(remedy, snapshot, shown, words) for remedy in plain.remedies),
    )


def _namespace(change: Obj) -> str:
    target = change.get("object") or change.get("target") or {}
    metadata = target.get("metadata") or {}
    return str(metadata["name"]) if target.get("kind") == "Namespace" else str(metadata.get("namespace") or "")


def _others(count: int, word: str) -> str:
    return f"{counted(count, word)} {HIDDEN if count == 1 else 'of other namespaces'}"


def _stage(stage: FunnelStage, shown: Collection[str]) -> FunnelStage:
    holders = shown_holders(stage.holders, shown)
    return stage if holders is stage.holders else replace(stage, holders=holders)


def shown_holders(holders: tuple[Holder, ...], shown: Collection[str]) -> tuple[Holder, ...]:
    """Return holders of hidden namespaces as one for each priority."""
    kept = [holder for holder in holders if holder.namespace in shown]
    if len(kept) == len(holders):
        return holders
    by_priority: dict[int | None, list[Holder]] = {}
    for holder in holders:
        if holder.namespace not in shown:
            by_priority.setdefault(holder.priority, []).append(holder)
    for priority, group in by_priority.items():
        idle = [holder.idle for holder in group if holder.idle is not None]
        name = _others(len(group), "workload")
        devices = sum(holder.devices for holder in group)
        kept.append(Holder(name, "", devices, (), (), priority, "", sum(idle) if idle else None))
    return tuple(sorted(kept, key=lambda holder: -holder.devices))


def _later(later: Later | None, shown: Collection[str]) -> Later | None:
    if later is None:
        return None
    kept = tuple(path for path in later.pods if path.partition("/")[0] in shown)
    hidden = len(later.pods) - len(kept)
    return replace(later, pods=(*kept, _others(hidden, "pod"))) if hidden else later


def _held(held: HeldClaim, shown: Collection[str]) -> HeldClaim:
    return replace(held, users=tuple(user for user in held.users if user.partition("/")[0] in shown))


def _remedy(remedy: Remedy, snapshot: Snapshot, shown: Collection[str], words: HiddenWords) -> Remedy:
    kept = tuple(change for change in remedy.changes if _namespace(change) in ("", *shown))
    hidden = [change for change in remedy.changes if _namespace(change) not in ("", *shown)]
    if not hidden:
        summary, costs = words.hidden(remedy.summary), words.hidden(remedy.costs)
        # A command with a name that is hidden cannot be run.
        runs = bool(remedy.changes) or words.hidden(remedy.command) == remedy.command
        command = remedy.command if runs else ""
        return replace(remedy, summary=summary, costs=costs, command=command)
    names, priorities = set(), []
    for change in hidden:
        target = (change.get("object") or change.get("target") or {}).get("metadata") or {}
        pod = snapshot.pods.get(f"{target.get('namespace')}/{target.get('name')}")
        names |= {str(target.get("name")), str(target.get("namespace"))}
        if pod is not None:
            names.add(workload_of(pod).partition("/")[2])
            priorities.append(pod.priority)
    words = replace(words, forced=frozenset(names))
    verb = _VERBS.get(remedy.kind)
    summary, costs = words.hidden(remedy.summary), words.hidden(remedy.costs)
    if verb is not None:
        summary, costs = _ended(remedy, verb, hidden, kept, priorities), costs.partition(";")[0]
    return replace(remedy, summary=summary, changes=kept, costs=costs, command="")


def _ended(remedy: Remedy, verb: str, hidden: Iterable[Obj], kept: Iterable[Obj], priorities: Collection[int]) -> str:
    """Whose pods have to go, in numbers; what becomes free stands in the original text, behind the names."""
    own = [str(c["object"]["metadata"]["name"]) for c in kept if c["action"] == "delete"]
    count = sum(change["action"] == "delete" for change in hidden)
    up_to = "" if count == 1 else "up to "
    priority = f" (priority {up_to}{max(priorities)})" if priorities else ""
    text = f"{verb} {_others(count, 'pod')}{priority}"
    freed = re.search(r" \(frees [^()]*\)$", remedy.summary)
    return text + (f", and pod {', '.join(own)}" if own else "") + (freed[0] if freed else "")


@dataclass(frozen=True, slots=True)
class HiddenWords:
    """The words of one explanation that are names in hidden namespaces; `forced` are hidden wherever they stand."""

    names: frozenset[str]
    namespaces: frozenset[str]
    forced: frozenset[str] = frozenset()

    @staticmethod
    def of(told: Explanation, snapshot: Snapshot, shown: Collection[str]) -> HiddenWords:
        """Return the hidden names of an explanation."""
        reasons = [*told.reasons, *(reason for group in told.nodes for reason in group.reasons)]
        return HiddenWords.among(reasons, _texts(told, shown), _public(told), snapshot, shown)

    @staticmethod
    def among(
        reasons: Iterable[Reason],
        texts: Iterable[str],
        public: Collection[str],
        snapshot: Snapshot,
        shown: Collection[str],
    ) -> HiddenWords:
        """Return the hidden names of some reasons and sentences; the words `public` are none."""
        reasons = list(reasons)
        said = {part for text in chain(texts, _said(reasons)) for part in _candidates(text)} | _named(reasons)
        said = {word for word in said.difference(public) if not _is_shown(snapshot, word, shown)}
        if not said:
            return HiddenWords(frozenset(), frozenset())
        known = NameIndex.of(snapshot).known(snapshot, said)
        namespaces = known.namespaces.difference(shown)
        hidden = {
            word for word, where in known.namespaces_with.items() if word not in shown and where.isdisjoint(shown)
        }
        candidates = hidden | namespaces
        of_the_cluster = _of_the_cluster(snapshot, candidates) if candidates else frozenset()
        return HiddenWords(frozenset(hidden - of_the_cluster), namespaces - of_the_cluster)

    def hidden(self, text: str) -> str:
        """Return the text without the names."""
        if not (self.names or self.namespaces or self.forced):
            return text
        return _TOKEN.sub(lambda found: self._token(found[0], text[: found.start()]), text)

    def _token(self, token: str, before: str) -> str:
        parts = parts_of(token)
        known = self.names | self.namespaces
        if not (set(parts) & (known | self.forced)):
            return token
        after_kind = _AFTER_KIND.search(before) is not None
        shown = HIDDEN if after_kind else f"work {HIDDEN}"
        if len(parts) > 1 and parts[0] in self.namespaces:
            return shown
        if len(parts) > 1 and _KIND.fullmatch(parts[0]) and set(parts[1:]) & (known | self.forced):
            return f"a {parts[0].lower()} {HIDDEN}"
        if len(parts) > 1:
            return token
        return shown if token in self.forced or _is_telling(token, before) else token

    def funnel(self, funnel: Funnel) -> Funnel:
        """Return a funnel whose sentences are without the names."""
        stages = (
            replace(stage, error=self.hidden(stage.error), nodes=self._value(stage.nodes, False))
            for stage in funnel.stages
        )
        return replace(funnel, error=self.hidden(funnel.error), stages=tuple(stages))

    def reason(self, reason: Reason) -> Reason:
        """Return a reason without the names."""
        data = {key: self._value(value, key in _NAMES) for key, value in reason.data.items()}
        return Reason(reason.type, self.hidden(reason.message), data)

    def _value(self, value: Any, is_name: bool) -> Any:
        if isinstance(value, str):
            bare = is_name and value in self.names | self.namespaces
            return f"work {HIDDEN}" if bare else self.hidden(value)
        if isinstance(value, Mapping):
            found: dict[str, Any] = {}
            for key, each in value.items():
                shown, told = self._value(str(key), is_name), self._value(each, is_name or key in _NAMES)
                both = found.get(shown)
                found[shown] = both + told if isinstance(both, int) and isinstance(told, int) else told
            return found
        if isinstance(value, (list, tuple)):
            return [self._value(each, is_name) for each in value]
        return value


def _is_telling(token: str, before: str) -> bool:
    """Whether a word can only be meant as a name where it stands: numbers and plain words are mostly none."""
    if _PLAIN.fullmatch(token) is None:
        return True
    return before.endswith(('"', "'")) or _AFTER_KIND.search(before) is not None


def _candidates(text: str) -> Iterator[str]:
    """The words of a text that may be meant as names."""
    for found in _TOKEN.finditer(text):
        if _TIME.match(found[0]) is not None:
            continue
        parts = parts_of(found[0])
        if len(parts) > 1 or _is_telling(found[0], text[: found.start()]):
            yield from (part for part in parts if part == part.lower())


def _named(reasons: Iterable[Reason]) -> set[str]:
    """The words in data of reasons that are names whatever they look like."""
    texts = (text for reason in reasons for key in _NAMES & reason.data.keys() for text in _strings(reason.data[key]))
    words = (part for text in texts for token in _TOKEN.findall(text) for part in parts_of(token))
    return {word for word in words if _KIND.fullmatch(word) is None and not word.isdigit()}


def _is_shown(snapshot: Snapshot, word: str, shown: Collection[str]) -> bool:
    """Whether a word is the name of a node, of a class, or of an object in a namespace that is shown."""
    if word in snapshot.nodes or word in snapshot.devices.classes:
        return True
    paths = [f"{namespace}/{word}" for namespace in shown]
    kinds = (snapshot.pods, snapshot.claims, *snapshot.others.values())
    return any(path in objects for objects in kinds for path in paths)


def _is_rebuilt(remedy: Remedy, shown: Collection[str]) -> bool:
    """Whether the sentence of a remedy is replaced by numbers."""
    return remedy.kind in _VERBS and any(_namespace(change) not in ("", *shown) for change in remedy.changes)


def _texts(told: Explanation, shown: Collection[str]) -> Iterator[str]:
    """The sentences of an explanation that are searched for names, but for its reasons."""
    yield told.summary
    yield from (group.text for group in told.nodes)
    for funnel in told.requests:
        yield from (funnel.error, *(text for stage in funnel.stages for text in (stage.error, *stage.nodes)))
    for remedy in told.remedies:
        if not _is_rebuilt(remedy, shown):
            # A command carries out the changes: what may be told of these may be told of it.
            yield from (remedy.summary, remedy.costs, "" if remedy.changes else remedy.command)


def _said(reasons: Iterable[Reason]) -> Iterator[str]:
    """The sentences of reasons, and the strings of their data."""
    for reason in reasons:
        yield reason.message
        yield from _strings(dict(reason.data))


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from chain(map(str, value), *map(_strings, value.values()))
    elif isinstance(value, (list, tuple)):
        yield from chain(*map(_strings, value))


def _public(told: Explanation) -> set[str]:
    """The names that an explanation has in fields of the cluster or of the object itself."""
    found = {told.namespace, told.name, told.node, *(score.node for score in told.scores)}
    found.update(name for group in told.nodes for name in group.examples)
    for funnel in told.requests:
        asked = funnel.asked
        found |= {asked.request, asked.device_class, asked.resource, *parts_of(funnel.claim)}
        found.update(part for stage in funnel.stages for where in stage.where for part in where.split())
    found.update(part for held in told.holds for part in parts_of(held.claim))
    found.update(part for held in told.holds for d in held.devices for part in (d.request, d.driver, d.pool, d.device))
    return found


def _of_the_cluster(snapshot: Snapshot, words: Collection[str]) -> frozenset[str]:
    """Which of some words are names of nodes and classes, or values of nodes' labels and taints."""
    found = {word for word in words if word in snapshot.nodes or word in snapshot.devices.classes}
    for name in snapshot.node_names:
        info = snapshot.nodes[name]
        found.update(value for value in info.labels.values() if value in words)
        found.update(t["value"] for t in info.spec.taints if t.get("value") in words)
    return frozenset(found)
