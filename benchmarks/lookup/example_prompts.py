"""A set of tasks made of the prompts that skills give as their own examples, from any corpus of
skills.

A prompt stands after a word such as "User:" or in quotes below a heading such as "Example prompts".
The sections with them are removed from the bodies, so that a search cannot find a prompt itself.
Patterns alone decide: nothing is chosen by hand, so a few prompts are answers or notes instead of
tasks.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from lookup.data import Record

MOST_OF_ONE = 4
"""Prompts of one skill that become tasks."""

_LABELS = r"user(?: (?:says|asks|request|prompt|input|query|message))?|prompt|request|human|you say"
_LABELLED = re.compile(
    rf"^[\s>*\-\d.`]*\**(?:{_LABELS}|example (?:prompt|request|query))\**\s*:?\**\s*:\s*\**\s*"
    r'["“\'`]?(.{15,400}?)["”\'`]?\**\s*$',
    re.IGNORECASE | re.MULTILINE,
)
_HEADING_OF_PROMPTS = re.compile(
    r"^#{1,5}\s.*\b(?:example (?:prompts?|requests?|queries|questions|tasks|user)|sample "
    r"prompts?|prompts? examples?|trigger (?:phrases?|examples?|prompts?)|triggers?|user "
    r"(?:says|prompts?|requests?|phrases)|try (?:it|these|asking)|ask(?:ing)? claude|how to "
    r"ask|usage examples?|example usage|invocation)\b",
    re.IGNORECASE | re.MULTILINE,
)
_QUOTED = re.compile(r'["“]([^"“”\n]{18,300})["”]')
_NEXT_HEADING = re.compile(r"^#{1,5}\s", re.MULTILINE)
_HEADING = re.compile(r"^(#{1,6})\s+(.*)$", re.MULTILINE)
_ABOUT_USE = re.compile(r"example|usage|trigger|prompt|ask|says", re.IGNORECASE)
_CODE = re.compile(r"[{}<>$|=\\/\[\]]")

_SECTION = 1_500  # characters after a heading without a next one
_WORDS = (4, 70)
_LETTERS = 0.85  # share of letters and spaces, by which a prompt differs from code and tables


def example_prompts(
    corpus: Iterable[Record], apart: Iterable[Record] = ()
) -> tuple[list[Record], list[Record]]:
    """Return the skills without the sections of their prompts, and the prompts as tasks.

    corpus: records with id, repo, name, description and body. apart: tasks of other sets, whose
    right skills give no prompt. A prompt that two skills give, or that differs from another's by
    the skill's name alone, is no task. Another skill whose body holds the prompt is right too.
    """
    skills = list(corpus)
    taken = {id_ for task in apart for id_ in (*task["gold"], *task.get("also_ok", ()))}
    found = {
        skill["id"]: prompts
        for skill in skills
        if skill["id"] not in taken and (prompts := _prompts(skill))
    }
    held = _held(skills, {prompt for prompts in found.values() for prompt in prompts})
    chosen = _distinct({skill["id"]: skill["name"] for skill in skills}, found)
    tasks = list(_tasks(skills, chosen, held))
    cleaned = (
        _without(skill["body"], chosen.get(skill["id"], ()), held[skill["id"]]) for skill in skills
    )
    return [{**skill, "body": body} for skill, body in zip(skills, cleaned, strict=True)], tasks


def _held(skills: Sequence[Record], prompts: Collection[str]) -> dict[str, list[str]]:
    """Return the prompts in each skill's body, by the skill's id.

    Only those are looked for whose second and third word stand side by side in the body.
    """
    by_words = defaultdict[tuple[str, ...], list[str]](list)
    for prompt in sorted(prompts):
        by_words[tuple(prompt.split()[1:3])].append(prompt)
    held = dict[str, list[str]]()
    for skill in skills:
        words = skill["body"].split()
        likely = sorted(by_words.keys() & set(zip(words, words[1:], strict=False)))
        held[skill["id"]] = [
            prompt for pair in likely for prompt in by_words[pair] if prompt in skill["body"]
        ]
    return held


def _prompts(skill: Record) -> list[str]:
    """Return the prompts of one skill that its description does not hold, in order."""
    body = skill["body"]
    found = [match[1].strip(' "*`“”') for match in _LABELLED.finditer(body)]
    for heading in _HEADING_OF_PROMPTS.finditer(body):
        after = body[heading.end() :]
        following = _NEXT_HEADING.search(after)
        found += [
            quoted.strip()
            for quoted in _QUOTED.findall(after[: following.start() if following else _SECTION])
        ]
    said = skill["description"].lower()
    return [
        prompt for prompt in dict.fromkeys(found) if _is_task(prompt) and prompt.lower() not in said
    ]


def _is_task(text: str) -> bool:
    least, most = _WORDS
    letters = sum(character.isalpha() or character == " " for character in text)
    return (
        least <= len(text.split()) <= most
        and len(_CODE.findall(text)) <= 1
        and letters / len(text) > _LETTERS
    )


def _distinct(names: Mapping[str, str], found: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the first few prompts of each skill that no other gives, also under the name of
    another skill.
    """
    forms = {
        (id_, prompt): _form(prompt, names[id_])
        for id_, prompts in found.items()
        for prompt in prompts
    }
    count = Counter(forms.values())
    same = Counter(prompt for _, prompt in forms)
    own = {
        id_: [prompt for prompt in prompts if count[forms[id_, prompt]] == same[prompt] == 1][
            :MOST_OF_ONE
        ]
        for id_, prompts in found.items()
    }
    return {id_: prompts for id_, prompts in own.items() if prompts}


