"""The program nft: transactions, and what stands in a table."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable

from haru.errors import HaruError
from haru.service_proxy.ruleset import TABLE

_SECONDS = 600.0
"""Tens of thousands of new sets take nft minutes."""


class NftError(HaruError):
    """nftables refused a transaction, or could not be run."""


async def run_nft(commands: Iterable[str]) -> None:
    """Have nftables carry out commands, all or none. Raises `NftError`."""
    if text := "\n".join(commands):
        await _nft("-f", "-", text=text + "\n")


async def names_in_table(family: str) -> set[str] | None:
    """The chains, maps and sets of a family's table; None if there is no table."""
    try:
        listed = await _nft("--terse", "list", "table", family, TABLE)
    except NftError:
        return None
    return set(re.findall(r"^\t(?:chain|map|set) (\S+) \{", listed, re.MULTILINE))


async def remove_tables() -> None:
    """Remove the rules of both families. Raises `NftError`."""
    await run_nft(f"{verb} table {family} {TABLE}" for family in ("ip", "ip6") for verb in ("add", "delete"))


async def _nft(*arguments: str, text: str = "") -> str:
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec("nft", *arguments, stdin=pipe, stdout=pipe, stderr=pipe)
    except OSError as error:
        raise NftError(
            f"nft: {error.strerror}: install nftables (Debian's package nftables), and run as root"
        ) from error
    try:
        async with asyncio.timeout(_SECONDS):
            out, said = await process.communicate(text.encode())
    except TimeoutError:
        process.kill()
        await process.wait()
        raise NftError(f"nft: no answer within {_SECONDS:g} s") from None
    if process.returncode:
        raise NftError(f"nft: {said.decode(errors='replace').strip()[:1000]}")
    return out.decode(errors="replace")
