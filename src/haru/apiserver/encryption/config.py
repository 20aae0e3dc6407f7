"""`--encryption-provider-config`: which resources are encrypted at rest, and with which keys.

Source: EncryptionConfiguration of apiserver.config.k8s.io/v1, as behaviour. KMS v1 is not there, as it is off in 1.36.
Messages name the field and never show a secret.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from haru.files import text_of
from haru.kube import yaml
from haru.kube.durations import seconds_of
from haru.kube.meta import Obj
from haru.storage import Sealing
from haru.storage.ciphers import AesCbc, AesGcm, Cipher, OutsideCipher, Plain, Secretbox

API_VERSION = "apiserver.config.k8s.io/v1"
KIND = "EncryptionConfiguration"
FLAG = "--encryption-provider-config"
_KEY_BYTES = {"aescbc": (16, 24, 32), "aesgcm": (16, 24, 32), "secretbox": (32,)}
_MAKERS: dict[str, Callable[[str, bytes], Cipher]] = {"aescbc": AesCbc, "aesgcm": AesGcm, "secretbox": Secretbox}
_KMS_FIELDS = {"apiVersion", "cachesize", "endpoint", "name", "timeout"}
_KMS_SECONDS = 3.0
_LOG = logging.getLogger("haru.apiserver")


class EncryptionError(ValueError):
    """The configuration is not usable; the message names the file, the field and the fix."""


def load_encryption(path: Path) -> Sealing:
    """What the file says. Raises EncryptionError."""
    try:
        text = text_of(path.read_bytes())
        config = yaml.load(text)
        if path.stat().st_mode & 0o077:
            _LOG.warning("%s: %s holds keys, and others than its owner may read it: chmod 600 %s", FLAG, path, path)
    except OSError as error:
        raise EncryptionError(f"{FLAG}: {path}: {error.strerror}") from None
    except ValueError as error:
        raise EncryptionError(f"{FLAG}: {path}: {error}") from None
    try:
        sealing = parse_encryption(config, str(path))
    except EncryptionError as error:
        raise EncryptionError(f"{FLAG}: {path}: {error}") from None
    sealing.digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    return sealing


def parse_encryption(config: Any, source: str) -> Sealing:
    """An EncryptionConfiguration as an object; `source` is what later messages send people to."""
    if not isinstance(config, dict) or (config.get("apiVersion"), config.get("kind")) != (API_VERSION, KIND):
        raise EncryptionError(f"it must be an object with apiVersion: {API_VERSION} and kind: {KIND}")
    _refuse_unknown(config, {"apiVersion", "kind", "metadata", "resources"}, "")
    providers: dict[str, list[Cipher]] = {}
    services: set[str] = set()
    for index, entry in enumerate(_list(config.get("resources"), "resources", "name what is encrypted, and how")):
        where = f"resources[{index}]"
        _require_object(entry, where)
        _refuse_unknown(entry, {"resources", "providers"}, f"{where}.")
        ciphers = _ciphers(entry.get("providers"), f"{where}.providers", services)
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


def _ciphers(entries: Any, where: str, services: set[str]) -> list[Cipher]:
    found: list[Cipher] = []
    for index, entry in enumerate(_list(entries, where, "the first one writes, all of them read")):
        at = f"{where}[{index}]"
        _require_object(entry, at)
        known = {*_MAKERS, "identity", "kms"}
        _refuse_unknown(entry, known, f"{at}.")
        if len(entry) != 1:
            raise EncryptionError(f"{at}: Invalid value: {len(entry)} providers: an entry has exactly one")
        (name, settings) = next(iter(entry.items()))
        if name == "identity":
            found.append(Plain())
        elif name == "kms":
            found.append(_kms(settings, f"{at}.kms", services))
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
        found[name] = _made(provider, name, _secret(key.get("secret"), _KEY_BYTES[provider], f"{at}.secret"), where)
    return list(found.values())


def _made(provider: str, name: str, key: bytes, where: str) -> Cipher:
    try:
        return _MAKERS[provider](name, key)
    except ImportError:
        why = "it takes the library PyNaCl: pip install 'haru[secretbox]'"
        raise EncryptionError(f"{where}: Forbidden: {why}, or have values written with aesgcm") from None


def _kms(settings: Any, where: str, services: set[str]) -> OutsideCipher:
    """A service that has keys; `services` are the names that are taken."""
    from haru.storage.kms import KmsProvider

    _require_object(settings, where)
    _refuse_unknown(settings, _KMS_FIELDS, f"{where}.")
    version = settings.get("apiVersion") or "v1"
    if version == "v1":
        why = "KMSv1 is deprecated, off in Kubernetes 1.36, and not there"
        raise EncryptionError(f'{where}.apiVersion: Forbidden: {why}: write "apiVersion: v2" and use a plugin of KMSv2')
    if version != "v2":
        raise EncryptionError(f'{where}.apiVersion: Invalid value: "{version}": unsupported apiVersion, only v2 is')
    name = settings.get("name")
    if not isinstance(name, str) or not name:
        raise EncryptionError(f"{where}.name: Required value: values are marked with it")
    if ":" in name:
        raise EncryptionError(f"{where}.name: Invalid value: \"{name}\": must not contain ':'")
    if name in services:
        raise EncryptionError(f'{where}.name: Duplicate value: "{name}": names of KMS providers must be unique')
    if "cachesize" in settings:
        raise EncryptionError(f"{where}.cachesize: Invalid value: cachesize is not supported in v2: leave it out")
    services.add(name)
    return KmsProvider(name, _socket(settings.get("endpoint"), f"{where}.endpoint"), _timeout(settings, where))


def _socket(endpoint: Any, where: str) -> str:
    """The path of a Unix socket, or `@NAME` of one in the abstract namespace."""
    example = "for example unix:///var/run/kms.sock"
    if not isinstance(endpoint, str) or not endpoint:
        raise EncryptionError(f"{where}: Required value: the socket of the plugin, {example}")
    try:
        parts = urlsplit(endpoint)
    except ValueError as error:
        raise EncryptionError(f'{where}: Invalid value: "{endpoint}": {error}') from None
    if parts.scheme != "unix":
        why = f'unsupported scheme "{parts.scheme}" for KMS provider, only unix is supported'
        raise EncryptionError(f'{where}: Invalid value: "{endpoint}": {why}')
    path = parts.path[1:] if parts.path.startswith("/@") else parts.path
    if parts.netloc or len(path) < 2:
        raise EncryptionError(f'{where}: Invalid value: "{endpoint}": write a path after three slashes, {example}')
    return path


def _timeout(settings: Obj, where: str) -> float:
    text = settings.get("timeout")
    if text is None:
        return _KMS_SECONDS
    try:
        seconds = seconds_of(text) if isinstance(text, str) else 0.0
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise EncryptionError(f"{where}.timeout: Invalid value: {text!r}: should be a positive value, for example 3s")
    return seconds


def _secret(text: Any, sizes: tuple[int, ...], where: str) -> bytes:
    make = "head -c 32 /dev/urandom | base64"
    if not isinstance(text, str) or not text:
        raise EncryptionError(f"{where}: Required value: a key in base64, for example of `{make}`")
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise EncryptionError(f"{where}: Invalid value: it is no base64: make one with `{make}`") from None
    if len(key) not in sizes:
        wanted = "16, 24 or 32" if len(sizes) > 1 else str(sizes[0])
        raise EncryptionError(
            f"{where}: Invalid value: it has {len(key)} bytes, and must have {wanted}: make one with `{make}`"
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
