"""Problems about grids, graphs and records."""

from seeds.code_set.problem import CE, MLE, RPE, TLE, TO, Problem, crash, edge, logic

TABLES = [
    Problem(
        "transpose",
        "Return the transposed grid; all rows have one length.",
        """
def solve(grid):
    return [list(column) for column in zip(*grid)]
""",
        [(([[1, 2, 3], [4, 5, 6]],), [[1, 4], [2, 5], [3, 6]])],
        [([],), ([[1]],), ([[1], [2]],)],
        [],
    ),
    Problem(
        "spiral",
        "Return the numbers of the grid in the order of a spiral from the upper left corner "
        "inwards, clockwise.",
        """
def solve(grid):
    found = []
    while grid:
        found += grid[0]
        grid = [list(row) for row in zip(*grid[1:])][::-1]
    return found
""",
        [(([[1, 2, 3], [4, 5, 6], [7, 8, 9]],), [1, 2, 3, 6, 9, 8, 7, 4, 5])],
        [([],), ([[1, 2]],), ([[1], [2], [3]],)],
        [RPE, CE, logic("[::-1]", "")],
    ),
    Problem(
        "islands",
        "Ones are land and zeros are water. Return how many islands the grid has; land that "
        "touches by a side is one.",
        """
def solve(grid):
    land = {(y, x) for y, row in enumerate(grid) for x, one in enumerate(row) if one}
    count = 0
    while land:
        count += 1
        edge = [land.pop()]
        while edge:
            y, x = edge.pop()
            for near in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):
                if near in land:
                    land.discard(near)
                    edge.append(near)
    return count
""",
        [(([[1, 1, 0], [0, 0, 1]],), 2), (([[1, 0], [1, 1]],), 1)],
        [([],), ([[0]],), ([[1] * 60] * 60,)],
        [CE, logic(", (y, x - 1)", "")],
    ),
    Problem(
        "shortest-path",
        "Return the least number of steps from the upper left to the lower right cell over zeros, "
        "by sides; -1 for none.",
        """
def solve(grid):
    from collections import deque
    height, width = len(grid), len(grid[0])
    if grid[0][0]:
        return -1
    seen, queue = {(0, 0)}, deque([(0, 0, 0)])
    while queue:
        y, x, steps = queue.popleft()
        if (y, x) == (height - 1, width - 1):
            return steps
        for b, a in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):
            if 0 <= b < height and 0 <= a < width and not grid[b][a] and (b, a) not in seen:
                seen.add((b, a))
                queue.append((b, a, steps + 1))
    return -1
""",
        [(([[0, 0], [1, 0]],), 2), (([[0, 1], [1, 0]],), -1)],
        [([[0]],), ([[1]],), ([[0] * 12] * 12,)],
        [edge("    if grid[0][0]:\n        return -1\n", "")],
    ),
    Problem(
        "rotate-grid",
        "Return the square grid turned by a quarter clockwise.",
        """
def solve(grid):
    return [list(row) for row in zip(*grid[::-1])]
""",
        [(([[1, 2], [3, 4]],), [[3, 1], [4, 2]])],
        [([],), ([[5]],), ([[1, 2, 3], [4, 5, 6], [7, 8, 9]],)],
        [],
    ),
    Problem(
        "pascal",
        "Return the first n rows of Pascal's triangle.",
        """
def solve(n):
    rows = []
    for at in range(n):
        rows.append([1] * (at + 1))
        for x in range(1, at):
            rows[at][x] = rows[at - 1][x - 1] + rows[at - 1][x]
    return rows
""",
        [((3,), [[1], [1, 1], [1, 2, 1]])],
        [(0,), (1,), (6,)],
        [],
    ),
    Problem(
        "tree-depth",
        "A tree is None or a list [left, right]. Return how many levels it has.",
        """
def solve(tree):
    return 0 if tree is None else 1 + max(solve(tree[0]), solve(tree[1]))
""",
        [(([[None, None], None],), 2), ((None,), 0)],
        [([None, None],), ([None, [None, [None, None]]],)],
        [logic("max(solve(tree[0]), solve(tree[1]))", "solve(tree[0])")],
    ),
    Problem(
        "group-totals",
        "Rows are pairs of a name and an amount. Return the pairs of each name and its total, in "
        "the order of the names.",
        """
def solve(rows):
    totals = {}
    for name, amount in rows:
        totals[name] = totals.get(name, 0) + amount
    return [[name, totals[name]] for name in sorted(totals)]
""",
        [(([["b", 2], ["a", 1], ["b", 3]],), [["a", 1], ["b", 5]])],
        [([],), ([["x", 0]],), ([["b", 1], ["a", -1]],)],
        [],
    ),
    Problem(
        "matrix-product",
        "Return the product of two matrices.",
        """
def solve(one, other):
    return [[sum(a * b for a, b in zip(row, column)) for column in zip(*other)] for row in one]
""",
        [(([[1, 2]], [[3], [4]]), [[11]])],
        [([[1, 0], [0, 1]], [[5, 6], [7, 8]]), ([[2]], [[3]])],
        [MLE],
    ),
    Problem(
        "topological",
        "Edges [a, b] say that a comes before b, among the numbers 0 to n - 1. Return an order, "
        "the smallest free number first; [] where there is a circle.",
        """
def solve(n, edges):
    from heapq import heapify, heappop, heappush
    needs = [0] * n
    for _, b in edges:
        needs[b] += 1
    free = [one for one in range(n) if not needs[one]]
    heapify(free)
    order = []
    while free:
        one = heappop(free)
        order.append(one)
        for a, b in edges:
            if a == one:
                needs[b] -= 1
                if not needs[b]:
                    heappush(free, b)
    return order if len(order) == n else []
""",
        [((3, [[2, 0], [0, 1]]), [2, 0, 1]), ((3, [[0, 1]]), [0, 1, 2])],
        [(0, []), (3, [[0, 1], [1, 0]]), (4, [[3, 1], [3, 2]])],
        [TLE, edge(" if len(order) == n else []", "")],
    ),
    Problem(
        "latest-version",
        "Return the highest of versions such as 1.10.2; '' for none. Parts are compared "
        "as numbers.",
        """
def solve(versions):
    key = lambda version: [int(part) for part in version.split('.')]
    return max(versions, key=key, default='')
""",
        [((["1.2", "1.10"],), "1.10")],
        [([],), (["2.0"],), (["1.9.9", "1.10.0", "1.10"],)],
        [RPE, logic("int(part)", "part")],
    ),
    Problem(
        "balance",
        "Entries are pairs of a kind, in or out, and an amount. Return the balance after each "
        "entry, and stop before one that would make it negative.",
        """
def solve(entries):
    total, found = 0, []
    for kind, amount in entries:
        total += amount if kind == 'in' else -amount
        if total < 0:
            break
        found.append(total)
    return found
""",
        [(([["in", 5], ["out", 2]],), [5, 3]), (([["in", 1], ["out", 2], ["in", 9]],), [1])],
        [([],), ([["out", 1]],), ([["in", 3], ["out", 3]],)],
        [CE, edge("if total < 0", "if total <= 0")],
    ),
    Problem(
        "overlap",
        "Rectangles are [left, low, right, high]. Return the area that two of them share.",
        """
def solve(one, other):
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(width, 0) * max(height, 0)
""",
        [(([0, 0, 2, 2], [1, 1, 3, 3]), 1), (([0, 0, 1, 1], [2, 0, 3, 1]), 0)],
        [([0, 0, 1, 1], [5, 5, 6, 6]), ([0, 0, 4, 4], [1, 1, 2, 2])],
        [edge("max(width, 0) * max(height, 0)", "max(width * height, 0)")],
    ),
    Problem(
        "sudoku-row",
        "Return whether the list of nine has only the digits 1 to 9 and 0 for empty, and no "
        "digit twice.",
        """
def solve(row):
    digits = [one for one in row if one]
    return len(row) == 9 and all(0 <= one <= 9 for one in row) and len(digits) == len(set(digits))
""",
        [(([5, 3, 0, 0, 7, 0, 0, 0, 0],), True), (([1, 1, 0, 0, 0, 0, 0, 0, 0],), False)],
        [([0, 0, 0, 0, 0, 0, 0, 0, 0],), ([1, 2],), ([10, 0, 0, 0, 0, 0, 0, 0, 0],)],
        [],
    ),
    Problem(
        "json-depth",
        "Return how deep lists are nested in the value: 0 for a number, 1 for a list of numbers.",
        """
def solve(value):
    if not isinstance(value, list):
        return 0
    return 1 + max((solve(one) for one in value), default=0)
""",
        [(([1, [2]],), 2), ((7,), 0)],
        [([],), ([[[]]],), ([[1], [[2]]],)],
        [TO, crash(", default=0", "")],
    ),
]
