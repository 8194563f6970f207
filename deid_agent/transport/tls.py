"""The TLS contexts of listeners and senders."""

import ssl
from pathlib import Path

from deid_agent.config import read_secret_file
from deid_agent.model import ConfigurationError


def server_context(
    section: str, certificate: Path, key: Path | None, password: str | None, client_authority: Path | None
) -> ssl.SSLContext:
    """The context of a listener; it asks every client for a certificate if an authority is given.

    TLS 1.2 is the oldest version that it accepts. ``section`` names the settings ``tls_*`` in errors. Raises
    ``ConfigurationError`` if a file cannot be loaded.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate(context, section, certificate, key, password)
    if client_authority is not None:
        load_authority(context, section, client_authority)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def load_certificate(
    context: ssl.SSLContext, section: str, certificate: Path | None, key: Path | None, password: str | None
) -> None:
    """Load our own certificate, if there is one. Raises ``ConfigurationError``."""
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if key is not None:
        read_secret_file(key, f"{section}.tls_keyfile")
    if certificate is None:
        return
    try:
        # An empty password, not None: OpenSSL would ask the terminal for one and hang the agent.
        context.load_cert_chain(certificate, key, password or "")
    except OSError as problem:
        raise _unloadable(section, problem) from None


def load_authority(context: ssl.SSLContext, section: str, authority: Path) -> None:
    """Trust this authority. Raises ``ConfigurationError``."""
    try:
        context.load_verify_locations(authority)
    except OSError as problem:
        raise _unloadable(section, problem) from None


def _unloadable(section: str, problem: OSError) -> ConfigurationError:
    """For ``ssl.SSLError`` and a missing file alike."""
    return ConfigurationError(
        f"{section}.tls_*: a file cannot be loaded ({type(problem).__name__}); name readable PEM files, "
        "and the key's password if it has one"
    )
