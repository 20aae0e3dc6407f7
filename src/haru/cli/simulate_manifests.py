"""Replay manifests for `haru simulate`: start times and utilization per policy and seed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from haru.api.decision_options import options_of
from haru.api.files import what_fails
from haru.api.snapshot import DEFAULT_SCHEDULER, Snapshot
from haru.cli.main import UsageError
from haru.cli.progress import Progress
from haru.cli.simulate_options import chosen, chosen_seeds
from haru.cli.sources import file_gates
from haru.engine import Profile
from haru.engine.framework import DEFAULT_PROFILE, EXPECTED_PROFILE, PACKING_PROFILE, FitStrategy
from haru.explain.changes import listed
from haru.files import text_of
from haru.gangs import translated
from haru.whatif import Inquiry, rows_json, rows_text
from haru.whatif.replay import ArrivalError, Replay, arrival_times, parse_time, replay

PROFILES: Mapping[str, Profile] = {
    "default": DEFAULT_PROFILE,
    "most-allocated": Profile(weights={"NodeResourcesFit": 1}, fit=FitStrategy("MostAllocated")),
    "packing": PACKING_PROFILE,
    "haru": EXPECTED_PROFILE,
}
"""Ways to choose among nodes and devices: default, packing and haru are profiles of the live scheduler."""
_POINTS = 101


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """One replay."""

    policy: str
    seed: int
    replay: Replay

    def as_dict(self) -> dict[str, Any]:
        """The documented JSON."""
        told = self.replay
        return {
            "policy": self.policy,
            "seed": self.seed,
            "pods": len(told.stories),
            "started": told.started,
            "meanWaitSeconds": round(told.mean_wait, 3),
            "meanUsagePercent": round(told.mean_usage * 100, 3),
            "endSeconds": told.end,
            "evictions": sum(story.evictions for story in told.stories),
            "errors": list(told.errors),
            "pending": rows_json(told.pending),
            "stories": [
                {
                    "pod": story.path,
                    "arrivedSeconds": story.arrived,
                    "startedSeconds": story.started,
                    "endedSeconds": story.ended,
                    "node": story.node,
                    "evictions": story.evictions,
                }
                for story in told.stories
            ],
        }


def run_manifests(options: argparse.Namespace) -> int:
    """`haru simulate -f`."""
    if options.data is not None or options.workload is not None:
        raise UsageError("--data and --workload belong to a trace: haru simulate openb")
    policies = chosen(options.policy, ("default", "haru"))
    for name in policies:
        if name not in PROFILES:
            raise UsageError(f"--policy: {name}: with manifests there are {', '.join(PROFILES)}")
    file_gates(options.feature_gates)
    snapshot = Snapshot.read(*options.filename, namespace=options.namespace, feature_gates=options.feature_gates)
    objects = translated(snapshot.settled())
    gates = snapshot.deciding_gates(obj["metadata"]["name"] for obj in objects if obj["kind"] == "PodGroup")
    inquiry = Inquiry(snapshot.gates, snapshot.refused)
    if not any(obj["kind"] == "Node" for obj in objects):
        text = "the manifests have no nodes, so no pod starts: add those of a cluster (haru capture)"
        print(f"haru simulate: {text}", file=sys.stderr)
    try:
        arrivals = arrival_times(objects, _given(options.arrivals, options.namespace))
    except ArrivalError as error:
        raise UsageError(str(error)) from error
    rows = []
    seeds = chosen_seeds(options)
    with Progress(len(policies) * len(seeds), sys.stderr, shown=not options.no_progress) as progress:
        for name in policies:
            for seed in seeds:
                progress.begin(f"{name} {seed}")
                deciding = replace(options_of(gates), seed=seed, profile=PROFILES[name])
                try:
                    told = replay(objects, arrivals, deciding, DEFAULT_SCHEDULER, inquiry)
                except (AttributeError, KeyError, TypeError, ValueError) as error:
                    what = what_fails(error)
                    raise UsageError(
                        f"nothing can be decided: an object is malformed: {what}; try haru lint"
                    ) from error
                rows.append(ManifestRow(name, seed, told))
                progress.done()
    if options.output == "json":
        body = {"apiVersion": "haru.dev/v1alpha1", "kind": "Replay", "rows": [row.as_dict() for row in rows]}
        print(json.dumps(body, indent=2))
    else:
        print("\n".join([_table(rows), *_pending(rows)]))
    _draw(options, rows)
    return 0


def _given(path: Path | None, namespace: str) -> dict[str, float]:
    """The times that `--arrivals` gives, by path of the pod."""
    if path is None:
        return {}
    try:
        lines = text_of(path.read_bytes()).splitlines()
    except OSError as error:
        raise UsageError(f"--arrivals: {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"--arrivals: {path}: {error}") from error
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, text = line.partition(",")
        try:
            seconds = parse_time(text)
        except ValueError as error:
            raise UsageError(f"--arrivals: {path}: line {number}: {error}") from error
        name = name.strip()
        found[name if "/" in name else f"{namespace}/{name}"] = seconds
    return found


def _table(rows: Sequence[ManifestRow]) -> str:
    lines = [("POLICY", "SEED", "PODS", "STARTED", "MEAN WAIT", "IN USE", "EVICTIONS", "END")]
    for row in rows:
        told = row.replay
        cells = (f"{told.mean_wait:.0f}s", f"{told.mean_usage:.1%}", str(sum(s.evictions for s in told.stories)))
        lines.append((row.policy, str(row.seed), str(len(told.stories)), str(told.started), *cells, f"{told.end:.0f}s"))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _pending(rows: Sequence[ManifestRow]) -> Iterator[str]:
    """What never started and still waits at the end, as `haru explain` says it; runs that end alike are told once."""
    ends: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        if row.replay.pending:
            ends.setdefault(tuple(rows_text(row.replay.pending)), []).append(f"{row.policy} {row.seed}")
    for lines, runs in ends.items():
        yield f"waiting at the end ({listed(runs)}):"
        yield from (f"  {line}" for line in lines)


def _draw(options: argparse.Namespace, rows: Sequence[ManifestRow]) -> None:
    if options.plot is None and options.html is None:
        return
    from haru.cli.simulate_charts import draw_png, write_page

    first = rows[0].seed
    curves = {"devices": {row.policy: row.replay.curve(_POINTS) for row in rows if row.seed == first}}
    title = f"Devices in use (%) over time (% of the whole), seed {first}"
    if options.plot is not None:
        draw_png(options.plot, title, curves)
    if options.html is not None:
        write_page(options.html, title, _table(rows), curves)
