"""`--encryption-provider-config`: which resources are encrypted at rest, and with which keys.

Source: EncryptionConfiguration of apiserver.config.k8s.io/v1, as behaviour. Served are aescbc, aesgcm and identity.
Messages name the field and never show a secret.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from haru.kube import yaml
from haru.storage import Sealing
from haru.storage.sealing import AesCbc, AesGcm, Cipher, Plain

Obj = dict[str, Any]

API_VERSION = "apiserver.config.k8s.io/v1"
KIND = "EncryptionConfiguration"
FLAG = "--encryption-provider-config"
_KEY_BYTES = (16, 24, 32)
_MAKERS: dict[str, Callable[[str, bytes], Cipher]] = {"aescbc": AesCbc, "aesgcm": AesGcm}
_ABSENT = {
    "secretbox": "XSalsa20 is not in the library that Haru encrypts with: read such data with kube-apiserver, and have "
    "it written with aesgcm",
    "kms": "Haru speaks to no key management service: take aesgcm, with keys that you rotate",
}
_LOG = logging.getLogger("haru.apiserver")


class EncryptionError(ValueError):
    """The configuration is not usable; the message names the file, the field and the fix."""


def load_encryption(path: Path) -> Sealing:
    """What the file says. Raises EncryptionError."""
    try:
        config = yaml.load(path.read_text())
        if path.stat().st_mode & 0o077:
            _LOG.warning("%s: %s holds keys, and others than its owner may read it: chmod 600 %s", FLAG, path, path)
    except OSError as error:
        raise EncryptionError(f"{FLAG}: {path}: {error.strerror}") from None
    except ValueError as error:
        raise EncryptionError(f"{FLAG}: {path}: {error}") from None
    try:
        return parse_encryption(config, str(path))
    except EncryptionError as error:
        raise EncryptionError(f"{FLAG}: {path}: {error}") from None


def parse_encryption(config: Any, source: str) -> Sealing:
    """An EncryptionConfiguration as an object; `source` is what later messages send people to."""
    if not isinstance(config, dict) or (config.get("apiVersion"), config.get("kind")) != (API_VERSION, KIND):
        raise EncryptionError(f"it must be an object with apiVersion: {API_VERSION} and kind: {KIND}")
    _refuse_unknown(config, {"apiVersion", "kind", "metadata", "resources"}, "")
    providers: dict[str, list[Cipher]] = {}
    for index, entry in enumerate(_list(config.get("resources"), "resources", "name what is encrypted, and how")):
        where = f"resources[{index}]"
        _require_object(entry, where)
        _refuse_unknown(entry, {"resources", "providers"}, f"{where}.")
        ciphers = _ciphers(entry.get("providers"), f"{where}.providers")
        names = _list(entry.get("resources"), f"{where}.resources", "for example secrets")
        own = [_resource(name, f"{where}.resources[{i}]") for i, name in enumerate(names)]
        for position, name in enumerate(own):
            _check_masked(name, [*own[:position], *own[position + 1 :]], providers, f"{where}.resources[{position}]")
        for name in own:
            providers.setdefault(name, []).extend(ciphers)
    return Sealing(providers, source)


# --- resources


def _resource(name: Any, where: str) -> str:
    if not isinstance(name, str) or not name:
        raise EncryptionError(f"{where}: Invalid value: {name!r}: must be a resource, for example secrets")
    problem = ""
    resource, _, group = name.partition(".")
    if name != name.lower():
        problem = "resource name should not contain capital letters"
    elif name == "*":
        problem = "use '*.' for all resources of the core API group, or '*.*' for all resources"
    elif resource != "*" and group == "*":
        problem = "encrypting the same resource across groups is not supported: name each with its group"
    elif group == "events.k8s.io":
        problem = "these are stored with the core group's events: use 'events'"
    elif group == "extensions":
        problem = "the group 'extensions' is gone"
    elif "/" in name or not resource:
        problem = "must be RESOURCE, RESOURCE.GROUP, *.GROUP, *. or *.*"
    if problem:
        raise EncryptionError(f'{where}: Invalid value: "{name}": {problem}')
    return name


def _check_masked(name: str, beside: list[str], earlier: Mapping[str, object], where: str) -> None:
    """Nothing may be named that something wider stands beside, or before."""
    wider = {wide for wide in (f"*.{name.partition('.')[2]}", "*.*") if wide != name}
    for other in beside:
        if other in wider:
            raise EncryptionError(f'{where}: Invalid value: "{name}": "{other}" beside it covers it: leave one of them')
    if name in beside:
        raise EncryptionError(f'{where}: Duplicate value: "{name}"')
    for other in sorted(wider & earlier.keys()):
        raise EncryptionError(f'{where}: Invalid value: "{name}" is masked by the earlier "{other}": put it first')


# --- providers


def _ciphers(entries: Any, where: str) -> list[Cipher]:
    found: list[Cipher] = []
    for index, entry in enumerate(_list(entries, where, "the first one writes, all of them read")):
        at = f"{where}[{index}]"
        _require_object(entry, at)
        known = {*_MAKERS, *_ABSENT, "identity"}
        _refuse_unknown(entry, known, f"{at}.")
        if len(entry) != 1:
            raise EncryptionError(f"{at}: Invalid value: {len(entry)} providers: an entry has exactly one")
        (name, settings) = next(iter(entry.items()))
        if name in _ABSENT:
            raise EncryptionError(f"{at}.{name}: Forbidden: {_ABSENT[name]}")
        if name == "identity":
            found.append(Plain())
        else:
            found += _keys(name, settings, f"{at}.{name}")
    if sum(isinstance(cipher, Plain) for cipher in found) > 1:
        raise EncryptionError(f"{where}: Duplicate value: identity")
    return found


def _keys(provider: str, settings: Any, where: str) -> list[Cipher]:
    _require_object(settings, where)
    _refuse_unknown(settings, {"keys"}, f"{where}.")
    found: dict[str, Cipher] = {}
    for index, key in enumerate(_list(settings.get("keys"), f"{where}.keys", "a name and a secret each")):
        at = f"{where}.keys[{index}]"
        _require_object(key, at)
        _refuse_unknown(key, {"name", "secret"}, f"{at}.")
        name = key.get("name")
        if not isinstance(name, str) or not name:
            raise EncryptionError(f"{at}.name: Required value: values are marked with it")
        if name in found:
            raise EncryptionError(f'{at}.name: Duplicate value: "{name}"')
        found[name] = _MAKERS[provider](name, _secret(key.get("secret"), f"{at}.secret"))
    return list(found.values())


def _secret(text: Any, where: str) -> bytes:
    make = "head -c 32 /dev/urandom | base64"
    if not isinstance(text, str) or not text:
        raise EncryptionError(f"{where}: Required value: a key in base64, for example of `{make}`")
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise EncryptionError(f"{where}: Invalid value: it is no base64: make one with `{make}`") from None
    if len(key) not in _KEY_BYTES:
        raise EncryptionError(
            f"{where}: Invalid value: it has {len(key)} bytes, and must have 16, 24 or 32: make one with `{make}`"
        )
    return key


# --- shapes


def _list(value: Any, where: str, hint: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise EncryptionError(f"{where}: Required value: a list with at least one entry: {hint}")
    return value


def _require_object(value: Any, where: str) -> None:
    if not isinstance(value, dict):
        raise EncryptionError(f"{where}: Invalid value: must be an object")


def _refuse_unknown(value: Obj, known: set[str], where: str) -> None:
    for name in value:
        if name not in known:
            raise EncryptionError(f"{where}{name}: unknown field; known are {', '.join(sorted(known))}")
