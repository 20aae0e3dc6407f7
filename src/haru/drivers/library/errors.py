"""Errors of prepare and unprepare; their texts become the pod's event.

    ClaimError
    ├── ClaimChanged     the claim is not the one that was asked for, or has no devices of this driver
    ├── ConfigError      its configuration for this driver makes no sense; nothing helps but another claim
    ├── DeviceError      a device cannot be had now
    └── ClaimUnreadable  the API server does not say what the claim is; it is tried again

A driver raises these, or its own kinds of them; any other exception is told as an internal error.
"""

from __future__ import annotations


class ClaimError(Exception):
    """A claim cannot be prepared or unprepared; the text says why."""


class ClaimChanged(ClaimError):
    """The claim is another one, or has no devices of this driver."""


class ConfigError(ClaimError):
    """A claim's opaque configuration: `path` within the parameters, the value, what to write instead."""

    def __init__(self, path: str, value: object, remedy: str) -> None:
        super().__init__(f'{path}: Invalid value: "{value}": {remedy}')
        self.path = path


class DeviceError(ClaimError):
    """A device cannot be had now."""

    def __init__(self, device: str, why: str) -> None:
        super().__init__(f"device {device}: {why}")
        self.device = device


class ClaimUnreadable(ClaimError):
    """The claim cannot be read from the API server."""
