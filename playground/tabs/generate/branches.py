"""Branches of a text: what it becomes with another token in one place.

Knows how a branch is made, run and shown. A branch is a row of the pool: the tokens before its own
are its prompt, so the second branch of a text finds them cached.
"""

import os.path
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr
import htpy as h

from playground.context.page_context import PageContext
from playground.context.run_events import RunEvents
from playground.context.runs import Ending, Shown, TextRun
from playground.tabs.generate.prompt_fields import PromptFields
from playground.tabs.generate.token_view import percent, probability, token_view, visible
from playground.ui import components as ui
from playground.ui import quantities
from playground.ui.markup import caret, rendered
from playground.ui.outcomes import badge
from playground.ui.theme import ASSETS
from playground.ui.wording import wording_of
from xla_backend import InvalidRequest, Token
from xla_backend.interface.prompt import TokenIds, start_of_answer
from xla_backend.interface.requests import TextRequest
from xla_backend.interface.results import TopLogprob

MOST = 50
"""Branches of one text."""
_SCRIPT = """
element.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-branch]");
  if (!button) return;
  const { branch, side } = button.dataset;
  trigger("select", { branch: Number(branch), side });
});
"""


@dataclass(frozen=True)
class TokenBranch:
    """One way of a text.

    Attributes:
        shown: its run; the first branch is the text as it was written.
        kept: tokens of the answer before those of the run; the last is the branch's own.
        begun: their text. text: of the whole answer.
        parent: the number of the branch that it left; None for the first.
        token, instead: its own token, and that which its parent has there.
    """

    shown: Shown
    saved: tuple[int, ...] = ()
    opened: str = ""
    text: str = ""
    parent: int | None = None
    token: TopLogprob | None = None
    instead: Token | None = None


@dataclass(frozen=True)
class Tree:
    """All branches of a text.

    Attributes:
        salt: of all rows.
        prompt_ids: the prompt's tokens.
        sides: the numbers of the two that are shown side by side.
    """

    salt: str
    prompt_ids: tuple[int, ...]
    branches: tuple[TokenBranch, ...]
    sides: tuple[int, int] = (0, 0)


class BranchRun(TextRun):
    """A branch, while it is written."""

    def __init__(self, tree: Tree, parent: int, place: int, token: TopLogprob, opened: str) -> None:
        """`place` is that of a token of the parent's run."""
        before = tree.branches[parent]
        result = before.shown.result
        saved = (*before.saved, *(each.id for each in result.tokens[:place]), token.id)
        left = result.options.max_new_tokens - place - 1
        if left < 1:
            raise InvalidRequest("The limit of new tokens leaves none behind this one: raise it.")
        options = result.options.of_row().replace(max_new_tokens=left)
        prompt = TokenIds((*tree.prompt_ids, *saved))
        super().__init__(result.model, prompt, options, cache_salt=tree.salt)
        self.tree = tree
        self.branch = TokenBranch(
            before.shown, saved, opened, opened, parent, token, result.tokens[place]
        )

    def after(self, decode: Any) -> Tree | None:
        """The tree with this branch, chosen beside the one that it left; None if it never ran."""
        if (shown := self.shown()) is None:
            return None
        ids = [token.id for token in shown.result.tokens]
        branch = replace(self.branch, shown=shown, text=decode([*self.branch.saved, *ids]))
        assert branch.parent is not None
        branches = (*self.tree.branches, branch)
        return replace(self.tree, branches=branches, sides=(branch.parent, len(branches) - 1))


def can_branch(shown: Shown) -> bool:
    """Whether a text has branches: not with several beams, nor in the middle of a form."""
    result = shown.result
    return result.key.num_beams == 1 and result.options.grammar is None and bool(result.tokens)


