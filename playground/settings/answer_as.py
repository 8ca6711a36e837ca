"""What the answer is to be: a text, JSON of a schema, a call of a tool, a choice, or yes or no.

Knows the components and six schemas to begin with. Must not know what is done with an answer.
"""

import json
from collections.abc import Mapping
from typing import Any

import gradio as gr

from playground.context.draft import ANSWERS, CHOICE, JSON, TEXT, TOOLS, YES_NO, tools_in
from playground.settings.example_schema import schema_of_example
from playground.ui.components import PRESSED, QUIET, html, name_buttons, notice, small_button
from playground.ui.option_controls import OptionControls
from xla_backend import InvalidRequest
from xla_backend.interface.decisions import Question
from xla_backend.interface.tools import Tools


def _object(**properties: Any) -> dict[str, Any]:
    closed = {"required": list(properties), "additionalProperties": False}
    return {"type": "object", "properties": properties, **closed}


_SHORT = {"type": "string", "maxLength": 60}
SCHEMAS: dict[str, dict[str, Any]] = {
    "An answer": _object(answer={"type": "string", "maxLength": 200}),  # fits any question
    "A person": _object(
        name=_SHORT, age={"type": "integer", "minimum": 0, "maximum": 120}, city=_SHORT
    ),
    "An event": _object(
        title=_SHORT,
        date={"type": "string", "format": "date"},
        time={"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"},
        place=_SHORT,
    ),
    "A review": _object(
        sentiment={"enum": ["positive", "neutral", "negative"]},
        stars={"type": "integer", "minimum": 1, "maximum": 5},
        summary=_SHORT,
    ),
    "A recipe": _object(
        dish=_SHORT,
        minutes={"type": "integer", "minimum": 1, "maximum": 240},
        ingredients={"type": "array", "items": _SHORT, "minItems": 2, "maxItems": 6},
    ),
    "An order": _object(
        customer=_SHORT,
        items={
            "type": "array",
            "items": _object(article=_SHORT, number={"type": "integer", "minimum": 1}),
            "minItems": 1,
            "maxItems": 3,
        },
        is_gift={"type": "boolean"},
    ),
}


_WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city today",
    "parameters": _object(city={"type": "string"}),
}
# The schema, its buttons, the choices, the questions and the tools, each of one kind alone.
_SHOW = """(kind, schema, written) => {
  const {json, choice, yes, tools, first, example} = %s;
  const update = (of, more = {}) => ({__type__: "update", visible: kind === of, ...more});
  const value = kind === json ? schema || first : "";
  const functions = {value: written || (kind === tools ? example : "")};
  return [
    ...[update(json, {value}), update(json), update(choice), update(yes), update(json)],
    update(tools, functions),
  ];
}"""


class AnswerAs:
    """Builds the fields where it is created; that of the schema is an option's, see `connect`."""

    def __init__(self) -> None:
        """Builds them."""
        self.kind = gr.Radio(
            list(ANSWERS),
            value=TEXT,
            label="Answer as",
            info="JSON follows a schema; a tool's call does, too. Choice and Yes or no tell how "
            "likely each answer is, and write nothing.",
            elem_id="answer_as",
        )
        self._schemas = name_buttons([*SCHEMAS], "Schemas", "answer_schemas")
        self._schemas.visible = False
        # Visible with the field that it fills.
        self._from_example = small_button("Schema from the example in the field", "from_example")
        self._from_example.visible = False
        self._notice = html("", "example_notice")
        self.choices = gr.Textbox(
            "positive\nneutral\nnegative",
            label="Choices",
            info="One per line.",
            lines=3,
            max_lines=12,
            visible=False,
            elem_id="answer_choices",
        )
        self.questions = gr.Textbox(
            label="Questions about the prompt",
            info="One per line. If empty, the prompt is the question.",
            lines=3,
            max_lines=12,
            visible=False,
            elem_id="answer_questions",
        )
        self.tools = gr.Textbox(
            label="Tools",
            info="Functions that the model may call, as in OpenAI's protocol. You type in what "
            "they return.",
            lines=3,
            max_lines=12,
            visible=False,
            elem_id="answer_tools",
        )

    def connect(self, controls: OptionControls) -> None:
        """Shows the fields of the chosen kind. A form that a link or an earlier run has is JSON."""
        self._schema = controls.grammar
        self._schema.visible = False
        parts = [self._schema, self._schemas, self.choices, self.questions, self._from_example]
        parts.append(self.tools)
        texts = [json.dumps(schema, indent=2) for schema in SCHEMAS.values()]
        show = _SHOW % json.dumps(
            {
                "json": JSON,
                "choice": CHOICE,
                "yes": YES_NO,
                "tools": TOOLS,
                "first": texts[0],
                "example": json.dumps([{"type": "function", "function": _WEATHER}], indent=2),
            }
        )
        self.kind.change(None, [self.kind, self._schema, self.tools], parts, js=show, **QUIET)
        self._schema.change(
            None,
            [self.kind, self._schema],
            self.kind,
            js=f"(kind, schema) => (schema?.trim() ? '{JSON}' : kind)",
            **QUIET,
        )
        self._schemas.click(
            lambda place: texts[place], self._schemas, self._schema, js=PRESSED, **QUIET
        )

        self._from_example.click(_of_example, self._schema, [self._schema, self._notice], **QUIET)

    def questions_of(self, values: Mapping[Any, Any]) -> tuple[Question, ...]:
        """The questions that are asked about the prompt; none where it is to be answered.

        Raises:
            InvalidRequest: there is nothing to choose from, or it is too much.
        """
        kind = values[self.kind]
        if kind == CHOICE:
            if not (choices := _lines(values[self.choices])):
                raise InvalidRequest("There is nothing to choose from: write one per line.")
            return Question.all_of({CHOICE: {"type": "choice", "criteria": choices}})
        if kind == YES_NO:
            lines = _lines(values[self.questions])
            questions_of = {line: {"type": "yes_no", "instructions": line} for line in lines}
            return Question.all_of(questions_of or {YES_NO: {"type": "yes_no"}})
        return ()

    def tools_of(self, values: Mapping[Any, Any]) -> Tools | None:
        """The tools that may be called; None where none may.

        Raises:
            InvalidRequest: they cannot be read, or there is none.
        """
        if values[self.kind] != TOOLS:
            return None
        if (tools := tools_in(values[self.tools] or "")) is None:
            raise InvalidRequest("There is no tool to call: write a list of them.")
        return tools


def _of_example(text: str | None) -> tuple[Any, str]:
    try:
        return schema_of_example(text or ""), ""
    except InvalidRequest as error:
        return gr.skip(), notice(str(error))


def _lines(text: str | None) -> list[str]:
    """The distinct lines of a field; none if it was never shown."""
    return list(dict.fromkeys(filter(None, map(str.strip, (text or "").splitlines()))))
