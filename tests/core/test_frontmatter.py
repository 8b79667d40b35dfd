"""Reading the head of a main file: what is kept, what is said to be wrong with it, and what is
refused.
"""

import base64
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evolvable_store import safe_yaml
from evolvable_store.frontmatter import (
    MAX_DESCRIPTION,
    MAX_FRONTMATTER,
    NO_FRONTMATTER,
    NO_MAPPING,
    UNTERMINATED,
    Delegate,
    Document,
    Severity,
    Summary,
    describe,
    is_frozen,
    parse_document,
    summarize,
)

ATTACKS = json.loads(
    (Path(__file__).parents[1] / "data" / "attacks.json").read_text(encoding="utf-8")
)["cases"]


@pytest.fixture(params=["CSafeLoader", "SafeLoader"], autouse=True)
def parser(request, monkeypatch):
    """Every test runs with libyaml and with the parser in Python, for systems without the first."""
    if not hasattr(yaml, request.param):
        pytest.skip("PyYAML was built without libyaml")
    monkeypatch.setattr(safe_yaml, "_LOADER", getattr(yaml, request.param))


def document(head: str, body: str = "Body.\n") -> Document:
    return parse_document(f"---\n{head}\n---\n{body}".encode())


def severities(document: Document) -> list[str]:
    return [defect.severity.value for defect in document.defects]


def test_a_good_document_has_fields_a_body_and_no_defects():
    good = document(
        "name: pdf\ndescription: Reads PDF files.\nmetadata:\n  triggers: merge pdf, split pdf",
        "# PDF\n",
    )
    assert good == Document(
        {
            "name": "pdf",
            "description": "Reads PDF files.",
            "metadata": {"triggers": "merge pdf, split pdf"},
        },
        "# PDF\n",
        (),
    )


def test_fields_are_json():
    """A date, an infinity and a number of thousands of digits stay the text as written."""
    fields = document(
        "day: 2024-13-45\ninf: .inf\nbig: "
        + "9" * 5000
        + "\nint: 12\nfloat: 1.5\nno: ~\nyes: [on, off]\n1: one\nnone:"
    ).fields
    assert json.loads(json.dumps(fields)) == {
        "day": "2024-13-45",
        "inf": ".inf",
        "big": "9" * 5000,
        "int": 12,
        "float": 1.5,
        "no": None,
        "yes": [True, False],
        "1": "one",
        "none": None,
    }


@pytest.mark.parametrize(
    ("head", "says"),
    [
        ("a: !!python/object/apply:os.system [id]", "a tag"),
        ("a: !local x", "a tag"),
        ("!!binary R0lG", "a tag"),
        ("!x k: v", "a tag"),
        ("a: &x 1", "an anchor"),
        ("a: [1, 2]\nb: *a", "an alias"),
        ("a: {<<: {b: c}}", "a merge key"),
        ("<<: {b: c}", "a merge key"),
        ("a: {b: {c: {d: {e: {f: 1}}}}}\ng: {b: {c: {d: {e: {f: {g: 1}}}}}}", "deeper than 6"),
        ("a: [[[[[[x]]]]]]", "deeper than 6"),
        ("%YAML 1.1", "a directive"),
        ("%TAG ! tag:x,2000:\n--- \nname: x", "a directive"),
        ("a: b\n%YAML 1.2\nc: d: e\nf: !!str g", "a tag"),
        ('a: "x\\0y"', "control character"),
        ('a: "x\\e[2J"', "control character"),
        ("a: x\x9fy", "does not allow"),
        ("a: x\x1by", "0x1b in line 2"),
    ],
)
def test_what_is_more_than_plain_values_is_refused(head, says):
    """CWE-502, CWE-776."""
    hostile = document(head)
    assert hostile.fields == {}
    assert Severity.REFUSE in severities(hostile)
    assert any(says in defect.text for defect in hostile.defects)