class Branches:
    """Builds the card where it is created."""

    def __init__(self, page: PageContext) -> None:
        self._page = page
        self._tree = gr.State(None)
        self._requested = gr.State(None)
        with gr.Column(visible=False, elem_classes="branches", elem_id="branches") as self.card:
            self.list = ui.html("", "branch_list", js_on_load=_SCRIPT)
            self.pair = ui.html("", "branch_pair")
            self.to_request = ui.small_button("Put its beginning into the request", "branch_code")
            script = (ASSETS / "tokens.js").read_text(encoding="utf-8")
            self.tokens = ui.html("", "branch_tokens", js_on_load=script)

    def connect(
        self,
        tokens: gr.HTML,
        shown: gr.State,
        notice: gr.HTML,
        buttons: tuple[gr.Button, gr.Button],
        prompt: PromptFields,
    ) -> None:
        """Connects the card.

        Args:
            tokens, shown: of the text as it was written.
            notice: says why a branch is refused.
            buttons: those that start and stop a run.
            prompt: the fields that get a branch's beginning.
        """
        generate, stop = buttons
        events = RunEvents[BranchRun](
            self._page,
            notice,
            {generate: ""},
            stop,
            shows=[self.card, self.list, self.pair],
            shown=self._shown,
            ends=[self.tokens, self._tree],
            ended=self._ended,
        )
        chosen = [tokens.select, self.tokens.select]
        requested = gr.on(chosen, _requested_in(tokens), None, self._requested, **ui.QUIET)
        events.connect(requested.then, self._make, [self._requested, self._tree, shown])
        self.list.select(
            self._choose, self._tree, [self._tree, self.list, self.pair, self.tokens], **ui.QUIET
        )
        self.to_request.click(
            self._beginning, self._tree, [prompt.answer_start, prompt.text], **ui.QUIET
        )

    def _make(
        self, requested: Any, tree: Tree | None, shown: Shown | None
    ) -> tuple[BranchRun, ui.Updates]:
        if shown is None or not isinstance(requested, tuple):
            raise InvalidRequest("Choose a token of a text, then one of its alternatives.")
        is_first, place, rank = requested
        if tree is None or tree.branches[0].shown is not shown:
            tree = self._planted(shown)
        if len(tree.branches) > MOST:
            raise InvalidRequest(f"A text has at most {MOST} branches: write it again.")
        parent = 0 if is_first else tree.sides[1]
        before = tree.branches[parent]
        result = before.shown.result
        if not (can_branch(before.shown) and place < result.new_tokens):
            raise InvalidRequest("This text cannot go on in another way from there.")
        if rank >= len(result.tokens[place].top_logprobs):
            raise InvalidRequest("There is no such alternative.")
        token = result.tokens[place].top_logprobs[rank]
        saved = [*before.saved, *(each.id for each in result.tokens[:place]), token.id]
        return BranchRun(tree, parent, place, token, self._decode(shown, saved)), {}

    def _planted(self, shown: Shown) -> Tree:
        """A tree of the text alone."""
        result = shown.result
        requested = TextRequest(result.model, shown.prompt, result.options)
        ids = self._page.backend.prepare(requested).token_ids
        return Tree(secrets.token_hex(16), ids, (TokenBranch(shown, text=result.text),))

    def _decode(self, shown: Shown, ids: list[int]) -> str:
        return str(self._page.backend.tokenizer(shown.result.model).decode(ids))

    def _shown(self, run: BranchRun) -> ui.Updates:
        return {
            self.card: gr.update(visible=True),
            self.list: branch_list(run.tree, run.branch),
            self.pair: pair(run.tree.branches[run.branch.parent or 0], run.branch, run.text),
        }

    def _ended(self, run: BranchRun, ending: Ending) -> ui.Updates:
        shown = run.branch.shown
        tree = run.after(lambda ids: self._decode(shown, ids))
        if tree is None:
            saved = run.tree if len(run.tree.branches) > 1 else None
            return {self._tree: saved, **self._drawn(saved)}
        return {self._tree: tree, **self._drawn(tree)}

    def _drawn(self, tree: Tree | None) -> ui.Updates:
        if tree is None:
            return {self.card: gr.update(visible=False)}
        left, right = (tree.branches[number] for number in tree.sides)
        wording = wording_of(self._page.info(right.shown.result.model), is_raw=True)
        return {
            self.list: branch_list(tree),
            self.pair: pair(left, right),
            self.tokens: token_view(right.shown, wording, can_branch(right.shown)),
        }

    def _choose(self, tree: Tree | None, event: gr.EventData) -> ui.Updates:
        data = event._data if isinstance(event._data, dict) else {}
        number = data.get("branch")
        if tree is None or type(number) is not int or not 0 <= number < len(tree.branches):
            return {self._tree: gr.skip()}
        left, right = tree.sides
        sides = (number, right) if data.get("side") == "left" else (left, number)
        tree = replace(tree, sides=sides)
        return {self._tree: tree, **self._drawn(tree)}

    @property
    def parts(self) -> list[gr.blocks.Block]:
        """What `emptied` updates."""
        return [self.card, self._tree]

    def emptied(self) -> ui.Updates:
        """Another text has no branches yet."""
        return {self.card: gr.update(visible=False), self._tree: None}

    def _beginning(self, tree: Tree | None) -> Any:
        """The beginning of a branch, where the code of the request shows it."""
        if tree is None:
            return gr.skip(), gr.skip()
        branch, first = tree.branches[tree.sides[1]], tree.branches[0].shown
        if isinstance(first.prompt, str):
            return gr.skip(), first.prompt + branch.opened
        return start_of_answer(first.prompt) + branch.opened, gr.skip()


