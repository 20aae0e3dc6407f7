"""What surrounds one kind of pod: the rules between pods that hold for it, and the scorers that rank nodes for it.

Everything here follows the cluster: it is made once per kind of pod, and a placement costs what it touched.
Source: kube-scheduler's PreFilter and PreScore states, as behaviour; that they are kept is our own.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import cast

from haru.engine.equivalence.score_index import Key
from haru.engine.framework.interfaces import PASS, NodeFilter, Scorer
from haru.engine.framework.profile import Profile
from haru.engine.framework.status import FilterFailure
from haru.engine.plugins.haruexpected.score import Wanted
from haru.engine.plugins.helper.topology_domains import TopologyDomains
from haru.engine.plugins.imagelocality.score import ImageStates
from haru.engine.plugins.interpodaffinity.filter import PodsWithAffinity, TopologyToAffinityTerms
from haru.engine.plugins.podtopologyspread.filter import (
    HARD,
    SOFT,
    Constraint,
    DefaultConstraintSelectors,
    SpreadRules,
    default_constraints,
)
from haru.engine.plugins.podtopologyspread.filter import PLUGIN as SPREADING
from haru.engine.plugins.registry import SCORE_PLUGINS
from haru.engine.plugins.score_request import ScoreRequest
from haru.engine.plugins.volumerestrictions.plugin import SoleUse, sole_claims
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo

_FEW_DOMAINS = 64


class SharedPreFilterState:
    """What all kinds of pods look at: the nodes of domains, pods with terms, images, services."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.affine = PodsWithAffinity()
        self.images = ImageStates()
        self.services = DefaultConstraintSelectors()
        self._domains: dict[str, TopologyDomains] = {}

    def catch_up(self, overlay: Overlay) -> None:
        """Take in what has changed."""
        self.affine.catch_up(overlay)

    def domains(self, key: str) -> TopologyDomains:
        """The nodes by one label; to be caught up by whoever asks."""
        found = self._domains.get(key)
        if found is None:
            found = self._domains[key] = TopologyDomains(key)
        return found

    def wide(self, overlay: Overlay, keys: Iterable[str]) -> frozenset[str]:
        """Those of some topology labels that make few domains of many nodes."""
        found = set()
        for key in keys:
            domains = self.domains(key)
            domains.catch_up(overlay)
            if domains.count <= _FEW_DOMAINS:
                found.add(key)
        return frozenset(found)

    def kind(self, overlay: Overlay, pod: PodInfo) -> PodSignature:
        """What of a pod matters to other pods and their domains, as things stand."""
        snapshot = overlay.snapshot
        hard, soft = (default_constraints(snapshot, pod, self.profile, self.services, when) for when in (HARD, SOFT))
        sole = sole_claims(snapshot, pod) if pod.volume_claims else ()
        return PodSignature(self, pod, hard, soft, sole)


class PodSignature:
    """The constraints of a pod and what tells it from pods of the same shape."""

    def __init__(
        self,
        shared: SharedPreFilterState,
        pod: PodInfo,
        hard: tuple[Constraint, ...],
        soft: tuple[Constraint, ...],
        sole: tuple[str, ...],
    ) -> None:
        filters, profile = shared.profile.filters, shared.profile
        self.pod = pod
        self.hard = hard if "PodTopologySpread" in filters else ()
        self.soft = soft if profile.weight("PodTopologySpread") else ()
        self.sole = sole if "VolumeRestrictions" in filters else ()
        scores = profile.weight("InterPodAffinity")
        self.company = bool(("InterPodAffinity" in filters or scores) and (shared.affine or pod.terms))
        seen: tuple[object, ...] = ()
        if self.company:
            own = sorted({key for term in pod.terms.near for key in term.label_keys})
            seen = (shared.affine.relevant(pod.labels), tuple(pod.labels.get(key) for key in own))
        matched = tuple(c.selector.matches(pod.labels) for c in self.hard)
        self.signature: Hashable = (self.hard, matched, self.soft, self.company, seen, self.sole, pod.images)


_AFTER_SPREADING = (SPREADING, "InterPodAffinity", "DynamicResources")


