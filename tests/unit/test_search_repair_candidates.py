"""What the search proposes: for each class of fault the right text is among the first candidates, edits are exact."""

from __future__ import annotations

import ast
from itertools import islice
from textwrap import dedent

import pytest

from graph.models.search_repair.candidates import Candidate, Edit, Suspicion, candidates, edits_between, pairs
from graph.models.search_repair.ranking import trust
from graph.models.search_repair.source import Source
from graph.models.search_repair.templates import TEMPLATES, Failure


def proposals(
    text: str, *, errors: tuple[str, ...] = (), messages: tuple[str, ...] = (), most: int = 1500
) -> list[Candidate]:
    source = Source("code.py", text)
    lines = [Suspicion("code.py", number, 1.0) for number in range(1, text.count("\n") + 2)]
    failure = Failure(errors=frozenset(errors), messages=messages)
    return list(islice(candidates({"code.py": source}, lines, failure), most))


def applied(text: str, edits: tuple[Edit, ...]) -> str:
    for edit in sorted(edits, key=lambda each: -each.line):
        start = sum(len(line) for line in text.splitlines(keepends=True)[: edit.line - 1])
        assert text.startswith(edit.old, start)
        text = text[:start] + edit.new + text[start + len(edit.old) :]
    return text


FAULTS = [
    ("a bound off by one", "def last(xs):\n    return xs[len(xs)]\n", "xs[len(xs) - 1]", ("IndexError",)),
    ("wrong comparison", "def adult(age):\n    return age > 18\n", "age >= 18", ()),
    ("wrong operator", "def area(w, h):\n    return w + h\n", "w * h", ()),
    ("wrong variable", "def area(w, h):\n    return w * w\n", "w * h", ()),
    ("swapped arguments", "def power(b, e):\n    return pow(e, b)\n", "pow(b, e)", ()),
    ("swapped operands", "def ratio(part, whole):\n    return whole / part\n", "part / whole", ()),
    ("wrong start", "def product(xs):\n    p = 0\n    for x in xs:\n        p *= x\n    return p\n", "p = 1", ()),
    ("a step too little", "def sumto(n):\n    return sum(range(n))\n", "range(n + 1)", ()),
    ("any for all", "def clean(xs):\n    return any(x > 0 for x in xs)\n", "all(x > 0", ()),
    (
        "append for extend",
        "def join(a, b):\n    r = []\n    r.append(a)\n    r.extend(b)\n    return r\n",
        "r.extend(a)",
        (),
    ),
    ("a missing sort", "def median(xs):\n    ys = list(xs)\n    return ys[len(ys) // 2]\n", "sorted(list(xs))", ()),
    ("a missing abs", "def distance(a, b):\n    return a - b\n", "abs(a - b)", ()),
    ("a call too many", "def walk(x):\n    return str(list(x))\n", "return list(x)", ()),
    ("and for or", "def outside(x):\n    return x < 0 and x > 9\n", "x < 0 or x > 9", ()),
    ("a negation", "def pick(x, ok):\n    if ok:\n        return None\n    return x\n", "if not ok", ()),
    (
        "an empty case",
        "def mean(xs):\n    return sum(xs) / len(xs)\n",
        "if not xs:\n        return 0",
        ("ZeroDivisionError",),
    ),
    (
        "nothing there",
        "def size(node):\n    return 1 + size(node.next)\n",
        "if node is None:\n        return 0",
        ("AttributeError",),
    ),
    ("a missing key", "def count(d, k):\n    return d[k] + 1\n", "d.get(k, 0)", ("KeyError",)),
    ("a shared default", "def put(x, box=[]):\n    box.append(x)\n    return box\n", "box=None", ()),
    ("a forgotten return", "def double(x):\n    x * 2\n", "return x * 2", ()),
    (
        "a return in the loop",
        "def total(xs):\n    s = 0\n    for x in xs:\n        s += x\n        return s\n",
        "        s += x\n    return s",
        (),
    ),
    (
        "a forgotten step",
        "def count(n):\n    i = 0\n    while i < n:\n        print(i)\n    return i\n",
        "i += 1",
        ("Timeout",),
    ),
    ("one row many times", "def grid(n):\n    g = [[0] * n] * n\n    return g\n", "[[0] * n for _ in range(n)]", ()),
    ("pairs from nowhere", "def flip(d):\n    return {v: k for k, v in d}\n", "in d.items()", ("ValueError",)),
    ("sort gives None", "def top(xs):\n    xs = xs.sort()\n    return xs\n", "    xs.sort()", ("TypeError",)),
    ("is for ==", "def big(x):\n    return x is 1000\n", "x == 1000", ()),
    ("the wrong side of a slice", "def tail(xs, n):\n    return xs[:n]\n", "xs[n:]", ()),
    ("old values", "def fib(a, b):\n    a = b\n    b = a + b\n    return a, b\n", "a, b = b, a + b", ()),
    (
        "break for continue",
        "def odd(xs, r):\n    for x in xs:\n        if x % 2 == 0:\n            break\n        r.append(x)\n",
        "continue",
        (),
    ),
    (
        "the wrong attribute",
        "class P:\n    def __init__(self, x, y):\n        self.x, self.y = x, y\n    def up(self): return self.x",
        "return self.y",
        (),
    ),
    (
        "a broken chain",
        "def sign(x):\n    if x < 0:\n        r = -1\n    if x == 0:\n        r = 0\n    else:\n        r = 1",
        "elif x == 0",
        (),
    ),
    (
        "a part of the loop unused",
        "def total(lines):\n    return sum(price for _, price, count in lines)\n",
        "price * count",
        (),
    ),
    ("a wrong default", "def cut(text, most=11):\n    return text[:most]\n", "most=10", ()),
    ("swapped indices", "def cell(g, x, y):\n    return g[x][y]\n", "g[y][x]", ()),
]


