"""Secrets that are known by how they begin: what their issuers put before them so that they can be found."""

import re
from dataclasses import dataclass

_ALNUM, _HEX, _WORD = "A-Za-z0-9", "0-9a-fA-F", "A-Za-z0-9_"
_DASH, _DOT, _BASE64 = rf"{_WORD}\-", rf"{_WORD}.\-", rf"{_WORD}+/=\-"
_END = r"(?![A-Za-z0-9_-])"
_LONGEST = 4_000


@dataclass(frozen=True, slots=True)
class Form:
    """One issuer's secrets, as they are looked for where one must not get away, and where none must be blamed wrongly.

    chars: of which the rest consists, as in a regular expression; least: how many there are at least; whole: how many
    there are, None where that differs. exact: the rest of one that is surely one, as a regular expression; None where
    that is not known.
    """

    name: str
    beginnings: tuple[str, ...]
    chars: str
    least: int
    whole: int | None = None
    exact: str | None = None

    @property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(f"[{self.chars}]{{1,{self.whole or _LONGEST}}}")


def _form(
    name: str, beginnings: str, chars: str, least: int, whole: int | None = None, exact: str | None = None
) -> Form:
    return Form(name, tuple(beginnings.split()), chars, least, whole, exact)


FORMS = (
    _form("aws-key", "AKIA ASIA ABIA ACCA", "A-Z0-9", 10, 16, r"[A-Z2-7]{16}" + _END),
    _form("anthropic-key", "sk-ant-", _DASH, 10, exact=r"[a-z0-9]{2,8}-[A-Za-z0-9_-]{40,120}"),
    _form("openrouter-key", "sk-or-v1-", _DASH, 10, exact=r"[0-9a-f]{64}"),
    _form("openai-key", "sk-proj- sk-svcacct- sk-admin- sk-None-", _DASH, 16, exact=r"[A-Za-z0-9_-]{40,200}"),
    _form("openai-key", "sess-", _DASH, 16),
    _form("api-key", "sk-", _ALNUM, 20, exact=r"[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}"),
    _form("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", _DOT, 10, exact=r"[A-Za-z0-9]{36,251}"),
    _form("github-token", "github_pat_", _WORD, 10, exact=r"[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    _form(
        "gitlab-token",
        "glpat- gldt- glrt- glcbt- glptt- glft- glimt- glagent- gloas- glsoat-",
        _DOT,
        10,
        exact=r"[A-Za-z0-9_-]{20,60}",
    ),
    _form("bitbucket-token", "ATBB ATCTT3", _DASH + "=", 20),
    _form("atlassian-token", "ATATT3", _DASH + "=", 20),
    _form("google-key", "AIza", _DASH, 20, 35, r"[A-Za-z0-9_-]{35}" + _END),
    _form("google-token", "ya29.", _DASH, 16),
    _form("google-secret", "GOCSPX-", _DASH, 10, exact=r"[A-Za-z0-9_-]{28}" + _END),
    _form("google-token", "1//0", _DASH, 20),
    _form(
        "slack-token",
        "xoxb- xoxp- xoxa- xoxr- xoxs-",
        _DOT + "%",
        10,
        exact=r"[0-9]{8,14}-[A-Za-z0-9-]{20,100}",
    ),
    _form("slack-token", "xapp-", _DOT + "%", 10, exact=r"[0-9]-[A-Z0-9]{8,14}-[0-9]{8,14}-[a-f0-9]{60,70}"),
    _form("slack-token", "xoxe- xoxc- xoxd- xoxe.xoxp- xoxe.xoxb-", _DOT + "%", 10),
    _form(
        "slack-webhook",
        "hooks.slack.com/services/ hooks.slack.com/workflows/ hooks.slack.com/triggers/",
        _WORD + "/",
        10,
        exact=r"T[A-Z0-9]{8,12}/[AB][A-Z0-9]{8,12}/[A-Za-z0-9]{20,30}",
    ),
    _form(
        "discord-webhook",
        "discord.com/api/webhooks/ discordapp.com/api/webhooks/",
        _DASH + "/",
        20,
        exact=r"[0-9]{17,20}/[A-Za-z0-9_-]{60,70}",
    ),
    _form("teams-webhook", "webhook.office.com/webhookb2/", _DASH + "@/", 20),
    _form("stripe-key", "sk_live_ rk_live_", _BASE64, 10, exact=r"[A-Za-z0-9]{20,100}" + _END),
    _form("stripe-key", "sk_test_ rk_test_ whsec_", _BASE64, 10),
    _form("square-token", "sq0atp- sq0csp- EAAAE EAAAl", _DASH, 20),
    _form("paypal-token", "access_token$production$ access_token$sandbox$", _ALNUM + "$", 10),
    _form("shopify-token", "shpat_ shpca_ shppa_ shpss_ shptka_", _HEX, 10, exact=r"[0-9a-fA-F]{32}" + _END),
    _form("npm-token", "npm_", _ALNUM, 20, 36, r"[A-Za-z0-9]{36}" + _END),
    _form("pypi-token", "pypi-AgE", _DASH, 10, exact=r"I[A-Za-z0-9_-]{50,300}"),
    _form("rubygems-key", "rubygems_", _HEX, 20, 48),
    _form("crates-token", "cioCI cio", _ALNUM, 32, 32),
    _form("nuget-key", "oy2", "a-z0-9", 43, 43),
    _form("docker-token", "dckr_pat_ dckr_oat_", _DASH, 10),
    _form("huggingface-token", "hf_ api_org_", _ALNUM, 20, exact=r"[A-Za-z]{34}" + _END),
    _form("replicate-token", "r8_", _ALNUM, 30, 37),
    _form("groq-key", "gsk_", _ALNUM, 20),
    _form("xai-key", "xai-", _ALNUM, 30),
    _form("perplexity-key", "pplx-", _ALNUM, 20),
    _form("tavily-key", "tvly-", _DASH, 16),
    _form("langsmith-key", "lsv2_pt_ lsv2_sk_", _WORD, 10),
    _form("pinecone-key", "pcsk_", _WORD, 16),
    _form("fireworks-key", "fw_", _ALNUM, 22),
    _form("sendgrid-key", "SG.", _DOT, 20, exact=r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}" + _END),
    _form("mailgun-key", "key-", "0-9a-f", 32, 32),
    _form("twilio-key", "SK AC", "0-9a-f", 32, 32),
    _form("postman-key", "PMAK-", _DASH, 10),
    _form("newrelic-key", "NRAK- NRJS- NRII-", _DASH, 10),
    _form("grafana-token", "glsa_ glc_", _BASE64, 16),
    _form("sentry-token", "sntrys_ sntryu_", _BASE64, 16),
    _form("datadog-key", "ddapi_ ddapp_ ddpat_", _ALNUM, 16),
    _form("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", _HEX, 10, exact=r"[0-9a-f]{64}" + _END),
    _form("heroku-key", "HRKU-", _DASH, 10),
    _form("netlify-token", "nfp_", _ALNUM, 16),
    _form("vercel-token", "vcp_ vci_ vca_ vck_ vercel_blob_rw_", _WORD, 20),
    _form("cloudflare-key", "v1.0-", _HEX + r"\-", 40),
    _form("fly-token", "fm2_ fo1_", _BASE64 + ",", 16),
    _form("supabase-key", "sbp_ sb_secret_", _WORD, 10),
    _form("planetscale-token", "pscale_tkn_ pscale_pw_ pscale_oauth_", _DOT, 10),
    _form("databricks-token", "dapi dkea dose", _HEX + r"\-", 32, exact=r"[0-9a-f]{32}(?:-\d)?" + _END),
    _form("vault-token", "hvs. hvb. hvr.", _DASH, 10),
    _form("doppler-token", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", _DOT, 10),
    _form("pulumi-token", "pul-", _HEX, 20, 40),
    _form("onepassword-token", "ops_eyJ A3-", _BASE64, 20),
    _form("linear-key", "lin_api_ lin_oauth_", _ALNUM, 10, exact=r"[A-Za-z0-9]{40}" + _END),
    _form("notion-token", "ntn_", _ALNUM, 30, exact=r"[A-Za-z0-9]{40,50}" + _END),
    _form("notion-token", "secret_", _ALNUM, 30),
    _form("figma-token", "figd_ figo_", _DASH, 16),
    _form("airtable-token", "pat", _ALNUM + ".", 79),
    _form("dropbox-token", "sl.B sl.u.", _DASH, 40),
    _form("facebook-token", "EAAC EAAB EAAG", _ALNUM, 60),
    _form("azure-secret", "8Q~ 7Q~", _DOT + "~", 31),
    _form("age-key", "AGE-SECRET-KEY-1", "A-Z0-9", 10, 58, "[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58}"),
    _form("jwt", "eyJ", _DOT, 20, exact=r"[A-Za-z0-9_-]{15,2000}\.eyJ[A-Za-z0-9_-]{15,4000}\.[A-Za-z0-9_-]{20,1000}"),
    _form(
        "password-hash",
        "$2a$ $2b$ $2y$ $6$ $5$ $y$ $1$ $apr1$ $argon2id$ $argon2i$ pbkdf2_sha256$ {SSHA}",
        _ALNUM + r"./+=$,_\-",
        20,
    ),
)
"""What is looked for first stands first: of two that begin alike the longer."""
