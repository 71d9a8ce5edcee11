"""Credential formats: what the keys, tokens and logins of well-known services look like. Data, read by the finder.

Source: the services' own documentation of their key formats. Coverage was compared with the public rule sets that
COMPARED_WITH names; prefixes, lengths and alphabets are facts that were checked against them, no expression is theirs.

Patterns are written in what Python's `re` and Hyperscan share: no look-around, no back reference.
"""

from __future__ import annotations

import re
from typing import NamedTuple

VERSION = "2026.11"  # changes with every change of this table or of names.py; part of the key of the compiled cache
COMPARED_WITH = (
    "gitleaks b58d3f1 (2026-07-22, 221 rules)",
    "detect-secrets 5e14193 (2026-04-02, 27 plugins)",
)

_REPEAT = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_ENOUGH = 12  # of a long repeat: enough to look closely, and a bounded repeat costs Hyperscan milliseconds to compile


class Format(NamedTuple):
    """One kind of credential: `pattern` finds it; with a group, only the group is the secret."""

    name: str
    pattern: str
    check: str = ""
    """A further test that what was found must pass, by name; see `holdfast.capture.secrets`."""
    starts: bool = True
    """Whether it starts a word: no letter or digit stands before it."""
    ends: bool = False
    """Whether it ends a word: for fixed lengths, so that a longer run of the same characters is something else."""
    noticed_by: str = ""
    """The pattern by which the native scan notices it, where the beginning of `pattern` would not do."""
    before: int = 320
    """So far before the end of what is noticed it begins at most."""
    behind: int = 512
    """So far behind it ends the shortest text that the pattern matches."""

    @property
    def native(self) -> str:
        """What the native scan looks for: the pattern up to its first long repeat, quick to compile and to run."""
        return self.noticed_by or shortened(self.pattern)


def shortened(pattern: str) -> str:
    """Return a pattern that matches wherever this one does, without its long repeats."""
    for found in _REPEAT.finditer(pattern):
        low, high = int(found[1]), found[2]
        if low >= _ENOUGH:
            head = _optional_repeats_as_stars(pattern[: found.start()]) + f"{{{_ENOUGH}}}"
            return head + ")" * (_parentheses(head, "(") - _parentheses(head, ")"))
        if high and int(high) > 99:  # noqa: PLR2004
            head = _optional_repeats_as_stars(pattern[: found.start()]) + f"{{{low}}}"
            return head + ")" * (_parentheses(head, "(") - _parentheses(head, ")"))
    return _optional_repeats_as_stars(pattern)


def _optional_repeats_as_stars(pattern: str) -> str:
    return re.sub(r"\{[01],\d{1,2}\}", "*", pattern)


def _parentheses(pattern: str, kind: str) -> int:
    return re.sub(r"\\.|\[[^\]]*\]", "", pattern).count(kind)


_X = "[A-Za-z0-9]"
_U = r"[A-Za-z0-9_\-]"  # the alphabet of URL-safe base64
_B = "[A-Za-z0-9+/]"
_H = "[a-f0-9]"
_UUID = f"{_H}{{8}}-{_H}{{4}}-{_H}{{4}}-{_H}{{4}}-{_H}{{12}}"
_QUOTE = r"[\\\"']{0,3}"
_WORD = r"[^\s\"'`\\,;&|<>(){}]"  # of an argument on a command line

