"""Files that usually hold credentials, as patterns of a .gitignore: left out of capture unless git tracks them.

Source: the documentation of the programs that write them. A name that is as often something else (config.json) is
given with its folder; a last `!` pattern takes back what only looks alike.
"""

from __future__ import annotations

from holdfast.lazy import pattern

_ENVIRONMENTS = (
    ".env", ".env.*", "*.env", ".envrc", ".dev.vars",
    "!.env.example", "!.env.sample", "!.env.template", "!.env.dist", "!example.env", "!sample.env", "!template.env",
)  # fmt: skip
_KEYS = (
    "*.pem", "*.key", "*.p12", "*.pfx", "*.p8", "*.keystore", "*.jks", "*.bks", "*.ppk", "*.kdbx", "*.kdb", "*.ovpn",
    "*.agekey", "*.keychain", "*.keychain-db", "id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519",
    "id_ed25519_sk", "secring.gpg", ".ssh/", ".gnupg/", ".password-store/", "**/sops/age/keys.txt",
)  # fmt: skip
_LOGINS = (
    ".netrc", "_netrc", ".authinfo", ".authinfo.gpg", ".pgpass", "pgpass.conf", ".my.cnf", ".mylogin.cnf", ".htpasswd",
    ".git-credentials", ".gitcookies", "**/.subversion/auth/", ".smbcredentials", ".msmtprc", ".fetchmailrc",
    ".erlang.cookie", ".Xauthority", ".ICEauthority", ".s3cfg", ".boto", ".passwd-s3fs", "rclone.conf",
    ".databrickscfg", "**/.snowsql/config", "**/.snowflake/config.toml", "**/.dbt/profiles.yml",
)  # fmt: skip
_PACKAGES = (
    ".npmrc", ".pypirc", "**/.cargo/credentials", "**/.cargo/credentials.toml", "**/.gem/credentials",
    "**/.m2/settings.xml", "settings-security.xml", "**/.gradle/gradle.properties", "/auth.json",
    "**/.composer/auth.json", "**/.docker/config.json", ".dockercfg", ".dockerconfigjson",
)  # fmt: skip
_CLOUDS = (
    ".aws/", ".azure/", "**/.config/gcloud/", ".kube/", "kubeconfig", "*.kubeconfig", "kubeconfig.y*ml",
    "**/.oci/config", "**/.aliyun/config.json", "**/.bluemix/config.json", "**/.mc/config.json",
    "**/.config/doctl/config.yaml", "**/.config/hcloud/cli.toml", "**/.config/scw/config.yaml", "**/.config/linode-cli",
    "**/.fly/config.yml", "**/.vercel/auth.json", "**/.netlify/config.json", ".cloudflared/", "*.tfstate",
    "*.tfstate.backup", "*.tfvars", "*.tfvars.json", ".terraformrc", "terraform.rc", "credentials.tfrc.json",
    ".vault-token", ".vault_pass", ".vault_pass.txt", "vault_pass", "vault_pass.txt", ".vault-password", "ngrok.yml",
    "tailscaled.state", ".sentryclirc", ".wakatime.cfg", "**/.circleci/cli.yml",
)  # fmt: skip
_ASSISTANTS = (
    ".credentials.json", ".claude.json", "**/.codex/auth.json", "oauth_creds.json", "**/github-copilot/hosts.json",
    "**/github-copilot/apps.json", "**/.config/gh/hosts.yml", "**/.config/hub", "**/glab-cli/config.yml",
    ".aider.conf.yml", "**/.continue/config.json", "**/huggingface/token", "**/.huggingface/token", "kaggle.json",
)  # fmt: skip
_NAMED_SO = (
    "secrets.yaml", "secrets.yml", "secrets.json", "secrets.toml", "secrets.ini", "secrets.properties",
    "secrets.auto.yaml", "credentials", "!credentials/", "credentials.json", "credentials.yaml", "credentials.yml",
    "credentials.toml", "credentials.ini", "credentials.csv", "credentials.xml", "credentials.db",
    "application_default_credentials.json", "rootkey.csv", "accessKeys.csv", "client_secret*.json",
    "service-account*.json", "service_account*.json", "serviceAccount*.json", "*-firebase-adminsdk-*.json",
    "token.json", "token.pickle", "msal_token_cache.json",
)  # fmt: skip
_SESSIONS = (
    "cookies.txt", "cookies.sqlite", "storage_state.json", "storageState.json", "**/playwright/.auth/", "logins.json",
    "key4.db", ".bash_history", ".zsh_history", ".python_history", ".psql_history", ".mysql_history",
    ".sqlite_history", ".rediscli_history", ".node_repl_history",
)  # fmt: skip

_COPY = pattern(rb"(?:~|\.~\d+~|[._-](?:bak|backup|old|orig|save|copy|sw[nop]|tmp)\d{0,3}|\.\d{1,14})+\Z")
_TAIL = 64  # bytes of a name in which such ends stand: looking through all of a long one takes a millisecond
_ENDS = (b"~", *(b"bak backup old orig save copy swn swo swp tmp 0 1 2 3 4 5 6 7 8 9".split()))  # quicker to look for


def names_of_copy(name: bytes) -> tuple[bytes, ...]:
    """Return the names of what a file may be a backup or an editor's copy of; none if it has no such name."""
    copy = _COPY.search(name, max(0, len(name) - _TAIL)) if name.endswith(_ENDS) else None
    if copy is not None:
        stem = name[: copy.start()]
    elif name.startswith(b"#") and name.endswith(b"#"):
        stem = name[1:-1]
    else:
        return ()
    return stem, stem.removeprefix(b".")  # an editor hides the copy of a file that is not hidden itself


SECRETS: tuple[str, ...] = (
    *_ENVIRONMENTS,
    *_KEYS,
    *_LOGINS,
    *_PACKAGES,
    *_CLOUDS,
    *_ASSISTANTS,
    *_NAMED_SO,
    *_SESSIONS,
    "!*.example",
    "!*.sample",
    "!*.template",
)
