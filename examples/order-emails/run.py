"""Does one task by the rules of a skill, without a model: what an executor of the kind `command`
runs.

It is given one JSON object on stdin and prints one. Each field is what the first rule that fits
finds; a rule is a line of the skill:

    - total: `Total: ([\\d.]+)`
    - date: `(\\d\\d)/(\\d\\d)/(\\d{4})` -> `\\3-\\1-\\2`
"""

import json
import re
import sys
from pathlib import Path

RULE = re.compile(r"^- (\w+): `(.+?)`(?: -> `(.+?)`)?\s*$", re.MULTILINE)


def parsed(text: str) -> list[tuple[str, str, str]]:
    """Returns the rules in a skill's document, in their order: field, pattern, what of it is the
    answer.
    """
    return [(field, pattern, template or r"\1") for field, pattern, template in RULE.findall(text)]


def fields(message: str, all_rules: list[tuple[str, str, str]]) -> tuple[dict[str, str], list[str]]:
    """Returns the fields that the rules find, and in words how."""
    found: dict[str, str] = {}
    said = []
    for field, pattern, template in all_rules:
        if field in found:
            continue
        try:
            match = re.search(pattern, message)
            if match:
                found[field] = match.expand(template)
                said.append(f"{field}: `{pattern}` found {match[0]!r}")
        except (re.error, IndexError) as error:
            said.append(f"{field}: `{pattern}` is no rule: {error}")
    missing = sorted({field for field, _, _ in all_rules} - found.keys())
    return found, [*said, *(f"{field}: no rule fits" for field in missing)]


def main() -> None:
    given = json.load(sys.stdin)
    skills = [one for one in given["program"]["resources"] if one["kind"] == "skill"]
    texts = [(Path(skill["folder"]) / "SKILL.md").read_text(encoding="utf-8") for skill in skills]
    all_rules = [rule for text in texts for rule in parsed(text)]
    message = given["prompt"].partition("\n\n")[2]
    found, said = fields(message, all_rules)
    read = [skill["ref"] for skill in skills]
    print(json.dumps({"output": json.dumps(found), "trace": "\n".join(said), "read": read}))


if __name__ == "__main__":
    main()
