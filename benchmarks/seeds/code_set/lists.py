"""Problems about lists."""

from seeds.code_set.problem import CE, MLE, RE, RPE, TLE, TO, Problem, crash, edge, logic, slow

LISTS = [
    Problem(
        "running-mean",
        "Return the list of the means of the first 1, 2, 3, ... numbers, each rounded to "
        "two places.",
        """
def solve(numbers):
    total, means = 0, []
    for count, one in enumerate(numbers, 1):
        total += one
        means.append(round(total / count, 2))
    return means
""",
        [(([2, 4, 9],), [2.0, 3.0, 5.0])],
        [([],), ([1],), ([1, 2, 2, 2],)],
        [],
    ),
    Problem(
        "second-largest",
        "Return the second largest of the different numbers in the list; None where there is none.",
        """
def solve(numbers):
    kinds = sorted(set(numbers))
    return kinds[-2] if len(kinds) > 1 else None
""",
        [(([3, 1, 2],), 2), (([5, 5, 4],), 4)],
        [([],), ([7, 7],), ([-1, -2, -1],)],
        [
            logic("sorted(set(numbers))", "sorted(numbers)"),
            crash(" if len(kinds) > 1 else None", ""),
        ],
    ),
    Problem(
        "rotate",
        "Return the list rotated to the right by k places; k may be larger than the list, "
        "or negative.",
        """
def solve(items, k):
    if not items:
        return []
    k %= len(items)
    return items[-k:] + items[:-k] if k else list(items)
""",
        [(([1, 2, 3, 4], 1), [4, 1, 2, 3]), (([1, 2, 3], 5), [2, 3, 1])],
        [([], 3), ([1, 2], 0), ([1, 2, 3], -1)],
        [edge("    k %= len(items)\n", ""), crash("    if not items:\n        return []\n", "")],
    ),
    Problem(
        "merge-ranges",
        "Ranges are pairs of a first and a last number. Return the merged ranges in order; those "
        "that touch are one.",
        """
def solve(ranges):
    merged = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], last)
        else:
            merged.append([first, last])
    return merged
""",
        [(([[1, 3], [2, 6], [8, 9]],), [[1, 6], [8, 9]]), (([[1, 9], [2, 3]],), [[1, 9]])],
        [([],), ([[4, 5], [1, 4]],), ([[1, 1]],)],
        [logic("max(merged[-1][1], last)", "last")],
    ),
    Problem(
        "two-sum",
        "Return the indices of two different numbers with the given sum, the smaller first; [] "
        "where there are none. At most one pair fits.",
        """
def solve(numbers, total):
    places = {}
    for at, one in enumerate(numbers):
        if total - one in places:
            return [places[total - one], at]
        places[one] = at
    return []
""",
        [(([2, 7, 11], 9), [0, 1]), (([3, 4], 6), [])],
        [([3, 3], 6), ([], 0), (list(range(0, 60000, 2)), 119994)],
        [
            RPE,
            edge(
                "    for at, one in enumerate(numbers):\n        if",
                "    places = {n: i for i, n in enumerate(numbers)}\n"
                "    for at, one in enumerate(numbers):\n"
                "        if",
            ),
        ],
    ),
    Problem(
        "longest-run",
        "Return the length of the longest run of equal neighbours in the list.",
        """
def solve(items):
    best = length = 0
    for at, one in enumerate(items):
        length = length + 1 if at and one == items[at - 1] else 1
        best = max(best, length)
    return best
""",
        [(([1, 1, 2, 2, 2, 3],), 3), (([5],), 1)],
        [([],), ([1, 2, 3],), ([4, 4],)],
        [CE, edge("if at and one", "if one")],
    ),
    Problem(
        "max-subarray",
        "Return the largest sum of a part of the list without gaps; the part has at least "
        "one number.",
        """
def solve(numbers):
    best = here = numbers[0]
    for one in numbers[1:]:
        here = max(one, here + one)
        best = max(best, here)
    return best
""",
        [(([-2, 1, -3, 4, -1, 2, 1],), 6), (([3, -1, 2],), 4)],
        [([-3],), ([-5, -2, -9],), ([1] * 5000,)],
        [edge("best = here = numbers[0]", "best = here = 0")],
    ),
    Problem(
        "missing-number",
        "The list has all whole numbers from 0 to its length but one, in any order. Return the "
        "one that is missing.",
        """
def solve(numbers):
    return len(numbers) * (len(numbers) + 1) // 2 - sum(numbers)
""",
        [(([3, 0, 1],), 2), (([0],), 1)],
        [([],), ([1],), (list(range(9999)),)],
        [MLE],
    ),
    Problem(
        "chunks",
        "Return the list cut into parts of the given size; the last one may be shorter.",
        """
def solve(items, size):
    return [items[at : at + size] for at in range(0, len(items), size)]
""",
        [(([1, 2, 3, 4, 5], 2), [[1, 2], [3, 4], [5]])],
        [([], 3), ([1], 4), ([1, 2, 3], 1)],
        [],
    ),
    Problem(
        "majority",
        "Return the item that stands in more than half of the places of the list, None where "
        "none does.",
        """
def solve(items):
    found, count = None, 0
    for one in items:
        if count == 0:
            found = one
        count += 1 if one == found else -1
    return found if items.count(found) * 2 > len(items) else None
""",
        [(([1, 2, 1],), 1), (([1, 2],), None)],
        [([],), ([1, 2, 3],), ([2, 2, 1, 1, 2],)],
        [TLE, logic(" if items.count(found) * 2 > len(items) else None", "")],
    ),
    Problem(
        "stock-profit",
        "Prices follow each other in time. Return the largest gain of one purchase and one later "
        "sale, at least 0.",
        """
def solve(prices):
    least, best = None, 0
    for one in prices:
        if least is not None:
            best = max(best, one - least)
        least = one if least is None else min(least, one)
    return best
""",
        [(([7, 1, 5, 3, 6, 4],), 5), (([7, 6, 4],), 0)],
        [([],), ([1],), (list(range(3000)),)],
        [logic("max(best, one - least)", "one - least")],
    ),
    Problem(
        "flatten",
        "Return the items of a list of lists, nested as deep as they are, in one list in "
        "their order.",
        """
def solve(items):
    flat = []
    for one in items:
        flat += solve(one) if isinstance(one, list) else [one]
    return flat
""",
        [(([1, [2, [3, 4]], 5],), [1, 2, 3, 4, 5])],
        [([],), ([[], [[]]],), ([[1], [2, [3]]],)],
        [RE, logic("solve(one) if", "one if")],
    ),
    Problem(
        "top-k",
        "Return the k most frequent items of the list, the most frequent first; of equal ones the "
        "smaller comes first.",
        """
from collections import Counter

def solve(items, k):
    counts = Counter(items)
    return sorted(counts, key=lambda one: (-counts[one], one))[:k]
""",
        [(([1, 1, 2, 3, 3, 3], 2), [3, 1]), (([5, 4], 1), [4])],
        [([], 2), ([2, 1, 2, 1], 5), ([3], 0)],
        [logic("key=lambda one: (-counts[one], one)", "key=lambda one: -counts[one]")],
    ),
    Problem(
        "inversions",
        "Return how many pairs of places i < j have a larger number at i than at j.",
        """
def solve(numbers):
    from bisect import bisect_right, insort
    seen, count = [], 0
    for one in numbers:
        count += len(seen) - bisect_right(seen, one)
        insort(seen, one)
    return count
""",
        [(([2, 4, 1, 3],), 3), (([1, 1],), 0)],
        [([],), (list(range(300, 0, -1)),), (list(range(6000)),)],
        [
            slow(
                "    from bisect import bisect_right, insort\n",
                "    return sum(a > b for at, a in enumerate(numbers) for b in "
                "numbers[at + 1 :])\n",
            )
        ],
    ),
    Problem(
        "median",
        "Return the median of the numbers as a float; of an even count the mean of the middle two. "
        "None for no numbers.",
        """
def solve(numbers):
    if not numbers:
        return None
    ordered, half = sorted(numbers), len(numbers) // 2
    return float(ordered[half]) if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
""",
        [(([3, 1, 2],), 2.0), (([4, 1, 3, 2],), 2.5)],
        [([],), ([5],), ([1, 2],)],
        [TO, crash("    if not numbers:\n        return None\n", "")],
    ),
]
