"""Token for token: every form of the families, in every way to search, at three padded lengths.

What `Backend` writes against Transformers' own eager `model.generate`. The table that this run
gives stands in docs/parity.md; a test compares the two. To see it:

    python -m pytest -s tests/xla_backend/model/test_parity_matrix.py

What is special to one family or option is tested in the other `test_parity` modules.
"""

import functools
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest

from tests.oracle import formulas
from tests.xla_backend.model.parity import FORMS, PROMPT_TOKENS, WINDOW_S, Pair, SpeechPair
from xla_backend import GenerationResult

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "parity.md"
SEARCHES = {"greedy": 1, "4 beams": 4}  # 2 with penalties, and GPT-2 with others: test_parity*
ONE_OF_EACH_FAMILY = {
    ("GPT-2", "4 beams"),
    ("OPT", "greedy"),
    ("T5", "4 beams"),
    ("Whisper multilingual", "greedy"),
}
"""What all tests see; the whole matrix is for a release."""
WINDOW_FRAMES = round(100 * WINDOW_S)
MIN_DIFFERENT_TOKENS = 8  # in the three texts of a cell
LARGEST_DIFFERENCE = 1e-4
"""Of log-probabilities. Logits lie within ±40; sums in another order move them by some 1e-5."""


@dataclass(frozen=True)
class Cell:
    """What one form wrote in one way to search, the same on both sides.

    Attributes:
        results: one a padded length, or one a recording.
        difference: how far a reported log-probability is at most from the oracle's.
    """

    results: tuple[GenerationResult, ...]
    difference: float


@pytest.fixture(scope="module")
def cell(pair_of: Callable[[str], Pair]) -> Callable[[str, str], Cell]:
    """Gives the cell of a form and a search; fails if its texts are not the same."""

    @functools.cache
    def compared(form: str, search: str) -> Cell:
        pair = pair_of(form)
        results = tuple(
            pair.assert_same_text(given, num_beams=SEARCHES[search]) for given in pair.inputs
        )
        differences = map(pair.logprob_difference, pair.inputs, results)
        return Cell(results, max(differences))

    return compared


@pytest.mark.parametrize(
    ("form", "search"),
    [
        pytest.param(*each, marks=() if each in ONE_OF_EACH_FAMILY else pytest.mark.release)
        for each in itertools.product(FORMS, SEARCHES)
    ],
)
def test_both_write_the_same(cell: Callable[[str, str], Cell], form: str, search: str) -> None:
    found = cell(form, search)
    assert found.difference < LARGEST_DIFFERENCE
    lengths = [result.key.padded_length for result in found.results]
    filled = [result.prompt_tokens for result in found.results]
    if FORMS[form].kind is SpeechPair:
        assert lengths == [WINDOW_FRAMES] * 3
        assert filled[0] < filled[1] < filled[2] == WINDOW_FRAMES
        assert [len(result.windows) for result in found.results] == [1] * 3
    else:
        assert dict(zip(lengths, filled, strict=True)) == PROMPT_TOKENS
    assert {result.key.num_beams for result in found.results} == {SEARCHES[search]}
    assert len({result.text for result in found.results}) == 3, "the prompts would not matter"


@pytest.mark.release
@pytest.mark.parametrize("form", FORMS)
def test_the_texts_prove_something(cell: Callable[[str, str], Cell], form: str) -> None:
    """They wander, some end by themselves and some do not, and beams find other ones."""
    texts = {
        search: [[token.id for token in result.tokens] for result in cell(form, search).results]
        for search in SEARCHES
    }
    assert {result.finish for result in cell(form, "greedy").results} == {"eos", "length"}
    for search, written in texts.items():
        assert min(len(set(ids)) for ids in written) > 1, f"{search}: one token, again and again"
        assert len(set().union(*written)) >= MIN_DIFFERENT_TOKENS, search
    assert texts["greedy"] != texts["4 beams"]


@pytest.mark.release
def test_the_documents_table_is_what_this_run_gives(cell: Callable[[str, str], Cell]) -> None:
    cells = {form: [cell(form, search) for search in SEARCHES] for form in FORMS}
    table = as_table(cells)
    print(f"\n{table}")
    largest = max(found.difference for row in cells.values() for found in row)
    print(f"\nlargest difference of a log-probability: {largest:.1e}")
    document = DOCUMENT.read_text(encoding="utf-8")
    versions = {metadata.version(name) for name in ("tensorflow", "transformers")}
    assert versions | {formulas().version()} <= set(re.findall(r"\d+\.\d+\.\d+", document))
    documented = "\n".join(line for line in document.splitlines() if line.startswith("|"))
    assert documented == table, f"the table of {DOCUMENT.name} should be\n\n{table}\n"


def as_table(cells: dict[str, list[Cell]]) -> str:
    """Markdown: a row a form, a column a search; each cell counts the tokens of its texts."""
    lines = [
        f"| model | prompt in padded length | {' | '.join(SEARCHES)} |",
        f"| --- | --- |{' --- |' * len(SEARCHES)}",
    ]
    for form, row in cells.items():
        prompts = ", ".join(
            f"{result.prompt_tokens} of {result.key.padded_length}" for result in row[0].results
        )
        texts = (" + ".join(str(result.new_tokens) for result in found.results) for found in row)
        columns = [form, f"{prompts} {FORMS[form].kind.unit}", *(f"equal: {n}" for n in texts)]
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines)
