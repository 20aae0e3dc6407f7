"""The openb trace by its published protocol: GPUs allocated at 100 % and 130 % demand, policy by policy.

    python -m benchmarks.openb --data DIR [--seeds 42-51] [--policies first-fit,fgd,haru] [--results FILE]
    python -m benchmarks.openb --data DIR --results FILE --markdown --document docs/performance-packing.md

DIR holds the tables of the trace and reference_results.csv, the published means. Every run is appended to FILE as one
JSON line when it is done; runs that are there already are not made again. Placements per second are of processor time.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from pathlib import Path
from typing import Any

from haru.cli.simulate_trace import read_workload
from haru.engine.packing_value import room_prices
from haru.simulate.openb import TABULATED, Workload
from haru.simulate.packing import CARD
from haru.simulate.policies import make_policy
from haru.simulate.replay import play

Row = dict[str, Any]
BEGIN, END = "<!-- tables -->", "<!-- end of tables -->"


def runs(data: Path, workloads: list[str], policies: list[str], seeds: list[int], results: Path) -> None:
    """Make the runs that are missing."""
    done = {(row["workload"], row["policy"], row["seed"]) for row in read_results(results)}
    with results.open("a") as file:
        for name in workloads:
            workload = read_workload(data, name)
            demand = workload.demand
            for policy_name in policies:
                policy = make_policy(policy_name, demand, workload.machines)
                for seed in seeds:
                    if (name, policy_name, seed) in done:
                        continue
                    began = time.process_time()
                    run = play(workload, policy, seed)
                    seconds = time.process_time() - began
                    row = {
                        "workload": name,
                        "policy": policy_name,
                        "seed": seed,
                        "at100": run.at(100),
                        "at130": run.at(130),
                        "perSecond": run.pods / seconds,
                    }
                    print(json.dumps(row), file=file, flush=True)


def read_results(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def published(data: Path) -> dict[str, dict[str, tuple[float, float]]]:
    """By workload and policy: the published means at 100 % and 130 %."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    with (data / "reference_results.csv").open() as lines:
        for row in csv.DictReader(lines):
            workload = row["workload"].removeprefix("openb_pod_list_")
            values = float(row["alloc_pct_at_100"]), float(row["alloc_pct_at_130"])
            found.setdefault(workload, {})[row["policy"]] = values
    return found


def mean(rows: list[Row], workload: str, policy: str, key: str) -> float | None:
    values = [row[key] for row in rows if row["workload"] == workload and row["policy"] == policy]
    return sum(values) / len(values) if values else None


def spread(rows: list[Row], workload: str, policy: str, key: str) -> float:
    values = [row[key] for row in rows if row["workload"] == workload and row["policy"] == policy]
    if len(values) < 2:
        return 0.0
    middle = sum(values) / len(values)
    return float((sum((value - middle) ** 2 for value in values) / (len(values) - 1)) ** 0.5)


