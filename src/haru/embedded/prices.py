"""The price list of cards, from a file: in a cluster that of a mounted ConfigMap."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from haru.embedded.errors import OptionError
from haru.files import text_of

if TYPE_CHECKING:
    from haru.dashboard.views.prices import Prices


def read_prices(file: Path | None, flag: str) -> Prices | None:
    """Read a price list; None without a file. OptionError says what is wrong with it."""
    if file is None:
        return None
    from haru.dashboard.views.prices import prices_of
    from haru.kube.yaml import load

    try:
        found = load(text_of(file.read_bytes()))
    except OSError as error:
        raise OptionError(f"{flag}: {file}: {error.strerror}; name a file that can be read") from error
    except ValueError as error:
        raise OptionError(f"{flag}: {file}: {error}") from error
    try:
        return prices_of(found, f"{flag}: {file}")
    except ValueError as error:
        raise OptionError(str(error)) from error
