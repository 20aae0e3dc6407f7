"""The controllers of `haru up`."""

from __future__ import annotations

from collections.abc import Sequence

from haru.controllers.certificate_authority import ClusterSigning
from haru.controllers.manager import CONTROLLERS, ControllerManager, select_controllers
from haru.controllers.stale_gang_rules import StalePolicy, default_policy
from haru.embedded.errors import OptionError
from haru.embedded.gates import gates_of
from haru.embedded.options import ControllerOptions, UpOptions
from haru.embedded.part import Setting, Tasks


class ControllersPart(Tasks):
    """The controllers that the options name."""

    def __init__(self, options: UpOptions) -> None:
        super().__init__()
        self._gates = gates_of(options)
        self._names = _controllers(options.controllers)
        self._stale_gang = _stale_gang(options.controllers)
        self._account_tokens = options.account_tokens

    async def start(self, setting: Setting) -> None:
        """Start them; they are ready with their first lists."""
        if not self._names:
            return
        pki = setting.directory / "pki"
        manager = ControllerManager(
            setting.clients.component("controllers"),
            self._gates,
            self._names,
            clock=setting.clock,
            options={
                "stale-gang": self._stale_gang,
                "root-ca": setting.authority,
                "cluster-signing": ClusterSigning(pki / "ca.crt", pki / "ca.key"),
                "secret-tokens": self._account_tokens.for_secrets(pki / "service-account.key"),
            },
            clients=setting.clients.controller,
        )
        self._run("controllers", manager.run())
        await self._until_ready([manager.wait_started])

    def phrases(self) -> Sequence[str]:
        """The controllers that do not run."""
        missing = sorted(set(CONTROLLERS) - set(self._names))
        if not missing:
            return ()
        return (f"without the controllers {', '.join(missing)}" if self._names else "runs no controllers",)


part = ControllersPart


def _controllers(options: ControllerOptions) -> list[str]:
    try:
        return select_controllers(options.names)
    except ValueError as error:
        raise OptionError(str(error)) from error


def _stale_gang(options: ControllerOptions) -> StalePolicy:
    try:
        return default_policy(options.stale_gang_after, options.stale_gang_policy)
    except ValueError as error:
        raise OptionError(str(error)) from error
