"""PreFilter and PreScore state of the pods of one signature: the rules between pods, and the scorers of nodes.

All of it follows the cluster: it is made once per signature, and a placement costs what it touched.
Source: kube-scheduler's PreFilter and PreScore states, as behaviour; that they are kept is our own.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import cast

from haru.engine.equivalence.decision_cache import DecisionCache
from haru.engine.framework.interfaces import PASS, FilterFailure, NodeFilter, ScoreKey, Scorer
from haru.engine.framework.profile import Profile
from haru.engine.plugins.helper.topology_domains import TopologyDomains
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
from haru.engine.plugins.score_request import CardRequest, ScoreRequest
from haru.engine.plugins.volumebinding.late_binding import LateBinding
from haru.engine.plugins.volumebinding.volume_matcher import late_claims
from haru.engine.plugins.volumerestrictions.plugin import SoleUse, sole_claims
from haru.engine.state.node_info import InternedId, NodeInfo
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo
from haru.engine.state.snapshot import Snapshot

_FEW_DOMAINS = 64
_MAX_LABELS = 1024


class SharedPreFilterState:
    """The state that pods of all signatures share: topology domains, pods with affinity terms, images, services."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.affine = PodsWithAffinity()
        self.services = DefaultConstraintSelectors()
        self.indexes = DecisionCache()

    def catch_up(self, overlay: Overlay) -> None:
        """Follow the cluster to this overlay."""
        self.affine.catch_up(overlay)

    def domains(self, key: str) -> TopologyDomains:
        """Return the nodes by one label; the caller lets them catch up."""
        return self.indexes.get_or_compute("domains", key, lambda: TopologyDomains(key), _MAX_LABELS)

    def wide(self, overlay: Overlay, keys: Iterable[str]) -> frozenset[str]:
        """Return those of some topology labels that have few values."""
        found = set()
        for key in keys:
            domains = self.domains(key)
            domains.catch_up(overlay)
            if domains.count <= _FEW_DOMAINS:
                found.add(key)
        return frozenset(found)

    def reads_labels(self, overlay: Overlay, pod: PodInfo, keys: Collection[str]) -> bool:
        """Return whether pods that differ from one in some labels alone may have other signatures."""
        if pod.terms or pod.spec.get("topologySpreadConstraints") or self.affine:
            return True
        if self.services.reads(overlay.snapshot, pod.key.namespace, keys):
            return True
        # Whether a hard constraint matches the pod itself is a part of its signature.
        hard = default_constraints(overlay.snapshot, pod, self.profile, self.services, HARD)
        return bool(hard) or any(constraint.get("matchLabelKeys") for constraint in self.profile.spread.constraints)

    def pod_signature(self, overlay: Overlay, pod: PodInfo) -> PodSignature:
        """Return the signature of a pod on this overlay."""
        snapshot = overlay.snapshot
        hard, soft = (default_constraints(snapshot, pod, self.profile, self.services, when) for when in (HARD, SOFT))
        sole = sole_claims(snapshot, pod) if pod.volume_claims else ()
        late = late_claims(snapshot, pod) if pod.volume_claims else ()
        return PodSignature(self, pod, hard, soft, sole, late)


class PodSignature:
    """The constraints of a pod; `key` tells it from pods of the same shape that rules between pods treat otherwise."""

    def __init__(
        self,
        shared: SharedPreFilterState,
        pod: PodInfo,
        hard: tuple[Constraint, ...],
        soft: tuple[Constraint, ...],
        sole: tuple[str, ...],
        late: tuple[str, ...] = (),
    ) -> None:
        filters, profile = shared.profile.filters, shared.profile
        self.pod = pod
        self.hard = hard if "PodTopologySpread" in filters else ()
        self.soft = soft if profile.weight("PodTopologySpread") else ()
        self.sole = sole if "VolumeRestrictions" in filters else ()
        self.late = late if "VolumeBinding" in filters else ()
        scores = profile.weight("InterPodAffinity")
        self.has_affinity = bool(("InterPodAffinity" in filters or scores) and (shared.affine or pod.terms))
        seen: tuple[object, ...] = ()
        if self.has_affinity:
            own = sorted({key for term in pod.terms.near for key in term.label_keys})
            seen = (shared.affine.relevant(pod.labels), tuple(pod.labels.get(key) for key in own))
        matched = tuple(c.selector.matches(pod.labels) for c in self.hard)
        volumes = (self.sole, self.late)
        self.key: Hashable = (self.hard, matched, self.soft, self.has_affinity, seen, volumes, pod.images)


_MOST_KEYS = 4096
_SPARE_KEYS = 64
"""Besides two for each node: nodes that come and go in use come back to what they were."""

_AFTER_SPREADING = (SPREADING, "InterPodAffinity", "DynamicResources", "NodeDeclaredFeatures")


