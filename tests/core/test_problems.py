"""Everything that is wrong with a resource, said at once, and which of it stops which door."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolvable_store.errors import InvalidRef
from evolvable_store.objects import MAX_FILE, MAX_FILES, File
from evolvable_store.paths import path_problem
from evolvable_store.resource import Kind, check_name, main_file
from evolvable_store.validation import (
    Problem,
    Severity,
    blocking_problems,
    broken_rules,
    find_problems,
    main_path,
    unclear_problems,
)

ATTACKS = json.loads(
    (Path(__file__).parents[1] / "data" / "attacks.json").read_text(encoding="utf-8")
)["cases"]

GOOD = File(b"---\nname: x\ndescription: Does x.\n---\nDo x.\n")

ELF = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0"


def attacks(category: str) -> list[object]:
    return [
        pytest.param(case, id=f"{case['id']} {case['why']}")
        for case in ATTACKS
        if case["category"] == category
    ]


REFUSED_NAMES = [one for one in attacks("name") if one.values[0]["expect"] == "reject"]


def attack_input(case) -> str:
    if "gen" not in case:
        return case["input"]
    text, times = case["gen"]["repeat"]
    return case["gen"]["prefix"] + text * times + case["gen"]["suffix"]


def skill(head: str, body: str = "Do x.\n", name: str = "x") -> list[Problem]:
    return find_problems(Kind.SKILL, name, {"SKILL.md": File(f"---\n{head}\n---\n{body}".encode())})


def of(kind: Kind, text: str, name: str = "x") -> list[Problem]:
    return find_problems(kind, name, {main_file(kind, name): File(text.encode())})


def severities(found: list[Problem]) -> list[str]:
    return [problem.severity.value for problem in found]


@pytest.mark.parametrize("case", attacks("frontmatter"))
def test_frontmatter_of_the_attack_list(case):
    """An agent may not write what must be rejected; the rest passes, with a warning where one is
    due.

    A tag in a description is what people have (29 of 594 real skills), and is escaped where it is
    shown.
    """
    files = {"SKILL.md": File(attack_input(case).encode())}
    found = find_problems(Kind.SKILL, "x", files)
    stops = [*blocking_problems(found), *unclear_problems(Kind.SKILL, "x", files)]
    assert bool(stops) is (case["expect"] == "reject" and "XML/HTML" not in case["why"])
    assert not stops or all(problem in found for problem in stops)
    if case["expect"] == "warn":
        assert any("run" in problem.text for problem in found)


@pytest.mark.parametrize("case", attacks("path"))
def test_paths_of_the_attack_list(case):
    path = case["input"]
    files = {path: File(ELF)} if path == "bin/tool" else {path: GOOD}
    found = find_problems(
        Kind.SKILL, "x", files if path.casefold() == "skill.md" else {"SKILL.md": GOOD} | files
    )
    assert bool(broken_rules(found)) is (case["expect"] == "reject")
    assert (
        severities(found)
        == {"reject": severities(found), "warn": ["warning"], "accept": []}[case["expect"]]
    )
    assert all(problem.path == path for problem in found)


@pytest.mark.parametrize("case", REFUSED_NAMES)
@pytest.mark.parametrize("kind", Kind)
def test_names_of_the_attack_list(kind, case):
    with pytest.raises(InvalidRef):
        check_name(kind, case["input"])
    assert broken_rules(of(kind, "---\nname: y\ndescription: d\n---\nText.", case["input"]))


@pytest.mark.parametrize("case", REFUSED_NAMES)
def test_names_of_the_attack_list_in_frontmatter(case):
    assert broken_rules(skill(f"name: {json.dumps(case['input'])}\ndescription: d"))


def test_a_good_skill_has_no_problems():
    assert (
        find_problems(
            Kind.SKILL, "x", {"SKILL.md": GOOD, "scripts/run.sh": File(b"#!/bin/sh\n", 0o755)}
        )
        == []
    )


def test_all_six_keys_of_the_specification_are_known():
    head = (
        "name: x\ndescription: d\nlicense: MIT\ncompatibility: any\n"
        "allowed-tools: Read Bash(git add:*)\n"
        'metadata: {triggers: "a, b", evolvable: "true"}'
    )
    assert skill(head) == []


def test_the_keys_that_claude_code_documents_are_known():
    head = (
        "name: x\ndescription: d\nwhen_to_use: often\nargument-hint: '[file]'\narguments: [file]\n"
        "disable-model-invocation: true\nuser-invocable: false\n"
        "allowed-tools: [Read, 'Bash(git add:*)']\ndisallowed-tools: Write\nmodel: haiku\n"
        "effort: low\ncontext: fork\nagent: Explore\npaths: ['*.py']\nshell: bash"
    )
    assert skill(head) == []


def test_what_a_skill_may_do_is_told_apart_from_what_is_wrong_with_it():
    """The door for strangers' skills says it; the owner's does not."""
    (hooks, tools) = skill("name: x\ndescription: d\nallowed-tools: [Bash]\nhooks: {Stop: []}")
    assert hooks.capability and tools.capability and "any command" in tools.text
    assert not any(problem.capability for problem in skill("name: x\ndescription: d\ntags: [a]"))


def test_every_problem_is_found_at_once():
    files = {
        "SKILL.md": File(b"---\nname: X y\ndescription: <b>d</b>\nextra: 1\n---\n"),
        "../up": File(b""),
        "a.md": File(b""),
        "A.md": File(b""),
        ".env": File(b"KEY=1"),
        "big": File(bytes(MAX_FILE + 1)),
    }
    found = find_problems(Kind.SKILL, "x", files)
    assert sorted((problem.path, problem.severity.value) for problem in found) == [
        ("../up", "refuse"),
        (".env", "warning"),
        ("A.md", "refuse"),
        ("SKILL.md", "error"),
        ("SKILL.md", "error"),
        ("SKILL.md", "warning"),
        ("SKILL.md", "warning"),
        ("big", "refuse"),
    ]


def test_what_breaks_the_specification_alone_stops_only_what_a_model_of_ours_makes():
    listed = [Problem(severity, "", severity.value) for severity in Severity]
    assert severities(blocking_problems(listed)) == ["refuse", "unfinished"]
    assert severities(broken_rules(listed)) == ["refuse", "unfinished", "error"]


MARKS = "<<<<<<< HEAD\nours\n=======\ntheirs\n>>>>>>> main\n"

DIFF3 = "<<<<<<< HEAD\nours\n||||||| base\nold\n=======\ntheirs\n>>>>>>> main\n"


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.MEMORY])
@pytest.mark.parametrize("data", [b"", b" \n\r\n\t\n", b"\0" * 4096, b"\xef\xbb\xbf\n", b"\n\0\n"])
def test_an_emptied_document_is_unfinished_and_that_alone_is_said_of_it(kind, data):
    found = find_problems(kind, "x", {main_file(kind, "x"): File(data)})

    assert severities(found) == ["unfinished"] and "it is empty" in found[0].text


@pytest.mark.parametrize(
    "text", [MARKS, DIFF3, MARKS.replace("\n", "\r\n"), f"```sh\nls\n```\n{MARKS}"]
)
def test_conflict_marks_in_the_text_make_a_document_unfinished(text):
    (found,) = [
        one
        for one in skill("name: x\ndescription: Does x.", text)
        if one.severity is Severity.UNFINISHED
    ]

    assert "conflict marks from line" in found.text


def test_conflict_marks_in_the_head_make_a_document_unfinished():
    found = skill(f"name: x\n{MARKS}description: Does x.")

    assert Severity.UNFINISHED in [one.severity for one in found]


@pytest.mark.parametrize(
    "text",
    [
        f"```\n{MARKS}```\n",
        f"~~~~ diff\n~~~\n{MARKS}~~~~\n",
        "A heading\n=======\n",
        "<<<<<<< HEAD\nno more\n",
        ">>>>>>> main\n=======\n<<<<<<< HEAD\n",
        MARKS.replace("\n", "\n    "),
        "The line `<<<<<<<` begins it, `=======` divides, `>>>>>>>` ends.\n",
        MARKS.replace("=======", "========"),
    ],
)
def test_marks_that_are_quoted_or_no_conflict_do_not_count(text):
    assert blocking_problems(skill("name: x\ndescription: Does x.", text)) == []


def test_conflict_marks_stop_other_markdown_and_are_a_warning_of_a_new_program():
    found = find_problems(
        Kind.SKILL,
        "x",
        {"SKILL.md": GOOD, "API.MD": File(MARKS.encode()), "run.py": File(MARKS.encode())},
    )

    assert [(one.path, one.severity.value) for one in found] == [
        ("API.MD", "unfinished"),
        ("run.py", "warning"),
    ]


def test_a_long_text_of_marks_without_an_end_is_read_in_one_pass():
    text = "<<<<<<< a\n=======\n```\n" * 60_000 + "x >>>>>>>"

    assert [
        one
        for one in skill("name: x\ndescription: Does x.", text)
        if one.severity is Severity.UNFINISHED
    ] == []


def test_a_problem_reads_as_one_line():
    assert str(Problem(Severity.ERROR, "SKILL.md", "it has no name")) == "SKILL.md: it has no name"
    assert str(Problem(Severity.REFUSE, "", "it has no SKILL.md")) == "it has no SKILL.md"


@pytest.mark.parametrize("kind", Kind)
def test_nothing_can_be_made_of_a_folder_without_its_main_file(kind):
    found = find_problems(kind, "x", {"notes.md": File(b"text")})
    assert severities(found) == ["refuse"]
    assert main_file(kind, "x") in found[0].text
    assert find_problems(kind, "x", {}) == found


def test_a_lower_case_skill_md_breaks_the_rules_and_is_taken_in():
    """skills-ref accepts it."""
    found = find_problems(Kind.SKILL, "x", {"skill.md": GOOD})
    assert severities(found) == ["error"]
    assert main_path(Kind.SKILL, "x", {"skill.md": GOOD}) == "skill.md"
    assert main_path(Kind.SKILL, "x", {"skill.md": GOOD, "SKILL.md": GOOD}) == "SKILL.md"
    assert main_path(Kind.PROMPT, "x", {"prompt.md": GOOD}) == ""


def test_a_main_file_with_a_wrong_name_is_named():
    assert any(
        "rename Prompt.md" in problem.text
        for problem in find_problems(Kind.PROMPT, "x", {"Prompt.md": GOOD})
    )


@pytest.mark.parametrize(
    "paths",
    [
        ("a.md", "A.md"),
        ("docs/x", "Docs/y"),
        ("SKILL.md", "skill.md"),
        ("a", "a/b"),
        ("a/b", "A"),
        ("ß", "ss"),
    ],
)
def test_paths_that_some_file_systems_cannot_hold_together_are_refused(paths):
    found = find_problems(Kind.SKILL, "x", {"SKILL.md": GOOD} | dict.fromkeys(paths, GOOD))
    assert "refuse" in severities(found)


def test_limits_are_problems():
    many = {f"f{number}": File(b"") for number in range(MAX_FILES)}
    assert severities(find_problems(Kind.SKILL, "x", {"SKILL.md": GOOD} | many)) == ["refuse"]
    full = {f"f{number}": File(bytes(MAX_FILE)) for number in range(3)}
    assert severities(find_problems(Kind.SKILL, "x", {"SKILL.md": GOOD} | full)) == []
    over = {f"f{number}": File(bytes(MAX_FILE)) for number in range(4)}
    assert severities(find_problems(Kind.SKILL, "x", {"SKILL.md": GOOD} | over)) == ["refuse"]
    assert severities(find_problems(Kind.SKILL, "x", {"SKILL.md": File(bytes(MAX_FILE + 1))})) == [
        "refuse"
    ]


@pytest.mark.parametrize(
    ("path", "data", "warned"),
    [
        (".env", b"", True),
        ("sub/.env.local", b"", True),
        (".env.example", b"", False),
        ("keys/server.pem", b"", True),
        ("id_rsa", b"", True),
        (".aws/config", b"", True),
        ("environment.md", b"", False),
        (".claude/settings.json", b"", True),
        (".mcp.json", b"", True),
        ("tool.bin", ELF, True),
        ("tool.exe", b"MZ\x90\0\x03\0", True),
        ("mz.md", b"MZ is the magic of DOS programs", False),
        ("assets/picture.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", False),
    ],
)
def test_files_that_do_not_belong_in_a_resource_are_warned_about(path, data, warned):
    found = find_problems(Kind.SKILL, "x", {"SKILL.md": GOOD, path: File(data)})
    assert severities(found) == (["warning"] if warned else [])


@pytest.mark.parametrize(
    ("head", "severity", "says"),
    [
        ("description: d", "error", "no name"),
        ("name: ''\ndescription: d", "error", "no name"),
        ("name: x", "error", "no description"),
        ("name: x\ndescription: ' '", "error", "no description"),
        ("name: x\ndescription:", "error", "null"),
        ("name: 7\ndescription: d", "error", "not a text"),
        ("name: My Skill\ndescription: d", "error", "'my-skill' would do"),
        ("name: " + "a" * 65 + "\ndescription: d", "error", "65 characters"),
        ("name: y\ndescription: d", "warning", "its folder's is x"),
        ("name: x\ndescription: " + "a" * 1025, "error", "1,025"),
        ("name: x\ndescription: a <system>b", "error", "tag"),
        ("name: x\ndescription: List<String>", "error", "tag"),
        ("name: x\ndescription: '</skill'", "error", "tag"),
        ("name: x\ndescription: d\ntags: [a]\nversion: 1", "warning", "tags, version"),
        ("name: x\ndescription: d\nlicense: [MIT]", "warning", "license"),
        ("name: x\ndescription: d\nallowed-tools: {Read: 1}", "warning", "allowed-tools"),
        ("name: x\ndescription: d\ncompatibility: " + "a" * 501, "warning", "501"),
        ("name: x\ndescription: d\nmetadata: text", "warning", "metadata"),
        ("name: x\ndescription: d\nmetadata: {a: 1, b: c}", "warning", "not texts: a"),
        ("name: x\ndescription: d\nmetadata: {evolvable: 'no'}", "warning", 'only "false" freezes'),
        ("name: x\ndescription: d\nallowed-tools: Read, Bash", "warning", "any command"),
        ("name: x\ndescription: d\nallowed-tools: '*'", "warning", "any command"),
        ("name: x\ndescription: d: e", "error", "YAML"),
        ("name: x\nname: x\ndescription: d", "error", "more than once"),
    ],
)
def test_each_rule_of_the_specification(head, severity, says):
    """agentskills.io/specification."""
    found = skill(head)
    assert severities(found) == [severity]
    assert says in found[0].text


def test_a_less_than_sign_is_no_tag():
    assert skill("name: x\ndescription: for n < 5, <3 and a <= b -> c") == []


def test_a_body_is_recommended_to_be_short_and_there():
    assert skill("name: x\ndescription: d", "\n".join(["x"] * 500)) == []
    assert severities(skill("name: x\ndescription: d", "\n".join(["x"] * 501))) == ["warning"]
    assert severities(skill("name: x\ndescription: d", " \n")) == ["warning"]


def test_a_name_that_no_resource_may_have_is_said_once():
    assert [p.path for p in skill("name: My X\ndescription: d", name="My X")] == ["SKILL.md"]
    assert [p.path for p in skill("name: x\ndescription: d", name="My X")] == ["SKILL.md", ""]


def test_a_head_that_cannot_be_read_is_one_problem():
    """Nothing is said about keys that nobody could read."""
    for data in (b"no fence", b"\xff", b"---\n!!x y\n---\n", b"---\nnever closed"):
        assert len(find_problems(Kind.SKILL, "x", {"SKILL.md": File(data)})) == 1


def test_a_sub_agent_has_keys_of_its_own():
    """Claude Code's sub-agents: examples in the description are its own style."""
    head = (
        "---\nname: x\ndescription: <example>use</example> "
        + "a" * 2000
        + "\ntools: Read, Bash\nmodel: opus\n"
    )
    assert of(Kind.AGENT, head + "color: red\n---\nYou review.\n") == []
    assert severities(
        of(Kind.AGENT, head + "permissionMode: bypassPermissions\n---\nYou review.\n")
    ) == ["warning"]
    assert severities(of(Kind.AGENT, head + "hooks: {Stop: []}\n---\nYou review.\n")) == ["warning"]
    assert severities(of(Kind.AGENT, "You review.")) == ["error"]