class PreFilterState:
    """The rules and scorers for pods of one kind."""

    def __init__(
        self,
        shared: SharedPreFilterState,
        kind: PodSignature,
        wide: Collection[str] = (),
        wanted: Sequence[Wanted] = (),
    ) -> None:
        self._shared = shared
        self._wanted = tuple(wanted)
        self._spread = SpreadRules(kind.pod, kind.hard, wide) if kind.hard else None
        self.gated = self._spread is not None and any(c.key in wide for c in kind.hard)
        self._sole = SoleUse(kind.pod, kind.sole) if kind.sole else None
        self._around: TopologyToAffinityTerms | None = None
        profile = shared.profile
        if kind.company:
            args = profile.affinity
            self._around = TopologyToAffinityTerms(kind.pod, args.hard_weight, ignore_preferred=args.ignore_preferred)
        self._refuses = "InterPodAffinity" in profile.filters
        self._scorers = tuple(self._made(kind))

    @property
    def alone(self) -> bool:
        """Whether a pod on one node makes no difference to what other nodes say, and how they compare."""
        rules = self._spread, self._sole, self._around
        return all(rule is None for rule in rules) and all(scorer.alone for scorer in self._scorers)

    @property
    def general(self) -> bool:
        """Whether the rules between pods refuse no node, whatever pods there are."""
        return self._spread is None and not (self._around is not None and self._refuses)

    @property
    def same_keys(self) -> bool:
        """Whether scorers see the same of the nodes of one lot (`Snapshot.lots`)."""
        return not self.gated and all(scorer.general for scorer in self._scorers)

    @property
    def sole_use(self) -> NodeFilter | None:
        """Whether claims that the pod wants for itself are in use: a rule that the plan asks in its turn."""
        return self._sole.check if self._sole is not None else None

    @property
    def scorers(self) -> Sequence[Scorer]:
        """The scorers, in the order of a key's parts; the first is that of the devices."""
        return self._scorers

    def catch_up(self, overlay: Overlay) -> set[str] | None:
        """Take in what has changed; the nodes to be asked again, besides those that changed. None: all of them."""
        found: list[set[str] | None] = []
        if self._sole is not None and self._sole.catch_up(overlay):
            found.append(None)
        if self._spread is not None:
            touched = self._spread.catch_up(overlay)
            found += [self._nodes(overlay, key, values) for key, values in zip(self._spread.keys, touched, strict=True)]
        if self._around is not None:
            self._around.catch_up(overlay)
            judged = self._around.touched.judged if self._around.touched is not None else None
            found += [None] if judged is None else [self._nodes(overlay, key, {value}) for key, value in judged]
        found += [scorer.catch_up(overlay) for scorer in self._scorers]
        if any(names is None for names in found):
            return None
        return set().union(*(names for names in found if names))

    def check(self, node: NodeInfo) -> Sequence[FilterFailure]:
        """Why the rules between pods refuse a node; if `gated`, but for what is asked of a class (`is_closed`)."""
        failures = self._spread.check_nodes(node) if self._spread is not None else PASS
        if not failures and self._around is not None and self._refuses:
            failures = self._around.check(node)
        return failures

    def is_closed(self, key: Key) -> bool:
        """Whether nodes with this key are refused by rules that a gate stands for."""
        return self.gated and self._spread is not None and self._spread.full(cast("tuple[str, ...]", key[-1]))

    def filter_failures(self, node: NodeInfo, failures: Sequence[FilterFailure]) -> Sequence[FilterFailure]:
        """What a node says, spreading in its turn where a gate stands for it."""
        if self.gated and self._spread is not None and (not failures or failures[0].plugin in _AFTER_SPREADING):
            return self._spread.check(node) or failures
        return failures

    def key(self, node: NodeInfo, devices: int) -> Key:
        """What the scorers see of a node; `devices` is how well its devices suit the claims."""
        seen = (devices, *[scorer.key(node) for scorer in self._scorers[1:]])
        return (*seen, self._spread.domains_of(node)) if self.gated and self._spread is not None else seen

    def _made(self, kind: PodSignature) -> Iterator[Scorer]:
        """Scorers that could tell nodes apart. A weight of 0 is the same as not being there."""
        shared = self._shared
        request = ScoreRequest(
            kind.pod, shared.profile, kind.soft, self._around, self._wanted, shared.images, shared.domains
        )
        for plugin in SCORE_PLUGINS:
            scorer = plugin.scorer(request)
            if scorer is not None:
                yield scorer

    def _nodes(self, overlay: Overlay, key: str, values: set[str]) -> set[str]:
        domains = self._shared.domains(key)
        domains.catch_up(overlay)
        return domains.nodes(values)