CLOUDS = (
    Format("aws-key-id", r"(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA|A3T[A-Z0-9])[A-Z0-9]{16}", ends=True),
    Format("aws-bedrock-key", rf"ABSK{_B}{{40,400}}={{0,2}}"),
    Format("aws-bedrock-key", rf"bedrock-api-key-{_B}{{20,4000}}={{0,2}}"),
    Format("aws-signature", r"X-Amz-(?:Signature|Security-Token)=([A-Za-z0-9%+/\-]{30,2048})"),
    Format("google-api-key", rf"AIza{_U}{{35}}"),
    Format("google-api-key", rf"AQ\.Ab{_U}{{40,200}}"),
    Format("google-oauth", rf"ya29\.{_U}{{20,512}}"),
    Format("google-oauth", rf"GOCSPX-{_U}{{20,64}}"),
    Format("google-oauth", rf"1//0{_U}{{30,200}}"),
    Format("azure-key", rf"(?:AccountKey|SharedAccessKey)=({_B}{{40,128}}={{0,2}})"),
    Format("url-signature", r"(?i)[?&;](?:sig|signature)=([A-Za-z0-9%+/_\-]{30,400}={0,2})", starts=False),
    Format(
        "azure-client-secret",
        r"[A-Za-z0-9_~.\-]{3}[0-9]Q~[A-Za-z0-9_~.\-]{31,34}",
        noticed_by=r"[0-9]Q~[A-Za-z0-9_~.\-]{12}",
    ),
    Format("azure-devops-token", rf"{_X}{{76}}AZDO{_X}{{4}}", ends=True, noticed_by=rf"{_X}{{12}}AZDO{_X}{{4}}"),
    Format("azure-ai-key", rf"{_X}{{52}}JQQJ9{_X}{{27}}", ends=True, noticed_by=rf"{_X}{{12}}JQQJ9{_X}{{12}}"),
    Format("alibaba-key-id", rf"LTAI{_X}{{12,30}}", check="random"),
    Format("tencent-key-id", rf"AKID{_X}{{32,48}}"),
    Format("yandex-key", rf"AQVN{_U}{{35,38}}"),
    Format("digitalocean-token", rf"do[opr]_v1_{_H}{{64}}"),
    Format("heroku-key", rf"HRKU-{_U}{{30,100}}"),
    Format("fly-token", rf"fo1_{_U}{{40,60}}"),
    Format("fly-token", rf"fm[12][ar]?_{_B}{{40,4000}}={{0,3}}"),
    Format("cloudflare-key", rf"v1\.0-{_H}{{24}}-{_H}{{100,200}}"),
    Format("cloudflare-key", rf"cf(?:ut|at|k)_{_X}{{40,64}}"),
    Format("render-key", rf"rnd_{_X}{{28,64}}"),
    Format("vercel-token", rf"vc[acikpr]_{_X}{{24,100}}", check="random"),
    Format("netlify-token", rf"nf[bcopu]_{_X}{{30,100}}"),
    Format("supabase-key", rf"sbp_{_H}{{40}}"),
    Format("supabase-key", rf"sb_secret_{_U}{{20,100}}"),
    Format("neon-key", rf"napi_{_X}{{40,100}}"),
    Format("neon-password", rf"npg_{_X}{{12,64}}", check="random"),
    Format("vercel-blob-token", rf"vercel_blob_rw_{_X}{{10,40}}_{_X}{{20,100}}"),
    Format("azure-openai-key", rf"{_X}{{52}}JQQJ99{_X}{{10,40}}", noticed_by=rf"JQQJ99{_X}{{10}}", starts=False),
    Format("azure-function-key", rf"{_U}{{40,60}}AzFu{_U}{{6,20}}={{0,2}}", noticed_by=rf"AzFu{_U}{{6}}", starts=False),
    Format("azure-storage-key", rf"{_B}{{76}}\+ASt{_B}{{6}}==", noticed_by=rf"\+ASt{_B}{{6}}==", starts=False),
    Format("infisical-token", rf"st\.{_H}{{8}}-[a-f0-9\-]{{27}}\.{_H}{{32}}\.{_H}{{32}}"),
    Format("stripe-key", rf"sk_org_(?:live|test)_{_X}{{20,200}}"),
    Format("browserbase-key", rf"bb_(?:live|test)_{_U}{{20,60}}", check="random"),
    Format("mem0-key", rf"m0-{_X}{{40}}", ends=True),
    Format("supermemory-key", rf"sm_{_X}{{22}}_{_X}{{40,100}}"),
    Format("inngest-key", rf"signkey-(?:prod|test|branch)-{_H}{{32,64}}"),
    Format("trigger-dev-key", rf"tr_(?:dev|prod|stg|preview|pat)_{_X}{{20,60}}", check="random"),
    Format("snyk-token", rf"snyk_(?:uat|sat)\.{_H}{{8}}\.{_U}{{20,200}}"),
    Format("materialize-password", rf"mzp_{_H}{{64}}", ends=True),
    Format("daytona-key", rf"dtn_{_H}{{64}}", ends=True),
    Format("unkey-root-key", rf"unkey_{_X}{{16,60}}", check="random"),
    Format("polar-token", rf"polar_(?:oat|pat|at_u|at_o|rt_u|rt_o|cst)_{_X}{{32,100}}"),
    Format("stytch-secret", rf"secret-(?:live|test)-{_U}{{30,60}}={{0,2}}", check="random"),
    Format("pubnub-secret", rf"sec-c-{_X}{{48}}", ends=True),
    Format("devin-key", rf"apk_(?:user|service)_{_X}{{40,200}}"),
    Format("xata-key", rf"xau_{_X}{{40,60}}"),
    Format("amp-key", rf"sgamp_(?:user|team)_{_X}{{20,200}}"),
    Format("scrapfly-key", rf"scp-(?:live|test)-{_H}{{32}}"),
    Format("deno-deploy-token", rf"dd[op]_{_X}{{36}}", ends=True),
    Format("val-town-token", rf"vtwn_{_X}{{20,60}}"),
    Format("nylas-key", rf"nyk_v0_{_X}{{60,70}}"),
    Format("jsr-token", rf"jsr[dp]_{_X}{{36,60}}"),
    Format("fal-key", rf"{_H}{{8}}-{_H}{{4}}-{_H}{{4}}-{_H}{{4}}-{_H}{{12}}:{_H}{{32}}", ends=True),
    Format("planetscale-key", r"pscale_(?:tkn|oauth|pw)_[A-Za-z0-9_=.\-]{30,64}"),
    Format("databricks-token", rf"(?:dapi|dose){_H}{{32}}(?:-[0-9])?", ends=True),
    Format("mongodb-secret", rf"mdb_sa_sk_{_U}{{30,64}}"),
    Format("confluent-key", rf"cflt{_B}{{60}}", check="random"),
    Format("clickhouse-key", rf"4b1d{_X}{{38}}", check="random", ends=True),
    Format("cockroach-key", rf"CCDB1_{_X}{{22}}_{_X}{{40}}"),
    Format("terraform-token", rf"{_X}{{14}}\.atlasv1\.{_U}{{60,70}}", noticed_by=rf"\.atlasv1\.{_U}{{12}}"),
    Format("pulumi-token", rf"pul-{_H}{{40}}"),
    Format("infracost-key", rf"ico-{_X}{{32}}", check="random", ends=True),
    Format("tailscale-key", rf"tskey-[a-z]{{2,12}}-{_X}{{6,32}}-{_X}{{20,64}}"),
    Format("openshift-token", rf"sha256~{_U}{{43}}"),
    Format("rancher-token", r"token-[a-z0-9]{5}:[a-z0-9]{54}"),
)  # fmt: skip