@pytest.mark.parametrize("kind", [Kind.PROMPT, Kind.TOOL, Kind.ENVIRONMENT])
def test_other_kinds_need_a_description_and_all_but_a_prompt_a_name(kind):
    assert of(kind, "---\nname: x\ndescription: d\nanything: else\n---\nText.\n") == []
    missing = ["error"] if kind is Kind.PROMPT else ["error", "error"]
    assert severities(of(kind, "---\nother: x\n---\nText.\n")) == missing
    assert severities(of(kind, "Text.\n")) == ["error"]


@pytest.mark.parametrize(
    "text",
    ["Likes tea.", "", "---\nLikes tea.\n\n---\nAnd rain.", "---\nA: rule above", "# Notes\n"],
)
def test_memory_is_plain_markdown(text):
    assert of(Kind.MEMORY, text, "USER") == []
    assert of(Kind.MEMORY, text, "work") == []


def test_memory_may_have_frontmatter_but_nothing_hostile():
    assert of(Kind.MEMORY, "---\ntitle: Notes\n---\nText") == []
    assert severities(of(Kind.MEMORY, "---\ntitle: a: b\n---\nText")) == ["warning"]
    assert severities(of(Kind.MEMORY, "---\ntitle: !!python/name:os.system\n---\nText")) == [
        "refuse"
    ]
    assert severities(of(Kind.MEMORY, "\x1b[2J")) == ["refuse"]


def test_every_path_that_may_not_be_is_refused_as_a_problem():
    for path in ("/a", "a//b", "con", "a\\b", "d/" * 5000 + "x"):
        assert path_problem(path)
        assert severities(find_problems(Kind.SKILL, "x", {"SKILL.md": GOOD, path: GOOD})) == [
            "refuse"
        ]


@pytest.mark.process
@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(Kind),
    st.text(max_size=20),
    st.dictionaries(st.text(max_size=20), st.binary(max_size=60)),
)
def test_no_content_makes_it_raise(kind, name, contents):
    files = {main_file(kind, name): File(b"---\nname: [x]\n---\n")}
    files |= {path: File(data) for path, data in contents.items()}
    assert all(str(problem) for problem in find_problems(kind, name, files))
