"""Secrets of many providers are taken out, ordinary strings stay, and the rules that were shipped
are gitleaks'.
"""

import hashlib
import json
import random
import re
import time
import uuid

import pytest
from provider_secrets import PROVIDED, Provided, is_hidden
from secret_rules import fresh
from secret_rules.convert import SOURCE, TARGET, convert

from evolvable_tools.redaction.redactor import Redactor
from evolvable_tools.redaction.token_detection import load_rules
from evolvable_tools.scan.content_rules import find_secret_forms
from evolvable_tools.scan.text_analysis import view_of

REDACTOR = Redactor()

T11 = [
    "aws-csv",
    "aws-csv-2",
    "discord-bot",
    "discord-bot-2",
    "telegram",
    "telegram-2",
    "azure-devops",
    "azure-devops-2",
    "azure-devops-3",
    "azure-devops-4",
    "tailscale-auth",
    "tailscale-api",
    "tailscale-client",
    "terraform-cloud",
    "terraform-cloud-2",
    "render",
    "render-2",
    "setx",
    "setx-2",
    "setx-3",
    "fish",
    "fish-2",
    "fish-3",
    "xml-add",
    "xml-add-2",
    "xml-add-3",
    "terraform-variable",
    "terraform-variable-2",
    "terraform-variable-3",
    "url-at",
    "url-at-2",
    "url-slash",
    "base64-pem",
    "base64-pem-2",
    "ansi-cut",
    "ansi-cut-2",
    "ansi-cut-3",
    "evo-token",
    "evo-token-2",
    "evo-token-3",
]


@pytest.mark.parametrize("name", T11)
def test_what_attack_t11_got_through_is_hidden(name: str) -> None:
    one = next(one for one in PROVIDED if one.name == name)

    assert is_hidden(one, REDACTOR.redact(one.text)[0]), REDACTOR.redact(one.text)[0]
    assert is_hidden(one, REDACTOR.redact(f"before\n{one.text}\nafter")[0])


@pytest.mark.parametrize("held_out", [False, True])
def test_at_least_96_of_100_secrets_of_300_providers_and_programs_are_hidden(
    held_out: bool,
) -> None:
    ones = [one for one in PROVIDED if one.held_out is held_out]
    missed = [one.name for one in ones if not is_hidden(one, REDACTOR.redact(one.text)[0])]

    assert len(ones) > 100
    assert len(missed) <= 0.04 * len(ones), missed


def test_at_least_96_of_100_secrets_are_hidden_whose_author_had_not_read_the_rules() -> None:
    rng = random.Random(16)
    hidden = [fresh.is_hidden(*fresh.made(line, rng)) for line in fresh.LINES]
    assert len(hidden) > 130 and sum(hidden) >= 0.96 * len(hidden)
    assert not fresh.is_hidden(*fresh.made("a word of no form: «{m20}»", rng)), (
        "the measure sees what is left"
    )


def test_redacting_what_was_redacted_changes_nothing() -> None:
    for one in PROVIDED:
        done, _ = REDACTOR.redact(one.text)
        assert REDACTOR.redact(done) == (done, {}), one.name


def ordinary(rng: random.Random) -> list[str]:
    """Return strings that look like secrets and are none: hashes, identifiers, lock files,
    references.
    """
    digest = hashlib.sha256(rng.randbytes(8)).hexdigest()
    name = str(uuid.UUID(int=rng.getrandbits(128)))
    return [
        digest,
        name,
        f"commit {digest[:40]}",
        f'"integrity": "sha512-{digest}=="',
        f"image: nginx@sha256:{digest}",
        f"--hash=sha256:{digest} \\",
        f'checksum = "{digest}"',
        f"uses: actions/checkout@{digest[:40]}",
        f"github.com/x/y v0.0.0-20240102030405-{digest[:12]} h1:{digest[:43]}=",
        f"request_id={name}",
        f"trace-id: {digest[:32]}",
        f'src="/static/app.{digest[:20]}.js"',
        f"toolu_01{digest[:22]}",
        f"vpc-0{digest[:16]} ami-0{digest[:16]}",
        f"0x{digest[:40]}",
        f'primary_key = "{name}"',
        f"max_tokens: {rng.randrange(9999)}",
        f"https://cdn.acme.io/a/{digest}/b.min.js",
        f"password: {'*' * rng.randrange(6, 14)}",
        'token = os.environ["TOKEN"]',
        "set -gx PATH /usr/local/bin2 $PATH",
        "ENV PYTHONUNBUFFERED 1",
        f'<add key="Timeout" value="{rng.randrange(9999)}"/>',
        'variable "region" { default = "eu-west-1" }',
        "http://localhost:3000/@fs/home/x1/y2",
        "name,key,size\nalpha,beta,12",
    ]


def test_at_most_one_ordinary_string_in_a_thousand_is_changed() -> None:
    rng = random.Random(4)
    texts = [text for _ in range(120) for text in ordinary(rng)]

    changed = [text for text in texts if REDACTOR.redact(text)[0] != text]

    assert len(texts) > 3_000
    assert len(changed) * 1_000 <= len(texts), changed[:5]


@pytest.mark.process
def test_no_text_of_anchors_makes_it_slow() -> None:
    anchors = sorted({anchor for rule in load_rules() for anchor in rule.anchors})
    for unit in (
        " ".join(f'{anchor}="a1' for anchor in anchors),
        "_".join(anchors) + "1",
        "set -a",
        "://a:b@",
        "a_key: b",
    ):
        text = (unit * (100_000 // len(unit) + 1))[:100_000]
        REDACTOR.redact(text[:20_000])
        start = time.process_time()
        REDACTOR.redact(text)
        assert time.process_time() - start < 5, unit[:40]


def test_the_rules_are_those_of_the_configuration_beside_them() -> None:
    assert json.loads(TARGET.read_text(encoding="utf-8")) == convert(
        SOURCE.read_text(encoding="utf-8")
    )
    assert "MIT License" in TARGET.with_name("gitleaks.LICENSE").read_text(encoding="utf-8")
    assert len(load_rules()) > 200
    for rule in load_rules():
        assert min(map(len, rule.anchors)) >= 3
        assert re.fullmatch("[a-z0-9-]{1,60}", rule.name)
        assert rule.pattern and rule.allowed_patterns is not None


@pytest.mark.parametrize(
    "name", ["evo-token-3", "tailscale-api", "render", "sonar-2", "digitalocean", "github"]
)
def test_a_scan_finds_what_names_itself(name: str) -> None:
    one: Provided = next(one for one in PROVIDED if one.name == name)
    view = view_of("SKILL.md", f"# A skill\n\nUse {one.secret} here.\n".encode())

    assert view is not None
    assert [(found.line, found.excerpt) for found in find_secret_forms(view)] == [(3, one.secret)]