CODE = (
    Format("github-token", r"gh[pousr]_[A-Za-z0-9_]{30,600}"),
    Format("github-token", r"github_pat_[A-Za-z0-9_]{22,255}"),
    Format("gitlab-token", r"gl(?:pat|ptt|rt|dt|cbt|soat|ft|imt|agent|oas|ffct|wt)-[A-Za-z0-9_.\-]{18,400}"),
    Format("gitlab-token", rf"GR1348941{_U}{{20,50}}"),
    Format("atlassian-token", r"AT(?:ATT|CTT|STT)3[A-Za-z0-9_\-=]{20,400}"),
    Format("bitbucket-token", rf"ATBB{_X}{{32,64}}", check="random"),
    Format("bitbucket-token", rf"BBDC-{_U}{{30,64}}"),
    Format("trello-token", rf"ATTA{_H}{{64}}"),
    Format("sourcegraph-token", rf"sgp_(?:{_H}{{16}}_|local_)?{_H}{{40}}", noticed_by=rf"sgp_(?:local_)?{_H}{{12}}"),
    Format("jetbrains-token", rf"perm[:\-]{_B}{{4,80}}={{0,2}}\.{_B}{{2,80}}={{0,2}}\.{_X}{{20,64}}"),
    Format("npm-token", rf"npm_{_X}{{30,64}}"),
    Format("pypi-token", rf"pypi-{_U}{{40,512}}", check="random"),
    Format("rubygems-key", rf"rubygems_{_H}{{48}}"),
    Format("crates-token", rf"cio{_X}{{32}}", check="random", ends=True),
    Format("nuget-key", r"oy2[a-z0-9]{43}", ends=True),
    Format("clojars-token", rf"CLOJARS_{_X}{{60}}"),
    Format("packagist-token", rf"packagist_[a-z]{{3}}_{_H}{{60,80}}"),
    Format("docker-token", rf"dckr_(?:pat|oat)_{_U}{{20,64}}"),
    Format("artifactory-key", rf"AKCp{_X}{{69}}"),
    Format("artifactory-key", rf"cmVmd{_X}{{59}}", ends=True),
    Format("circleci-token", rf"CCI(?:PAT|PRJ)_{_X}{{20,30}}_{_H}{{40}}"),
    Format("buildkite-token", rf"bk(?:ua|aj|ct)_{_X}{{30,64}}"),
    Format("sonar-token", rf"sq[aup]_{_H}{{40}}"),
    Format("snyk-token", rf"snyk_(?:uat|sat)\.{_U}{{20,400}}"),
    Format("harness-token", rf"[ps]at\.{_U}{{22}}\.{_X}{{24}}\.{_X}{{20}}"),
    Format("octopus-key", r"API-[A-Z0-9]{26}", ends=True),
    Format("prefect-key", rf"pn[bu]_{_X}{{36}}"),
    Format("postman-key", rf"PMAK-{_H}{{24}}-{_H}{{34}}"),
    Format("readme-key", r"rdme_[a-z0-9]{60,80}"),
    Format("scalingo-token", rf"tk-us-{_U}{{48}}"),
)  # fmt: skip

