"""Where a name and its value stand together: `name = value` in text, fields of a mapping, flags of a command.

The patterns find; `holdfast.capture.names` judges the name and the value.
"""

from __future__ import annotations

from holdfast.capture.credentials import Format
from holdfast.capture.secret_keys import SECRET_KEYS

# `-u name:password` is a login only for this program; `docker run -u 1000:1000` is none.
CURL_LOGIN = frozenset({"-u", "-U", "--user", "--proxy-user"})
# The programs for which a short flag is a password, as items of a list; `p` alone: the password is joined to it.
PASSWORD_FLAGS = {
    "mysql": "-p", "mysqldump": "-p", "mysqladmin": "-p", "mysqlimport": "-p", "mariadb": "-p", "mariadb-dump": "-p",
    "sshpass": "-p", "redis-cli": "-a", "sqlcmd": "-P", "ldapsearch": "-w", "ldapmodify": "-w", "ldapadd": "-w",
    "mongosh": "-p", "mongo": "-p", "cqlsh": "-p",
}  # fmt: skip
ONLY_JOINED = frozenset({"mysql", "mysqldump", "mysqladmin", "mysqlimport", "mariadb", "mariadb-dump"})

# A name and its value as two fields of one mapping: {"name": "DB_PASSWORD", "value": "..."}.
NAME_FIELDS = frozenset({"name", "key", "variable", "header", "field", "option", "parameter"})
VALUE_FIELDS = frozenset({"value", "val"})

# The beginnings of the words that `names.kind_of` knows; a name without one of them is not looked at.
TELLING = r"(?:pass|pwd|secret|token|key|auth|cred|bearer|jwt|salt)"

_CHOSEN = r"(?:passw(?:or)?d|passphrase|passcode|pwd|secret)"
_MADE = r"(?:token|key|credential|creds|jwt|salt)"
_WORDS = r"(?:pass|pwd|secret|token|key|cred|jwt|salt)[A-Za-z0-9_\-]*"
_REST = r"[A-Za-z0-9_\-]{0,24}"
_NAME = rf"(?:{_CHOSEN}|{_MADE}|pass){_REST}"
_BETWEEN = r"[\\\"'\])]{0,4}\s{0,3}(?:=>|[:=]{1,2})\s{0,3}[\\\"']{0,4}"
_ARGUMENTS = r"'\s{0,2},\s{0,2}'"  # define('AUTH_KEY', '...')
_VALUE = r"[^\s\"'\\,;&<>()\[\]{}]"
_IN_QUOTES = r"(?<=[\"'])(?=[^\s\"'\\,;&<>()\[\]{}0-9]{0,63}[0-9])[^\"'\\\s]{6,1024}"  # whole, also behind a comma
_NO_DIGIT = r"[^\s\"'\\,;&<>()\[\]{}0-9]"
_QUOTED = r"[\\\"'\]]{0,4}\s{0,3}(?:=>|:=|[:=])\s{0,3}\\?[\"']([^\"'\\\s]{4,1024})\\?[\"']"

ASSIGNMENTS: tuple[Format, ...] = (
    # A name, a separator and a value with a digit in it, as in an environment file, a log, JSON or a command line.
    Format(
        "assigned",
        rf"(?i)(?:{_NAME}(?:{_BETWEEN}|{_ARGUMENTS})|--[a-z0-9_\-]{{0,40}}{_NAME}[ =]['\"]?)"
        rf"({_IN_QUOTES}|{_VALUE}{{6,1024}})",
        check="assigned",
        starts=False,
        noticed_by=rf"(?i)(?:{_WORDS}(?:[\\\"'\])]*\s*(?:=>|[:=])[:=\s\\\"']*|'\s*,\s*')"
        rf"|--[a-z0-9_\-]*{_WORDS}[ ]['\"]?){_NO_DIGIT}{{0,63}}[0-9]",
        before=192,
        behind=8,
    ),
    Format(
        "assigned",
        rf"(?i)(?:passw(?:or)?d|passphrase)\s{{1,2}}(?:is|was)(?:\s{{1,2}}|\s{{0,2}}[:=]\s{{0,2}})[\"'`]?({_VALUE}{{6,256}})",
        check="assigned",
        starts=False,
        noticed_by=r"(?i)(?:passw(?:or)?d|passphrase)\s+(?:is|was)[\s:=]",
    ),
    # A password needs no digit where the form says that it is a value: in quotes, behind NAME=, or alone on a line.
    Format(
        "assigned",
        rf"(?i){_CHOSEN}{_REST}{_QUOTED}",
        check="assigned word",
        starts=False,
        noticed_by=rf"(?i){_CHOSEN}[A-Za-z0-9_\-]*[\\\"'\]]*\s*(?:=>|:=|[:=])\s*\\?[\"'][^\"'\\\s]",
    ),
    Format("assigned", rf"(?i)(?:pass|{_CHOSEN})=({_VALUE}{{4,256}})", check="assigned word", starts=False),
    Format(
        "assigned",
        rf"(?i)(?:passw(?:or)?d|passphrase):[ \t]{{1,4}}({_VALUE}{{4,256}})[ \t]{{0,4}}(?:\r?\n|\Z)",
        check="assigned line",
        starts=False,
        noticed_by=r"(?i)(?:passw(?:or)?d|passphrase):[ \t]",
    ),
)

__all__ = [
    "ASSIGNMENTS", "CURL_LOGIN", "NAME_FIELDS", "ONLY_JOINED", "PASSWORD_FLAGS", "SECRET_KEYS", "TELLING",
    "VALUE_FIELDS",
]  # fmt: skip
