"""The overview: how the cards are used, what that wastes, what waits, and what would help most."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from haru.dashboard.views.device_map import DeviceMap
from haru.dashboard.views.prices import Prices
from haru.dashboard.views.queue import ShownExplanation, WaitingWorkload
from haru.dashboard.views.workloads import Workload
from haru.explain.card_counts import WHOLE, WORDS, CardCounts, Word
from haru.explain.explanation import Remedy, Verdict

HOURS = 24
_MOST_ACTIONS = 3
_MOST_IDLE = 6
_MOST_WAITING = 6
ORDER: tuple[Word, ...] = ("inUse", "unmeasured", "idle", "reserved", "free", "unavailable")
TITLES: Mapping[Word, str] = {
    "inUse": "in use", "idle": "idle", "unmeasured": "unmeasured", "reserved": "reserved", "free": "free",
    "unavailable": "unavailable",
}  # fmt: skip
CLASSES: Mapping[Word, str] = {word: "in-use" if word == "inUse" else word for word in WORDS}
"""CSS classes, as the tokens name their colours."""


@dataclass(frozen=True, slots=True)
class Share:
    """So many cards in one state; `start` and `width` in percent are its place in a bar of all."""

    word: Word
    cards: float
    start: float
    width: float

    @property
    def title(self) -> str:
        """The word of docs/glossary.md."""
        return TITLES[self.word]

    @property
    def look(self) -> str:
        """The CSS class."""
        return CLASSES[self.word]


@dataclass(frozen=True, slots=True)
class Model:
    """The cards of one model, by state."""

    product: str
    cards: float
    shares: tuple[Share, ...]

    def of(self, word: Word) -> float:
        """The cards in one state."""
        return sum(share.cards for share in self.shares if share.word == word)


@dataclass(frozen=True, slots=True)
class IdleWork:
    """Work that holds cards without using them; `money` per day where all of their models have prices."""

    workload: Workload
    cards: float
    money: float | None

    @property
    def hours(self) -> float:
        """Card-hours of a day, if it goes on like this."""
        return self.cards * HOURS


@dataclass(frozen=True, slots=True)
class Waste:
    """What idle cards cost in a day, if it goes on like this, and the work that holds most of them."""

    cards: float
    money: float | None
    currency: str
    work: tuple[IdleWork, ...]

    @property
    def hours(self) -> float:
        """Card-hours of a day."""
        return self.cards * HOURS


@dataclass(frozen=True, slots=True)
class Action:
    """A remedy, and the waiting work that it helps."""

    remedy: Remedy
    helps: tuple[Workload, ...]
    pods: int


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """Waiting work with its verdict (None: not known yet) and what would let it fit."""

    waiting: WaitingWorkload
    verdict: Verdict | None
    summary: str
    remedy: Remedy | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits: `fits` are the pods by verdict, `would_fit` those that some confirmed remedy would let in."""

    workloads: int
    pods: int
    since: str
    fits: tuple[tuple[str, int], ...]
    would_fit: int
    rows: tuple[WaitingRow, ...]


@dataclass(frozen=True, slots=True)
class Overview:
    """What the first page shows of one moment."""

    all: Model
    models: tuple[Model, ...]
    nodes: int
    waste: Waste
    waiting: Waiting
    actions: tuple[Action, ...]


def overview(
    found: DeviceMap,
    queue: Sequence[WaitingWorkload],
    explanations: Mapping[Workload, ShownExplanation],
    prices: Prices | None = None,
) -> Overview:
    """Make the overview of a map and a queue; `explanations` are those that are there so far."""
    models = tuple(_model(product or "unnamed", counts) for product, counts in found.products)
    everything = sum((counts for _, counts in found.products), CardCounts())
    return Overview(
        _model("all", everything),
        models,
        found.totals.nodes,
        _waste(found, prices),
        _waiting(queue, explanations),
        actions(queue, explanations),
    )


