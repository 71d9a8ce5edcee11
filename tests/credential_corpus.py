"""Credentials of many shapes, texts and fields that are none, and names of files: what redaction is measured against.

Every secret is generated, so that no line of this file looks like a leaked key. The formats are those that the vendors
document; the corpus knows nothing of how they are found.
"""

import base64
import json
import random
import string
from typing import NamedTuple

_random = random.Random(20_270_118)
ALNUM = string.ascii_letters + string.digits
URL_SAFE = ALNUM + "_-"
UPPER = string.ascii_uppercase + string.digits
LOWER = string.ascii_lowercase + string.digits
HEX = "0123456789abcdef"
BASE64 = ALNUM + "+/"


class Credential(NamedTuple):
    """A text with a secret in it; `secret` is what must not be stored."""

    name: str
    text: str
    secret: str


def some(count, alphabet=ALNUM):
    """Return generated text that, like real keys, has a letter and a digit near its beginning."""
    while True:
        made = "".join(_random.choices(alphabet, k=count))
        early = made[:12]
        if set(alphabet) <= set(string.digits) or (
            any(char.isdigit() for char in early) and any(char.isalpha() for char in early) and made[0] not in "-_+/"
        ):
            return made


def hexes(count):
    return some(count, HEX)


def digits(count):
    return _random.choice("123456789") + "".join(_random.choices(string.digits, k=count - 1))


def uuid():
    return "-".join(hexes(count) for count in (8, 4, 4, 4, 12))


def b64(text):
    return base64.b64encode(text.encode()).decode()


def jwt():
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').decode().rstrip("=")
    body = base64.urlsafe_b64encode(json.dumps({"sub": some(20)}).encode()).decode().rstrip("=")
    return f"{head}.{body}.{some(43, URL_SAFE)}"


def pem(kind):
    lines = "\n".join(some(64, BASE64) for _ in range(6))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----"


