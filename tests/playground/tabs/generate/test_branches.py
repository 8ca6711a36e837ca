"""Branches of a text, as HTML, and which texts have none."""

from dataclasses import replace

import pytest

from playground.context.runs import Shown
from playground.tabs.generate.branches import (
    BranchRun,
    TokenBranch,
    Tree,
    branch_list,
    can_branch,
    pair,
)
from tests.playground.reader import is_text
from tests.playground.samples import INJECTIONS, KEY, result
from xla_backend import GenerationOptions, InvalidRequest, Token, TopLogprob
from xla_backend.interface.grammar import Grammar

SHOWN = Shown("Once", result(options=GenerationOptions(max_new_tokens=3)))
TREE = Tree("salt", (1, 2), (TokenBranch(SHOWN, text=" there was a"),))
OTHER = TopLogprob(9, " is", -1.0)


def test_a_branch_keeps_the_tokens_before_it() -> None:
    run = BranchRun(TREE, 0, 1, OTHER, " there is")
    assert (run.prompt.ids, run.options.max_new_tokens) == ((1, 2, 0, 9), 1)
    assert (run.branch.instead, run.branch.parent) == (SHOWN.result.tokens[1], 0)
    with pytest.raises(InvalidRequest, match="leaves none"):
        BranchRun(TREE, 0, 2, OTHER, " there was the")


def test_what_only_one_function_or_form_can_write_has_no_branches() -> None:
    assert can_branch(SHOWN)
    form = GenerationOptions(grammar=Grammar.choice(["yes", "no"]))
    for changes in ({"key": replace(KEY, num_beams=4)}, {"tokens": ()}, {"options": form}):
        assert not can_branch(Shown("Once", result(**changes)))


@pytest.mark.parametrize("text", INJECTIONS)
def test_branches_stay_text(text: str) -> None:
    branch = TokenBranch(
        SHOWN, (9,), text, text * 2, 0, TopLogprob(9, text, -1.0), Token(1, text, -2.0)
    )
    tree = replace(TREE, branches=(*TREE.branches, branch), sides=(0, 1))
    assert is_text(branch_list(tree)) and is_text(pair(tree.branches[0], branch))
    assert is_text(pair(tree.branches[0], branch, text))


def test_two_branches_show_where_they_part() -> None:
    branch = TokenBranch(
        SHOWN, (9,), " there is", " there is one", 0, OTHER, SHOWN.result.tokens[1]
    )
    markup = pair(TREE.branches[0], branch)
    assert '<span class="branch-same"> there </span><strong>was a</strong>' in markup
    assert '<span class="branch-same"> there </span><strong>is one</strong>' in markup