def _model(product: str, counts: CardCounts) -> Model:
    amounts, total, start, shares = counts.words(), counts.total or 1, 0.0, []
    for word in ORDER:
        width = 100 * amounts[word] / total
        if amounts[word]:
            shares.append(Share(word, amounts[word] / WHOLE, round(start, 3), round(width, 3)))
        start += width
    return Model(product, counts.total / WHOLE, tuple(shares))


def _waste(found: DeviceMap, prices: Prices | None) -> Waste:
    idle: dict[Workload, float] = defaultdict(float)
    cost: dict[Workload, float] = defaultdict(float)
    unpriced: set[Workload] = set()
    for place in found.places:
        for card in place.cards:
            price = prices.of(card.product) if prices is not None else None
            for part in card.parts:
                if part.word != "idle" or not part.owners:
                    continue
                owner, cards = part.owners[0], part.share * len(place.names)
                idle[owner] += cards
                cost[owner] += cards * HOURS * (price or 0.0)
                unpriced |= {owner} if price is None else set()
    work = [
        IdleWork(owner, round(cards, 3), None if owner in unpriced else cost[owner]) for owner, cards in idle.items()
    ]
    work = [each for each in work if each.workload.namespace]  # others count, without a name
    work.sort(key=lambda each: (-each.cards, each.workload))
    money = None if unpriced or not prices else sum(cost.values())
    currency = prices.currency if prices is not None else ""
    return Waste(round(sum(idle.values()), 3), money, currency, tuple(work[:_MOST_IDLE]))


def _waiting(queue: Sequence[WaitingWorkload], explanations: Mapping[Workload, ShownExplanation]) -> Waiting:
    fits: dict[str, int] = defaultdict(int)
    would_fit, rows = 0, list[WaitingRow]()
    for each in queue:
        shown = explanations.get(each.workload)
        if shown is None:
            rows.append(WaitingRow(each, None, each.said or "not tried yet", None))
            continue
        answer = shown.explanation
        fits[answer.verdict] += each.pods
        best = next((remedy for remedy in answer.remedies if remedy.confirmed), None)
        would_fit += each.pods if best is not None else 0
        rows.append(WaitingRow(each, answer.verdict, answer.summary, best))
    order = ("Starting", "FitsLater", "FitsIf", "NeverFits")
    told = tuple((verdict, fits[verdict]) for verdict in order if fits[verdict])
    since = min((each.since for each in queue if each.since), default="")
    pods = sum(each.pods for each in queue)
    return Waiting(len(queue), pods, since, told, would_fit, tuple(rows[:_MOST_WAITING]))


def actions(
    queue: Iterable[WaitingWorkload], explanations: Mapping[Workload, ShownExplanation], most: int = _MOST_ACTIONS
) -> tuple[Action, ...]:
    """Choose the remedies that help most pods, confirmed ones with a command first; each workload counts once."""
    helped: dict[str, list[WaitingWorkload]] = {}
    remedies: dict[str, Remedy] = {}
    for each in queue:
        shown = explanations.get(each.workload)
        for remedy in shown.explanation.remedies if shown is not None else ():
            key = remedy.command or remedy.summary
            if each not in helped.setdefault(key, []):
                helped[key].append(each)
            remedies.setdefault(key, remedy)
    found = [
        Action(remedies[key], tuple(each.workload for each in own), sum(each.pods for each in own))
        for key, own in helped.items()
    ]
    found.sort(key=lambda a: (not a.remedy.confirmed, not a.remedy.command, -a.pods, a.remedy.cost, a.remedy.summary))
    chosen: list[Action] = []
    covered: set[Workload] = set()
    # First what helps work that nothing chosen helps yet.
    for action in [*found, *found]:
        fresh = set(action.helps) - covered
        if len(chosen) < most and action not in chosen and (fresh or len(covered) == len(set(_all(found)))):
            chosen.append(action)
            covered |= set(action.helps)
    return tuple(chosen)


def _all(found: Iterable[Action]) -> Iterable[Workload]:
    return (work for action in found for work in action.helps)