MODELS = (
    Format("api-key", rf"sk-(?:proj-|ant-|or-|svcacct-|lf-|admin-)?{_U}{{20,400}}", check="random"),
    Format("langsmith-key", rf"lsv2_(?:pt|sk)_{_H}{{32}}_{_H}{{10}}"),
    Format("langsmith-key", rf"ls__{_H}{{32}}"),
    Format("pinecone-key", r"pcsk_[A-Za-z0-9_]{40,100}"),
    Format("e2b-key", rf"e2b_{_H}{{40}}"),
    Format("tavily-key", rf"tvly-{_U}{{20,64}}", check="random"),
    Format("firecrawl-key", rf"fc-{_H}{{32}}", ends=True),
    Format("jina-key", rf"jina_{_U}{{30,100}}"),
    Format("voyage-key", rf"pa-{_U}{{40,64}}", check="random"),
    Format("together-key", rf"tgp_v1_{_U}{{40,64}}"),
    Format("groq-key", rf"gsk_{_X}{{30,128}}"),
    Format("fireworks-key", rf"fw_{_X}{{22,64}}", check="random"),
    Format("replicate-token", rf"r8_{_X}{{30,64}}"),
    Format("huggingface-token", rf"(?:hf|api_org)_{_X}{{30,64}}"),
    Format("perplexity-key", rf"pplx-{_X}{{30,128}}"),
    Format("xai-key", rf"xai-{_X}{{30,255}}"),
    Format("cerebras-key", rf"csk-{_X}{{40,64}}"),
    Format("nvidia-key", rf"nvapi-{_U}{{50,100}}"),
    Format("api-key", rf"sk_(?:{_H}{{48}}|(?:car|e2b)_{_X}{{20,64}})", noticed_by=rf"sk_(?:{_H}{{12}}|car_|e2b_)"),
    Format("llamacloud-key", rf"llx-{_X}{{40,64}}"),
    Format("apify-key", rf"apify_api_{_X}{{30,64}}"),
    Format("runpod-key", r"rpa_[A-Z0-9]{40,64}"),
    Format("cursor-key", rf"(?:crsr|key)_{_H}{{64}}"),
    Format("modal-secret", rf"a[ks]-{_X}{{22}}", check="random", ends=True),
    Format("chroma-key", rf"ck-{_X}{{40,64}}"),
    Format("wandb-key", rf"wandb_v1_{_U}{{40,120}}"),
    Format("brave-key", rf"BSA{_U}{{24,32}}", check="random"),
)  # fmt: skip

