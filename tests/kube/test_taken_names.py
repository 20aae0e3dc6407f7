"""Which names a CustomResourceDefinition gets beside those that are taken."""

from __future__ import annotations

from typing import Any

import pytest

from haru.kube.custom.definitions import TakenNames, accepted_names

Obj = dict[str, Any]
THERE = {"plural": "things", "singular": "thing", "shortNames": ["th"], "kind": "Thing", "listKind": "ThingList"}


def definition(names: Obj, group: str = "example.com") -> Obj:
    return {"metadata": {"name": f"others.{group}"}, "spec": {"group": group, "names": names}}


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ({"plural": "others"}, ""),
        ({"plural": "th"}, "PluralConflict"),
        ({"singular": "things"}, "SingularConflict"),
        ({"kind": "ThingList"}, "KindConflict"),
        ({"kind": "things"}, ""),  # names of kinds are another sort
        ({"listKind": "Thing"}, "ListKindConflict"),
        ({"shortNames": ["o", "thing"]}, "ShortNamesConflict"),
        ({"plural": "things", "shortNames": ["th"]}, "PluralConflict"),
    ],
)
def test_names_clash_within_their_sort(names: Obj, reason: str) -> None:
    taken = TakenNames()
    taken.hold("things.example.com", "example.com", THERE)
    assert accepted_names(definition(names), taken)[1][0] == reason
    assert accepted_names(definition(names, "elsewhere.com"), taken)[1] == ("", "")


def test_own_names_and_names_let_go_are_not_taken() -> None:
    taken = TakenNames()
    taken.hold("others.example.com", "example.com", THERE)
    assert accepted_names(definition(THERE), taken) == (THERE, ("", ""))
    taken.hold("things.example.com", "example.com", THERE)  # two servers gave them out at the same time
    assert accepted_names(definition(THERE), taken)[1][0] == "PluralConflict"
    taken.hold("things.example.com", "example.com", {"plural": "things"})
    assert accepted_names(definition({"singular": "thing"}), taken)[1] == ("", "")
    taken.release("things.example.com")
    assert accepted_names(definition(THERE), taken)[1] == ("", "")
    taken.release("never.example.com")
