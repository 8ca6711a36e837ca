"""`demo.ipynb`: run from top to bottom in a kernel of its own, as Jupyter does it.

Knows the notebook's cells by their ids and its variables by their names. Must not know how the
engine works: what the notebook claims is checked on the values that it has in the end.
"""

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "demo.ipynb"
LARGEST_NOTEBOOK = 300 * 1024  # bytes
CELL_WITHIN_S = 500  # far above the slowest, whoever else uses the machine

FACTS = """
import json
import transformers
print(json.dumps({
    "keras": [t.numpy().tolist() for t in (eager_output, graph_output, xla_output)],
    "jit": [call.cache.value for call in jit_calls],
    "jit_difference": jit_difference,
    "plain_s": [plain_s[prompt] for prompt in PROMPTS],
    "padded_s": [padded_s[prompt] for prompt in PROMPTS],
    "by_guide": [guide_tokens[prompt] for prompt in PROMPTS],
    "by_engine": [engine_tokens[prompt] for prompt in PROMPTS],
    "outcomes": {
        name: value.cache.value
        for name, value in globals().items()
        if hasattr(value, "cache") and hasattr(value, "timing")
    },
    "predicted": prediction.outcome.value,
    "restored": [token.id for token in restored.tokens],
    "streamed": stream.result.text,
    "longer": longer.text,
    "beams": [beams_first.text, beams_again.text],
    "t5": [answer.text, eager_answer, summary.text],
    "said": [said_in[file] for file in heard],
    "heard": [transcription.text for transcription in heard.values()],
    "page": f"http://127.0.0.1:{port}",
    "transformers": transformers.__version__,
}))
"""


@dataclass
class Ran:
    """The notebook after its last cell, while its kernel is alive."""

    notebook: Any
    facts: dict[str, Any]  # values of its variables
    page: tuple[int, str]  # what the page that it serves answered: status and HTML

    def printed(self, cell_id: str) -> str:
        """What one cell wrote."""
        cell = next(cell for cell in self.notebook.cells if cell.id == cell_id)
        return "".join(output.get("text", "") for output in cell.outputs)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    place = tmp_path_factory.mktemp("notebook")
    client = NotebookClient(
        notebook,
        timeout=CELL_WITHIN_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(place)}},
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(place)}
    with client.setup_kernel(env=environment):
        for index, cell in enumerate(notebook.cells):
            client.execute_cell(cell, index)
        notebook.cells.append(nbformat.v4.new_code_cell(FACTS))
        client.execute_cell(notebook.cells[-1], len(notebook.cells) - 1)
        facts = json.loads(notebook.cells.pop().outputs[0].text)
        with urllib.request.urlopen(facts["page"]) as answer:
            page = (answer.status, answer.read().decode())
        yield Ran(notebook, facts, page)


def test_the_three_ways_to_call_keras_give_the_same(ran: Ran) -> None:
    eager, graph, xla = ran.facts["keras"]
    for row, other, compiled in zip(eager, graph, xla, strict=True):
        assert row == pytest.approx(other, abs=1e-5)
        assert row == pytest.approx(compiled, abs=1e-5)
    assert ran.facts["jit"] == ["miss", "hit", "miss"]
    assert ran.facts["jit_difference"] < 1e-5


def test_each_length_is_traced_anew_unless_it_is_padded(ran: Ran) -> None:
    for first_s, again_s in ran.facts["plain_s"]:
        assert again_s < first_s / 5
    first_s, other_length_s = ran.facts["padded_s"]
    assert other_length_s < first_s / 5


def test_both_ways_write_the_same_tokens(ran: Ran) -> None:
    assert ran.facts["by_engine"] == ran.facts["by_guide"]
    assert all(ran.facts["by_guide"])
    assert ran.facts["restored"] == ran.facts["by_guide"][0]
    assert ran.facts["streamed"] == ran.facts["longer"]
    assert "the same tokens as the guide's function: True" in ran.printed("backend")


