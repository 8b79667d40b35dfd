"""What the grants of an operator's configuration give, and which mistakes in it are refused."""

from pathlib import Path
from typing import Any

import pytest

from evolvable_server.grants import Grant, grant_permissions, narrow_permissions, parse_sign_in
from evolvable_server.person_config import parse_person_config
from evolvable_store.errors import InvalidArgument

WRITERS = Grant(("groups",), "writers", frozenset({"write"}))
ADMINS = Grant(("realm_access", "roles"), "admin", frozenset({"approve"}), ("team",))


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"groups": None},
        {"groups": "writers readers"},
        {"groups": {"writers": True}},
        {"groups": [["writers"]]},
        {"groups": ["Writers", "writers\0", 7]},
        {"groups.writers": True, "realm_access": ["admin"], "roles": ["admin"]},
        {"realm_access": {"roles": {"admin": 1}}},
    ],
)
def test_only_a_value_that_is_equal_counts(claims: dict[str, Any]) -> None:
    assert grant_permissions((WRITERS, ADMINS), claims, ("team",)) == frozenset()


def test_a_grant_of_writing_gives_reading_and_reporting_and_no_more() -> None:
    assert grant_permissions((WRITERS, ADMINS), {"groups": "writers"}, ()) == {
        "read",
        "report",
        "write",
    }


def test_a_grant_of_a_project_gives_nothing_in_another() -> None:
    claims = {"realm_access": {"roles": ["admin"]}}
    assert grant_permissions((ADMINS,), claims, ("team", "/srv/home")) == {"read", "approve"}
    assert (
        grant_permissions((ADMINS,), claims, ("other",))
        == grant_permissions((ADMINS,), claims, ())
        == frozenset()
    )


def test_scopes_take_away_and_never_add() -> None:
    given = frozenset({"read", "report", "write"})
    assert narrow_permissions(given, ["openid", "write", "evolvable"]) == given
    assert narrow_permissions(given, ["evolvable:read", "evolvable:approve"]) == {"read"}
    assert narrow_permissions(given, ["evolvable:approve"]) == frozenset()
    assert narrow_permissions(frozenset(), ["evolvable:write"]) == frozenset()


GRANT = {"value": "writers", "permissions": ["write"]}
ISSUER = "https://login.example.org"


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({}, "no issuer"),
        ({"issuer": 7}, "issuer is not a text"),
        ({"issuer": ISSUER, "isuer": "x"}, "unknown key 'isuer'"),
        ({"issuer": ISSUER, "grants": {"writers": "write"}}, "not a list of tables"),
        ({"issuer": ISSUER, "grants": ["writers"]}, "not a list of tables"),
        ({"issuer": ISSUER, "grants": [{**GRANT, "value": ""}]}, "needs a value"),
        ({"issuer": ISSUER, "grants": [{**GRANT, "claim": []}]}, "needs a value"),
        (
            {"issuer": ISSUER, "grants": [{**GRANT, "permissions": ["admin"]}]},
            "are some of read, report",
        ),
        ({"issuer": ISSUER, "grants": [{"value": "writers"}]}, "are some of read, report"),
        (
            {"issuer": ISSUER, "grants": [{**GRANT, "projects": []}]},
            "leave it out for every library",
        ),
        ({"issuer": ISSUER, "grants": [{**GRANT, "project": "team"}]}, "unknown key 'project'"),
    ],
)
def test_a_mistake_in_the_configuration_is_named(table: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_sign_in(table)


def test_a_configuration_with_a_mistake_in_its_grants_is_refused_as_a_whole() -> None:
    with pytest.raises(InvalidArgument, match="are some of read"):
        parse_person_config(
            Path("config.toml"),
            f'[sign_in]\nissuer = "{ISSUER}"\n[[sign_in.grants]]\nvalue = "x"\n'
            'permissions = ["all"]\n',
        )