@pytest.mark.parametrize(("fault", "text", "wanted", "errors"), FAULTS, ids=[each[0] for each in FAULTS])
def test_the_fix_of_each_class_of_fault_is_among_the_first_candidates(
    fault: str, text: str, wanted: str, errors: tuple[str, ...]
) -> None:
    """Every class of fault that the search claims to know has its fix within 400 candidates."""
    found = [number for number, each in enumerate(proposals(text, errors=errors)) if wanted in each.text]
    assert found, f"{fault}: never proposed"
    assert found[0] < 400, f"{fault}: only at place {found[0]}"


def test_what_the_message_says_of_a_constant_or_of_none_comes_first() -> None:
    """The value that the test waits for, and a guard for what was None, are among the first candidates."""
    port = "def port(tls_port=456):\n    return tls_port\n"
    told = ("assert 456 == 465 + where 456 = port()",)
    assert any("tls_port=465" in each.text for each in proposals(port, messages=told)[:30])
    mail = "def domain(person):\n    return person.email.split('@')[1]\n"
    told = ("'NoneType' object has no attribute 'split'",)
    found = proposals(mail, errors=("AttributeError",), messages=told)[:30]
    assert any("    if person.email is None:\n        return None\n" in each.text for each in found)


@pytest.mark.parametrize(
    "message", ["assert 007 == 456", "assert '\\x' == 456", "assert '\x00' == 'a'", f"assert {'9' * 5000} == 1"]
)
def test_a_message_that_is_no_python_is_left_out(message: str) -> None:
    """Messages are the tests' own text: nothing is assumed of them."""
    assert proposals("def f():\n    return 456\n", messages=(message,))


def test_an_insertion_that_changes_what_was_given_ranks_far_below_a_changed_expression() -> None:
    """Both pass; one gives the right sum, the other keeps wrong prices."""
    text = dedent(
        """\
        class Basket:
            def add(self, price, count):
                self.lines.append((price, count))

            def total(self):
                return sum(price for price, count in self.lines)
        """
    )
    append = "        self.lines.append((price, count))\n"
    found = {each.text: each for each in proposals(text)}
    right = found[text.replace("sum(price for", "sum(price * count for")]
    inserted = (append.replace("count", "price"), append.replace("price", "count"))
    wrong = [found[text.replace(append, each + append)] for each in inserted]
    source = Source("code.py", text)
    assert all(trust(each, source) < trust(right, source) / 4 for each in wrong)


