"""Secrets in the shapes that issuers and programs give them.

All are made up, the same each time.
"""

import base64
import random
import string
from dataclasses import dataclass

_ANY = string.ascii_letters + string.digits
_UPPER = string.ascii_uppercase + "234567"
_HEX = "0123456789abcdef"


@dataclass(frozen=True)
class Shape:
    """One secret in a text. secret: the part of the text that may stand nowhere."""

    name: str
    text: str
    secret: str


def key_block(rng: random.Random, kind: str = "RSA ") -> str:
    """Return a private key as a file has it."""
    rows = ["".join(rng.choice(_ANY + "+/") for _ in range(64)) for _ in range(5)]
    return "\n".join(
        [
            f"-----BEGIN {kind}PRIVATE KEY-----",
            *rows,
            _of(rng, 30) + "==",
            f"-----END {kind}PRIVATE KEY-----",
        ]
    )


def _of(rng: random.Random, length: int, chars: str = _ANY) -> str:
    """Return so many characters, some digits among them and letters around them."""
    made = [rng.choice(chars) for _ in range(length)]
    for place in range(2, length, 5):
        made[place] = rng.choice([c for c in chars if c.isdigit()])
    return "".join(made)


_FORMS = {
    "aws-access-key": ("{}", "AKIA", 16, _UPPER),
    "aws-secret-key": ("AWS_SECRET_ACCESS_KEY={}", "", 40, _ANY),
    "github-classic": ("git clone with {}", "ghp_", 36, _ANY),
    "github-fine": ("{}", "github_pat_", 82, _ANY),
    "gitlab": ("{}", "glpat-", 20, _ANY),
    "slack-bot": ("SLACK={}", "xoxb-", 40, _ANY),
    "slack-webhook": ("https://{}", "hooks.slack.com/services/T0AB12CD3/B0AB12CD3/", 24, _ANY),
    "stripe": ("{}", "sk_" + "live_", 24, _ANY),
    "openai": ("{}", "sk-proj-", 60, _ANY),
    "anthropic": ("{}", "sk-ant-api03-", 80, _ANY),
    "google": ("{}", "AIza", 35, _ANY),
    "google-oauth": ("{}", "GOCSPX-", 28, _ANY),
    "npm": ("//registry.npmjs.org/:_authToken={}", "npm_", 36, _ANY),
    "pypi": ("{}", "pypi-AgEIcHlwaS5vcmc", 60, _ANY),
    "huggingface": ("{}", "hf_", 34, _ANY),
    "sendgrid": ("{}", "SG.", 66, _ANY),
    "digitalocean": ("{}", "dop_v1_", 64, _HEX),
    "shopify": ("{}", "shpat_", 32, _HEX),
    "databricks": ("{}", "dapi", 32, _HEX),
    "vault": ("{}", "hvs.", 40, _ANY),
    "linear": ("{}", "lin_api_", 40, _ANY),
    "docker-hub": ("{}", "dckr_pat_", 27, _ANY),
    "telegram-like-token": ("BOT_TOKEN={}", "", 35, _ANY),
    "jwt": ("{}", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI", 60, _ANY),
    "bearer": ("Authorization: Bearer {}", "", 40, _ANY),
    "api-header": ('-H "X-Api-Key: {}"', "", 32, _ANY),
    "cookie": ("Cookie: session={}; theme=dark", "", 32, _ANY),
    "password-env": ("DB_PASSWORD={}", "", 16, _ANY),
    "password-json": ('{{"password": "{}"}}', "", 16, _ANY),
    "password-yaml": ("password: {}", "", 16, _ANY),
    "password-python": ("connect(user='x', password='{}')", "", 16, _ANY),
    "password-flag": ("psql-like --password {} --host h", "", 16, _ANY),
    "password-xml": ("<password>{}</password>", "", 16, _ANY),
    "url-userinfo": ("postgres://app:{}@db.internal:5432/app", "", 16, _ANY),
    "url-query": ("https://api.internal/x?access_token={}&page=2", "", 32, _ANY),
    "curl-user": ("curl -s -u app:{} https://api.internal", "", 16, _ANY),
    "mysql-flag": ("mysql -u root -p{} shop", "", 16, _ANY),
    "netrc": ("machine host.internal login app password {}", "", 16, _ANY),
    "connection-string": ("Server=db;User Id=app;Password={};Encrypt=true", "", 16, _ANY),
    "azure-storage": ("AccountName=shop;AccountKey={};EndpointSuffix=core", "", 86, _ANY),
    "kubeconfig": ("    client-key-data: {}", "", 80, _ANY),
    "wireguard": ("PrivateKey = {}", "", 43, _ANY),
    "secret-toml": ('client_secret = "{}"', "", 32, _ANY),
    "setenv": ('os.environ.setdefault("API_TOKEN", "{}")', "", 32, _ANY),
}


def _made() -> tuple[Shape, ...]:
    rng = random.Random(20)
    shapes = []
    for name, (text, beginning, length, chars) in _FORMS.items():
        secret = beginning + _of(rng, length, chars)
        shapes.append(Shape(name, text.format(secret), secret))
    pair = base64.b64encode(f"app:{_of(rng, 14)}".encode()).decode().rstrip("=")
    shapes.append(Shape("basic", f"Authorization: Basic {pair}", pair))
    block = key_block(rng)
    shapes.append(Shape("private-key", block, block))
    ssh = key_block(rng, "OPENSSH ")
    shapes.append(Shape("private-key-openssh", ssh, ssh))
    return tuple(shapes)


SHAPES = _made()
"""Forty and some more."""
