"""The openb trace (Alibaba cluster-trace-gpu-v2023) and the protocol by which it is replayed.

1. Start from an empty cluster; the order of the nodes is a random permutation.
2. Take all pods of a list; add pods drawn with replacement, or remove random ones, until the cards that are asked for
   reach 130 % of those that there are.
3. Shuffle the pods; place one after another, never deleting, never moving; a pod that does not fit is dropped.
4. Report the cards allocated, in percent, as a function of the cards that have arrived.

Source: "Beware of Fragmentation" (USENIX ATC'23) and its published runs.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from haru.simulate.draws import Draws
from haru.simulate.packing import CARD, Machine, Shape

NODES = "openb_node_list_gpu_node"
PODS = "openb_pod_list_"
TABULATED = (
    "default",
    "cpu050",
    "cpu100",
    "cpu200",
    "cpu250",
    "gpushare40",
    "gpushare60",
    "gpushare80",
    "gpushare100",
    "gpuspec10",
    "gpuspec20",
    "gpuspec25",
    "gpuspec33",
    "multigpu20",
    "multigpu30",
    "multigpu40",
    "multigpu50",
)
"""The workloads with published results."""
FULL = 1.3
"""How much of the cluster's cards is asked for in the end."""


class TraceError(ValueError):
    """A table that is not what it should be; the text names the line, the column and the value."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A cluster and the pods that may come to it."""

    name: str
    machines: tuple[Machine, ...]
    pods: tuple[Shape, ...]

    @property
    def cards(self) -> int:
        """How many cards there are."""
        return sum(machine.cards for machine in self.machines)

    @property
    def demand(self) -> Counter[Shape]:
        """How often each shape comes in the list."""
        return Counter(self.pods)


def read_machines(lines: Iterable[str]) -> tuple[Machine, ...]:
    """The nodes of a table (columns cpu_milli, memory_mib, gpu, model). Raises TraceError."""
    return tuple(
        Machine(row.number("cpu_milli"), row.number("memory_mib"), row.number("gpu"), row.text("model"))
        for row in _rows(lines)
    )


def read_pods(lines: Iterable[str]) -> tuple[Shape, ...]:
    """The pods of a table (columns cpu_milli, memory_mib, num_gpu, gpu_milli, and gpu_spec if it is there).

    Raises TraceError.
    """
    return tuple(_shape(row) for row in _rows(lines))


def _shape(row: _Row) -> Shape:
    cards, part = row.number("num_gpu"), row.number("gpu_milli")
    if not cards:
        return Shape(row.number("cpu_milli"), row.number("memory_mib"))
    if not 0 < part <= CARD or (cards > 1 and part != CARD):
        raise TraceError(f"line {row.line}: gpu_milli: {part}: write 1 to 1000, and 1000 with several cards")
    models = frozenset(name for name in row.text("gpu_spec").split("|") if name)
    return Shape(row.number("cpu_milli"), row.number("memory_mib"), cards, part, models)


class _Row:
    def __init__(self, line: int, values: dict[str, str | None]) -> None:
        self.line = line
        self._values = values

    def number(self, column: str) -> int:
        text = self._values.get(column)
        try:
            found = int(text or "")
        except ValueError:
            found = -1
        if found < 0:
            raise TraceError(f"line {self.line}: {column}: {text!r}: write a whole number from 0 on")
        return found

    def text(self, column: str) -> str:
        return self._values.get(column) or ""


def _rows(lines: Iterable[str]) -> Iterator[_Row]:
    reader = csv.DictReader(lines)
    for values in reader:
        yield _Row(reader.line_num, values)


def arrivals(workload: Workload, draws: Draws, demand: float = FULL) -> list[Shape]:
    """The pods in the order in which they come: as many as ask for `demand` times the cards of the cluster."""
    pods = list(workload.pods)
    limit = demand * workload.cards * CARD
    requested = sum(pod.amount for pod in pods)
    if limit and not any(pod.amount for pod in pods):
        raise TraceError("no pod of the list asks for cards: there is no demand to reach")
    while requested < limit:
        pod = draws.choice(workload.pods)
        pods.append(pod)
        requested += pod.amount
    draws.shuffle(pods)
    while requested - pods[-1].amount >= limit:
        requested -= pods.pop().amount
    return pods


def ordered(machines: Sequence[Machine], draws: Draws) -> list[Machine]:
    """The machines in a random order: the one that breaks ties."""
    found = list(machines)
    draws.shuffle(found)
    return found
