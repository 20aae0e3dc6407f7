"""What stands in a table of nftables, and the transactions that change it.

Pure. A transaction costs what changed: the table knows the rules of each Service, and who wants each element of a map,
since two Services may name one external IP or one endpoint.
Source: the partial syncs of kube-proxy's nftables mode (KEP-3866), as behaviour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from haru.service_proxy.ruleset import TABLE, BaseRules, Rules

_NOTHING: Final = Rules()
CHAIN_REST_SECONDS: Final = 1.0
"""Before 6.2, the kernel counts a chain as used for a moment after the last element that leads to it has gone."""


class Table:
    """The table of one family, as the last transaction left it."""

    def __init__(self, family: str, base: BaseRules) -> None:
        self.family, self._base = family, base
        self._name = f"{family} {TABLE}"
        self._services: dict[str, Rules] = {}
        self._wanted: dict[tuple[str, str], dict[str, str]] = {}
        """The verdicts for an element, by the Service that wants it; the first one counts."""
        self._resting: dict[str, float] = {}
        """Chains that nothing leads to any more, and since when."""

    def create(self, services: Mapping[str, Rules], left: Collection[str] | None = None) -> Iterator[str]:
        """The commands for a table with these Services alone.

        `left` are the chains and affinity sets of a table that is kept, with its clients' affinities; without, whatever
        stands there goes.
        """
        yield f"add table {self._name}"
        yield f"delete table {self._name}" if left is None else f"flush table {self._name}"
        if left is None:
            yield f"add table {self._name}"
        for name, definition in self._base.containers.items():
            kind, _, body = definition.partition(" ")
            yield f"add {kind} {self._name} {name} {body}"
            if left is not None:
                yield f"flush {kind} {self._name} {name}"
        for chain in self._base.chains:
            hook = self._base.hooks.get(chain)
            yield f"add chain {self._name} {chain}" + (f" {{ {hook}; policy accept; }}" if hook else "")
        for chain, rules in self._base.chains.items():
            yield from (f"add rule {self._name} {chain} {rule}" for rule in rules)
        yield from self.update(services, 0.0)
        chains = {chain for rules in self._services.values() for chain in rules.chains}
        sets = {name for rules in self._services.values() for name in rules.sets}
        for name in sorted(set(left or ()) - chains - sets - self._base.chains.keys() - self._base.containers.keys()):
            if name.startswith("affinity-"):
                yield f"delete set {self._name} {name}"
            else:
                self._resting[name] = 0.0

    def update(self, changes: Mapping[str, Rules], now: float) -> list[str]:
        """The commands after which Services have these rules; of a Service that has gone, none."""
        steps = _Steps(self._name)
        for service, new in changes.items():
            old = self._services.pop(service, _NOTHING)
            if new.chains or new.elements:
                self._services[service] = new
            for key in old.elements.keys() | new.elements.keys():
                if (change := self._want(service, key, new.elements.get(key))) is not None:
                    steps.element(key, *change)
            for chain in old.chains.keys() - new.chains.keys():
                steps.flush.append(chain)
                self._resting[chain] = now
            for chain, rules in new.chains.items():
                if rules != old.chains.get(chain):
                    steps.chain(chain, rules, is_new=chain not in old.chains)
                    self._resting.pop(chain, None)
            steps.sets |= {name: new.sets[name] for name in new.sets.keys() - old.sets.keys()}
            steps.gone_sets += sorted(old.sets.keys() - new.sets.keys())
        return steps.commands()

    def _want(self, service: str, key: tuple[str, str], verdict: str | None) -> tuple[str | None, str | None] | None:
        """Note what a Service wants of an element; the verdict before and after, if that changes."""
        wanted = self._wanted.setdefault(key, {})
        before = next(iter(wanted.values()), None)
        if verdict is None:
            wanted.pop(service, None)
        else:
            wanted[service] = verdict
        if not wanted:
            del self._wanted[key]
        after = next(iter(wanted.values()), None)
        return None if before == after else (before, after)

    def delete_rested(self, now: float) -> list[str]:
        """The commands that delete chains which have been unused for long enough."""
        rested = [chain for chain, since in self._resting.items() if now - since >= CHAIN_REST_SECONDS]
        for chain in rested:
            del self._resting[chain]
        return [f"delete chain {self._name} {chain}" for chain in rested]

    def rest_again(self, commands: Iterable[str], now: float) -> None:
        """Commands that delete chains were refused: they are given again later."""
        for command in commands:
            self._resting[command.rpartition(" ")[2]] = now

    def no_local_endpoints(self) -> Counter[str]:
        """How many ports have no endpoint here that a traffic policy wants, by the policy."""
        found = Counter({"internal": 0, "external": 0})
        for rules in self._services.values():
            found.update(rules.no_local_endpoints)
        return found


class _Steps:
    """The commands of one transaction, each kind at its place: what is referred to goes last and comes first."""

    def __init__(self, table: str) -> None:
        self._table = table
        self.sets: dict[str, str] = {}
        self.flush: list[str] = []
        self.gone_sets: list[str] = []
        self._new_chains: list[str] = []
        self._rules: list[tuple[str, str]] = []
        self._removed: dict[tuple[str, str], None] = {}
        self._added: dict[tuple[str, str], str] = {}

    def element(self, key: tuple[str, str], before: str | None, after: str | None) -> None:
        """An element changes; what earlier Services of the batch did to it is taken into account."""
        if before is not None and self._added.pop(key, None) is None:
            self._removed[key] = None
        if after is not None:
            self._added[key] = after

    def chain(self, name: str, rules: tuple[str, ...], *, is_new: bool) -> None:
        """A chain gets rules in place of those that it has."""
        if is_new:
            self._new_chains.append(name)
        self.flush.append(name)
        self._rules += [(name, rule) for rule in rules]

    def commands(self) -> list[str]:
        """All of them, in an order that nftables accepts."""
        table = self._table
        lines = []
        for name, definition in self.sets.items():
            kind, _, body = definition.partition(" ")
            lines.append(f"add {kind} {table} {name} {body}")
        lines += [f"add chain {table} {name}" for name in self._new_chains]
        lines += [f"delete element {table} {name} {{ {key} }}" for name, key in self._removed]
        lines += [f"flush chain {table} {name}" for name in self.flush]
        lines += [f"add rule {table} {name} {rule}" for name, rule in self._rules]
        for (name, key), verdict in self._added.items():
            lines.append(f"add element {table} {name} {{ {key}{' : ' + verdict if verdict else ''} }}")
        return [*lines, *(f"delete set {table} {name}" for name in self.gone_sets)]