def table(
    rows: list[Row], known: dict[str, dict[str, tuple[float, float]]], bounds: dict[str, float], key: str
) -> list[list[str]]:
    """One line a workload: first fit, FGD (ours and published), the best other published one, Haru, the bound."""
    index = 0 if key == "at100" else 1
    heads = ["workload", "first fit", "FGD", "FGD published", "best other published", "haru", "haru less FGD", "bound"]
    lines = [heads, ["---"] + ["---:"] * 7]
    for workload in dict.fromkeys(row["workload"] for row in rows):
        papers = known.get(workload, {})
        others = max((values[index], name) for name, values in papers.items() if name != "FGD") if papers else None
        ours, fgd = mean(rows, workload, "haru", key), mean(rows, workload, "fgd", key)
        first = mean(rows, workload, "first-fit", key)
        lines.append(
            [
                workload,
                _cell(first),
                _cell(fgd),
                _cell(papers["FGD"][index]) if papers else "",
                f"{others[0]:.2f} ({others[1]})" if others else "",
                f"**{_cell(ours)}** ±{spread(rows, workload, 'haru', key):.2f}" if ours is not None else "",
                f"{ours - fgd:+.2f}" if ours is not None and fgd is not None else "",
                f"{bounds[workload]:.2f}",
            ]
        )
    return lines


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def covering_bound(workload: Workload) -> float:
    """GPUs allocated (%) when the last whole card goes, if all that came was placed and packed as well as can be.

    The least number of cards for the mix is the covering program of haru.engine.packing_value.value; cpu, memory and
    models are not counted. No policy that takes what fits can have more by then, but for the luck of the draw.
    """
    pieces: dict[int, int] = {}
    whole = 0
    for pod in workload.pods:
        if pod.part == CARD:
            whole += pod.cards
        elif pod.cards:
            size = -(-pod.part // 10)
            pieces[size] = pieces.get(size, 0) + 1
    prices = room_prices(pieces, 100)
    cards = whole + sum(prices[size] * count for size, count in pieces.items())
    return 100 * sum(pod.amount for pod in workload.pods) / CARD / cards


def speeds(rows: list[Row]) -> dict[str, tuple[float, float]]:
    """By policy: the least and the mean number of placements a second, over workloads."""
    found: dict[str, tuple[float, float]] = {}
    for policy in dict.fromkeys(row["policy"] for row in rows):
        workloads = {row["workload"] for row in rows if row["policy"] == policy}
        values = [mean(rows, workload, policy, "perSecond") or 0.0 for workload in sorted(workloads)]
        found[policy] = (min(values), sum(values) / len(values))
    return found


def report(rows: list[Row], data: Path) -> str:
    """The tables as Markdown, with how many seeds stand behind them."""
    known = published(data)
    bounds = {name: covering_bound(read_workload(data, name)) for name in dict.fromkeys(r["workload"] for r in rows)}
    lines = []
    for key, level in (("at130", 130), ("at100", 100)):
        lines += [f"### GPUs allocated (%) at {level} % demand", ""]
        lines += [f"| {' | '.join(line)} |" for line in table(rows, known, bounds, key)]
        lines.append("")
    lines += ["Placements a second of processor time, on the slowest workload and in the mean over workloads:", ""]
    lines += [f"- `{policy}`: {least:.0f}, {middle:.0f}" for policy, (least, middle) in speeds(rows).items()]
    return "\n".join([*lines, "", seeds_told(rows)])


def seeds_told(rows: list[Row]) -> str:
    """Which seeds stand behind the figures, workload by workload."""
    groups: dict[str, list[str]] = {}
    for workload in dict.fromkeys(row["workload"] for row in rows):
        told = []
        for policy in ("haru", "fgd", "first-fit"):
            seeds = sorted(r["seed"] for r in rows if (r["workload"], r["policy"]) == (workload, policy))
            told.append(f"{policy} {_ranges(seeds)}")
        groups.setdefault("; ".join(told), []).append(workload)
    return "\n".join(f"Seeds ({', '.join(names)}): {told}." for told, names in groups.items())


def _ranges(seeds: list[int]) -> str:
    if not seeds:
        return "none"
    whole = seeds == list(range(seeds[0], seeds[-1] + 1)) and len(seeds) > 1
    return f"{seeds[0]}-{seeds[-1]}" if whole else ", ".join(map(str, seeds))


def write_document(path: Path, tables: str) -> None:
    """Replace what stands between the two marks of a document."""
    before, _, rest = path.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}")


def main() -> int:
    """Makes the runs that are missing, and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--workloads", default=",".join(TABULATED))
    parser.add_argument("--policies", default="first-fit,fgd,haru")
    parser.add_argument("--seeds", default="42-51")
    parser.add_argument("--results", type=Path, default=Path("openb.jsonl"))
    parser.add_argument("--markdown", action="store_true", help="make no runs")
    parser.add_argument("--document", type=Path, help="write the tables between the marks of this page too")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    seeds = list(range(int(first), int(last or first) + 1))
    if not options.markdown:
        policies = options.policies.split(",")
        runs(options.data, options.workloads.split(","), policies, seeds, options.results)
    rows = [row for row in read_results(options.results) if row["seed"] in seeds]
    if rows:
        tables = report(rows, options.data)
        print(tables)
        if options.document is not None:
            write_document(options.document, tables)
    return 0


if __name__ == "__main__":
    sys.exit(main())
