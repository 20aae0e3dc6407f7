"""A usage history of twenty hours for the busy cluster, as of one that nobody started just now."""

from __future__ import annotations

import math
from pathlib import Path

from busy_cluster import CARDS, RUNNING

from haru.accounting.device_states import WHOLE, UsageKey
from haru.accounting.history import History
from haru.accounting.holdings import Holding, HoldingKey
from haru.accounting.ledger import Interval
from haru.explain.happenings import Happening

MINUTE = 60_000
STEP = 10 * MINUTE
LENGTH = 20 * 60 * MINUTE
DRIVER = "gpu.nvidia.com"


EARLIER = (
    ("research", "job/tokenizer", "dgx-h100", range(4), range(8), 0.0, 0.42, 88.0),
    ("research", "job/pretrain-13b", "dgx-h100", range(4, 8), range(8), 0.05, 0.78, 94.0),
    ("vision", "job/segmentation", "dgx-h100", range(3), range(8), 0.46, 0.9, 76.0),
    ("research", "deployment/sandbox", "dgx-h100", range(3, 4), range(4), 0.5, 0.86, 2.0),
    ("serving", "deployment/chat-llm", "hgx-h200", range(4), range(4), 0.1, 0.93, 61.0),
    ("platform", "job/nightly", "hgx-b200", range(2), range(8), 0.2, 0.7, 91.0),
    ("vision", "job/augment", "dgx-a100-40gb", range(3), range(6), 0.3, 0.8, 55.0),
    ("vision", "deployment/labs", "dgx-a100-40gb", range(3, 4), range(8), 0.0, 0.6, 0.0),
)
"""Work of fifty minutes that has ended: namespace, owner, profile, nodes, cards, from and to as parts, percent."""


def write(file: Path, until: int, began: int) -> None:
    """Write the amounts of twenty hours, who held which device, and what happened before the cluster began."""
    write_usage(file, until)
    history, length, until = History(file), 50 * MINUTE, began
    for namespace, owner, profile, nodes, cards, start, end, percent in EARLIER:
        for node in nodes:
            for card in cards:
                key = HoldingKey(
                    f"{profile}-{node}", DRIVER, f"{profile}-{node}", f"gpu-{card}", f"gpu-{card}", namespace, owner
                )
                times = (round(until - length + part * length) for part in (start, end))
                history.put_holdings([Holding(key, *times, percent)])
    at = [round(until - length + part * length) for part in (0.42, 0.46, 0.5, 0.93)]
    history.put_happenings(
        [
            Happening("fault", "dgx-h100-3", "", "gpu-5 on dgx-h100-3 is tainted: xid-63:NoSchedule", at[0], at[1]),
            Happening("preempted", "dgx-h100-3", "research", "Preempted: research/tokenizer-3", at[0], at[0]),
            Happening("evicted", "hgx-h200-2", "serving", "TaintManagerEviction: serving/chat-llm-2", at[3], at[3]),
            Happening("fault", "hgx-h200-2", "", "node hgx-h200-2 is not ready", at[2], at[3]),
        ]
    )
    history.close()


def write_usage(file: Path, until: int) -> None:
    """Write intervals of ten minutes: each work starts at an hour of its own, serving follows the day."""
    history = History(file)
    for began in range(until - LENGTH, until, STEP):
        hour = (began - (until - LENGTH)) / (60 * MINUTE)
        units: dict[UsageKey, int] = {}
        left = float(CARDS)
        for number, work in enumerate(RUNNING):
            cards = work.pods * work.devices / (7 if "1g" in work.expression else 2 if "3g" in work.expression else 1)
            if work.kind == "Job" and not number % 3 < hour / 4:
                continue
            if work.kind == "Deployment":
                cards = round(cards * (0.75 + 0.25 * math.sin(hour / 20 * math.pi)), 2)
            state, word = ("Held", "unmeasured") if work.busy is None else ("Busy", "inUse")
            if work.busy is not None and work.busy < 5:
                state, word = "Idle", "idle"
            key = UsageKey(state, work.namespace, f"{work.kind.lower()}/{work.name}", DRIVER, word)  # type: ignore[arg-type]
            units[key] = round(cards * WHOLE)
            left -= cards
        missed = min(left, 12.0 if 6 < hour < 9 or hour > 15 else 0.0)
        units[UsageKey("GangWaiting", "research", "job/pretrain-moe", DRIVER, "free")] = round(missed * WHOLE)
        units[UsageKey("Free", "", "", DRIVER, "free")] = round((left - missed) * WHOLE)
        history.put(
            Interval(began, began + STEP, STEP, {key: amount * STEP for key, amount in units.items() if amount})
        )
    history.close()