def test_calls_meet_what_the_text_says(ran: Ran) -> None:
    expected = {
        "first": "miss",
        "again": "hit",
        "longer": "hit",
        "reused": "reused",
        "drawn": "hit",
        "beams_first": "miss",
        "beams_again": "hit",
        "restored": "disk",
        "summary": "miss",
        "answer": "hit",
    }
    outcomes = ran.facts["outcomes"]
    assert {name: outcomes[name] for name in expected} == expected
    assert ran.facts["predicted"] == "reused"
    assert all(ran.facts["beams"])


def test_t5_answers_like_transformers_and_whisper_hears_what_was_said(ran: Ran) -> None:
    answer, eager_answer, summary = ran.facts["t5"]
    assert answer == eager_answer != ""
    assert summary
    assert ran.facts["heard"] == ran.facts["said"]
    assert len(ran.facts["said"]) == 3


def test_the_guide_s_code_runs_with_the_last_transformers_that_has_its_models(ran: Ran) -> None:
    assert ran.facts["transformers"].startswith("4.57.")


def test_the_notebook_ends_with_the_page(ran: Ran) -> None:
    status, html = ran.page
    assert status == 200
    assert "XLA Playground" in html
    cell = next(cell for cell in ran.notebook.cells if cell.id == "page")
    assert ran.notebook.cells[-1] is cell
    shown = "".join(output.get("data", {}).get("text/html", "") for output in cell.outputs)
    assert f'src="{ran.facts["page"]}"' in shown
    assert ran.facts["page"] in ran.printed("page")


def test_nothing_is_written_but_what_the_cells_print(ran: Ran) -> None:
    noise = [
        output.text
        for cell in ran.notebook.cells
        for output in cell.get("outputs", ())
        if output.get("name") == "stderr"
    ]
    assert noise == []


def test_the_committed_notebook_was_run_and_is_small() -> None:
    assert NOTEBOOK.stat().st_size < LARGEST_NOTEBOOK
    cells = [cell for cell in nbformat.read(NOTEBOOK, 4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {output.output_type for cell in cells for output in cell.outputs}
    assert kinds == {"stream", "display_data"}  # what was printed, and the recording's player
    assert "application/vnd.jupyter.widget" not in NOTEBOOK.read_text(encoding="utf-8")


def source_of(cell_id: str) -> str:
    """The code of a cell of the committed notebook."""
    cells = nbformat.read(NOTEBOOK, 4).cells
    return next(cell.source for cell in cells if cell.id == cell_id)


def run_setup(folder: Path, repository: str) -> subprocess.CompletedProcess[str]:
    """Runs the setup where the project is not, as on Colab, and then imports the project."""
    first = re.sub(r'^REPOSITORY = ""', f"REPOSITORY = {repository!r}", source_of("repository"))
    code = f"{first}\n{source_of('setup')}\nimport xla_backend\nprint(xla_backend.__file__)\n"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_where_the_project_is_not_the_setup_fetches_it(tmp_path: Path) -> None:
    repository, elsewhere = tmp_path / "repository", tmp_path / "elsewhere"
    (repository / "xla_backend").mkdir(parents=True)
    (repository / "xla_backend" / "__init__.py").touch()
    asked = "import pathlib, sys\npathlib.Path('asked').write_text(' '.join(sys.argv[1:]))\n"
    (repository / "xla_backend" / "__main__.py").write_text(asked)
    # What is installed already, so that pip has nothing to fetch.
    (repository / "requirements.txt").write_text(f"numpy=={version('numpy')}\n")
    elsewhere.mkdir()
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *command], check=True)
    found = str(elsewhere / "xla-playground" / "xla_backend" / "__init__.py")
    assert run_setup(elsewhere, str(repository)).stdout.strip() == found
    assert (elsewhere / "xla-playground" / "asked").read_text() == "baseline"
    # After Colab's restart of the session: it is there, and not fetched again.
    assert run_setup(elsewhere, "").stdout.strip() == found


def test_where_the_project_is_not_and_no_address_is_given_the_setup_says_so(tmp_path: Path) -> None:
    done = run_setup(tmp_path, "")
    assert done.returncode == 1
    assert done.stderr.startswith("xla_backend is not here. Write into REPOSITORY")
    assert "Traceback" not in done.stderr
