"""Rules as text: what llama.cpp's notation allows can be written; what cannot be kept says so."""

import pytest

from tests.xla_backend.grammar.vocabularies import KINDS, refused_at, vocabulary
from xla_backend import Grammar, InvalidRequest
from xla_backend.grammar import gbnf, grammars
from xla_backend.grammar.step_by_step import StepByStep

CASES: dict[str, tuple[str, list[str], list[str]]] = {
    "a literal repeated as one": (
        'root ::= "ab"{2,3}',
        ["abab", "ababab"],
        ["ab", "abb", "abab" * 2],
    ),
    "counts": ('root ::= "a"{2} "b"{,2} "c"{1,}', ["aac", "aabbccc"], ["ac", "aabbbc", "aab"]),
    "sets and ranges": (
        r"root ::= [a-c\-\]]+ [^a-z\n] .",
        ["b-]1x", "a\U0001f98a\n"],
        ["b1", "d1x"],
    ),
    "escapes": (r'root ::= "\x41\u00e9\U0001F98A\t\"\\"', ['Aé\U0001f98a\t"\\'], ["A", "x41"]),
    "signs are no operators in texts": (
        'root ::= "(a|b)*." [.*|]',
        ["(a|b)*.*"],
        ["a.*", "(a|b)*.x"],
    ),
    "rules, groups, comments and line breaks": (
        """
        # a list of numbers
        root ::= "[" (number ("," space number)* |
                      "none") "]"
        number ::= "-"? digit+  # with a sign
        digit ::= [0-9]
        space ::= " " |
        """,
        ["[1]", "[-12, 3,4]", "[none]"],
        ["[]", "[1,]", "[none, 1]"],
    ),
    "a rule that repeats itself at its end": (
        'root ::= word rest\nrest ::= ("," word rest)?\nword ::= [a-z] word | [a-z]',
        ["a", "ab,c", "a,b,c"],
        ["", "a,", ",a"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_the_rules_allow_can_be_written_and_no_other(case: str) -> None:
    rules, allowed, refused = CASES[case]
    made = StepByStep.of(gbnf.rules(rules), vocabulary(KINDS[1]))
    assert [refused_at(made, KINDS[1], text) for text in allowed] == [None] * len(allowed)
    assert None not in [refused_at(made, KINDS[1], text) for text in refused]


RECURSIVE = {
    'root ::= "(" root ")" | word\nword ::= [^()é]+ "é"?': ("((a b))", "xé", "((a)", "é"),
    # A space could take the line's end, a word the end of all.
    'root ::= Sum "end" "\\n"\nSum ::= "(" Sum ")" sp | ("a" | "ab") [a-z]+ sp\nsp ::= [ \\n]*': (
        "(abend \n) end\n",
        "abend\n",
        "(abend)\n",
        "aend\n",
    ),
}


@pytest.mark.parametrize("rules", RECURSIVE)
def test_recursion_is_followed_step_by_step(rules: str) -> None:
    made = grammars.Grammars(lambda: vocabulary(KINDS[1])).get(Grammar.gbnf(rules)).result()
    is_refused = [refused_at(made, KINDS[1], text) is not None for text in RECURSIVE[rules]]
    assert is_refused == [False, False, True, True]


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ('root ::= "a" b', "no rule 'b'"),
        ('list ::= "a"', "no rule 'root'"),
        ('"a"', "consists of rules"),
        ("root ::= <think> .*", "line 1, at '<think>"),
        ('root ::= "a"\n  "b', "line 2, at '\"b'"),
        ("root ::= [z-a]", "a range that is empty: z-a"),
        ('root ::= ("a"', "a group that is not closed"),
        ('root ::= * "a"', "nothing before '*'"),
        ('root ::= "a"{2,1}', "whose first number is larger"),
        ("root ::= " + "(" * 5000 + '"a"' + ")" * 5000, "nested too deeply"),
    ],
    ids=lambda text: text[:24],
)
def test_what_cannot_be_followed_is_refused_by_its_place(rules: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says.replace("(", r"\(").replace("*", r"\*")):
        grammars.check(Grammar.gbnf(rules))