def _requested_in(first: gr.HTML) -> Any:
    """The event of a click: whether it is in the first text, the token's place, and the rank of the
    alternative; None for what no script of this page sends."""

    def requested(event: gr.EventData) -> Any:
        data = event._data if isinstance(event._data, dict) else {}
        place, rank = data.get("place"), data.get("rank")
        if type(place) is not int or type(rank) is not int or min(place, rank) < 0:
            return None
        return event.target is first, place, rank

    return requested


@rendered
def branch_list(tree: Tree, writing: TokenBranch | None = None) -> h.Node:
    """The branches as a tree, with the one that is being written."""
    branches = [*tree.branches, *([writing] if writing else [])]
    sides = (writing.parent, len(branches) - 1) if writing else tree.sides

    def below(parent: int | None) -> Iterator[h.Node]:
        for number, branch in enumerate(branches):
            if branch.parent == parent:
                nested = list(below(number))
                yield h.li[
                    h.div(".branch")[
                        h.button(
                            type="button",
                            data_branch=number,
                            data_side="right",
                            aria_pressed="true" if number == sides[1] else "false",
                        )[_title(branch)],
                        h.button(
                            type="button",
                            data_branch=number,
                            data_side="left",
                            aria_pressed="true" if number == sides[0] else "false",
                        )["Compare with"],
                    ],
                    bool(nested) and h.ul[nested],
                ]

    return h.h3["Branches of the text"], h.ul(".branch-tree")[below(None)]


def _title(branch: TokenBranch) -> h.Node:
    if branch.token is None or branch.instead is None:
        return "As it was written"
    own, other = branch.token, branch.instead
    share = percent(probability(Token(own.id, own.text, own.logprob)))
    return [
        h.bdi(translate="no")[f"“{visible(own.text)}”"],
        f" {share} instead of ",
        h.bdi(translate="no")[f"“{visible(other.text)}”"],
        f" {percent(probability(other))}, at token {len(branch.saved)}",
    ]


@rendered
def pair(left: TokenBranch, right: TokenBranch, written: str | None = None) -> h.Node:
    """Two branches side by side; `written` is the text so far of one that is being written."""
    text = right.opened + written if written is not None else right.text
    # By characters, although the name speaks of paths.
    same = len(os.path.commonprefix([left.text, text]))  # noqa: RUF071
    return h.div(".branch-pair")[
        _side(left, left.text, same, False), _side(right, text, same, written is not None)
    ]


def _side(branch: TokenBranch, text: str, same: int, is_writing: bool) -> h.Node:
    result = branch.shown.result
    figures: h.Node = None
    if not is_writing:
        figures = [
            badge(result.cache),
            f" TTFT {quantities.seconds_or_dash(result.ttft_s)}, "
            f"{quantities.rate(result.tokens_per_second)} tokens/s, "
            f"{result.cached_tokens:,} of {result.prompt_tokens:,} tokens reused",
        ]
    return h.figure[
        h.figcaption[_title(branch)],
        h.p(".branch-text", dir="auto")[
            h.span(".branch-same")[text[:same]], h.strong[text[same:]], caret(is_writing)
        ],
        h.p(".caption")[figures],
    ]