def test_six_levels_are_allowed():
    """Real hooks in frontmatter reach the sixth."""
    assert document("a: {b: {c: {d: {e: {f: 1}}}}}").defects == ()


@pytest.mark.parametrize("head", ["- a\n- b", "just text", "42"])
def test_frontmatter_that_is_no_mapping_is_refused(head):
    assert document(head).defects == (NO_MAPPING,)


def test_an_empty_frontmatter_is_an_empty_mapping():
    assert parse_document(b"---\n---\nx") == Document({}, "x", ())


def test_a_frontmatter_over_its_limit_is_refused_at_once():
    started = time.perf_counter()
    big = document("description: " + "a" * 1_000_000)
    assert severities(big) == ["refuse"]
    assert time.perf_counter() - started < 0.5


def test_a_frontmatter_at_its_limit_is_read():
    head = "description: " + "a" * (MAX_FRONTMATTER - len("description: \n"))
    assert document(head).defects == ()
    assert severities(document(head + "a")) == ["refuse"]


def test_a_repeated_key_is_an_error_and_its_first_value_stays():
    twice = document("name: x\nname: y\nmetadata: {a: b, a: c}")
    assert severities(twice) == ["error"]
    assert '"name, a"' in twice.defects[0].text
    assert twice.fields == {"name": "x", "metadata": {"a": "b"}}


@pytest.mark.parametrize("value", ["yes", "0x1F", "1.5", "~", "", "{a: b}", "[a]", "12:30"])
@pytest.mark.parametrize("key", ["name", "description"])
def test_a_name_or_description_that_is_not_a_text_is_an_error(key, value):
    assert severities(document(f"{key}: {value}")) == ["error"]
    found = getattr(summarize(document(f"{key}: {value}", "")), key)
    assert found == ("a" if (key, value) == ("description", "[a]") else "")


def test_a_list_as_description_is_its_texts():
    """YAML reads `- Use when: the shop is down` as a mapping."""
    lines = "- Deploys the shop.\n- Use when: the shop is down\n- [nested, 7]\n- true\n-"
    found = document(f"name: x\ndescription:\n{lines}")

    assert (
        summarize(found).description == "Deploys the shop.\nUse when: the shop is down\nnested\n7"
    )


# As Claude Code 2.1.328 lists skills, or does not.
BY_HAND = [
    "true",
    "True",
    "TRUE",
    "tRuE",
    '"true"',
    "'true'",
    '" true "',
    "yes",
    "Yes",
    "on",
    "1",
    '"1"',
    '"yes"',
    "0x1",
]
OFFERED = ["false", "no", "off", "y", "0", "", "null", "[true]", "sometimes", '"false"']


@pytest.mark.parametrize(
    ("value", "person_only"), [*((v, True) for v in BY_HAND), *((v, False) for v in OFFERED)]
)
def test_what_keeps_a_skill_from_models_is_what_claude_code_takes_for_true(value, person_only):
    assert (
        summarize(
            document(f"name: x\ndescription: d\ndisable-model-invocation: {value}")
        ).person_only
        is person_only
    )


@pytest.mark.parametrize(
    ("head", "person_only"),
    [
        ("description: Use when: x\ndisable-model-invocation: true", True),  # broken YAML
        ("disable-model-invocation: true # by hand", True),
        ("disable-model-invocation: |\n  true", True),
        ("Disable-Model-Invocation: true", False),
        ("disable_model_invocation: true", False),
        ("metadata:\n  disable-model-invocation: true", False),
    ],
)
def test_other_keys_and_places_keep_no_skill_from_models(head, person_only):
    assert summarize(document(f"name: x\n{head}")).person_only is person_only


@pytest.mark.parametrize("value", ["'yes'", "2024-01-01", "=", "1e5"])
def test_a_name_that_only_looks_special_is_a_text(value):
    assert document(f"name: {value}").fields["name"] == value.strip("'")


