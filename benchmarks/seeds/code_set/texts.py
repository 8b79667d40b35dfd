"""Problems about texts."""

from seeds.code_set.problem import CE, MLE, RE, RPE, TLE, TO, Problem, crash, edge, logic

TEXTS = [
    Problem(
        "palindrome",
        "Return whether the text reads the same backwards; only letters and digits count, and "
        "case does not.",
        """
def solve(text):
    signs = [sign.lower() for sign in text if sign.isalnum()]
    return signs == signs[::-1]
""",
        [(("Was it a cat I saw?",), True), (("abc",), False)],
        [("",), ("No 'x' in Nixon",), ("0P",)],
        [CE, RE, logic(" if sign.isalnum()", "")],
    ),
    Problem(
        "word-count",
        "Return how many words the text has; words are parted by any white space.",
        """
def solve(text):
    return len(text.split())
""",
        [(("one two  three",), 3)],
        [("",), ("  ",), ("a\tb\nc",)],
        [],
    ),
    Problem(
        "caesar",
        "Return the text with each letter from a to z and A to Z moved k places in its alphabet; "
        "all else stays.",
        """
def solve(text, k):
    found = ''
    for sign in text:
        if sign.isascii() and sign.isalpha():
            first = ord('a') if sign.islower() else ord('A')
            sign = chr((ord(sign) - first + k) % 26 + first)
        found += sign
    return found
""",
        [(("abz", 1), "bca"), (("Hi!", 13), "Uv!")],
        [("", 5), ("xyz", -3), ("Zebra", 52)],
        [RPE, CE, logic("ord('a') if sign.islower() else ord('A')", "ord('a')")],
    ),
    Problem(
        "run-length",
        "Return the text with each run of equal signs written as the sign and its length, "
        "such as a3b1.",
        """
def solve(text):
    from itertools import groupby
    return ''.join(f'{sign}{len(list(run))}' for sign, run in groupby(text))
""",
        [(("aaab",), "a3b1"), (("z",), "z1")],
        [("",), ("aabbaa",), ("xxxxxxxxxxxx",)],
        [],
    ),
    Problem(
        "anagrams",
        "Return the words in groups of anagrams; groups and words stay in the order of their "
        "first appearance.",
        """
def solve(words):
    groups = {}
    for word in words:
        groups.setdefault(''.join(sorted(word)), []).append(word)
    return list(groups.values())
""",
        [((["eat", "tan", "tea"],), [["eat", "tea"], ["tan"]])],
        [([],), ([""],), (["ab", "ba", "abc"],)],
        [RPE],
    ),
    Problem(
        "brackets",
        "Return whether the brackets ()[]{} in the text are closed in the right order; other "
        "signs do not count.",
        """
def solve(text):
    pairs, open_ones = {')': '(', ']': '[', '}': '{'}, []
    for sign in text:
        if sign in '([{':
            open_ones.append(sign)
        elif sign in pairs:
            if not open_ones or open_ones.pop() != pairs[sign]:
                return False
    return not open_ones
""",
        [(("a(b[c])",), True), (("(]",), False)],
        [("",), (")",), ("((",)],
        [crash("not open_ones or ", ""), edge("return not open_ones", "return True")],
    ),
    Problem(
        "title-case",
        "Return the text with the first letter of each word large and the others small; words are "
        "parted by one space.",
        """
def solve(text):
    return ' '.join(word[:1].upper() + word[1:].lower() for word in text.split(' '))
""",
        [(("the QUICK fox",), "The Quick Fox")],
        [("",), ("a  b",), ("don't stop",)],
        [CE, crash("word[:1].upper()", "word[0].upper()")],
    ),
    Problem(
        "longest-word",
        "Return the longest word of the text, of equal ones the first; '' for a text "
        "without words.",
        """
def solve(text):
    return max(text.split(), key=len, default='')
""",
        [(("a quick fox",), "quick"), (("to be or",), "to")],
        [("",), ("aa bb",), ("x  yyy z",)],
        [crash(", default=''", "")],
    ),
    Problem(
        "edit-distance",
        "Return the least number of single signs to insert, delete or replace that turns one text "
        "into the other.",
        """
def solve(one, other):
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]
""",
        [(("kitten", "sitting"), 3), (("", "ab"), 2)],
        [("", ""), ("abc", "abc"), ("intention", "execution")],
        [MLE, logic("before + (a != b)", "before + 1")],
    ),
    Problem(
        "first-unique",
        "Return the index of the first sign that stands once in the text, -1 where none does.",
        """
def solve(text):
    for at, sign in enumerate(text):
        if text.count(sign) == 1:
            return at
    return -1
""",
        [(("level",), 2), (("aabb",), -1)],
        [("",), ("z",), ("aab",)],
        [],
    ),
    Problem(
        "vowels",
        "Return how often each of the vowels a, e, i, o, u stands in the text, without case, as a "
        "list of five numbers.",
        """
def solve(text):
    small = text.lower()
    return [small.count(sign) for sign in 'aeiou']
""",
        [(("Education",), [1, 1, 1, 1, 1])],
        [("",), ("XYZ",), ("AaEe",)],
        [],
    ),
    Problem(
        "common-prefix",
        "Return the longest text with which all words begin; '' for no words.",
        """
def solve(words):
    if not words:
        return ''
    first, last = min(words), max(words)
    for at, sign in enumerate(first):
        if sign != last[at]:
            return first[:at]
    return first
""",
        [((["flower", "flow", "flight"],), "fl"), ((["dog", "car"],), "")],
        [([],), (["a"],), (["ab", "abc"],)],
        [TLE, crash("    if not words:\n        return ''\n", "")],
    ),
    Problem(
        "word-wrap",
        "Return the lines of the text, filled word by word up to the given width; a longer word "
        "has a line of its own.",
        """
def solve(text, width):
    lines = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += ' ' + word
        else:
            lines.append(word)
    return lines
""",
        [(("the quick brown fox", 9), ["the quick", "brown fox"])],
        [("", 5), ("abcdefgh ij", 4), ("a b c", 3)],
        [CE, RE, logic("+ 1 + len(word)", "+ len(word)")],
    ),
    Problem(
        "decode-runs",
        "The text has signs, each followed by a number from 1 on, such as a3b12. Return the text "
        "that it stands for.",
        r"""
def solve(text):
    import re
    return ''.join(sign * int(count) for sign, count in re.findall(r'(\D)(\d+)', text))
""",
        [(("a3b1",), "aaab"), (("x12",), "xxxxxxxxxxxx")],
        [("",), ("z1",), ("a10b2",)],
        [],
    ),
    Problem(
        "is-rotation",
        "Return whether one text is a rotation of the other.",
        """
def solve(one, other):
    return len(one) == len(other) and other in one + one
""",
        [(("abcd", "cdab"), True), (("abc", "acb"), False)],
        [("", ""), ("aa", "a"), ("ab", "abab")],
        [TO, edge("len(one) == len(other) and ", "")],
    ),
]
