"""Problems about whole numbers."""

from seeds.code_set.problem import CE, MLE, RPE, TO, Problem, crash, edge, logic, slow

NUMBERS = [
    Problem(
        "digit-sum",
        "Return the sum of the decimal digits of the whole number n; a sign does not count.",
        """
def solve(n):
    return sum(int(sign) for sign in str(abs(n)))
""",
        [((407,), 11), ((-25,), 7)],
        [(0,), (-999,), (1000000000000000000000000000000,)],
        [crash("abs(n)", "n")],
    ),
    Problem(
        "collatz-steps",
        "A step turns an even n into n / 2 and an odd n into 3n + 1. Return the number of steps "
        "from n to 1.",
        """
def solve(n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps
""",
        [((6,), 8), ((1,), 0)],
        [(27,), (97,), (1099511627776,)],
        [],
    ),
    Problem(
        "gcd-of-list",
        "Return the greatest common divisor of the whole numbers in the list; 0 for an empty list.",
        """
from math import gcd

def solve(numbers):
    found = 0
    for one in numbers:
        found = gcd(found, one)
    return found
""",
        [(([12, 18, 30],), 6), (([],), 0)],
        [([7],), ([0, 5],), ([-4, 6],)],
        [
            crash(
                "    found = 0\n    for one in numbers:",
                "    found = numbers[0]\n    for one in numbers[1:]:",
            )
        ],
    ),
    Problem(
        "count-primes",
        "Return how many primes are smaller than n.",
        r"""
def solve(n):
    if n < 3:
        return 0
    sieve = bytearray([1]) * n
    sieve[0:2] = b'\0\0'
    for one in range(2, int(n**0.5) + 1):
        if sieve[one]:
            sieve[one * one :: one] = bytes(len(range(one * one, n, one)))
    return sum(sieve)
""",
        [((10,), 4), ((2,), 0), ((50000,), 5133)],
        [(3,), (100,), (100000,)],
        [
            slow(
                "    sieve = bytearray([1]) * n\n",
                "    return sum(all(one % other for other in range(2, one)) for one in range(2, "
                "n))\n    sieve = bytearray(n)\n",
            )
        ],
    ),
    Problem(
        "clock-angle",
        "Return the smaller angle in degrees between the hands of a clock at the given hour and "
        "minute; it may be .5.",
        """
def solve(hour, minute):
    apart = abs(30 * (hour % 12) + minute / 2 - 6 * minute)
    return min(apart, 360 - apart)
""",
        [((3, 0), 90.0), ((9, 0), 90.0)],
        [(12, 0), (6, 30), (1, 59)],
        [logic("min(apart, 360 - apart)", "apart")],
    ),
    Problem(
        "leap-years",
        "Return how many leap years lie between the years first and last, both included "
        "(Gregorian calendar).",
        """
def solve(first, last):
    upto = lambda year: year // 4 - year // 100 + year // 400
    return upto(last) - upto(first - 1)
""",
        [((1999, 2005), 2), ((1896, 1904), 2)],
        [(2000, 2000), (1600, 2000), (2001, 2003)],
        [CE, edge("upto(first - 1)", "upto(first)"), logic("- year // 100 + year // 400", "")],
    ),
    Problem(
        "to-base",
        "Return the whole number n, which is not negative, written in the given base from 2 to 16, "
        "with letters a to f.",
        """
def solve(n, base):
    signs = ''
    while n:
        n, rest = divmod(n, base)
        signs = '0123456789abcdef'[rest] + signs
    return signs or '0'
""",
        [((255, 16), "ff"), ((10, 2), "1010")],
        [(0, 2), (0, 10), (123456, 7)],
        [edge("signs or '0'", "signs")],
    ),
    Problem(
        "power-mod",
        "Return a to the power of b modulo m; b is not negative and may be very large, m "
        "is positive.",
        """
def solve(a, b, m):
    return pow(a, b, m)
""",
        [((2, 10, 1000), 24), ((3, 200000000, 7), 2)],
        [(5, 0, 1), (7, 1000000000000000000, 13), (10, 9, 6)],
        [slow("pow(a, b, m)", "a**b % m")],
    ),
    Problem(
        "perfect-squares",
        "Return the whole numbers from low to high, both included, that are squares of "
        "whole numbers.",
        """
from math import isqrt

def solve(low, high):
    first = isqrt(low - 1) + 1 if low > 0 else 0
    return [one * one for one in range(first, isqrt(high) + 1)] if high >= 0 else []
""",
        [((1, 10), [1, 4, 9]), ((5, 8), [])],
        [(0, 0), (-5, 4), (16, 16)],
        [RPE],
    ),
    Problem(
        "change-ways",
        "Return in how many ways the amount can be paid with coins of the given kinds, each as "
        "often as you like.",
        """
def solve(amount, kinds):
    ways = [1] + [0] * amount
    for kind in kinds:
        for total in range(kind, amount + 1):
            ways[total] += ways[total - kind]
    return ways[amount]
""",
        [((5, [1, 2, 5]), 4), ((3, [2]), 0)],
        [(0, [7]), (100, [1, 5, 10, 25, 50]), (10, [])],
        [MLE],
    ),
    Problem(
        "fibonacci-mod",
        "Return the n-th Fibonacci number modulo 1000; the 0th is 0 and the 1st is 1.",
        """
def solve(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, (a + b) % 1000
    return a
""",
        [((10,), 55), ((40,), 155)],
        [(0,), (1,), (5000,)],
        [
            slow(
                "    a, b = 0, 1\n",
                "    if n > 1:\n        return (solve(n - 1) + solve(n - 2)) % 1000\n"
                "    a, b = 0, 1\n",
            )
        ],
    ),
    Problem(
        "roman-number",
        "Return the Roman number for n, from 1 to 3999.",
        """
def solve(n):
    table = [(1000, 'M'), (900, 'CM'), (500, 'D'), (400, 'CD'), (100, 'C'), (90, 'XC'), (50, 'L'),
             (40, 'XL'), (10, 'X'), (9, 'IX'), (5, 'V'), (4, 'IV'), (1, 'I')]
    found = ''
    for value, signs in table:
        found += signs * (n // value)
        n %= value
    return found
""",
        [((14,), "XIV"), ((58,), "LVIII")],
        [(1994,), (3999,), (400,)],
        [logic("(9, 'IX'), (5, 'V'), (4, 'IV')", "(5, 'V')"), logic("(400, 'CD'), ", "")],
    ),
    Problem(
        "happy-number",
        "Replace n by the sum of the squares of its digits until it is 1 or repeats. Return "
        "whether it becomes 1.",
        """
def solve(n):
    seen = set()
    while n != 1 and n not in seen:
        seen.add(n)
        n = sum(int(sign) ** 2 for sign in str(n))
    return n == 1
""",
        [((19,), True), ((2,), False)],
        [(1,), (7,), (116,)],
        [slow(" and n not in seen", "")],
    ),
    Problem(
        "divisors",
        "Return all positive divisors of the positive number n in ascending order.",
        """
def solve(n):
    low = [one for one in range(1, int(n**0.5) + 1) if n % one == 0]
    high = [n // one for one in reversed(low) if one * one != n]
    return low + high
""",
        [((12,), [1, 2, 3, 4, 6, 12]), ((16,), [1, 2, 4, 8, 16])],
        [(1,), (49,), (360,)],
        [],
    ),
    Problem(
        "trailing-zeros",
        "Return with how many zeros the factorial of n ends; n is not negative.",
        """
def solve(n):
    zeros = 0
    while n:
        n //= 5
        zeros += n
    return zeros
""",
        [((10,), 2), ((4,), 0)],
        [(0,), (25,), (1000000000,)],
        [TO, logic("    while n:\n        n //= 5\n        zeros += n\n", "    zeros = n // 5\n")],
    ),
]