def test_an_unquoted_colon_is_an_error_with_its_line_and_the_fields_are_recovered():
    """The commonest mistake in real skills."""
    broken = document(
        "name: pdf\n# a comment\ndescription: Use when: a PDF is near.\n  And: more.\n"
        "version: 1.0\n"
        'metadata:\n  evolvable: "false"\n  triggers: merge, split\nlicense: "MIT" or so'
    )
    assert severities(broken) == ["error"]
    assert "in line 4" in broken.defects[0].text
    assert "quotes" in broken.defects[0].text
    assert broken.fields == {
        "name": "pdf",
        "description": "Use when: a PDF is near. And: more.",
        "version": 1.0,
        "metadata": {"evolvable": "false", "triggers": "merge, split"},
        "license": '"MIT" or so',
    }


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        ("d: >\n  folded: one\n  two", "folded: one two\n"),
        ("d: |\n  literal: one\n  two", "literal: one\ntwo\n"),
        ("d: >-\nno margin, and: a colon", "no margin, and: a colon"),
        ("d: |\nno margin\nat all", "no margin\nat all"),
        ('d: "He said "yes" twice"', 'He said "yes" twice'),
        ("d: 'it's'", "it's"),
        ("d: `code` first", "`code` first"),
        ("d: **/*.py", "**/*.py"),
        ("d: @someone", "@someone"),
        ("d: {{ template }}", "{{ template }}"),
        ("d: plain\nstray line", "plain"),
        ("'d': quoted: key", "quoted: key"),
        ("d:\n\ta: tabs", {"a": "tabs"}),
        ("d:\n  a: b: c\n  e:\n    f: g: h\n  i: [1]", {"a": "b: c", "e": {"f": "g: h"}, "i": [1]}),
    ],
)
def test_values_are_recovered_from_broken_yaml(lines, value):
    fields = document(f"x: y: z\n{lines}").fields
    assert fields["d"] == value
    assert fields["x"] == "y: z"


def test_a_broken_part_does_not_thaw_a_frozen_resource():
    """What freezes a resource must survive a mistake elsewhere in its head."""
    data = b'---\nname: x\nmetadata:\n  note: a: b\n  evolvable: "false"\n---\n'
    assert is_frozen(data)
    assert is_frozen(data.replace(b"---\n", b"---\r\n").replace(b'"false"', b"False"))
    assert is_frozen(data[:-4])


def test_recovery_is_bounded():
    nested = "\n".join(" " * depth + f"k{depth}:" for depth in range(100)) + " a: b: c"
    many = "\n".join(f"k{number}: a: b" for number in range(1300))
    started = time.perf_counter()
    assert severities(document(nested)) == ["refuse"]
    assert severities(document(many)) == ["error"]
    assert time.perf_counter() - started < 2


def test_a_second_document_inside_the_fence_is_an_error():
    assert severities(document("name: x\n...\nname: y")) == ["error"]
    assert severities(document("name: x\n--- {name: y}")) == ["error"]


def test_only_a_line_of_three_dashes_ends_the_frontmatter():
    head = "description: |\n  a\n  ---\n  b\nrule: a --- b\ndashes: '----'"
    assert document(head, "rest").body == "rest"
    assert document(head).fields["description"] == "a\n---\nb\n"
    assert parse_document(b"---\na: b\n--- \t\nc: d\n---\n").body == "c: d\n---\n"
    assert parse_document(b"---\na: b\n---") == Document({"a": "b"}, "", ())


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xef\xbb\xbf---\nname: x\n---\nB\nC", "byte order mark"),
        (b"---\r\nname: x\r\n---\r\nB\r\nC", "CR LF"),
        (b"---\nname: x\n---\nB\nC", None),
        (b"\n \t\n---\nname: x\n---\nB\nC", "blank lines"),
    ],
)
def test_unusual_bytes_around_a_head_are_readable(data, says):
    odd = parse_document(data)
    assert (odd.fields, odd.body) == ({"name": "x"}, "B\nC")
    assert severities(odd) == (["warning"] if says else [])
    assert says is None or says in odd.defects[0].text