# Told by their shape alone: found wherever they stand.
_SHAPED = {
    "aws key id": "AKIA" + some(16, UPPER),
    "aws temporary key id": "ASIA" + some(16, UPPER),
    "aws bedrock key": "ABSK" + some(128, BASE64) + "=",
    "aws bedrock short-lived": "bedrock-api-key-" + some(120, BASE64),
    "google api key": "AIza" + some(35, URL_SAFE),
    "google oauth": "ya29." + some(80, URL_SAFE),
    "google client secret": "GOCSPX-" + some(28, URL_SAFE),
    "google refresh token": "1//0" + some(60, URL_SAFE),
    "azure ad client secret": some(3) + "8Q~" + some(34, ALNUM + "_~.-"),
    "azure devops": some(76) + "AZDO" + some(4),
    "alibaba key id": "LTAI" + some(20),
    "digitalocean": "dop_v1_" + hexes(64),
    "digitalocean oauth": "doo_v1_" + hexes(64),
    "heroku": "HRKU-AA" + some(58, URL_SAFE),
    "fly": "fo1_" + some(43, URL_SAFE),
    "fly macaroon": "FlyV1 fm2_" + some(160, BASE64),
    "render": "rnd_" + some(32),
    "vercel": "vcp_" + some(56),
    "netlify": "nfp_" + some(36),
    "supabase access": "sbp_" + hexes(40),
    "supabase secret": "sb_secret_" + some(31, URL_SAFE),
    "neon": "napi_" + some(64, LOWER),
    "neon password": "npg_" + some(12),
    "vercel blob": "vercel_blob_rw_" + some(16) + "_" + some(30),
    "vercel gateway": "vck_" + some(56),
    "azure openai": some(52) + "JQQJ99" + some(20) + "ACOG" + some(4),
    "azure function": some(44, URL_SAFE) + "AzFu" + some(7, URL_SAFE) + "==",
    "azure storage alone": some(76, BASE64) + "+ASt" + some(6, BASE64) + "==",
    "infisical": "st." + uuid() + "." + hexes(32) + "." + hexes(32),
    "stripe organization": "sk_org_live_" + some(40),
    "browserbase": "bb_live_" + some(27, URL_SAFE),
    "mem0": "m0-" + some(40),
    "supermemory": "sm_" + some(22) + "_" + some(50),
    "inngest": "signkey-prod-" + hexes(64),
    "trigger.dev": "tr_prod_" + some(20),
    "snyk access": "snyk_uat." + hexes(8) + "." + some(60, URL_SAFE),
    "materialize": "mzp_" + hexes(64),
    "daytona": "dtn_" + hexes(64),
    "unkey": "unkey_" + some(24),
    "polar": "polar_oat_" + some(43),
    "stytch": "secret-live-" + some(36, URL_SAFE),
    "pubnub": "sec-c-" + some(48),
    "devin": "apk_user_" + some(60),
    "xata": "xau_" + some(43),
    "amp": "sgamp_user_" + some(60),
    "scrapfly": "scp-live-" + hexes(32),
    "deno": "ddp_" + some(36),
    "val town": "vtwn_" + some(27),
    "nylas": "nyk_v0_" + some(64),
    "jsr": "jsrp_" + some(40),
    "fal": uuid() + ":" + hexes(32),
    "planetscale token": "pscale_tkn_" + some(43, URL_SAFE),
    "planetscale password": "pscale_pw_" + some(43, URL_SAFE),
    "databricks": "dapi" + hexes(32) + "-2",
    "mongodb atlas": "mdb_sa_sk_" + some(40, URL_SAFE),
    "confluent": "cflt" + some(60, BASE64),
    "clickhouse": "4b1d" + some(38),
    "cockroach": "CCDB1_" + some(22) + "_" + some(40),
    "github": "ghp_" + some(36),
    "github oauth": "gho_" + some(36),
    "github user to server": "ghu_" + some(36),
    "github installation": "ghs_" + some(36),
    "github refresh": "ghr_" + some(76),
    "github fine-grained": "github_pat_" + some(22) + "_" + some(59),
    "gitlab": "glpat-" + some(20, URL_SAFE),
    "gitlab routable": "glpat-" + some(27, URL_SAFE) + ".01." + some(9, LOWER),
    "gitlab feed": "glft-" + some(20, URL_SAFE),
    "gitlab oauth app": "gloas-" + hexes(64),
    "gitlab agent": "glagent-" + some(50, URL_SAFE),
    "gitlab incoming mail": "glimt-" + some(25, LOWER),
    "gitlab trigger": "glptt-" + hexes(40),
    "gitlab job": "glcbt-64_" + some(20, URL_SAFE),
    "gitlab runner": "glrt-" + some(20, URL_SAFE),
    "gitlab runner registration": "GR1348941" + some(20, URL_SAFE),
    "bitbucket app password": "ATBB" + some(32),
    "bitbucket data center": "BBDC-" + some(44, ALNUM),
    "atlassian": "ATATT3xFfGF0" + some(180, URL_SAFE) + "=" + some(8, UPPER),
    "sourcegraph": "sgp_" + hexes(16) + "_" + hexes(40),
    "npm": "npm_" + some(36),
    "pypi": "pypi-AgEIcHlwaS5vcmc" + some(120, URL_SAFE),
    "rubygems": "rubygems_" + hexes(48),
    "crates.io": "cio" + some(32),
    "nuget": "oy2" + some(43, LOWER),
    "clojars": "CLOJARS_" + some(60, LOWER),
    "docker pat": "dckr_pat_" + some(27, URL_SAFE),
    "docker organisation": "dckr_oat_" + some(32, URL_SAFE),
    "artifactory": "AKCp" + some(69),
    "openai": "sk-" + some(48),
    "openai project": "sk-proj-" + some(74, URL_SAFE) + "T3BlbkFJ" + some(74, URL_SAFE),
    "openai service account": "sk-svcacct-" + some(58, URL_SAFE),
    "anthropic": "sk-ant-api03-" + some(93, URL_SAFE) + "AA",
    "anthropic oauth": "sk-ant-oat01-" + some(86, URL_SAFE) + "AA",
    "openrouter": "sk-or-v1-" + hexes(64),
    "langfuse": "sk-lf-" + uuid(),
    "langsmith": "lsv2_pt_" + hexes(32) + "_" + hexes(10),
    "langsmith service": "lsv2_sk_" + hexes(32) + "_" + hexes(10),
    "langchain hub": "ls__" + hexes(32),
    "pinecone": "pcsk_" + some(6) + "_" + some(63),
    "e2b": "e2b_" + hexes(40),
    "tavily": "tvly-dev-" + some(32),
    "firecrawl": "fc-" + hexes(32),
    "jina": "jina_" + some(60, URL_SAFE),
    "voyage": "pa-" + some(43, URL_SAFE),
    "together": "tgp_v1_" + some(43, URL_SAFE),
    "groq": "gsk_" + some(52),
    "fireworks": "fw_" + some(24),
    "replicate": "r8_" + some(37),
    "hugging face": "hf_" + some(34),
    "hugging face organisation": "api_org_" + some(34),
    "perplexity": "pplx-" + some(48),
    "xai": "xai-" + some(80),
    "cerebras": "csk-" + some(48, LOWER),
    "nvidia": "nvapi-" + some(64, URL_SAFE),
    "elevenlabs": "sk_" + hexes(48),
    "llamacloud": "llx-" + some(48),
    "apify": "apify_api_" + some(36),
    "runpod": "rpa_" + some(46, UPPER),
    "slack bot": "xoxb-" + digits(12) + "-" + digits(13) + "-" + some(24),
    "slack user": "xoxp-" + digits(12) + "-" + digits(12) + "-" + digits(13) + "-" + hexes(32),
    "slack refresh": "xoxe-1-" + some(146),
    "slack app": "xapp-1-A" + some(10, UPPER) + "-" + digits(13) + "-" + hexes(64),
    "slack webhook": "https://hooks.slack.com/services/T" + some(8, UPPER) + "/B" + some(8, UPPER) + "/" + some(24),
    "discord bot": b64(digits(19)).rstrip("=") + "." + some(6, URL_SAFE) + "." + some(38, URL_SAFE),
    "discord webhook": f"https://discord.com/api/webhooks/{digits(19)}/{some(68, URL_SAFE)}",
    "teams webhook": f"https://acme.webhook.office.com/webhookb2/{uuid()}@{uuid()}/IncomingWebhook/{hexes(32)}/{uuid()}",
    "zapier webhook": f"https://hooks.zapier.com/hooks/catch/{digits(7)}/{some(7, LOWER)}/",
    "telegram bot": digits(10) + ":AA" + some(33, URL_SAFE),
    "twilio key": "SK" + hexes(32),
    "sendgrid": "SG." + some(22, URL_SAFE) + "." + some(43, URL_SAFE),
    "mailgun": "key-" + hexes(32),
    "mailchimp": hexes(32) + "-us14",
    "brevo": "xkeysib-" + hexes(64) + "-" + some(16),
    "resend": "re_" + some(8) + "_" + some(24),
    "mailersend": "mlsn." + hexes(64),
    "hubspot": "pat-na1-" + uuid(),
    "airtable": "pat" + some(14) + "." + hexes(64),
    "notion": "ntn_" + digits(11) + some(35),
    "linear": "lin_api_" + some(40),
    "clickup": "pk_" + digits(8) + "_" + some(32, UPPER),
    "trello": "ATTA" + hexes(64),
    "figma": "figd_" + some(40, URL_SAFE),
    "dropbox": "sl." + some(135, URL_SAFE),
    "shopify": "shpat_" + hexes(32),
    "stripe": "sk_live_" + some(24),
    "stripe restricted": "rk_live_" + some(99),
    "stripe webhook": "whsec_" + some(32),
    "square": "sq0atp-" + some(22, URL_SAFE),
    "square secret": "sq0csp-" + some(43, URL_SAFE),
    "plaid": "access-production-" + uuid(),
    "paypal": "access_token$production$" + some(16, LOWER) + "$" + hexes(32),
    "razorpay": "rzp_live_" + some(14),
    "flutterwave": "FLWSECK-" + hexes(32) + "-X",
    "shippo": "shippo_live_" + hexes(40),
    "easypost": "EZAK" + hexes(54),
    "duffel": "duffel_live_" + some(43, URL_SAFE),
    "facebook": "EAAC" + some(160),
    "twitter bearer": "A" * 21 + "%2F" + some(80),
    "typeform": "tfp_" + some(44) + "_" + some(14),
    "contentful": "CFPAT-" + some(43, URL_SAFE),
    "launchdarkly": "sdk-" + uuid(),
    "posthog": "phx_" + some(43),
    "new relic user": "NRAK-" + some(27, UPPER),
    "new relic insights": "NRII-" + some(32, URL_SAFE),
    "grafana service account": "glsa_" + some(32) + "_" + hexes(8),
    "grafana cloud": "glc_" + some(120, BASE64) + "=",
    "grafana key": "eyJrIjoi" + some(90, ALNUM) + "=",
    "sentry organisation": "sntrys_eyJpYXQiOjE3" + some(120, BASE64) + "=_" + some(43, BASE64),
    "sentry user": "sntryu_" + hexes(64),
    "dynatrace": "dt0c01." + some(24, UPPER) + "." + some(64, UPPER),
    "honeycomb": "hcaik_01" + some(56, LOWER),
    "doppler": "dp.pt." + some(43),
    "vault service": "hvs." + some(95, URL_SAFE),
    "vault batch": "hvb." + some(150, URL_SAFE),
    "terraform cloud": some(14) + ".atlasv1." + some(67, URL_SAFE),
    "pulumi": "pul-" + hexes(40),
    "infracost": "ico-" + some(32),
    "1password service account": "ops_eyJ" + some(300, ALNUM),
    "tailscale": "tskey-auth-" + some(11) + "CNTRL-" + some(32),
    "circleci": "CCIPAT_" + some(22) + "_" + hexes(40),
    "buildkite": "bkua_" + hexes(40),
    "sonar": "squ_" + hexes(40),
    "prefect": "pnu_" + some(36),
    "postman": "PMAK-" + hexes(24) + "-" + hexes(34),
    "readme": "rdme_" + some(70, LOWER),
    "harness": "pat." + some(22, URL_SAFE) + "." + hexes(24) + "." + some(20),
    "octopus": "API-" + some(26, UPPER),
    "openshift": "sha256~" + some(43, URL_SAFE),
    "adobe": "p8e-" + some(32, LOWER),
    "age": "AGE-SECRET-KEY-1" + some(58, UPPER),
    "frame.io": "fio-u-" + some(64, URL_SAFE),
    "maxmind": some(6) + "_" + some(29) + "_mmk",
    "rancher": "token-" + some(5, LOWER) + ":" + some(54, LOWER),
    "jwt": jwt(),
    "rsa key": pem("RSA PRIVATE KEY"),
    "openssh key": pem("OPENSSH PRIVATE KEY"),
    "pgp key": pem("PGP PRIVATE KEY BLOCK"),
    "encoded pem": b64(pem("EC PRIVATE KEY")),
}  # fmt: skip