class PreFilterState:
    """The rules and scorers for pods of one signature.

    `wide`: topology labels with few values. Spreading over them is checked per score key instead of per node.
    `snapshot` is needed where claims are bound late.
    """

    def __init__(
        self,
        shared: SharedPreFilterState,
        signature: PodSignature,
        wide: Collection[str] = (),
        wanted: Sequence[CardRequest] = (),
        snapshot: Snapshot | None = None,
    ) -> None:
        self._shared = shared
        self._wanted = tuple(wanted)
        self._spread = SpreadRules(signature.pod, signature.hard, wide) if signature.hard else None
        self.spreads_by_key = self._spread is not None and any(c.key in wide for c in signature.hard)
        self._sole = SoleUse(signature.pod, signature.sole) if signature.sole else None
        self._late = LateBinding(snapshot, signature.late) if signature.late and snapshot is not None else None
        self._affinity: TopologyToAffinityTerms | None = None
        profile = shared.profile
        if signature.has_affinity:
            args = profile.affinity
            self._affinity = TopologyToAffinityTerms(
                signature.pod, args.hard_weight, ignore_preferred=args.ignore_preferred
            )
        self._refuses = "InterPodAffinity" in profile.filters
        named = tuple(self._new_scorers(signature))
        self._scorers = tuple(scorer for _, scorer in named)
        self._keys: dict[tuple[InternedId, InternedId, int], ScoreKey] = {}
        """What the scorers see, by class of nodes and score of the devices."""
        self._most_keys = _MOST_KEYS
        self._keys_are_shared: bool | None = None
        """Whether nodes of one equivalence class have one key, as of the last `catch_up`."""
        self.scoring_plugins = tuple(name for name, _ in named)

    @property
    def is_node_local(self) -> bool:
        """Return whether a pod on one node changes no result and no score of another."""
        if self._spread is not None or self._sole is not None or self._late is not None or self._affinity is not None:
            return False
        return all(scorer.alone for scorer in self._scorers)

    @property
    def general(self) -> bool:
        """Return whether the rules between pods refuse no node."""
        return self._spread is None and not (self._affinity is not None and self._refuses)

    @property
    def same_keys(self) -> bool:
        """Return whether nodes of one equivalence class have one key."""
        return not self.spreads_by_key and all(scorer.general for scorer in self._scorers)

    @property
    def sole_use(self) -> NodeFilter | None:
        """Return the filter for claims that the pod uses alone; the plan checks it in its order."""
        return self._sole.check if self._sole is not None else None

    @property
    def late_binding(self) -> NodeFilter | None:
        """Return the filter for claims that are bound late; the plan checks it in its order."""
        return self._late.check if self._late is not None else None

    @property
    def scorers(self) -> Sequence[Scorer]:
        """Return the scorers in the order of a key's parts; the first scores devices."""
        return self._scorers

    def catch_up(self, overlay: Overlay) -> set[str] | None:
        """Follow the cluster; return the nodes to filter again besides those that changed. None: all."""
        self._most_keys = min(_MOST_KEYS, 2 * len(overlay.snapshot.nodes) + _SPARE_KEYS)
        found: list[set[str] | None] = []
        if self._sole is not None and self._sole.catch_up(overlay):
            found.append(None)
        if self._late is not None:
            pins = self._late.catch_up(overlay)
            found += [None] if pins is None else [self._nodes(overlay, key, {value}) for key, value in pins]
        if self._spread is not None:
            touched = self._spread.catch_up(overlay)
            found += [self._nodes(overlay, key, values) for key, values in zip(self._spread.keys, touched, strict=True)]
        if self._affinity is not None:
            self._affinity.catch_up(overlay)
            judged = self._affinity.touched.required if self._affinity.touched is not None else None
            found += [None] if judged is None else [self._nodes(overlay, key, {value}) for key, value in judged]
        found += [scorer.catch_up(overlay) for scorer in self._scorers]
        changed = [names for names in found if names is None or names]
        if changed or self._keys_are_shared is None:
            self._keys.clear()
            self._keys_are_shared = self.same_keys
        if not changed:
            return set()
        if any(names is None for names in found):
            return None
        return set().union(*(names for names in found if names))

    def check(self, node: NodeInfo) -> Sequence[FilterFailure]:
        """Return why the rules between pods refuse a node; not spreading, if it is kept by key (`is_closed`)."""
        failures = self._spread.check_nodes(node) if self._spread is not None else PASS
        if not failures and self._affinity is not None and self._refuses:
            failures = self._affinity.check(node)
        return failures

    def is_closed(self, key: ScoreKey) -> bool:
        """Return whether spreading refuses the nodes with this key."""
        return self.spreads_by_key and self._spread is not None and self._spread.full(cast("tuple[str, ...]", key[-1]))

    def filter_failures(self, node: NodeInfo, failures: Sequence[FilterFailure]) -> Sequence[FilterFailure]:
        """Return the failures of a node, with spreading in its order where it is kept by key."""
        if (
            self.spreads_by_key
            and self._spread is not None
            and (not failures or failures[0].plugin in _AFTER_SPREADING)
        ):
            return self._spread.check(node) or failures
        return failures

    def key(self, node: NodeInfo, devices: int) -> ScoreKey:
        """Return what the scorers see of a node; `devices` is the score of its devices."""
        if self._keys_are_shared:
            node_class = (node.spec.kind, node.load, devices)
            known = self._keys.get(node_class)
            if known is None:
                if len(self._keys) >= self._most_keys:
                    self._keys.clear()
                known = self._keys[node_class] = (devices, *[scorer.key(node) for scorer in self._scorers[1:]])
            return known
        seen = (devices, *[scorer.key(node) for scorer in self._scorers[1:]])
        return (*seen, self._spread.domains_of(node)) if self.spreads_by_key and self._spread is not None else seen

    def _new_scorers(self, signature: PodSignature) -> Iterator[tuple[str, Scorer]]:
        """Yield the scorers that can tell nodes apart; one of weight 0 does not count."""
        shared = self._shared
        request = ScoreRequest(
            signature.pod, shared.profile, signature.soft, self._affinity, self._wanted, shared.indexes, shared.domains
        )
        for plugin in SCORE_PLUGINS:
            scorer = plugin.scorer(request)
            if scorer is not None:
                yield plugin.name, scorer

    def _nodes(self, overlay: Overlay, key: str, values: set[str]) -> set[str]:
        domains = self._shared.domains(key)
        domains.catch_up(overlay)
        return domains.nodes(values)
