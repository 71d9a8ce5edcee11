"""Keys whose values are kept out of a store, as the settings name them; apart, since every process reads settings."""

from __future__ import annotations

SECRET_KEYS: tuple[str, ...] = (
    "password", "passwd", "pwd", "passphrase", "secret", "client_secret", "secret_key", "secret_access_key",
    "aws_secret_access_key", "api_key", "x_api_key", "api_secret", "access_key", "access_token", "refresh_token",
    "id_token", "auth_token", "bearer_token", "session_token", "private_key", "authorization", "proxy_authorization",
    "cookie", "set_cookie", "credentials", "connection_string", "signing_key", "encryption_key", "webhook_secret",
)  # fmt: skip