def test_a_bare_carriage_return_is_told_apart():
    """It hides text in terminals and differences."""
    assert "bare" in document("name: x", "a\rb").defects[0].text


def test_a_line_in_a_defect_counts_from_the_top_of_the_file():
    assert "in line 6" in parse_document(b"\n\n---\nname: x\n\na: b: c\n---\n").defects[1].text


@pytest.mark.parametrize(
    "data",
    [b"\xff\xfe-\x00-\x00", b"IyBT\xfe\xff\x80", b"\xc0\xae\xc0\xae/", b"---\nname: \xe9\n---\n"],
)
def test_bytes_that_are_not_utf8_are_refused(data):
    refused = parse_document(data)
    assert refused.fields == {}
    assert severities(refused) == ["refuse"]


@pytest.mark.parametrize("control", ["\0", "\x1b", "\x07", "\x7f", "\x0c"])
def test_a_control_character_in_the_body_is_refused(control):
    """An escape would reach a terminal."""
    assert severities(document("name: x", f"one\n{control}[2J")) == ["refuse"]


def test_a_file_without_frontmatter_is_all_body():
    plain = parse_document(b"# Title\n\nSays what\nit does.\n")
    assert plain == Document({}, "# Title\n\nSays what\nit does.\n", (NO_FRONTMATTER,))
    assert summarize(plain) == Summary("", "Says what it does.", (), False, None)


def test_a_directive_before_the_fence_is_refused():
    assert severities(parse_document(b"%YAML 1.1\n---\nname: x\n---\n")) == ["refuse"]
    assert parse_document(b"% a title\n\ntext").defects == (NO_FRONTMATTER,)


def test_an_unterminated_frontmatter_is_read_up_to_the_first_blank_line_or_heading():
    for gap in ("\n", "# Title\n"):
        lost = parse_document(
            f"---\nname: x\ndescription: never closed\n{gap}Body: here\n".encode()
        )
        assert lost.defects == (UNTERMINATED,)
        assert lost.fields == {"name": "x", "description": "never closed"}
        assert lost.body == f"{gap}Body: here\n"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("", ""),
        ("# Only a heading\n", "Only a heading"),
        ("# Title\nText under it.\n", "Text under it."),
        (
            "# Title\n\n## Part\n\n```sh\nrm\n\nls\n```\n\n![x](y)\n\n| a |\n\n<!-- no -->\n\n"
            "---\n\nThe  text\nis here.\n\nMore.",
            "The text is here.",
        ),
        ("a" * 2000, "a" * MAX_DESCRIPTION),
        ("```\nnever closed", ""),
    ],
)
def test_a_body_is_described_by_its_first_paragraph(body, text):
    assert describe(Document({}, body, ())) == text


@pytest.mark.parametrize(
    ("value", "triggers"),
    [
        ("merge pdf, split pdf", ("merge pdf", "split pdf")),
        ("' a,, b ,a,'", ("a", "b")),
        ("[a, 'b, c', 1, null]", ("a", "b, c")),
        ("7", ()),
        ("", ()),
    ],
)
def test_triggers_are_a_text_with_commas_or_a_list(value, triggers):
    assert summarize(document(f"metadata:\n  triggers: {value}")).triggers == triggers


def test_a_summary_holds_what_the_head_says():
    head = (
        "name: ' pdf '\ndescription: >\n  Reads\n  PDF.\n"
        "metadata: {delegate: 'agent:reader', evolvable: 'true'}"
    )
    assert summarize(document(head)) == Summary(
        "pdf", "Reads PDF.", (), False, Delegate("agent:reader")
    )