def test_names_that_do_not_exist_are_corrected() -> None:
    """A misspelt name, a forgotten `self.`, a forgotten import: the message says which name is meant."""
    messages = ("name 'widht' is not defined",)
    assert any(
        "width * 2" in each.text
        for each in proposals("def f(width):\n    return widht * 2\n", errors=("NameError",), messages=messages)[:30]
    )
    messages = ("name 'math' is not defined",)
    assert any(
        each.text.startswith("import math\n")
        for each in proposals("def f(x):\n    return math.sqrt(x)\n", errors=("NameError",), messages=messages)[:30]
    )


SAMPLE = dedent(
    '''
    """A module."""
    LIMIT = 10  # a comment that must stay


    def collect(items, größe=3):
        """Collect."""
        found = []  # ünïcode before code: été
        for index, item in enumerate(items):
            if item is None: continue
            if (index <  größe   # odd spacing
                    and item not in found):
                found.append(item)
        else:
            found = found[1:]; size = len(found)
        return found, {"a": [x for x in items if x]}


    class Thing:
        limit = LIMIT

        def price(self, amount, rate=1.0):
            total = amount * self.limit - rate
            return round(total, 2) if total > 0 else 0'''
)


@pytest.mark.parametrize(
    "text",
    [SAMPLE, SAMPLE + "\n", SAMPLE.replace("\n", "\r\n") + "\r\n", SAMPLE.replace("    ", "\t")],
    ids=["no final newline", "plain", "CRLF", "tabs"],
)
def test_edits_are_exact_and_give_valid_code_once_each(text: str) -> None:
    """Each candidate's edits lead from the file to its text; it parses, and no two mean the same."""
    seen = {ast.dump(ast.parse(text))}
    every = proposals(text, most=4000)
    assert len(every) > 500
    for each in every:
        assert applied(text, each.edits) == each.text
        meaning = ast.dump(ast.parse(each.text))
        assert meaning not in seen, each
        seen.add(meaning)


def test_comments_are_kept() -> None:
    """A change inside a line leaves the comments of the file where they are, except with a whole statement."""
    whole = {"delete_statement", "move_out", "move_in", "without_condition", "only_if", "at_once", "swap_statements"}
    for each in proposals(SAMPLE, most=4000):
        if each.template not in whole and "odd spacing" not in "".join(edit.old for edit in each.edits):
            assert each.text.count("a comment that must stay") == 1, each.edits


def test_the_stream_is_the_same_each_time() -> None:
    """Nothing is left to chance: a resumed run meets the same candidates in the same order."""
    assert [each.edits for each in proposals(SAMPLE)] == [each.edits for each in proposals(SAMPLE)]


def test_only_suspicious_lines_are_changed() -> None:
    """A function that no failing test runs stays as it is."""
    text = "def good(x):\n    return x + 1\n\n\ndef bad(x):\n    return x + 1\n"
    found = candidates({"code.py": Source("code.py", text)}, [Suspicion("code.py", 6, 1.0)], Failure())
    assert all("def good(x):\n    return x + 1\n" in each.text for each in found)


def test_pairs_change_two_places_of_the_original() -> None:
    """A pair's edits are against the file as it is, also where the first edit has moved lines."""
    text = "def f(a, b):\n    c = a - b\n    d = c - 1\n    return d\n"
    source = {"code.py": Source("code.py", text)}
    lines = [Suspicion("code.py", number, 1.0) for number in (2, 3, 4)]
    base = next(each for each in candidates(source, lines, Failure()) if "a + b" in each.text)
    second = list(islice(pairs(base, source, lines, Failure()), 300))
    assert any("a + b" in each.text and "c + 1" in each.text for each in second)
    for each in second:
        assert applied(text, each.edits) == each.text


def test_edits_between_hold_on_to_a_line() -> None:
    """Inserted and deleted lines come with a neighbour, so that the old text is never empty."""
    for old, new in [
        ("a\nb\n", "a\nx\nb\n"),
        ("a\nb\n", "b\n"),
        ("a\nb", "a\nb\nc"),
        ("a\nb\n", "a\n"),
        ("a\n", "x\na\ny\n"),
    ]:
        edits = edits_between("p", old, new)
        assert all(edit.old for edit in edits)
        assert applied(old, edits) == new


def test_templates_have_names_of_their_own() -> None:
    """A report names the template; there are at least 45 in at least 15 families."""
    assert len({each.name for each in TEMPLATES}) == len(TEMPLATES) >= 45
    assert len({each.family for each in TEMPLATES}) >= 15