SERVICES = (
    Format("slack-token", r"xox[abeoprs][\-.][A-Za-z0-9.\-]{10,400}"),
    Format("slack-token", r"xapp-[0-9]-[A-Za-z0-9\-]{10,255}"),
    Format("slack-webhook", r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_\-]{20,255}"),
    Format("discord-webhook", rf"discord(?:app)?\.com/api/webhooks/[0-9]{{10,25}}/{_U}{{30,255}}"),
    # The first part is a number in base64, which narrows its first letters: so the scan does not look at every dot.
    Format("discord-token", rf"[MNO][DTjz][AEIMQUYcgk][w-z0-5]{_X}{{18,25}}\.{_U}{{6}}\.{_U}{{27,45}}", check="random",
           noticed_by=rf"[MNO][DTjz][AEIMQUYcgk][w-z0-5]{_X}{{18}}"),
    Format("teams-webhook", r"\.webhook\.office\.com/webhookb2/[A-Za-z0-9@/\-]{40,400}", starts=False),
    Format("zapier-webhook", r"hooks\.zapier\.com/hooks/catch/[A-Za-z0-9/]{8,100}"),
    Format("telegram-token", rf"[0-9]{{8,10}}:AA{_U}{{33}}", noticed_by=rf"[0-9]:AA{_U}{{12}}"),
    Format("twilio-key", rf"SK{_H}{{32}}", ends=True),
    Format("sendgrid-key", rf"SG\.{_U}{{16,64}}\.{_U}{{16,128}}"),
    Format("mailgun-key", rf"key-{_H}{{32}}", check="not-compound", ends=True),
    Format("mailgun-key", rf"{_H}{{32}}-{_H}{{8}}-{_H}{{8}}", ends=True, noticed_by=rf"{_H}{{12}}-{_H}{{8}}-{_H}{{8}}"),
    Format("mailchimp-key", rf"{_H}{{32}}-us[0-9]{{1,2}}", ends=True, noticed_by=rf"{_H}{{12}}-us[0-9]"),
    Format("brevo-key", rf"x(?:keysib|smtpsib)-{_H}{{64}}-{_X}{{16}}"),
    Format("resend-key", rf"re_{_X}{{8}}_{_X}{{20,32}}", check="random"),
    Format("mailersend-token", rf"mlsn\.{_H}{{64}}"),
    Format("hubspot-token", rf"pat-[a-z]{{2}}[0-9]-{_UUID}"),
    Format("airtable-token", rf"pat{_X}{{14}}\.{_H}{{64}}", noticed_by=rf"pat{_X}{{14}}\.{_H}{{12}}"),
    Format("notion-token", rf"(?:ntn|secret)_{_X}{{40,64}}"),
    Format("linear-key", rf"lin_(?:api|oauth)_{_X}{{30,64}}"),
    Format("asana-token", rf"[0-9]/[0-9]{{14,18}}(?:/[0-9]{{14,18}})?:{_H}{{32}}", noticed_by=rf"[0-9]{{8}}:{_H}{{12}}"),
    Format("clickup-token", r"pk_[0-9]{4,12}_[A-Z0-9]{32}"),
    Format("figma-token", rf"fig[dou]r?_{_U}{{30,100}}"),
    Format("dropbox-token", rf"sl\.(?:u\.)?{_U}{{100,2000}}", check="random", noticed_by=rf"sl\.(?:u\.)?{_U}{{40}}"),
    Format("shopify-token", r"shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}"),
    Format("stripe-key", rf"[sprk]k_(?:live|test|prod)_{_X}{{10,255}}"),
    Format("webhook-secret", r"whsec_[A-Za-z0-9+/=]{20,255}"),
    Format("square-token", rf"sq0(?:atp|csp|idp)-{_U}{{22,64}}"),
    Format("square-token", rf"EAAA{_U}{{56,64}}", check="random"),
    Format("paypal-token", r"access_token\$[a-z]{4,12}\$[a-z0-9]{16}\$[a-f0-9]{32}"),
    Format("plaid-token", rf"access-(?:sandbox|development|production)-{_UUID}"),
    Format("razorpay-key", rf"rzp_(?:live|test)_{_X}{{14,32}}"),
    Format("flutterwave-key", rf"FLWSECK(?:_TEST)?-{_X}{{12,64}}"),
    Format("shippo-token", rf"shippo_(?:live|test)_{_H}{{40}}"),
    Format("easypost-key", rf"EZ[AT]K{_X}{{54}}"),
    Format("duffel-token", r"duffel_(?:test|live)_[A-Za-z0-9_=\-]{40,50}"),
    Format("lob-key", rf"(?:live|test)_{_H}{{35}}", ends=True),
    Format("facebook-token", rf"EAA[A-Z]{_X}{{90,400}}"),
    Format("twitter-token", r"A{20,24}[A-Za-z0-9%]{60,200}", check="random", noticed_by=r"A{20}[A-Za-z0-9%]{12}"),
    Format("typeform-token", r"tfp_[A-Za-z0-9_.=\-]{40,80}"),
    Format("contentful-token", rf"CFPAT-{_U}{{40,50}}"),
    Format("launchdarkly-key", rf"(?:sdk|mob|api)-{_UUID}", check="not-compound"),
    Format("posthog-key", rf"ph[sx]_{_X}{{40,64}}"),
    Format("newrelic-key", r"NR(?:AK|II|IQ|RA|SP)-[A-Za-z0-9_\-]{20,64}"),
    Format("newrelic-key", rf"{_H}{{36}}NRAL", noticed_by=rf"{_H}{{12}}NRAL"),
    Format("grafana-token", rf"glsa_{_X}{{32}}_{_H}{{8}}"),
    Format("grafana-token", rf"glc_{_B}{{32,400}}={{0,3}}"),
    Format("grafana-token", rf"eyJrIjoi{_B}{{40,400}}={{0,3}}"),
    Format("sentry-token", r"sntrys_[A-Za-z0-9+/=_\-]{40,600}"),
    Format("sentry-token", rf"sntryu_{_H}{{64}}"),
    Format("dynatrace-token", r"dt0[a-z][0-9]{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    Format("honeycomb-key", r"hc[abx][il][kc]_[a-z0-9]{40,80}"),
    Format("axiom-token", rf"xa[ap]t-{_UUID}"),
    Format("adobe-secret", r"p8e-[A-Za-z0-9_\-]{32}", check="random"),
    Format("frameio-token", rf"fio-u-{_U}{{60,70}}"),
    Format("maxmind-key", rf"{_X}{{6}}_{_X}{{29}}_mmk", ends=True, noticed_by=rf"{_X}{{12}}_mmk"),
    Format("doppler-token", r"dp\.(?:pt|st|sa|ct|scim|audit)\.[A-Za-z0-9._\-]{30,100}"),
    Format("vault-token", rf"hv[sbr]\.{_U}{{24,300}}"),
    Format("1password-token", rf"ops_eyJ{_B}{{40,4000}}={{0,3}}"),
    Format("1password-key", r"A3-[A-Z0-9]{6}(?:-[A-Z0-9]{5,11}){4,5}", noticed_by=r"A3-[A-Z0-9]{6}-[A-Z0-9]{5}"),
    Format("age-key", r"AGE-SECRET-KEY-1[A-Z0-9]{58}"),
)  # fmt: skip

GENERAL = (
    Format("jwt", rf"eyJ{_U}{{8,2048}}\.{_U}{{8,4096}}(?:\.{_U}{{0,1024}})?", noticed_by=rf"eyJ{_U}{{8}}{_U}*\.{_U}{{8}}"),
    Format("jwt", rf"eyJ{_U}{{8,2048}}\.\.{_U}{{8,64}}\.{_U}{{8,4096}}", noticed_by=rf"eyJ{_U}{{8}}{_U}*\.\.{_U}{{8}}"),
    Format("private-key", r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[\s\S]*?"
           r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)", starts=False,
           noticed_by=r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY"),
    # "-----BEGIN " and the next letters of RSA, EC, DSA, OPENSSH, ENCRYPTED or plain PRIVATE KEY, in base64.
    Format("private-key", rf"LS0tLS1CRUdJTiB(?:SU0Eg|FQyBQ|EU0Eg|PUEVO|FTkNS|QUklW){_B}{{30,20000}}={{0,2}}"),
    Format("private-key", r"PuTTY-User-Key-File-[23]:[\s\S]{0,4000}?Private-Lines: [0-9]{1,3}\s{1,2}([\s\S]{0,20000}?)"
           r"(?:\sPrivate-MAC|\Z)", noticed_by=r"Private-Lines: [0-9]", before=4100),
    Format("password-hash", r"\$2[abxy]\$[0-9]{2}\$[A-Za-z0-9./]{53}", starts=False),
    Format("password-hash", r"\$argon2(?:id?|d)\$v=[0-9]{1,3}\$[A-Za-z0-9=,]{4,60}\$[A-Za-z0-9+/]{8,90}\$[A-Za-z0-9+/]{16,200}",
           starts=False, noticed_by=r"\$argon2(?:id?|d)\$v="),
    Format("password-hash", r"\$apr1\$[A-Za-z0-9./]{1,8}\$[A-Za-z0-9./]{22}", starts=False, noticed_by=r"\$apr1\$"),
    Format("password-hash", r"\$[156]\$(?:rounds=[0-9]{4,9}\$)?[A-Za-z0-9./]{1,16}\$[A-Za-z0-9./]{22,86}", starts=False,
           noticed_by=r"\$[156]\$(?:rounds=[0-9]*\$)?[A-Za-z0-9./]+\$[A-Za-z0-9./]{12}"),
    Format("password-in-url", r"://[^\s/?#:@\"'<>]{0,64}:([^\s/@\"'<>]{1,99})@", check="login", starts=False),
    Format("token-in-url", rf"://({_U}{{20,255}})@", check="random", starts=False),
    Format("password-in-dsn", r"(?i);\s{0,2}(?:pwd|password)\s{0,2}=\s{0,2}([^;\s\"'\[]{3,128})", check="login", starts=False),
    Format("bearer", r"(?i)bearer\s{1,4}([A-Za-z0-9+/._~\-]{16,4096}={0,2})", check="random", noticed_by=r"(?i)bearer\s+[A-Za-z0-9+/._~\-]{12}"),
    Format("authorization", rf"(?i)authorization{_QUOTE}\s{{0,2}}[:=]\s{{0,2}}{_QUOTE}basic\s{{1,4}}({_B}{{8,1024}}={{0,2}})",
           noticed_by=r"(?i)authorization[\\\"']*\s*[:=][\s\\\"']*[^\s]{3}"),
    Format("authorization", rf"(?i)authorization{_QUOTE}\s{{0,2}}[:=]\s{{0,2}}{_QUOTE}(?:[A-Za-z][A-Za-z\-]{{2,15}}[ \t=]{{1,4}})?"
           r"([A-Za-z0-9_.~+/!@:=\-]{8,4096})", check="generated", noticed_by=r"(?i)authorization[\\\"']*\s*[:=][\s\\\"']*[^\s]{3}"),
    Format("cookie", rf"(?i)cookie{_QUOTE}[:=\s]\s{{0,3}}{_QUOTE}([^\r\n\"'=]{{1,64}}=[^\r\n\"'\\]{{4,4096}})", check="cookie",
           starts=False, noticed_by=r"(?i)cookie[\\\"']*[:=\s][\s\\\"']*[^\r\n\"'=]+="),
    Format("cookie", r"(?i)(?:phpsessid|jsessionid|sessionid|connect\.sid|asp\.net_sessionid|[a-z_]{2,20}_session"
           rf"|session-token|_session_id)(?:=|{_QUOTE}\s{{0,2}}:\s{{0,2}}{_QUOTE})([A-Za-z0-9%._+/\-]{{16,4096}})", check="random",
           starts=False, noticed_by=r"(?i)(?:sess(?:id|ionid|ion|ion-token|ion_id)|connect\.sid|asp\.net_sessionid)"
           r"(?:=|[\\\"']*\s*:[\s\\\"']*)[A-Za-z0-9%._+/\-]{12}"),
    Format("basic-auth", r"(?i)auth\s{0,2}=\s{0,2}\(\s{0,2}[\"'][^\"'\s]{1,64}[\"']\s{0,2},\s{0,2}[\"']([^\"'\s]{4,128})[\"']\s{0,2}\)",
           check="login", starts=False, noticed_by=r"(?i)auth\s*=\s*\(\s*[\"']"),
    Format("docker-auth", rf"(?i)auth{_QUOTE}\s{{0,2}}[:=]\s{{0,2}}{_QUOTE}({_B}{{8,1024}}={{0,2}})", check="basic",
           noticed_by=rf"(?i)auth[\\\"']*\s*[:=]\s*[\\\"']*{_B}{{8}}", starts=False),
    Format("netrc", r"(?i)login\s{1,4}[^\s]{1,100}\s{1,8}password\s{1,4}([^\s\"']{1,200})", check="login",
           noticed_by=r"(?i)login\s+[^\s]+\s+password\s+[^\s]"),
    Format("pgpass", r"[A-Za-z0-9.*\-]{1,100}:(?:543[0-9]|6432|\*):[^\s:]{1,64}:[^\s:]{1,64}:([^\s:]{1,200})", check="login",
           noticed_by=r":(?:543[0-9]|6432|\*):[^\s:]+:[^\s:]+:[^\s:]"),
    Format("sql-password", r"(?i)(?:identified\s{1,4}(?:with\s{1,4}\w{1,40}\s{1,4})?by|password)\s{1,4}'([^'\s]{4,128})'",
           check="login", noticed_by=r"(?i)(?:identified\s[^']*by|password)\s+'[^'\s]{4}"),
    Format("xml-password", r"(?i)<[a-z:._\-]{0,40}(?:password|passwd|passphrase|secret|token|api[_\-]?key)>([^<\s]{4,512})</",
           check="login", starts=False, noticed_by=r"(?i)(?:password|passwd|passphrase|secret|token|api[_\-]?key)>[^<\s]"),
    Format("xml-password", r"(?i)(?:password|secret|token|api[_\-]?key)\"\s{1,4}value=\"([^\"\s]{4,512})\"", check="login",
           starts=False),
    Format("secure-string", r"(?i)convertto-securestring\s{1,4}(?:-string\s{1,4})?[\"']([^\"'\s]{4,128})[\"']", check="login",
           noticed_by=r"(?i)convertto-securestring\s"),
    Format("proxmox-token", rf"PVEAPIToken=[^\s=]{{3,100}}=({_UUID})"),
    # A login on a command line. `-u name:password` is one for curl only, `-p password` for the programs that are named.
    Format("curl-user", rf"\s(?:-[uU]\s{{0,2}}|--(?:proxy-)?user[\s=]){_QUOTE}[^\s:\\\"'/@]{{1,64}}:([^\s\\\"']{{1,99}})",
           check="curl", starts=False, noticed_by=r"\s(?:-[uU]\s*|--(?:proxy-)?user[\s=])[\\\"']*[^\s:\\\"'/@]+:[^\s]"),
    Format("command-password", rf"(?:mysql|mariadb)[a-z\-]{{0,12}}(?:\s[^\n|;]{{0,200}}?)?\s-p[\"']?({_WORD}{{1,128}})", check="login",
           noticed_by=r"(?:mysql|mariadb)[a-z\-]*[^\n|;]*\s-p[!-~]"),
    Format("command-password", rf"(?:sshpass|docker\slogin|podman\slogin|helm\sregistry\slogin|az\slogin|mongosh?|cqlsh)"
           rf"(?:\s[^\n|;]{{0,200}}?)?\s-p\s{{0,2}}[\"']?({_WORD}{{1,128}})", check="login",
           noticed_by=r"(?:sshpass|login|mongo|mongosh|cqlsh)[^\n|;]*\s-p\s*[!-~]"),
    Format("command-password", rf"redis-cli(?:\s[^\n|;]{{0,200}}?)?\s-a\s{{1,2}}[\"']?({_WORD}{{1,128}})", check="login",
           noticed_by=r"redis-cli[^\n|;]*\s-a\s"),
    Format("command-password", rf"sqlcmd(?:\s[^\n|;]{{0,200}}?)?\s-P\s{{0,2}}[\"']?({_WORD}{{1,128}})", check="login",
           noticed_by=r"sqlcmd[^\n|;]*\s-P"),
    Format("command-password", rf"ldap(?:search|add|modify|delete|passwd|whoami)(?:\s[^\n|;]{{0,200}}?)?\s-w\s{{0,2}}[\"']?({_WORD}{{1,128}})",
           check="login", noticed_by=r"ldap[a-z]+[^\n|;]*\s-w"),
    Format("command-password", rf"-pass(?:in|out|word)?\s{{1,2}}pass:({_WORD}{{1,128}})", check="login", starts=False),
    Format("command-password", rf"-(?:src|dest)?(?:store|key)pass\s{{1,2}}[\"']?({_WORD}{{4,128}})", check="login", starts=False),
)  # fmt: skip

FORMATS: tuple[Format, ...] = (*CLOUDS, *CODE, *MODELS, *SERVICES, *GENERAL)
