"""Record every change of a scheduler cache, so that a replay can rebuild it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from haru.engine.backfill.reservation import BackfillReservation
from haru.engine.journal.values import plain
from haru.engine.state.cache import SchedulerCache
from haru.engine.state.decision import PodKey
from haru.engine.state.partition import Partition
from haru.engine.state.pending_reservations import Nomination
from haru.kube.meta import Obj


class RecordedCluster(SchedulerCache):
    """A cache that calls `record` with each change, as an entry of a journal."""

    def __init__(self, record: Callable[[Obj], None]) -> None:
        super().__init__()
        self._record = record

    def confine(self, partition: Partition) -> None:
        """Place work in a part of the cluster only."""
        super().confine(partition)
        self._record({"partition": partition.as_dict()})

    def apply(self, obj: Obj) -> None:
        """Apply a new or changed object."""
        super().apply(obj)
        self._record({"apply": obj})

    def remove(self, obj: Obj) -> None:
        """Remove a deleted object."""
        super().remove(obj)
        slim = {name: obj[name] for name in ("apiVersion", "kind") if name in obj}
        self._record({"remove": {**slim, "metadata": obj["metadata"]}})

    def assume_pod(
        self, pod: PodKey, node: str, claimed: tuple[Obj, ...] = (), joined: Mapping[str, Obj] | None = None
    ) -> None:
        """Count a pod as placed before its binding is seen."""
        super().assume_pod(pod, node, claimed, joined or {})
        self._record({"assume": [list(pod), node, plain(claimed), dict(joined or {})]})

    def forget_pod(self, pod: PodKey) -> None:
        """Forget an assumed pod."""
        super().forget_pod(pod)
        self._record({"forget": list(pod)})

    def assume_claim(self, claim: Obj, *, written: bool = False) -> None:
        """Count a claim as allocated."""
        super().assume_claim(claim, written=written)
        self._record({"assumeClaim": [claim, written]})

    def forget_claim(self, path: str, assumed: Obj | None = None) -> bool:
        """Forget an assumed claim, if it is still that one."""
        found = super().forget_claim(path, assumed)
        if found:
            self._record({"forgetClaim": path})
        return found

    def assume_volume(self, obj: Obj) -> None:
        """Count a volume or volume claim as it is about to be written."""
        super().assume_volume(obj)
        self._record({"assumeVolume": obj})

    def forget_volume(self, kind: str, path: str) -> None:
        """Forget an assumed volume or volume claim."""
        super().forget_volume(kind, path)
        self._record({"forgetVolume": [kind, path]})

    def nominate(self, nominations: Iterable[Nomination]) -> None:
        """Nominate pending pods."""
        for nomination in nominations:
            super().nominate([nomination])
            self._record({"nominate": plain(nomination)})

    def forget_nomination(self, pod: PodKey) -> None:
        """Remove the nomination of a pod."""
        super().forget_nomination(pod)
        self._record({"unnominate": list(pod)})

    def reserve(self, reservation: BackfillReservation | None) -> None:
        """Reserve places for the head of the queue."""
        super().reserve(reservation)
        self._record({"reserve": plain(reservation)})

    def assumed(self) -> Iterator[Obj]:
        """Yield the entries that lead from the objects alone to the present assumptions."""
        for claim in self._claims.assumed:
            if claim.before is not None:
                yield {"assumeClaim": [claim.before, True]}
            yield {"assumeClaim": [claim.obj, claim.written]}
        for volume in self._assumed_volumes:
            yield {"assumeVolume": volume}
        for path, (node, claimed) in self._assumed_pods.items():
            joined = dict(self._claims.pending_reservations.joined_by(path))
            yield {"assume": [list(self._state.pods[path].key), node, plain(claimed), joined]}
        for nomination in self.snapshot().pod_index.nominations.values():
            yield {"nominate": plain(nomination)}
        if self._reservation is not None:
            yield {"reserve": plain(self._reservation)}
