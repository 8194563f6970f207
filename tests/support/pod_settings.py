"""The settings in a manifest, and the secrets that they name."""

from pathlib import Path

from deid_agent.config import Settings, load_settings


def loaded(text: str, folder: Path) -> Settings:
    (folder / "agent.toml").write_text(text)
    return load_settings(folder / "agent.toml")


def secrets_of(settings: Settings) -> set[Path]:
    """Every file of a secret or certificate that the settings name."""
    kafka, mllp, out = settings.kafka, settings.mllp, settings.mllp_out
    named = {settings.key_file, settings.dead_letters.public_key, settings.http.console_token_file}
    named |= {kafka.sasl_password_file, kafka.ssl_cafile, kafka.ssl_certfile, kafka.ssl_keyfile} if kafka else set()
    named |= {mllp.tls_certfile, mllp.tls_keyfile, mllp.tls_client_cafile} if mllp else set()
    named |= {out.tls_cafile, out.tls_certfile, out.tls_keyfile} if out else set()
    return {path for path in named if path}
