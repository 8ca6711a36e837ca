"""An option is a field in one table: what is added there is found wherever options can be given."""

import json

import pytest

from tests.program import ROOT, python
from xla_backend.interface.options import DEFAULT_OPTIONS, OPTIONS

ADDED = """
import json
from importlib.machinery import SourceFileLoader

SAID = 'label="Wobble", low=0, high=9, slider=(0, 9, 1)'
LINE = f'    wobble: int = _option(3, "how much it wobbles", {SAID})'
BEFORE = "    stop: tuple[str, ...] = _option("
as_it_is = SourceFileLoader.get_code

def with_the_line(self, name):
    if name != "xla_backend.interface.options":
        return as_it_is(self, name)
    source = self.get_source(name)
    assert BEFORE in source
    source = source.replace(BEFORE, f"{LINE}\\n{BEFORE}")
    return self.source_to_code(source.encode(), self.get_filename(name))

SourceFileLoader.get_code = with_the_line

import gradio as gr
from playground.api.endpoints import REQUEST
from playground.context import draft
from playground.ui.option_controls import OptionControls, options_from, values_for
from xla_backend import GenerationOptions
from xla_backend import __main__ as command_line
from xla_backend.openai_api.requests import CompletionRequest

with gr.Blocks():
    controls = OptionControls(GenerationOptions())
request = CompletionRequest.model_validate({"model": "m", "prompt": "p", "wobble": 5})
asked = command_line._parser().parse_args(["generate", "--wobble", "6", "p"])
try:
    GenerationOptions(wobble=10)
except Exception as error:
    refused = str(error)
print(json.dumps({
    "refused": refused,
    "endpoint": REQUEST["wobble"],
    "control": [(c.label, c.value, c.maximum) for c in controls.inputs if c.elem_id == "wobble"],
    "round trip": options_from(tuple(values_for(GenerationOptions(wobble=4)))).wobble,
    "v1": request.runs(16)[0][1].wobble,
    "command line": command_line._options(asked).wobble,
    "link": "wobble" in draft.SETTINGS,
    "record": GenerationOptions(wobble=8).to_dict()["wobble"],
}))
"""


def test_an_option_that_is_added_is_found_everywhere() -> None:
    assert json.loads(python(ADDED)) == {
        "refused": "wobble must be from 0 to 9, not 10.",
        "endpoint": "How much it wobbles. From 0 to 9.",
        "control": [["Wobble", 3, 9]],
        "round trip": 4,
        "v1": 5,
        "command line": 6,
        "link": True,
        "record": 8,
    }


@pytest.mark.parametrize("name", OPTIONS)
def test_the_docs_say_what_the_table_says(name: str) -> None:
    option, default = OPTIONS[name], DEFAULT_OPTIONS.to_dict()[name]
    shown = f"{default:g}" if option.range else json.dumps(default) if default is False else "none"
    row = f"| `{name}` | {option.range or '–'} | {shown} | {option.help} |"
    assert row in (ROOT / "docs/options.md").read_text("utf-8").splitlines()
