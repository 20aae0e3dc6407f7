"""Computes how many DGX nodes a workload needs, with the engine and without a cluster.

    python examples/python/capacity.py [MANIFEST [PROFILE]]

The default manifest is examples/gang.yaml. Tries one node more at a time, and prints why smaller fleets do not suffice.
"""

from __future__ import annotations

import sys
from pathlib import Path

import haru

GANG = Path(__file__).parents[1] / "gang.yaml"
MOST = 16


def main(manifest: str = str(GANG), profile: str = "dgx-h100") -> int:
    """Prints the smallest number of nodes of a profile on which all pods of a manifest fit."""
    for count in range(1, MOST + 1):
        fleet = haru.Snapshot.of().changed(haru.AddNodes(profile, count))
        try:
            answer = fleet.what_if(haru.Apply(manifest))
        except haru.HaruError as error:
            print(error, file=sys.stderr)
            return 2
        if not answer.waits:
            print(f"{manifest} needs {count} × {profile}")
            return 0
        reason = answer.waits[0].reasons[0]
        print(f"{count} × {profile}: {len(answer.waits)} pods wait ({reason.type}: {reason.message})")
    print(f"{manifest} does not fit on {MOST} × {profile}")
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