def test_a_delegate_is_a_ref_or_a_block_and_its_unknown_words_are_the_defaults():
    block = "{agent: 'agent:clerk', when: long, input: history, returns: FILES}"

    said = [
        summarize(document(head)).delegate
        for head in (f"metadata: {{delegate: {block}}}", f"delegate: {block}")
    ]

    assert said == [Delegate("agent:clerk", "long", "history", "summary")] * 2
    assert summarize(document("metadata: {delegate: [agent:clerk]}")).delegate == Delegate(
        "agent:clerk"
    )
    for nothing in ("7", "[7]", "{when: long}", "{agent: [7]}", "''"):
        assert summarize(document(f"metadata: {{delegate: {nothing}}}")).delegate is None


@pytest.mark.parametrize(
    "head", ["metadata: text", "metadata: [evolvable]", "metadata:", "evolvable: 'false'"]
)
def test_intent_is_only_looked_for_in_the_metadata(head):
    assert not summarize(document(head)).frozen


@pytest.mark.parametrize(
    ("value", "frozen"),
    [
        ('"false"', True),
        ("false", True),
        ("' False '", True),
        ("FALSE", True),
        ('"true"', False),
        ("true", False),
        ("''", False),
        ("0", False),
        ("[false]", False),
    ],
)
def test_evolvable_false_freezes(value, frozen):
    data = f"---\nname: x\nmetadata:\n  evolvable: {value}\n---\nBody.".encode()
    assert is_frozen(data) is frozen
    assert summarize(parse_document(data)).frozen is frozen
    assert is_frozen(b"\xef\xbb\xbf\r\n" + data.replace(b"\n", b"\r\n")) is frozen


def test_a_body_cannot_freeze():
    assert not is_frozen(b'---\nname: x\n---\nmetadata:\n  evolvable: "false"\n')
    assert not is_frozen(b'metadata:\n  evolvable: "false"\n')
    assert not is_frozen(b'---\nname: x\n---\n---\nmetadata:\n  evolvable: "false"\n---\n')


@pytest.mark.process
def test_the_yaml_parser_is_not_imported_before_a_head_is_read():
    """A server must answer before it needs YAML."""
    code = (
        "import sys; from evolvable_store import frontmatter, validation; "
        "frontmatter.is_frozen(b'---\\nname: x\\n---\\nevolvable'); assert 'yaml' not in "
        "sys.modules; frontmatter.parse_document(b'---\\nname: x\\n---\\n'); assert 'yaml' in "
        "sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


HEADS = st.lists(
    st.sampled_from(
        [
            *"---:|>&*!%@`\"'{}[],#? \n\t\r\\",
            "\n---\n",
            "---\n",
            "name: ",
            "description: ",
            "metadata:\n  ",
            "evolvable: ",
        ]
        + [
            "false",
            "<<",
            "0x",
            "1:2",
            "2024-01-01",
            "\\ud800",
            "\\UFFFFFFFF",
            "\\0",
            "é",
            "\u2028",
            "\x85",
            "\ufeff",
            "...",
        ]
    ),
    max_size=60,
).map(lambda parts: "".join(parts).encode())


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400) | HEADS | HEADS.map(lambda data: b"---\n" + data + b"\n---\nbody"))
@example(b"---\nname: 0x" + b"f" * 8000 + b"\n---\n")
@example(b'---\na: "\\UFFFFFFFF"\n---\n')
@example(b'---\na: "\\ud800"\n---\n')
@example(b"---\n: \n---\n")
def test_no_bytes_make_reading_raise(data):
    found = parse_document(data)
    json.dumps(found.fields).encode()
    assert isinstance(summarize(found), Summary)
    assert is_frozen(data) is summarize(found).frozen


@pytest.mark.parametrize(
    "case", [c for c in ATTACKS if c["id"] in ("unicode-26", "unicode-27")], ids=lambda c: c["id"]
)
def test_invalid_utf8_of_the_attack_list_is_refused(case):
    assert severities(parse_document(base64.b64decode(case["b64"]))) == ["refuse"]