# Told by what stands around them; the secret is put in place of {}.
_IN_TEXT = {
    "aws secret key": ("aws_secret_access_key = {}", some(40, BASE64)),
    "datadog": ("DD_API_KEY={}", hexes(32)),
    "cohere": ('co = cohere.Client(api_key="{}")', some(40)),
    "mistral": ("export MISTRAL_API_KEY={}", some(32)),
    "deepgram key": ("DEEPGRAM_KEY={}", hexes(40)),
    "snyk": ("SNYK_TOKEN: {}", uuid()),
    "cloudflare": ("CLOUDFLARE_API_TOKEN={}", some(40, URL_SAFE)),
    "okta": ("Authorization: SSWS {}", "00" + some(40, URL_SAFE)),
    "neon url": ("postgresql://owner:{}@ep-x-1.eu-central-1.aws.neon.tech/neondb", "npg_" + some(12)),
    "postgres url": ("postgresql://app:{}@db.example.com:5432/app", some(20)),
    "redis url": ("redis://:{}@cache:6379/0", some(24)),
    "mongodb url": ("mongodb+srv://root:{}@cluster0.mongodb.net", some(16)),
    "amqp url": ("amqp://svc:{}@rabbit:5672/prod", "swordfish"),
    "git remote": ("git clone https://{}@git.example.com/acme/app.git", some(40)),
    "sentry dsn": ("https://{}@o447951.ingest.sentry.io/5429215", hexes(32)),
    "azure storage": ("AccountName=x;AccountKey={};EndpointSuffix=core.windows.net", some(86, BASE64) + "=="),
    "azure bus": ("Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey={}", some(43, BASE64) + "="),
    "azure signature": ("https://x.blob.core.windows.net/c?sv=2022&sp=r&sig={}", some(43) + "%3D"),
    "aws signature": ("https://b.s3.amazonaws.com/k?X-Amz-Expires=60&X-Amz-Signature={}", hexes(64)),
    "odbc": ("Driver=x;Server=db;UID=sa;PWD={};Encrypt=yes", some(12)),
    "bearer": ("curl -H 'Authorization: Bearer {}' https://api.example.com", some(40)),
    "basic": ("Authorization: Basic {}", b64(f"user:{some(12)}")),
    "token header": ("Authorization: token {}", hexes(40)),
    "api key header": ("X-Api-Key: {}", some(24)),
    "private token header": ("curl --header 'PRIVATE-TOKEN: {}' https://git.example.com", some(20)),
    "cookie": ("Cookie: theme=dark; session={}; lang=en", some(40)),
    "set-cookie": ("< Set-Cookie: connect.sid=s%3A{}; Path=/; HttpOnly", some(32)),
    "php session": ("curl -b PHPSESSID={} https://x", some(26, LOWER)),
    "environment": ("export DATABASE_PASSWORD={}", some(16)),
    "environment, a word": ("DB_PASS={}", "swordfish"),
    "environment, psql": ("PGPASSWORD={} psql -h db -U app", "hunter2x"),
    "docker -e": ("docker run -e MYSQL_ROOT_PASSWORD={} mysql:8", "clownfish"),
    "json": ('{{"client_secret": "{}"}}', some(32)),
    "json, a word": ('{{"user": "ann", "password": "{}"}}', "angelfish"),
    "yaml": ("db:\n  user: app\n  password: {}\n", "jelly-Fish7"),
    "toml": ('[auth]\nsecret_key = "{}"', some(50)),
    "python": ('client = Client(password="{}")', "goldfish!x"),
    "escaped json": ('{{\\"access_token\\": \\"{}\\"}}', some(30)),
    "query": ("GET /v1/items?access_token={}&page=2", some(24)),
    "query api key": ("https://api.example.com/q?apikey={}&x=1", hexes(32)),
    "flag": ("deploy --token {} --now", some(24)),
    "flag =": ("deploy --db-password={} --now", "kingfisher"),
    "curl login": ("curl -sS -u deploy:{} https://api.example.com/v1", some(14)),
    "curl login, continued": ("curl -X POST \\\n  --user 'deploy:{}' https://api.example.com", some(14)),
    "mysql": ("mysql -h db -uroot -p{} app < dump.sql", "Swordfish"),
    "mysqldump": ("mysqldump --single-transaction -u root -p{} app", some(12)),
    "sshpass": ("sshpass -p {} ssh deploy@web1", "catfish99"),
    "docker login": ("docker login -u ann -p {} registry.example.com", some(16)),
    "redis-cli": ("redis-cli -h cache -a {} ping", some(16)),
    "ldapsearch": ("ldapsearch -D cn=admin -w {} -b dc=x", some(12)),
    "openssl": ("openssl rsa -in k.pem -passin pass:{} -out k", some(12)),
    "keytool": ("keytool -list -keystore k.jks -storepass {}", "starfish1"),
    "netrc": ("machine api.example.com login ann password {}", some(12)),
    "netrc lines": ("machine api.example.com\n  login ann\n  password {}\n", "swordfish"),
    "pgpass": ("db.example.com:5432:app:ann:{}", "dragonfish"),
    "kubeconfig key": ("    client-key-data: {}\n", some(200, BASE64) + "=="),
    "kubeconfig token": ("users:\n- name: a\n  user:\n    token: {}\n", some(64)),
    "docker auth": ('{{"auths": {{"ghcr.io": {{"auth": "{}"}}}}}}', b64(f"ann:{some(14)}")),
    "npmrc": ("//registry.example.com/:_authToken={}", uuid()),
    "npmrc auth": ("//npm.example.com/:_auth={}", b64(f"ann:{some(14)}")),
    "pypirc": ("[pypi]\nusername = ann\npassword = {}\n", some(20)),
    "sql user": ("CREATE USER app IDENTIFIED BY '{}'", "sword-fish"),
    "sql role": ("ALTER ROLE app WITH PASSWORD '{}'", "swordfish!"),
    "maven": ("<server><username>a</username><password>{}</password></server>", "Swordfish1"),
    "nuget config": ('<add key="ClearTextPassword" value="{}" />', some(20)),
    "django": ("SECRET_KEY = 'django-insecure-{}'", some(50, LOWER + "!@#$%^*(-_=+)")),
    "rails": ("SECRET_KEY_BASE={}", hexes(128)),
    "jwt secret": ("JWT_SECRET={}", some(32)),
    "wordpress salt": ("define('AUTH_SALT', '{}');", some(64)),
    "putty": ("PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\n{}\nPrivate-MAC: 00", some(64, BASE64)),
    "wireguard": ("[Interface]\nPrivateKey = {}\nAddress = 10.0.0.2/32", some(43, BASE64) + "="),
    "otp": ("otpauth://totp/Acme:ann?secret={}&issuer=Acme", some(32, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")),
    "ethereum": ("PRIVATE_KEY=0x{}", hexes(64)),
    "proxmox": ("Authorization: PVEAPIToken=root@pam!ci={}", uuid()),
    "bcrypt": ("ann:{}", "$2b$12$" + some(53)),
    "smtp": ("SMTP_PASS={}", some(12)),
    "aws session": ("AWS_SESSION_TOKEN={}", some(300, BASE64)),
    "github actions": ("::add-mask::x\nGITHUB_TOKEN={}", some(40)),
    "terraform variable": ('db_password = "{}"', "swordfish"),
    "php config": ("$config['db_password'] = '{}';", "sword_fish9"),
    "powershell": ("ConvertTo-SecureString '{}' -AsPlainText -Force", "Swordfish!7"),
    "java properties": ("spring.datasource.password={}", "swordfish"),
    "go struct": ('cfg := Config{{APIKey: "{}"}}', some(32)),
    "log line": ("INFO login ok user=ann token={} ms=12", some(24)),
}  # fmt: skip

CREDENTIALS = [Credential(name, text, text) for name, text in _SHAPED.items()]
CREDENTIALS += [Credential(name, text.format(secret), secret) for name, (text, secret) in _IN_TEXT.items()]

# Secrets that only the structure around them tells: the value, and what must not be stored of it.
_deep = some(24)
STRUCTURED = {
    "token": ({"token": "abc123def"}, "abc123def"),
    "api token": ({"tool": {"api_token": _deep}}, _deep),
    "password": ({"db": {"password": "swordfish"}}, "swordfish"),
    "camel case": ({"dbPassword": "clownfish"}, "clownfish"),
    "environment": ({"env": {"PGPASSWORD": "angelfish"}}, "angelfish"),
    "short name": ({"env": {"DB_PASS": "catfishes"}}, "catfishes"),
    "passphrase": ({"passphrase": "correct horse battery staple"}, "battery"),
    "in a list": ({"passwords": "x", "password": ["jellyfish"]}, "jellyfish"),
    "in a mapping": ({"credentials": {"user": "ann", "pw": "goldfish"}}, "goldfish"),
    "a number": ({"password": 80_112_233}, b"\xce\x04\xc6\x66\x29".decode("latin-1")),
    "flag": (["mysql", "--password", "starfish"], "starfish"),
    "mysql -p": (["mysql", "-uroot", "-pkingfish", "app"], "kingfish"),
    "sshpass": (["sshpass", "-p", "dragonfish", "ssh", "web1"], "dragonfish"),
    "pair": ({"name": "DB_PASSWORD", "value": "blowfish"}, "blowfish"),
    "docker auth": ({"auths": {"ghcr.io": {"auth": b64("ann:monkfish9")}}}, b64("ann:monkfish9")),
    "kubernetes": ({"user": {"client-key-data": b64("PRIVATE" + _deep)}}, b64("PRIVATE" + _deep)),
    "unknown key": ({"ACME_KEY": some(32)}, None),
    "bytes": ({"session_token": b"sailfish9"}, "sailfish9"),
}  # fmt: skip
STRUCTURED = {
    name: (value, secret if secret is not None else next(iter(value.values())))
    for name, (value, secret) in STRUCTURED.items()
}

INNOCENT_FIELDS = [
    {"idempotency_key": uuid()}, {"idempotency_key": "order-2024-" + some(24)}, {"Idempotency-Key": some(32)},
    {"idempotencyKey": hexes(32)}, {"next_page_token": some(40, URL_SAFE)}, {"nextPageToken": b64(some(30))},
    {"page_token": some(24)}, {"continuation_token": some(64)}, {"NextToken": some(80, BASE64)},
    {"sync_token": some(40)}, {"resume_token": hexes(64)}, {"cursor": some(40)}, {"primary_key": hexes(32)},
    {"primary_key": "user_8f3a2b1c9d0e4f5a"}, {"foreign_key": uuid()}, {"s3_key": "uploads/2024/05/" + hexes(32) + ".png"},
    {"s3_key": some(32)}, {"object_key": f"runs/{uuid()}/out.json"}, {"cache_key": hexes(64)},
    {"cache_key": "v2:" + some(24)}, {"partition_key": f"tenant#{uuid()}"}, {"sort_key": "2024-05-01T10:00:00Z#" + hexes(8)},
    {"routing_key": "orders.created.v2"}, {"dedup_key": hexes(40)}, {"row_key": some(24)}, {"lock_key": "lock:job:" + uuid()},
    {"key": hexes(40)}, {"key": "ann/2024/a1b2c3d4e5f6a7b8"}, {"Key": f"logs/{uuid()}.gz", "Size": 12},
    {"public_key": "ssh-ed25519 " + some(68, BASE64)}, {"commit": hexes(40)}, {"sha": hexes(40)},
    {"commit_key": hexes(40)}, {"head_sha": hexes(40), "base_sha": hexes(40)}, {"id": uuid()}, {"request_id": uuid()},
    {"session_id": uuid()}, {"trace_id": hexes(32)}, {"tool_call_id": "call_" + some(24)}, {"run_id": "run_" + some(24)},
    {"message_id": "msg_" + some(24)}, {"etag": f'"{hexes(32)}"'}, {"checksum": "sha256:" + hexes(64)},
    {"digest": hexes(64)}, {"signature": "def handle(self, request2: Request) -> Response"},
    {"max_tokens": 4096}, {"total_tokens": 18_223}, {"token_count": "1024"}, {"token_type": "bearer"},
    {"tokenizer": "cl100k_base"}, {"eos_token": "<|endoftext|>"}, {"pad_token": "<pad_0000001>"},
    {"stop_token": "###END123"}, {"tokens": [15339, 1917]}, {"token": "hello"}, {"token": 1917},
    {"author": "ann42"}, {"keyboard": "qwerty105keys"}, {"keywords": "k8s,helm3,argo2"}, {"pass_rate": "0.9523"},
    {"passed": "12of12tests"}, {"pass": 3}, {"compass": "north123456789"}, {"bypass": "rule-42-enabled"},
    {"password_policy": "min12chars1digit"}, {"password_field": "#login-form2 input"}, {"password": None},
    {"password": "required"}, {"password": False}, {"password": ""}, {"password": {"min_length": 12, "required": True}},
    {"secret": True}, {"secret_name": "prod-db-credentials-v2"}, {"secretName": "tls-2024-wildcard"},
    {"secret_arn": "arn:aws:secretsmanager:eu-west-1:123456789012:secret:db-a1b2c3"},
    {"api_key": "${OPENAI_API_KEY}"}, {"api_key_env": "OPENAI_API_KEY_2"}, {"token_file": "/run/secrets/token1"},
    {"private_key_path": "/home/ann/.ssh/id_ed25519"}, {"private_key": "/etc/ssl/private/web1.key"},
    {"credentials": "same-origin"}, {"authorization": "required"}, {"auth": "oauth2"}, {"auth_method": "aws4-hmac-sha256"},
    {"auth_url": "https://example.com/oauth2/authorize"}, {"cookie_policy": "strict2024"}, {"salted": "caramel2024edition"},
    {"webhook": "https://example.com/hooks/build-finished-2024"}, {"design_token": "color-blue-500"},
    {"cancellation_token": uuid()}, {"client_request_token": uuid()}, {"fencing_token": "42"},
    {"password_changed_at": "2024-05-01T10:00:00Z"}, {"key_id": hexes(32)}, {"kid": some(24)},
    {"translation_key": "checkout.step2.title"}, {"feature_key": "new-checkout-2024-v3"}, {"issue_key": "PLAT-1234567"},
    {"cache_token": "v2-main-8f3a2b1c"}, {"image": "alpine:3.19@sha256:" + hexes(64)}, {"version": "1.2.3-rc.4+build5678"},
    {"env_key": "NODE_ENV_2024_STAGE"}, {"arrow_key": "ArrowUp1234567890123"},
]  # fmt: skip

INNOCENT_TEXTS = [
    f"HEAD is now at {hexes(40)}", f"commit {hexes(40)}\nAuthor: Ann <ann@example.com>", f"request {uuid()} took 12 ms",
    f"sha256:{hexes(64)}  dist/app-1.2.3.tar.gz", f"integrity sha512-{some(86, BASE64)}==", "The token limit is 128k tokens.",
    "max_tokens=4096 temperature=0.2 top_p=1", "tokens: 1024 in, 233 out", "usage: {'total_tokens': 12345, 'key': 'a1'}",
    f"next_page_token={some(32)}&page_size=100", f"GET /v1/list?pageToken={some(40)}", f"cache_key: {hexes(40)}",
    f"idempotency_key={uuid()}", f"Idempotency-Key: {some(30)}", f"x-request-id: {uuid()}", f'etag: W/"{hexes(32)}"',
    "primary_key=True, max_length=64", "PRIMARY KEY (tenant_id2, user_id)", "the key: value pairs are sorted by key1",
    "password: required", "Password: ********", "password must contain 8 characters and 1 digit", "Enter password: ",
    "password = getpass.getpass('Password2: ')", "password=os.environ['DB_PASSWORD1']", "password=config.db.password1",
    "token = request.headers['X-Token-1']", "api_key = settings.OPENAI_API_KEY_1", "api_key=os.getenv('KEY_123456')",
    "token=${GITHUB_TOKEN_2}", "--token $TOKEN1234", "--token-file /run/secrets/token1", "pwd: /home/ann/project42",
    "PWD=/home/ann/work/project-42", "secretName: prod-db-credentials-v2", "secretKeyRef:\n  name: db-auth-2024\n  key: pw",
    "def f(password: str, token: Optional[str] = None) -> Token2:", "interface Login { password: string; token?: string }",
    "password: z.string().min(8)", "if (password === confirmPassword2) return", "self.password = password1",
    "login(user=user, password=passwd)", "tokenizer: cl100k_base", "from token_utils2 import TokenCounter",
    "the author: ann42smith", "keyboard: qwerty105", "assert passed == 12, f'pass rate {rate}'", "pass_rate: 0.95238095",
    "see https://example.com/docs/api-keys#rotate-2024", "https://example.com/reset-password?step=2",
    "docker pull alpine:3.19@sha256:" + hexes(64), "docker://alpine:3.19@sha256:" + hexes(64),
    "pkg: github.com/acme/auth-token-v2 v2.1.0", "src/auth/token.py:12:5: E501 line too long", "git@github.com:acme/app.git",
    "ssh://git@example.com:2222/acme/app.git", "http://localhost:8080/users/@me", "npm install sk-learn-pipeline-v2-demo",
    "risk-assessment-framework-2024-final", "task-20240501-rebuild-index-part3", "disk-utilisation-report-2024-05-01",
    "-----BEGIN CERTIFICATE-----\n" + some(64, BASE64) + "\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\n" + some(64, BASE64) + "\n-----END PUBLIC KEY-----",
    "ssh-rsa " + some(200, BASE64) + " ann@laptop", "data:image/png;base64," + some(400, BASE64),
    f"eyJ is how a JSON object begins in base64: {b64(json.dumps({'offset': 100}))}",
    "mysql -h db -u root -p app", "mysql --port 3306 -P 3306 app", "docker run -p 8080:80 nginx:1.25", "ssh -p 2222 ann@web1",
    "mkdir -p /srv/app/releases/20240501", "curl -sS -X POST https://api.example.com/v1/items -d @body2.json",
    "Set the cookie banner: accepted=yes", "Cookie: theme=dark; lang=en", "Authorization: required for write access",
    "Bearer authentication is described in RFC 6750", "The basic idea: authorization is checked in step2handler",
    "SK-2024-0001 shipped", "AKIA is the prefix of access keys", "hf_model_name = 'bert-base-uncased'",
    "npm_config_registry=https://registry.example.com/", "npm_lifecycle_event=build2024", "pypi-publish-workflow-2024.yml",
    "xoxo, see you at 10", "ghp_ is followed by 36 characters", "key-value-store-partition-0042",
    "error: could not find `token` in `proc_macro2`", 'Traceback (most recent call last):\n  File "auth2.py", line 12',
    "machine learning model v2, login page redesigned, password reset fixed", "identified by a UUID such as " + uuid(),
    "the secret sauce: garlic1butter", "keys: ['a1', 'b2', 'c3']", "lock_key=jobs:nightly:20240501",
    "ISO 8601: 2024-05-01T10:00:00+00:00", "phone +49 30 12345678, order 4711-0815-2024", "IBAN DE89370400440532013000",
    "credentials: include, mode: cors2", "credentials file: ~/.aws/credentials2", "private_key_path: /etc/ssl/web1.pem",
    '<input type="password" name="password2">', "<password></password>", "postgresql://localhost:5432/app_test1",
    "postgresql://user:password@localhost/db", "postgresql://$USER:$PASS@db/app", "redis://cache:6379/0", "csrf_exempt2(view)",
    "warning: AccountKey= is empty", "The API-Key header was missing (401)", "Secret Santa: 12 players joined2",
    "designToken: color-blue-500", "signing off, 12 May 2024", "Lorem ipsum dolor sit amet, consectetur2 adipiscing",
    "x = {'token': tokens[0], 'key': keys[1]}", "api_key: <your-api-key-123>", "API_KEY=your_api_key_1234",
    "password: changeme", "token: xxxxxxxxxxxxxxxx1", "OPENAI_API_KEY=sk-...", "sk-************************a1b2",
]  # fmt: skip

CREDENTIAL_FILES = """
.env .env.local .env.production prod.env .envrc .dev.vars .npmrc .pypirc .netrc _netrc .authinfo .pgpass pgpass.conf
.my.cnf .mylogin.cnf .s3cfg .boto .passwd-s3fs rclone.conf .htpasswd .git-credentials .gitcookies .databrickscfg
.docker/config.json home/ann/.docker/config.json .dockercfg .dockerconfigjson .kube/config kubeconfig prod.kubeconfig
.vault-token .vault_pass vault_pass.txt .terraformrc .terraform.d/credentials.tfrc.json terraform.tfstate
infra/terraform.tfstate.backup terraform.tfvars infra/prod.auto.tfvars .aws/credentials .aws/config
.config/gcloud/application_default_credentials.json .config/gcloud/credentials.db .azure/accessTokens.json
.azure/msal_token_cache.json .oci/config .aliyun/config.json .config/doctl/config.yaml .config/hcloud/cli.toml
.config/gh/hosts.yml .config/hub .config/glab-cli/config.yml .claude/.credentials.json .claude.json .codex/auth.json
.gemini/oauth_creds.json .config/github-copilot/hosts.json .config/github-copilot/apps.json .aider.conf.yml
.cache/huggingface/token .huggingface/token .kaggle/kaggle.json .cargo/credentials .cargo/credentials.toml
.gem/credentials .m2/settings.xml .m2/settings-security.xml .gradle/gradle.properties auth.json .composer/auth.json
.ssh/id_rsa id_ed25519 deploy/id_ecdsa id_ed25519_sk server.pem server.key cert.p12 cert.pfx app.keystore app.jks
vault.kdbx putty.ppk AuthKey_ABC123.p8 client.ovpn .gnupg/secring.gpg .password-store/mail.gpg secrets.yaml secrets.yml
secrets.json secrets.toml .streamlit/secrets.toml config/secrets.yml.key credentials.json credentials.yaml credentials.csv
rootkey.csv client_secret_1234.apps.googleusercontent.com.json service-account.json service_account_prod.json
serviceAccountKey.json app-firebase-adminsdk-x1y2z.json token.json .fly/config.yml .vercel/auth.json .netlify/config.json
.sentryclirc .ngrok2/ngrok.yml .snowsql/config .dbt/profiles.yml .msmtprc .smbcredentials .erlang.cookie .bash_history
.psql_history cookies.txt storage_state.json playwright/.auth/user.json .config/sops/age/keys.txt .wakatime.cfg
""".split()  # noqa: SIM905 - a list of names reads best as lines

INNOCENT_FILES = """
config.json src/config.json src/auth/config.json docker/config.json kube/config.go .kube-linter.yaml secrets.py
src/secrets/__init__.py src/credentials/store.py credentials.py credentials.md docs/credentials.md credentials_test.go
token.py tokens.css src/token.ts auth.py src/auth.json.py auth.ts password_reset.html keys.py keyboard.json monkey.txt
.env.example .env.sample .env.template example.env id_rsa.pub id_ed25519.pub known_hosts package.json package-lock.json
tsconfig.json .gitignore .dockerignore .npmignore .nvmrc .yarnrc.yml .editorconfig docker-compose.yml Dockerfile
.docker/php/Dockerfile main.tf variables.tf terraform.tfvars.example .terraform.lock.hcl .claude/settings.json CLAUDE.md
.claude/agents/review.md .codex/prompts/x.md .gemini/settings.json .cursor/rules/x.mdc .config/app.yaml settings.xml
gradle.properties .gradle/caches.txt src/hosts.yml hosts.yml src/apps.json profiles.yml src/config.yml .fly.toml fly.toml
.netlify/state.json .vercel/project.json secret_manager.go secrets.yaml.example secrets.md test_secrets.py rclone.md
.streamlit/config.toml cli.toml src/keys.txt cookies.py history.py poetry.lock pyproject.toml .github/workflows/ci.yml
k8s/deployment.yaml helm/values.yaml environment.yml env.py .envrc.example token_counter.json tokenizer.json
service_account.py client_secret.py kaggle.py netrc.md
""".split()  # noqa: SIM905
