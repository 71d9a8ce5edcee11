"""The credential shapes and telling names that redaction looks for; data, so that they can be read and extended.

Each pattern is written in what Python's `re` and Hyperscan share: no lookaround, no back reference. It is searched
for in packed bytes first (where a length byte may stand before it, so it begins at no word boundary), then in text.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_SHORT_REPEAT = re.compile(r"\{[01],\d{2}\}")  # a bounded repeat costs Hyperscan milliseconds to compile, * does not
_LONG_REPEAT = re.compile(r"\{(\d+),(\d{3,})\}")
_ENOUGH = 12


class Shape(NamedTuple):
    """One kind of credential: `pattern` finds it; with a group, only the group is the secret."""

    name: str
    pattern: str
    random: bool = False
    """Whether what was found must also look random, because words can have this shape."""

    @property
    def native(self) -> str:
        """The beginning of the pattern up to its first long repeat: enough to look closely, and quick to compile."""
        found = _LONG_REPEAT.search(self.pattern)
        if found is None:
            return _SHORT_REPEAT.sub("*", self.pattern)
        head = self.pattern[: found.start()] + f"{{{min(int(found[1]), _ENOUGH)}}}"
        return head + ")" * (head.count("(") - head.count(")"))


SHAPES: tuple[Shape, ...] = (
    Shape("aws-key-id", r"(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA)[A-Z0-9]{16}"),
    Shape("github-token", r"gh[pousr]_[A-Za-z0-9]{30,255}"),
    Shape("github-token", r"github_pat_[A-Za-z0-9_]{22,255}"),
    Shape("gitlab-token", r"gl(?:pat|ptt|rt|dt|cbt|soat)-[A-Za-z0-9_\-]{18,255}"),
    Shape("slack-token", r"xox[abeoprs]-[A-Za-z0-9\-]{10,255}"),
    Shape("slack-token", r"xapp-[0-9]-[A-Za-z0-9\-]{10,255}"),
    Shape("slack-webhook", r"hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/_\-]{20,255}"),
    Shape("discord-webhook", r"discord(?:app)?\.com/api/webhooks/[0-9]{10,25}/[A-Za-z0-9_\-]{30,255}"),
    Shape("api-key", r"sk-(?:proj-|ant-|or-|svcacct-|lf-|admin-)?[A-Za-z0-9_\-]{20,400}", random=True),
    Shape("stripe-key", r"[sprk]k_(?:live|test)_[A-Za-z0-9]{10,255}"),
    Shape("webhook-secret", r"whsec_[A-Za-z0-9+/=]{20,255}"),
    Shape("google-api-key", r"AIza[A-Za-z0-9_\-]{35}"),
    Shape("google-oauth", r"ya29\.[A-Za-z0-9_\-]{20,512}"),
    Shape("google-oauth", r"GOCSPX-[A-Za-z0-9_\-]{20,64}"),
    Shape("npm-token", r"npm_[A-Za-z0-9]{30,64}"),
    Shape("pypi-token", r"pypi-[A-Za-z0-9_\-]{40,512}"),
    Shape("huggingface-token", r"hf_[A-Za-z0-9]{30,64}"),
    Shape("replicate-token", r"r8_[A-Za-z0-9]{30,64}"),
    Shape("groq-key", r"gsk_[A-Za-z0-9]{30,128}"),
    Shape("perplexity-key", r"pplx-[A-Za-z0-9]{30,128}"),
    Shape("xai-key", r"xai-[A-Za-z0-9]{30,255}"),
    Shape("sendgrid-key", r"SG\.[A-Za-z0-9_\-]{16,64}\.[A-Za-z0-9_\-]{16,128}"),
    Shape("mailgun-key", r"key-[0-9a-f]{32}"),
    Shape("twilio-key", r"SK[0-9a-f]{32}"),
    Shape("shopify-token", r"shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}"),
    Shape("digitalocean-token", r"do[opr]_v1_[a-f0-9]{64}"),
    Shape("heroku-key", r"HRKU-[A-Za-z0-9_\-]{30,100}"),
    Shape("doppler-token", r"dp\.(?:pt|st|sa|ct)\.[A-Za-z0-9._\-]{30,100}"),
    Shape("vault-token", r"hv[sbr]\.[A-Za-z0-9_\-]{24,300}"),
    Shape("databricks-token", r"dapi[a-f0-9]{32}"),
    Shape("linear-key", r"lin_api_[A-Za-z0-9]{30,64}"),
    Shape("notion-token", r"(?:ntn|secret)_[A-Za-z0-9]{40,64}"),
    Shape("postman-key", r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}"),
    Shape("telegram-token", r"[0-9]{8,10}:AA[A-Za-z0-9_\-]{33}"),
    Shape("age-key", r"AGE-SECRET-KEY-1[A-Z0-9]{58}"),
    Shape("azure-key", r"(?:AccountKey|SharedAccessKey)=([A-Za-z0-9+/]{40,128}={0,2})"),
    Shape("azure-signature", r"[?&;]sig=([A-Za-z0-9%+/]{30,128}={0,2})"),
    Shape("aws-signature", r"X-Amz-(?:Signature|Security-Token)=([A-Za-z0-9%+/\-]{30,2048})"),
    Shape("jwt", r"eyJ[A-Za-z0-9_\-]{8,2048}\.[A-Za-z0-9_\-]{8,4096}(?:\.[A-Za-z0-9_\-]{0,1024})?"),
    Shape("private-key", r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"),
    Shape("password-in-url", r"://[^\s/:@\"'<>]{0,64}:([^\s/@\"'<>]{1,99})@"),
    Shape("password-in-dsn", r"(?i);\s{0,2}(?:pwd|password)\s{0,2}=\s{0,2}([^;\s\"'\[]{3,128})"),
    Shape("bearer", r"(?i)bearer\s{1,4}([A-Za-z0-9+/._~\-]{16,4096}={0,2})", random=True),
    Shape(
        "curl-user",
        r"\s(?:-[uU]\s{0,2}|--(?:proxy-)?user[\s=])[\\\"']{0,3}[^\s:\\\"'/@]{1,64}:([^\s\\\"']{1,99})",
    ),
    Shape(
        "basic-auth",
        r"(?i)authorization[\\\"']{0,3}\s{0,2}[:=]\s{0,2}[\\\"']{0,3}basic\s{1,4}([A-Za-z0-9+/]{8,1024}={0,2})",
    ),
)
# `-u name:password` is a login only for this program; `docker run -u 1000:1000` is none.
CURL = re.compile(rb"\bcurl(?:\.exe)?[ \t](?:[^\n]|\\\n)*\Z")
CURL_LOGIN = frozenset({"-u", "-U", "--user", "--proxy-user"})

# A name and its value as two fields of one mapping: {"name": "DB_PASSWORD", "value": "..."}.
NAME_FIELDS = frozenset({"name", "key", "variable", "header", "field", "option", "parameter"})
VALUE_FIELDS = frozenset({"value", "val"})

_LABEL = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
PRIVATE_KEY_BODY = rf"-----BEGIN {_LABEL}[\s\S]*?(?:-----END {_LABEL}|\Z)"

# What stands under one of these keys is taken out whatever it looks like; compared without case, - and _.
SECRET_KEYS: tuple[str, ...] = (
    "password", "passwd", "pwd", "passphrase", "secret", "client_secret", "secret_key", "secret_access_key",
    "aws_secret_access_key", "api_key", "x_api_key", "api_secret", "access_key", "access_token", "refresh_token",
    "id_token", "auth_token", "bearer_token", "session_token", "private_key", "authorization", "proxy_authorization",
    "cookie", "set_cookie", "credentials", "connection_string", "signing_key", "encryption_key", "webhook_secret",
)  # fmt: skip

# Under a key with one of these in it, a value is taken out if it looks random.
TELLING = r"(?:pass|pwd|secret|token|key|auth|cred|bearer|cookie|sign|salt|session|otp|webhook|jwt|dsn)"
INNOCENT = (
    r"(?i)author|keyboard|keyword|tokeniz|monkey|design|assign|passage|passed|pass_rate|session_?id\Z|public_?key"
)

# In text: a name, a separator and a value with a digit in it, as in an environment file, a log, JSON or a command line.
_NAME = (
    r"(?:passw(?:or)?d|passphrase|pwd|secret|api[_\-.]?key|access[_\-.]?key|secret[_\-.]?key|private[_\-.]?key"
    r"|token|credential)[A-Za-z0-9_\-]{0,24}"
)
_BETWEEN = r"[\\\"']{0,4}\s{0,3}(?:=>|[:=]{1,2})\s{0,3}[\\\"']{0,4}"
_VALUE = r"[^\s\"'\\,;&<>()\[\]{}]"
ASSIGNED = rf"(?i)(?:{_NAME}{_BETWEEN}|--{_NAME}[ =])({_VALUE}{{8,512}})"
ASSIGNED_NATIVE = _SHORT_REPEAT.sub("*", rf"(?i){_NAME}(?:{_BETWEEN}|[ ]){_VALUE}{{0,64}}[0-9]")