def _form(prompt: str, name: str) -> str:
    """Return the prompt with X in place of the skill's name and what is joined to it."""
    return re.sub(rf"[\w.\-]*{re.escape(name.lower())}[\w.\-]*", "X", prompt.lower())


def _tasks(
    skills: Sequence[Record], chosen: Mapping[str, Sequence[str]], held: Mapping[str, Sequence[str]]
) -> Iterator[Record]:
    by_id, holders = {skill["id"]: skill for skill in skills}, defaultdict[str, list[str]](list)
    for id_, prompts in held.items():
        for prompt in prompts:
            holders[prompt].append(id_)
    for id_, prompts in chosen.items():
        skill = by_id[id_]
        for prompt in prompts:
            yield {
                "qid": f"example-{hashlib.sha256((id_ + prompt).encode()).hexdigest()[:10]}",
                "text": prompt,
                "gold": [id_],
                "also_ok": [other for other in holders[prompt] if other != id_],
                "kind": "positive",
                "source": skill["repo"],
                "source_repo": skill["repo"],
                "names_gold": skill["name"].lower().replace("-", " ") in prompt.lower(),
            }


def _without(body: str, own: Sequence[str], every: Iterable[str]) -> str:
    """Return a body without the sections of the skill's own tasks, or without prompts where it has
    no tasks.
    """
    for prompt in own:
        while prompt in body:
            body = _without_section(body, body.index(prompt), prompt)
    if not own:
        for prompt in every:
            body = body.replace(prompt, "")
    return body


def _without_section(body: str, at: int, prompt: str) -> str:
    """Return a body without the section around a place; without the prompt where no heading is
    before it.

    Where the section above is about examples or use, all of that one is removed.
    """
    before = [heading for heading in _HEADING.finditer(body) if heading.start() < at]
    if not before:
        return body.replace(prompt, "")
    heading = before[-1]
    above = [other for other in before if len(other[1]) < len(heading[1])]
    if above and _ABOUT_USE.search(above[-1][2]):
        heading = above[-1]
    level = len(heading[1])
    ends = (
        other.start()
        for other in _HEADING.finditer(body)
        if other.start() > at and len(other[1]) <= level
    )
    return body[: heading.start()] + body[next(ends, len(body)) :]
