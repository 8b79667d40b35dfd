"""Copies: skills of other repositories that answer the tasks of a skill as well as it does.

Collections are copied, forked and rewritten, so after a repository is taken out of a library, a
copy of the right skill often remains. An answer with it is not false. The rule is mechanical and
the same for every set of tasks.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable

from evolvable_store.resource import slugify
from evolvable_store.search.learned_texts import content_terms
from lookup.data import Library, Record

SHARED = 0.5
"""Share of the content words of two descriptions together that both have, from which they are
copies.
"""


class Copies:
    """The copies that a library holds of its skills: of the same name, or with half of the words of
    the description.
    """

    def __init__(self, library: Library) -> None:
        self._skills = {record["id"]: record for record in library.skills.values()}
        self._names = {record["id"]: name for name, record in library.skills.items()}
        self._words = {
            id_: content_terms(record["description"]) for id_, record in self._skills.items()
        }
        self._called, self._having = (
            defaultdict[str, set[str]](set),
            defaultdict[str, list[str]](list),
        )
        self._known: dict[str, frozenset[str]] = {}
        for id_, record in self._skills.items():
            self._called[slugify(record["name"])].add(id_)
            for word in self._words[id_]:
                self._having[word].append(id_)

    def of(self, id_: str) -> frozenset[str]:
        """Return the ids of the copies of a skill in other repositories; none of a skill that is
        not there.
        """
        if id_ not in self._skills:
            return frozenset()
        if id_ not in self._known:
            own, skill = self._words[id_], self._skills[id_]
            common = Counter(other for word in own for other in self._having[word])
            alike = {
                o for o, n in common.items() if n >= SHARED * (len(own) + len(self._words[o]) - n)
            }
            found = alike | self._called[slugify(skill["name"])]
            self._known[id_] = frozenset(
                o for o in found if self._skills[o]["repo"] != skill["repo"]
            )
        return self._known[id_]

    def names_of(self, names: Iterable[str], library: Library) -> list[str]:
        """Return the names of the copies of these skills that are not among them."""
        ids = {library.skills[name]["id"] for name in names}
        found = set[str]().union(*(self.of(id_) for id_ in ids)) - ids
        return sorted(self._names[id_] for id_ in found)

    def marked(self, query: Record) -> Record:
        """Return the task with the copies of its right skills as `copies`."""
        right = (*query["gold"], *query.get("also_ok", ()))
        return {**query, "copies": sorted(set[str]().union(*(self.of(id_) for id_ in right)))}
