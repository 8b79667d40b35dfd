"""Secrets are taken out of text: whole, cut, escaped; ordinary text stays; and it takes time linear
in the text.
"""

import json
import random
import string
import time
from collections.abc import Iterator

import pytest
from secret_shapes import SHAPES, Shape, key_block

from evolvable_store.errors import InvalidArgument
from evolvable_tools import secret_leaks
from evolvable_tools.redaction.redactor import Redactor, StreamRedactor

REDACTOR = Redactor()
shapes = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)


def leaked(secret: str, text: str, least: int = 8) -> Iterator[str]:
    """Yields every piece of a secret of at least so many characters that stands in the text."""
    for start in range(len(secret) - least + 1):
        if secret[start : start + least] in text:
            yield secret[start : start + least]


@shapes
def test_a_secret_is_replaced_by_its_type_wherever_it_stands(shape: Shape) -> None:
    for text in (shape.text, f"before\n{shape.text}\nafter", f"- `x`\n\n{shape.text}"):
        done, counts = REDACTOR.redact(text)

        assert not list(leaked(shape.secret, done)), done
        assert sum(counts.values()) >= 1
        assert "[redacted:" in done


@shapes
def test_a_secret_is_found_in_json_in_json(shape: Shape) -> None:
    once = json.dumps({"output": f"line\n{shape.text}\nline"})

    assert not list(leaked(shape.secret, REDACTOR.redact(once)[0]))
    assert not list(leaked(shape.secret, REDACTOR.redact(json.dumps(once))[0]))


@shapes
def test_redacting_twice_changes_nothing(shape: Shape) -> None:
    done, _ = REDACTOR.redact(f"a {shape.text} b")

    assert REDACTOR.redact(done) == (done, {})


