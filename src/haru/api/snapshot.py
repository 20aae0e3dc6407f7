"""One moment of a cluster, to be asked: why is this so, what would happen, who gets what. Nothing is written to it.

    snapshot = Snapshot.read("cluster.json")            what `haru capture` wrote; manifests; directories of them
    snapshot = Snapshot.of(objects)                     plain Kubernetes dicts
    snapshot = Snapshot.fetch()                         a running cluster, found as kubectl finds it
    snapshot.explain("podgroup/training")               why it waits, and what would help
    snapshot.explain_pending()                          everything that waits, as a table
    snapshot.what_if(Cordon("n1"), Delete("job/old"))   the difference that changes make
    snapshot.schedule()                                 one round of decisions
    snapshot.allocate()                                 the devices that the claims would get
    snapshot.usage()                                    who holds which cards, and which idle

The commands of the same names ask the same questions here. Answers are values: `as_dict()` is the documented JSON,
`str()` the text of the command (of `explain` all of it, `short()` its five lines), and a notebook shows tables.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haru.api.files import cluster_of, gates_beside, gates_of, read_objects, stored_objects, what_fails
from haru.arguments import checks_types
from haru.engine import SchedulerCache
from haru.errors import InputError
from haru.gangs import foreign_kind, is_foreign_group, translated, untranslated
from haru.kube.meta import Obj
from haru.kube.stored import has_identity

if TYPE_CHECKING:
    from haru.accounting.report import Usage
    from haru.api.allocation import Allocation
    from haru.api.changes import AskedChange
    from haru.api.cluster_reader import Fetched
    from haru.api.rounds import SchedulingRound
    from haru.explain import PendingList
    from haru.explain.results import DeviceStory, Explanation, NodeStory
    from haru.whatif import Change, Comparison

Gates = str | Mapping[str, bool]

DEFAULT_SCHEDULER = "default-scheduler"


class Snapshot:
    """Objects of a cluster as its API server has them. Make one with `read`, `of`, `fetch` or `kept_in`.

    `objects` are plain dicts that nobody may change. `namespace` is that of what names none. `refused` are the kinds
    that could not be read because the caller may not, `not_served` those that the server does not serve: answers are
    without them. `gates` are the feature gates under
    which it is decided: those of `haru up`, but for the `feature_gates` that were given.
    """

    def __init__(
        self,
        objects: Iterable[Obj],
        *,
        namespace: str = "default",
        feature_gates: Gates = "",
        refused: Iterable[str] = (),
        not_served: Iterable[str] = (),
    ) -> None:
        self.objects = tuple(objects)
        self.namespace = namespace
        self.refused = tuple(refused)
        self.not_served = tuple(not_served)
        self.gates = gates_of(feature_gates).all()

    # -- where it comes from -------------------------------------------------------------------------------------------

    @classmethod
    @checks_types
    def read(cls, *paths: str | Path, namespace: str = "default", feature_gates: Gates = "") -> Snapshot:
        """A snapshot of files and directories: what `haru capture` wrote, or manifests (`-` is standard input).

        Objects that name no namespace are in `namespace`. Raises InputError that names the file, the line and the fix.
        """
        if not paths:
            raise InputError("name a file, or a directory of manifests")
        objects = read_objects([str(path) for path in paths], namespace)
        return cls(objects, namespace=namespace, feature_gates=feature_gates)

    @classmethod
    @checks_types
    def of(
        cls, objects: Iterable[Mapping[str, Any]] = (), *, namespace: str = "default", feature_gates: Gates = ""
    ) -> Snapshot:
        """A snapshot of plain Kubernetes objects, Lists among them; they are defaulted as a server does it.

        Raises InputError that names the object and the field that no server would take.
        """
        given = [objects] if isinstance(objects, Mapping) else objects
        stored = (obj for _, obj in stored_objects(given, namespace))
        return cls(stored, namespace=namespace, feature_gates=feature_gates)

    @classmethod
    @checks_types
    def fetch(
        cls,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
        *,
        namespace: str | None = None,
        feature_gates: Gates = "",
    ) -> Snapshot:
        """A snapshot of a running cluster, which is only read: that of `kubeconfig`, else found as kubectl finds it.

        `namespace` is that of what names none (without it that of the context). Raises ClusterError.
        """
        from haru.api.cluster_reader import fetch_all, finished
        from haru.api.connection import connect

        async def ask() -> Fetched:
            async with connect(Path(kubeconfig) if kubeconfig else None, context, "haru-python") as client:
                return await fetch_all(client)

        return cls.of_fetched(finished(ask), namespace, feature_gates)

    @classmethod
    @checks_types
    def kept_in(cls, data_dir: str | Path, *, namespace: str | None = None, feature_gates: Gates = "") -> Snapshot:
        """A snapshot of what a `haru up` has in its data directory, whether it runs or not. Raises InputError."""
        from haru.api.cluster_reader import fetch_kept, finished

        directory = Path(data_dir)
        return cls.of_fetched(finished(lambda: fetch_kept(directory, "haru-python")), namespace, feature_gates)

    @classmethod
    def of_fetched(cls, fetched: Fetched, namespace: str | None, feature_gates: Gates) -> Snapshot:
        """A snapshot of what was read from a cluster, under the gates of its version where that is before 1.36."""
        return cls(
            fetched.objects,
            namespace=namespace or fetched.namespace,
            feature_gates=gates_beside(fetched.version, feature_gates),
            refused=fetched.refused,
            not_served=fetched.not_served,
        )

    def left_out(self) -> list[str]:
        """List the kinds that answers leave out, and why, in sentences."""
        notes = [f"not allowed to read {', '.join(self.refused)}: the answer is without them"] if self.refused else []
        return notes + ([f"not served by this cluster: {', '.join(self.not_served)}"] if self.not_served else [])

    def _need(self, kind: str, what: str) -> None:
        """Raise InputError if objects of a kind could not be read: without any, an answer would be none."""
        if kind in self.refused:
            raise InputError(f"{what} cannot be told: not allowed to read {kind} objects")

    @cached_property
    def _cluster(self) -> SchedulerCache:
        """The engine's form of it, made once: what one answer has learnt serves the next. Nobody changes it.

        Manifests that nobody has stored are looked at as a cluster would have them a moment later; of what was stored
        it is told what is there.
        """
        return cluster_of(self.objects if all(map(has_identity, self.objects)) else self.settled())

    # -- what it can be asked ------------------------------------------------------------------------------------------

    @checks_types
    def explain(
        self,
        what: str | Obj,
        *,
        namespace: str | None = None,
        now: datetime | None = None,
        remedies: bool = True,
    ) -> Explanation | NodeStory | DeviceStory:
        """Why an object waits, why it runs where it runs, or why it never will, and what would help.

        `what` is KIND/NAME, for example `podgroup/training`, or the object itself. Of `node/NAME` and
        `device/NODE/DEVICE` it is told what they hold, what is free, and why what waits does not use it. `now` is when
        it is asked (without it: now). `remedies=False` leaves out what would help, which takes most of the time.
        Raises InputError for a kind that cannot be explained and NotFoundError where there is no such object.
        """
        from haru.explain.entry import explain
        from haru.explain.object_names import parse_place, parse_subject
        from haru.explain.subjects import explain_place, find_subject
        from haru.kube.names import format_time

        snapshot = self._cluster.snapshot()
        named = what if isinstance(what, str) else _kind_and_name(what)
        place = parse_place(named)
        if place is not None:
            return explain_place(snapshot, *place, unread=self.refused)
        if isinstance(what, str):
            kind, name = parse_subject(named)
            obj = find_subject(snapshot, kind, namespace or self.namespace, name)
        else:
            obj = what
            kind, _ = parse_subject(named)
        asked = format_time(now or datetime.now(UTC))
        return explain(snapshot, kind, obj, now=asked, remedies=remedies, unread=self.refused, gates=self.gates)

    @checks_types
    def explain_pending(
        self,
        about: str = "",
        *,
        namespace: str | None = None,
        all_namespaces: bool = False,
        selector: str = "",
        now: datetime | None = None,
        remedies: bool = True,
        progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> PendingList:
        """Explain all that waits in a namespace, or with an object, in one table; equal work is explained once.

        `about` is KIND/NAME of a workload (`deployment/web`), `deviceclass/NAME` or `namespace/NAME`; `selector` is one
        of labels. `progress` is told how many of so many answers are done. Raises InputError and NotFoundError.
        """
        from haru.explain import Choice, PendingList, pending_rows
        from haru.explain.object_names import parse_listed, parse_subject
        from haru.explain.pending_choice import (
            check_exists,
            choice_of,
            in_namespace,
            of_workload,
            where_text,
            with_labels,
        )
        from haru.explain.pending_rows import pods_in_trouble
        from haru.kube.names import format_time

        self._need("Pod", "what waits")
        snapshot, here = self._cluster.snapshot(), namespace or self.namespace
        listed = parse_listed(about) if about else None
        if listed is not None:
            check_exists(self.objects, snapshot, listed[0], here, listed[1])
            choice, where = choice_of(snapshot, listed[0], here, listed[1]), where_text(listed[0], about)
        elif about:
            kind, name = parse_subject(about)
            choice, where = of_workload(kind, here, name), where_text(kind, about)
        else:
            choice = Choice() if all_namespaces else in_namespace(here)
            where = "in all namespaces" if all_namespaces else f"in namespace {here}"
        asked = format_time(now or datetime.now(UTC))
        choice = with_labels(choice, selector)
        rows = pending_rows(
            snapshot,
            choice,
            asked,
            remedies=remedies,
            unread=self.refused,
            gates=self.gates,
            progress=progress,
        )
        troubles = pods_in_trouble(snapshot, choice)
        return PendingList(rows, f"{where} with {selector}" if selector else where, asked, troubles)

    @checks_types
    def schedule(self, scheduler_name: str = DEFAULT_SCHEDULER) -> SchedulingRound:
        """Decide everything that waits for one scheduler, once, in the order of the queue. Raises InputError."""
        from haru.api.decision_options import options_of
        from haru.api.rounds import decide_round

        self._need("Pod", "what waits")
        cluster = cluster_of(self.settled())
        try:
            return decide_round(cluster, options_of(self.deciding_gates(cluster.snapshot().pod_groups)), scheduler_name)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _undecidable(error) from error

    @checks_types
    def allocate(
        self,
        claims: Obj | Sequence[Obj] = (),
        *,
        node: str | None = None,
        timeout: float | None = None,
        device_scoring: bool = False,
    ) -> Allocation:
        """Which devices claims would get together, as the claims of one pod, and on which nodes, or why none.

        `claims` (one or several) may leave out apiVersion and kind. Without any: those of the snapshot without
        allocation, and one for each ResourceClaimTemplate. `node` asks that one only; `timeout` (seconds) is when to
        give up; `device_scoring` prefers fragments and small devices.
        Raises InputError.
        """
        from haru.api.allocation import AllocationQuery, allocation_of, asked_claims, waiting_claims
        from haru.engine import Features

        asked = asked_claims(claims, self.namespace) if claims else waiting_claims(self.objects)
        features = Features.from_gates(self.gates)
        query = AllocationQuery(asked, node, timeout, device_scoring)
        return allocation_of(self._cluster.snapshot(), query, features)

    @checks_types
    def what_if(
        self,
        *changes: AskedChange,
        scheduler_name: str = DEFAULT_SCHEDULER,
        now: datetime | None = None,
    ) -> Comparison:
        """The difference that changes make, applied in their order to a copy, once the cluster has come to rest.

        Raises ChangeInputError for a change that makes no sense here, InputError where nothing can be decided.
        """
        from haru.api.decision_options import options_of
        from haru.whatif import ChangeError, Inquiry, Objects, try_out

        objects, told = self._resolved(changes)
        at = now or datetime.now(UTC)
        named = [obj["metadata"]["name"] for obj in objects if obj["kind"] == "PodGroup"]
        deciding = replace(options_of(self.deciding_gates(named)), now=at.timestamp())
        try:
            return try_out(Objects(objects), told, deciding, scheduler_name, at, Inquiry(self.gates, self.refused))
        except ChangeError as error:
            raise InputError(self._unless_unread(str(error))) from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _undecidable(error) from error

    @checks_types
    def changed(self, *changes: AskedChange, now: datetime | None = None) -> Snapshot:
        """The snapshot as it is once changes are made, before anything follows from them.

        Pods that a change deletes are gone. Raises ChangeInputError and InputError as `what_if` does.
        """
        from haru.whatif import ChangeError, Objects, apply_change

        objects, told = self._resolved(changes)
        copy = Objects(objects)
        try:
            for change in told:
                apply_change(copy, change, now or datetime.now(UTC))
        except ChangeError as error:
            raise InputError(self._unless_unread(str(error))) from error
        return self._with(untranslated(copy.remaining()))

    def _unless_unread(self, problem: str) -> str:
        """Say that something may be there all the same, where not everything could be read."""
        return (
            f"{problem} (not allowed to read {', '.join(self.refused)}, so it may exist)" if self.refused else problem
        )

    def _resolved(self, changes: Sequence[AskedChange]) -> tuple[list[Obj], list[Change]]:
        from haru.api.changes import resolved

        if not changes:
            raise InputError("nothing changes: say what, for example Cordon(NODE) or Apply(FILE)")
        objects = translated(self.settled())
        return objects, resolved(changes, objects, self.gates, self.namespace)

    def deciding_gates(self, groups: Iterable[str]) -> Mapping[str, bool]:
        """The feature gates to decide under: none of them is about the gangs of other projects."""
        if self.gates["GenericWorkload"] or not any(map(is_foreign_group, groups)):
            return self.gates
        return {**self.gates, **dict.fromkeys(("GenericWorkload", "GangScheduling", "WorkloadAwarePreemption"), True)}

    @checks_types
    def usage(self, *, owner_namespace: str = "", owner: str = "") -> Usage:
        """Report who holds which cards now, which idle, and which are free while work waits.

        Rows are those of owners that match names or shell patterns. Raises InputError.
        """
        from haru.accounting.device_states import card_states
        from haru.accounting.report import Filter, usage_now
        from haru.api.decision_options import options_of
        from haru.engine.dra import all_double_allocations

        self._need("ResourceSlice", "which devices there are")
        snapshot = self._cluster.snapshot()
        deciding = options_of(self.deciding_gates(snapshot.pod_groups))
        usage = usage_now(card_states(snapshot, deciding), Filter(owner_namespace, owner))
        twice = tuple(all_double_allocations(snapshot.devices, snapshot.allocated))
        return replace(usage, twice=twice) if twice else usage

    # -- as objects ----------------------------------------------------------------------------------------------------

    def settled(self) -> list[Obj]:
        """The objects a moment later: workloads have their pods, priorities are numbers, claims made from templates."""
        from haru.api.admission import settled
        from haru.kube.workload_pods import made_for_new

        objects = [*self.objects, *made_for_new(self.objects, self.gates)]
        return settled(objects, group_claims=self.gates["DRAWorkloadResourceClaims"])

    def hidden(self) -> Snapshot:
        """The same without names, annotations and what containers run; decisions about it are the same."""
        from haru.api.anonymize import hidden

        objects = translated(self.objects)
        described = [obj for obj in objects if foreign_kind(obj) is not None]
        return self._with(hidden((obj for obj in objects if foreign_kind(obj) is None), described))

    def as_dict(self) -> Obj:
        """The objects as a `v1` List, which `read`, `of` and every `-f` of Haru take."""
        return {"apiVersion": "v1", "kind": "List", "items": list(self.objects)}

    @checks_types
    def write(self, path: str | Path) -> None:
        """Write the List into a file that only its owner may read. Raises OSError."""
        from haru.files import write_whole

        write_whole(Path(path), json.dumps(self.as_dict()) + "\n")

    def _with(self, objects: Iterable[Obj]) -> Snapshot:
        other = Snapshot(objects, namespace=self.namespace, refused=self.refused, not_served=self.not_served)
        other.gates = self.gates
        return other

    def __iter__(self) -> Iterator[Obj]:
        return iter(self.objects)

    def __len__(self) -> int:
        return len(self.objects)

    def counts(self) -> dict[str, int]:
        """How many objects there are of each kind."""
        return dict(sorted(Counter(obj["kind"] for obj in self.objects).items()))

    def __repr__(self) -> str:
        told = ", ".join(f"{count} {kind}" for kind, count in self.counts().items())
        return f"<Snapshot: {told or 'nothing'}>"

    def _repr_html_(self) -> str:
        from haru.api.html import snapshot_html

        return snapshot_html(len(self), self.counts(), self.refused)


def _undecidable(error: Exception) -> InputError:
    return InputError(f"nothing can be decided: an object is malformed: {what_fails(error)}; try haru lint")


def _kind_and_name(obj: Obj) -> str:
    try:
        return f"{obj['kind']}/{obj['metadata']['name']}"
    except (KeyError, TypeError) as error:
        raise InputError(f"write KIND/NAME, or give an object with kind and metadata.name, not: {obj!r}") from error
