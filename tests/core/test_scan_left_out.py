"""A file of no version that a text names is found, whatever else lies beside it."""

from evolvable_tools.scan.left_out import find_left_out

TEXT = {
    "SKILL.md": (
        b"---\nname: deploy\ndescription: Deploys.\n---\n\n"
        b"Run bash scripts/node_modules/x.sh first.\n"
    )
}


def test_a_folder_that_a_text_names_is_found_behind_any_number_of_others() -> None:
    others = [f"{number}/.venv{number}/" for number in range(1_500)]

    (finding,) = find_left_out(TEXT, [*others, "scripts/node_modules/"])

    assert (finding.path, finding.line, str(finding.severity)) == ("SKILL.md", 6, "high")
    assert "node_modules/x" in finding.excerpt


def test_what_lies_beside_a_text_that_does_not_name_it_is_no_finding() -> None:
    assert not list(find_left_out(TEXT, ["other/vendor/", "big.bin", ".git/", "modules/"]))
    assert not list(find_left_out(TEXT, []))
