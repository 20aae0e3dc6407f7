"""Load the audit options of an API server: the policy, the log file and the kubeconfig of the webhook."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from haru.embedded.errors import OptionError
from haru.proxy_settings import http_proxy_to

if TYPE_CHECKING:
    from haru.apiserver.audit_options import AuditOptions, WebhookTarget
    from haru.embedded.security import SecurityOptions


def audit_options(options: SecurityOptions) -> AuditOptions | None:
    """Load the audit policy and its backends; None: the options name neither. Raises OptionError."""
    given = {"--audit-log-path": options.audit_log, "--audit-webhook-config-file": options.audit_webhook}
    if options.audit_policy is None:
        for flag, value in given.items():
            if value is not None:
                raise OptionError(f"{flag}: Forbidden without --audit-policy-file, which says what is logged")
        return None
    from haru.apiserver.audit import PolicyError, load_policy
    from haru.apiserver.audit_options import AuditOptions

    if all(value is None for value in given.values()):
        raise OptionError(f"--audit-policy-file: Forbidden without {' or '.join(given)}, which say where to")
    for place, delivery in (("log", options.audit_log_delivery), ("webhook", options.audit_webhook_delivery)):
        flag, why = delivery.problem()
        if flag:
            raise OptionError(f"--audit-{place}-{flag}: Invalid value: {why}")
    if options.audit_log is not None:
        _check_file(options.audit_log)
    target = _target(options.audit_webhook) if options.audit_webhook is not None else None
    try:
        policy = load_policy(options.audit_policy)
    except PolicyError as error:
        raise OptionError(str(error)) from None
    return AuditOptions(
        policy,
        options.audit_log or "",
        options.audit_megabytes,
        options.audit_backups,
        options.audit_days,
        options.audit_log_delivery,
        target,
        options.audit_webhook_delivery,
    )


def _check_file(path: str) -> None:
    from haru.apiserver.audit import AuditFile

    file = AuditFile(path)
    try:
        file.open()
        file.close()
    except OSError as error:
        remedy = "name a file in a directory that can be written"
        raise OptionError(f"--audit-log-path: {path}: {error.strerror}; {remedy}") from None


def _target(path: Path) -> WebhookTarget:
    """Return the server and the user of the current context of a kubeconfig."""
    import ssl

    from haru.apiserver.audit_options import WebhookTarget
    from haru.client.credentials import BearerToken, Certificate, ProgramToken
    from haru.client.http import tls_context
    from haru.client.kubeconfig import KubeconfigError, load_kubeconfig

    flag = "--audit-webhook-config-file"
    try:
        config = load_kubeconfig(path)
        certificate = (config.cert_pem, config.key_pem) if config.cert_pem and config.key_pem else None
        tls = tls_context(config.ca_pem, certificate, config.insecure) if config.server.startswith("https:") else None
    except KubeconfigError as error:
        raise OptionError(f"{flag}: {error}") from None
    except (ssl.SSLError, UnicodeDecodeError, OSError) as error:
        raise OptionError(f"{flag}: {path}: certificates can not be used: {error}") from None
    if config.impersonated is not None:
        raise OptionError(f"{flag}: {path}: to act as another user (as) is not supported here")
    try:
        proxy = http_proxy_to(config.server, config.proxy, os.environ)
    except ValueError as error:
        raise OptionError(f"{flag}: {path}: {error}") from None
    target = WebhookTarget(config.server, tls, config.tls_server_name, proxy)
    target.token = BearerToken.of(config.token, config.token_file)
    if config.program is not None and target.token is None and certificate is None:

        async def present(presented: Certificate | None) -> None:
            if tls is not None:
                target.tls = tls_context(config.ca_pem, presented, config.insecure)

        target.token = ProgramToken(config.program, present=present)
    return target
