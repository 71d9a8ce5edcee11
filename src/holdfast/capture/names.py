"""Telling names: which names say that their value is a secret, and whether a value looks like one.

The last word of a name decides (`db_password` is a password, `password_policy` is not), and the words before it may
take that back (`next_page_token`, `cache_key`). One judgement for fields of a structure and for `name = value` in text.
"""

from __future__ import annotations

import re
from base64 import b64decode
from enum import Enum
from functools import lru_cache

from holdfast.lazy import pattern

# Any text under these names is a secret unless it is evidently something else; compared without case, - and _.


class Kind(Enum):
    """What a name promises of its value, and so what the value must look like to be taken for a secret."""

    PASSWORD = "a person may have chosen it: any text that is not evidently something else"  # noqa: S105
    TOKEN = "a machine made it: letters and digits, eight or more, no row of words"  # noqa: S105
    KEY = "perhaps a secret, perhaps an index: only what is plainly random"
    LOGIN = "name:password in base64"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PASSWORDS = _words("password passwd passphrase passcode pwd pw secret")
_TOKENS = _words("token jwt bearer credential creds")
_GLUED = pattern(r"(?P<before>[a-z0-9]*?)(?P<last>password|passwd|passphrase|secret|token|key)\Z")
_NO_PASSWORDS = _words("no forgot reset change confirm has is show hide toggle")  # glued: nopassword, resetpassword
# `pass` is a password behind one of these, else the pass of a test or a mountain.
_LOGINS = _words(
    "db database user mysql pg postgres postgresql redis smtp mail email imap ftp sftp ssh admin root proxy "
    "rabbitmq amqp mongo mongodb ldap sudo http basic auth login app account service vault key store keystore sa "
    "wifi vpn rpc api"
)
_SECRET_KINDS_OF_KEY = _words(
    "api access secret private signing encryption decryption master account license subscription auth "
    "authentication service shared deploy ssh webhook root admin app application client consumer integration ingest "
    "write read rest bot bearer token jwt hmac aes rsa gpg pgp tls ssl openai anthropic gemini claude cohere "
    "mistral groq deepgram elevenlabs serper serpapi tavily exa stripe twilio sendgrid mailgun algolia datadog dd "
    "newrelic aws azure gcp google github gitlab maps rapidapi weather storage_account functions host_function"
)
# A key that points at something is not a secret, whatever it looks like.
_INDEXES = _words(
    "idempotency idempotence primary foreign partition sort range hash cache s3 object storage blob file image "
    "media row column routing group dedup dedupe deduplication lock mutex map dict json index unique natural "
    "surrogate composite lookup search translation i18n locale message event issue project shard bucket item node "
    "tree config setting feature flag metric cursor etag public pub known content document doc entity record trace "
    "correlation run job task workflow step queue topic stream batch part chunk checkpoint memo state view query "
    "parent child tenant team order invoice upload download artifact release build version commit ref sha digest "
    "checksum hot short arrow answer registry product sku memory kv redis data source target sync env environment "
    "field attribute param property header label tag"
)
_POINTERS = _words(
    "sort dedup dedupe deduplication partition routing primary group hash next page pagination paging continuation "
    "continue cursor sync delta resume change watch scroll idempotency request lock fencing fence cancel "
    "cancellation eos bos pad unk sep cls mask stop start end special max min num total count prompt completion "
    "input output first last per syntax lexer parser word sub invalidation starting previous prev position offset "
    "marker skip list color colour design theme cache etag snapshot checkpoint consistency placeholder template "
    "date time number format"
)
_SUFFIXES = _words(
    "value val prod production dev development staging stage test live new old current base raw plain text string "
    "str b64 base64 default secondary main backup"
)
_KINDS = {"auth": Kind.LOGIN, "salt": Kind.KEY, "keydata": Kind.TOKEN}
_TELLING = pattern(r"(?i)pass|pwd|pw|secret|token|key|auth|cred|bearer|jwt|salt")
_CAMEL = pattern(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_JOINT = pattern(r"[^A-Za-z0-9]+")
_ODD = pattern(r"[^A-Za-z0-9_\-.]")
_NUMBER = pattern(r"\d+\Z")
_LONGEST_NAME = 256


@lru_cache(maxsize=4096)
def kind_of(name: str) -> Kind | None:
    """Return what a name promises of its value, None if nothing."""
    if len(name) > _LONGEST_NAME or not _TELLING.search(name):
        return None
    last, before = _split(name)
    if last in _PASSWORDS:
        return None if before & _NO_PASSWORDS and name.isalpha() else Kind.PASSWORD
    if last == "pass":
        return Kind.PASSWORD if before & _LOGINS else Kind.TOKEN
    if last in _TOKENS:
        return None if before & _POINTERS else Kind.TOKEN
    if last == "key":
        return _kind_of_key(name, before)
    return _KINDS.get(last)


def _split(name: str) -> tuple[str, set[str]]:
    """Return the last word of a name that says something, and the words before it: dbPassword2, DB_PASSWORD_PROD."""
    split = _CAMEL.sub("_", name)
    words = [word.lower() for word in _JOINT.split(split) if word]
    # Only what is joined by _ - or . belongs to the last word: the native scan reads on over no other characters.
    joined = [word for word in re.split(r"[_\-.]+", _ODD.split(split)[-1]) if word]
    if not joined:
        return "", set()
    while len(joined) > 1 and (words[-1] in _SUFFIXES or words[-1].isdigit()):
        words.pop()
        joined.pop()
    last, before = _NUMBER.sub("", words[-1]), set(words[:-1])
    if [word.lower() for word in joined[-2:]] == ["key", "data"]:  # client-key-data of a kubeconfig
        return "keydata", before
    glued = _GLUED.match(last)
    if glued is not None and glued["before"]:
        return glued["last"], before | {glued["before"]}
    return last, before


def _kind_of_key(name: str, before: set[str]) -> Kind | None:
    if not before or before & _INDEXES:
        return None
    # ACME_KEY in an environment is a secret more often than not; acme_key in a record is an index as often.
    return Kind.TOKEN if before & _SECRET_KINDS_OF_KEY or name.isupper() else Kind.KEY


_SHORTEST_TOKEN = 8
_SHORTEST_RANDOM = 16
_SHORTEST_KEY = 20
_TURNS_OF_RANDOM = 2
_TURNS_OF_KEY = 4
_LEAST_BITS = 3.2  # a character; words of a language have less, random hex has 3.5 and more
_DIGIT_WITHIN = 64
_SAMPLE = 512
_PIN = 1000  # a smaller number is a count

# What stands under `password` and is not a password: types, states, ways to get one.
_STATES = _words(
    "required optional none null nil undefined true false yes no on off enabled disabled unset empty missing "
    "invalid valid expired changed unchanged hidden masked redacted encrypted hashed plain string str text bytes "
    "int integer number bool boolean any object array list dict unknown default auto automatic manual prompt ask "
    "stdin keyring keychain env environment file vault interactive inherit include omit same-origin accepted "
    "rejected denied granted basic bearer digest oauth oauth2 oidc saml kerberos ntlm mtls jwt apikey token session "
    "cookie rotate rotated pending active inactive revoked ok failed error success verified reset forgot incorrect "
    "correct wrong weak strong here below above supported unsupported allowed forbidden needed provided given "
    "stored input output field type char varchar password passwd pass pw secret passphrase changeme change-me "
    "change_me example sample dummy fake test placeholder todo fixme tbd n/a key value name username user admin- "
    "only stateless strict lax local external internal private public secretstr optional[str] not"
)
_PLACEHOLDER = pattern(
    r"(?i)(?:your|insert|enter|replace|example|dummy|fake|placeholder)[_\-. ]|your[a-z]*(?:key|token|secret|password)"
    r"|<[^<>]*>?\Z|\{[^{}]*\}?\Z|\[redacted|(.)\1{7,}|x{3,}\d?\Z|[*.•#?_\-]+\Z|.*(?:\.\.\.|…|\*\*\*)"
)
_REFERENCE = pattern(
    r"\$[A-Za-z_{(]|%\w+%\Z|%\(|\{\{|@[A-Za-z]+\(|(?:env|vault|op|sm|ssm|keyring|file|arn|gcp|aws|azure|kms|doppler|keychain):"
    r"|(?=.*(?:KEY|TOKEN|SECRET|PASS|PWD|AUTH|CRED))[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\Z"
)
_LINK = pattern(r"[A-Za-z][A-Za-z0-9+.\-]*://[^\s@]*\Z")
_PATH = pattern(r"(?:/|~/|\.{1,2}/|[A-Za-z]:[\\/])[\w./\\\- +@]*\Z")
_MOMENT = pattern(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d\S*)?\Z|v?\d+\.\d+[.\w+\-]*\Z")
_PLAIN_PART = pattern(r"(?:[A-Za-z]{1,24}\d{0,6}|\d{1,8}|v\d+)\Z")
_PART = pattern(r"[^A-Za-z0-9]+")
_TURN = pattern(r"[A-Za-z](?=[0-9])|[0-9](?=[A-Za-z])")
_FUNCTION_WORDS = _words(
    "a an the is are be was must should can may will to of in on at for with without and or not your this that it "
    "as by from if please least most more than when only has have been"
)
_SENTENCE = _FUNCTION_WORDS | _STATES
_HEX = pattern(r"(?:0x)?[0-9a-fA-F\-]+\Z")
_KEY_ALPHABET = pattern(r"[A-Za-z0-9_\-+/=]+\Z")


def looks_secret(kind: Kind, value: str) -> bool:
    """Tell whether a value keeps the promise of its name."""
    if kind is Kind.PASSWORD:
        return bool(value.strip()) and not is_evidently_harmless(value)
    if kind is Kind.TOKEN:
        return looks_generated(value)
    return is_login(value) if kind is Kind.LOGIN else _is_plainly_random(value)


def is_number_secret(kind: Kind, value: float) -> bool:
    """Tell whether a number is a secret: a PIN, as a count or a limit under the same name is not."""
    return kind is Kind.PASSWORD and abs(value) >= _PIN


def is_evidently_harmless(value: str) -> bool:
    """Tell whether a value is a state, a placeholder, a sentence, or says where the secret is instead of being it."""
    value = value.strip()
    if value.lower() in _STATES or _PLACEHOLDER.match(value) or _REFERENCE.match(value) or _LINK.match(value):
        return True
    if _PATH.match(value):
        return all(_is_words(part) for part in re.split(r"[/\\]", value) if part)
    words = value.lower().split()
    return len(words) > 2 and sum(word.strip(".,:") in _SENTENCE for word in words) > 1  # noqa: PLR2004


def looks_generated(value: str) -> bool:
    """Tell whether a value looks like what a machine hands out: letters and digits, and no row of plain words."""
    if len(value) < _SHORTEST_TOKEN or not (value.isascii() and value.isprintable()) or " " in value:
        return False
    sample = value[:_DIGIT_WITHIN]
    if not any(char.isdigit() for char in sample) or not any(char.isalpha() for char in value[:_SAMPLE]):
        return False
    if is_evidently_harmless(value[:_SAMPLE]) or _MOMENT.match(value):
        return False
    return not (_PART.search(value) and _is_words(value[:_SAMPLE]))


def looks_random(value: str) -> bool:
    """Tell whether text has the length, mixture and entropy of a generated credential."""
    if len(value) < _SHORTEST_RANDOM or not any(char.isdigit() for char in value[:_DIGIT_WITHIN]):
        return False
    sample = value[:_SAMPLE]
    if not (sample.isascii() and sample.isprintable()) or " " in sample:
        return False
    return bits(sample) >= _LEAST_BITS and len(_TURN.findall(sample)) >= _TURNS_OF_RANDOM and not _is_words(sample)


def bits(text: str) -> float:
    """Return the entropy of a text in bits a character."""
    from collections import Counter  # noqa: PLC0415 - here and in looks_random only
    from math import log2  # noqa: PLC0415

    return -sum(n / len(text) * log2(n / len(text)) for n in Counter(text).values())


def is_login(value: str) -> bool:
    """Tell whether this is `name:password` in base64."""
    try:
        text = b64decode(value + "=" * (-len(value) % 4), validate=True).decode()
    except ValueError:
        return False
    name, colon, password = text.partition(":")
    return bool(name and colon and password) and text.isprintable()


def _is_plainly_random(value: str) -> bool:
    if not (_SHORTEST_KEY <= len(value) <= _SAMPLE) or not _KEY_ALPHABET.match(value) or _HEX.match(value):
        return False
    mixed = value != value.lower() and value != value.upper()
    return mixed and len(_TURN.findall(value)) >= _TURNS_OF_KEY and not is_evidently_harmless(value)


def _is_words(value: str) -> bool:
    """Tell whether a value is a row of plain words and numbers: prod-db-credentials-v2, orders.created.2024."""
    return all(_PLAIN_PART.match(part) for part in _PART.split(value) if part)