@shapes
def test_the_other_half_of_a_secret_in_the_next_piece_of_output_is_known(shape: Shape) -> None:
    middle = shape.text.index(shape.secret) + len(shape.secret) // 2
    stream = StreamRedactor(REDACTOR)

    first = stream.redact(shape.text[:middle], 0)
    second = stream.redact(shape.text[middle:] + "\ndone", 0)

    assert not list(
        leaked(shape.secret[: len(shape.secret) // 2], stream.redact_known(first), 12)
    ), first
    assert not list(
        leaked(shape.secret[len(shape.secret) // 2 :], stream.redact_known(second), 12)
    ), second
    assert second.endswith("done")


def test_a_secret_that_was_named_once_is_known_without_its_name() -> None:
    stream = StreamRedactor(REDACTOR)
    before = stream.redact("it printed Zq7-Lamp3-Harbor9")
    stream.redact("DB_PASSWORD=Zq7-Lamp3-Harbor9")

    assert stream.redact_known(before) == "it printed [redacted:password]"
    assert stream.redact_known("mp3-Harbor9\nand more") == "[redacted:password]\nand more"


def test_a_key_of_an_object_names_its_secret() -> None:
    given = {
        "env": {"DB_PASSWORD": "Zq7-Lamp3", "PORT": "8080"},
        "args": ["login", "--token", "ab12cd34ef56gh78", "-v"],
        "n": 3,
    }

    done, counts = REDACTOR.redact_value(given)

    assert done == {
        "env": {"DB_PASSWORD": "[redacted:password]", "PORT": "8080"},
        "args": ["login", "--token", "[redacted:token]", "-v"],
        "n": 3,
    }
    assert counts == {"password": 1, "token": 1}


@pytest.mark.parametrize("keep", [slice(0, 3), slice(2, 5), slice(4, None), slice(1, 4)])
def test_a_private_key_without_one_end_or_both_is_known_by_its_rows(keep: slice) -> None:
    rows = key_block(random.Random(4)).split("\n")
    text = "\n".join(["the log", *rows[keep], "and so on, as before"])

    done, _ = REDACTOR.redact(text)

    assert not any(row in done for row in rows[keep] if not row.startswith("-----"))
    assert done.startswith("the log\n") and done.endswith("and so on, as before")


ORDINARY = """\
The token is passed to the parser, and the key of the map is the name. password: required, \
secret: optional.
const token = await getToken(); api_key: string; password: str = Field(...); SECRET_KEY = \
os.environ["SECRET_KEY"]
max_tokens: 4096, token_count=123456789, primary_key=True, keyboard: "qwerty", author: "Jane", \
monkey = banana1234
export API_KEY="$OTHER_KEY" && curl -H "Authorization: Bearer $TOKEN" \
https://api.example.com/v1/items?page=2&sort=asc
<your-api-key>, YOUR_API_KEY, ${{ secrets.GITHUB_TOKEN }}, {{ password }}, password=****, token: ...
commit 3f786850e387550fdab836ed7e6dc881de23001b, sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=
550e8400-e29b-41d4-a716-446655440000 \
/usr/local/lib/python3.11/site-packages/tokenizers/secrets.py:12
Basic Operations and bearer bonds; a cookie recipe: flour, sugar; bandpass=f=1000; passthrough: \
enabled1
def authenticate(user: str, password: str) -> Token: return Token(user.token, secret=self.secret)
"""


@pytest.mark.parametrize("line", ORDINARY.splitlines())
def test_ordinary_text_stays(line: str) -> None:
    assert REDACTOR.redact(line) == (line, {})


@pytest.mark.parametrize(
    "odd", ["", "\ud800 password=Zq7-Lamp3", "\0" * 10, "İ password: Zq7Lamp33", "é" * 1000]
)
def test_odd_text_is_taken(odd: str) -> None:
    done, _ = REDACTOR.redact(odd)

    assert "Lamp3" not in done
    done.encode()


ATTACKS = {
    "eyj": "eyJ.",
    "begin": "-----BEGIN PRIVATE KEY-----\n", "stopped": "-----BEGIN PRIVATE KEY----- x y\n",
    "end": "-----END PRIVATE KEY-----", "rows": ("A1b" * 22)[:64] + "\n",
    "password": "password", "assigned": 'password="', "quotes": "password='\\",
    "address": "://a:b", "at": "://a:" + "@" * 50, "key": "secret_key", "cookie": "cookie: a=",
    "space": "authorization: " + " " * 50, "curl": "curl -u ", "sk": "sk-", "underscores": "_",
    "letters": "a", "login": "login a password ", "escapes": "\\n", "base64": "QUJD",
    "gh": "ghp_", "digits": "1:", "colon": "a:1234:",
}  # fmt: skip


@pytest.mark.process
@pytest.mark.alone
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_no_text_makes_it_slow(attack: str) -> None:
    def seconds(length: int) -> float:
        text = (attack * (length // len(attack) + 1))[:length]
        start = time.process_time()
        REDACTOR.redact(text)
        return time.process_time() - start

    small = max(min(seconds(50_000) for _ in range(2)), 0.02)
    assert min(seconds(200_000) for _ in range(2)) < small * 10


def test_a_pattern_of_ones_own_is_found_by_re2() -> None:
    pytest.importorskip("re2")
    redactor = Redactor({"ticket": r"\bACME-\d{6}\b", "badge": r"badge (?P<secret>\w+)"})

    assert redactor.redact("ACME-123456, badge k77") == (
        "[redacted:ticket], badge [redacted:badge]",
        {"ticket": 1, "badge": 1},
    )
    text = "a" * 100_000 + "!"
    assert Redactor({"slow": "(a+)+$"}).redact(text) == (text, {})


@pytest.mark.parametrize(
    ("name", "pattern"),
    [("Bad Name", "x"), ("x", "("), ("x", "(?=a)"), ("x", "a*"), ("x", "a" * 2000)],
)
def test_a_pattern_that_cannot_be_used_is_refused(name: str, pattern: str) -> None:
    pytest.importorskip("re2")
    with pytest.raises(InvalidArgument):
        Redactor({name: pattern})


def test_random_text_is_redacted_the_same_twice() -> None:
    rng = random.Random(7)
    words = [
        *string.punctuation,
        "password",
        "token:",
        "=",
        '"',
        "\n",
        "\\n",
        "ghp_",
        "abc123DEF456",
        "sk-ant-",
        "://",
        "@",
        " ",
    ]
    for _ in range(300):
        done, _ = REDACTOR.redact("".join(rng.choice(words) for _ in range(40)))
        assert REDACTOR.redact(done)[0] == done


TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("-" * 40 + "\n", ""),
        ("a-long-name-without-a-number ", "\n"),
        ("=", "\n" + "_" * 30),
        ("é", "é"),
    ],
)
def test_a_secret_is_found_wherever_its_run_of_characters_stands(before: str, after: str) -> None:
    found = secret_leaks.find_secrets(f"{before}{TOKEN}{after}".encode())
    assert [one.line for one in found] == [1 + before.count("\n")]


@pytest.mark.parametrize(
    "text", ["", "-" * 400, "a-long-name-without-a-number", TOKEN[:19], "x " * 400]
)
def test_a_file_without_a_long_run_that_has_a_number_holds_no_secret(text: str) -> None:
    assert not secret_leaks.find_secrets(text.encode())
