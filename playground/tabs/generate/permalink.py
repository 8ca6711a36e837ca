"""Links that carry a request: every setting of the Playground tab as a query string.

Knows the names in a link, reads them with suspicion, and has the script that makes one. Must not
know where components lie, nor run anything.

On Spaces the page runs in a frame. Hugging Face passes the query of the outer page to it. Links are
made from the frame's own address, so they open the page without the frame.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from playground.ui.components import notice
from playground.ui.markup import clean, quoted
from playground.ui.option_controls import EARLY_STOPPING, NAMES, grammar_from, stops_from
from xla_backend import GenerationOptions, InvalidRequest

CHAT, SIDES = "chat", "side_by_side"
"""The modes with links of their own: what else these say is not for the Playground."""
AT = ("left", "right")
"""What the settings of a side are named after, with a dot: `left.model`."""
LONGEST = 8000
"""Longest link, in characters, that every server and proxy accepts."""
_WHOLE_NUMBERS = ("max_new_tokens", "num_beams", "top_k", "seed", "prompt_lookup_num_tokens")
_SWITCHES = {"1": True, "true": True, "0": False, "false": False}
SETTINGS = ("model", "prompt", "system", "raw", "exact_key", *NAMES, "run")
"""The names of all that a link can set."""
# Gradio, Hugging Face and the page itself add these.
_OF_OTHERS = re.compile(r"_|utm_|(view|deep_link|session_hash|logs|embed|theme|tab|present)$")
_COPIED = {
    "true": "Link copied. It opens the page with these settings and runs them.",
    "false": "Link copied. It opens the page with these settings.",
}


@dataclass(frozen=True)
class Link:
    """What a link asks for, as far as this page can do it.

    Attributes:
        model, prompt, system, raw, exact_key: None where the link does not say.
        options: those that it names.
        run: whether to run the request at once.
        problems: one sentence for each thing that was left out.
    """

    model: str | None = None
    prompt: str | None = None
    system: str | None = None
    raw: bool | None = None
    exact_key: bool | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    run: bool = False
    problems: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the link sets nothing."""
        said = (self.model, self.prompt, self.system, self.raw, self.exact_key)
        return not self.options and said == (None,) * len(said)


def read(
    query: Mapping[str, str], models: Sequence[str], ranges: Mapping[str, tuple[float, float]]
) -> Link:
    """Parses a query string; checks each value by itself.

    Args:
        query: names and texts, as they came.
        models: the names of the models that can be chosen.
        ranges: what the page's controls can show, for those that have bounds.
    """
    values: dict[str, Any] = {}
    options: dict[str, Any] = {}
    problems: list[str] = []
    for name, text in query.items():
        try:
            if name in NAMES:
                options[name] = _option(name, text, ranges.get(name))
            elif name == "model":
                values[name] = _model(text, models)
            elif name in ("prompt", "system"):
                values[name] = clean(text)
            elif name in ("raw", "exact_key", "run"):
                values[name] = _switch(name, text)
            elif not _OF_OTHERS.match(name):
                raise InvalidRequest(f"There is no setting {quoted(name)}.")
        except InvalidRequest as error:
            problems.append(str(error))
    try:
        GenerationOptions(**options)
    except InvalidRequest as error:  # each option is right, but not beside the others
        problems.append(str(error))
        options.clear()
    return Link(**values, options=options, problems=tuple(problems))


def by_side(query: Mapping[str, str]) -> list[dict[str, str]]:
    """Each side's settings, for `read`; those that name no side are the first one's."""
    left, right = (f"{at}." for at in AT)
    named = {name: text for name, text in query.items() if name.startswith(right)}
    first = {name.removeprefix(left): query[name] for name in query if name not in named}
    return [first, {name.removeprefix(right): text for name, text in named.items()}]


def problem(link: Link) -> str:
    """What to say about a link that can only be followed in part; empty otherwise."""
    if not link.problems:
        return ""
    not_run = " Nothing was run." if link.run else ""
    rest = "" if link.is_empty else " Its other settings are used."
    return f"Parts of this link are invalid. {' '.join(link.problems)}{rest}{not_run}"


def copy_script(tab: str = "playground", names: Sequence[str] = SETTINGS) -> str:
    """JavaScript for the button of a mode.

    It takes the settings in the order of `names`, which are `read`'s, some after a side and a dot,
    copies the link to the clipboard and returns the notice. It runs in the browser because the
    clipboard is only open to code that directly follows a click.
    """
    early_stopping = {word: str(value).lower() for word, value in EARLY_STOPPING.items()}
    return (
        _COPY.replace("NAMES", json.dumps(names))
        .replace("TAB", json.dumps(tab))
        .replace("EARLY_STOPPING", json.dumps(early_stopping))
        .replace("LONGEST", str(LONGEST))
        .replace("COPIED", json.dumps({run: notice(said, "calm") for run, said in _COPIED.items()}))
    )


_COPY = """async (...values) => {
  const problem = (html) => `<div class="notice problem" role="alert">${html}</div>`;
  const words = EARLY_STOPPING;
  const query = new URLSearchParams({ tab: TAB });
  NAMES.forEach((name, i) => {
    const value = values[i], setting = name.split(".").pop();
    if (value === null || value === undefined) return;
    if (["system", "raw", "grammar", "run"].includes(setting) && !value) return;
    query.set(name, setting === "early_stopping" ? words[value] : String(value));
  });
  // It is percent-encoded, so nothing in it can become markup.
  const link = `${location.origin}${location.pathname}?${query}`;
  if (link.length > LONGEST) {
    return problem(`The prompt is too long for a link: ${link.length} characters, and LONGEST are
      safe. Shorten it, or copy the code instead.`);
  }
  if (!(await copied(link))) {
    return problem(`The browser does not let this page copy. The link is
      <a href="${link}">here</a>: copy it from there.`);
  }
  return COPIED[query.has("run")];
}"""


def _model(text: str, models: Sequence[str]) -> str:
    if text not in models:
        raise InvalidRequest(f"The model {quoted(text)} is not offered here.")
    return text


def _switch(name: str, text: str) -> bool:
    if text.lower() not in _SWITCHES:
        raise InvalidRequest(f"{name} must be 1 or 0, not {quoted(text)}.")
    return _SWITCHES[text.lower()]


def _option(name: str, text: str, bounds: tuple[float, float] | None) -> Any:
    value: Any = text
    if name == "early_stopping":
        value = {"true": True, "false": False}.get(text.lower(), text)
    elif name == "stop":
        value = tuple(stops_from(text))
    elif name == "grammar":
        value = grammar_from(text)
    elif name in _WHOLE_NUMBERS and re.fullmatch(r"[+-]?[0-9]{1,12}", text, re.ASCII):
        value = int(text)
    elif name not in _WHOLE_NUMBERS and re.fullmatch(
        r"[+-]?([0-9]{1,12}\.?[0-9]{0,12}|\.[0-9]{1,12})", text, re.ASCII
    ):
        value = float(text)
    GenerationOptions(**{name: value})  # The engine's own sentence, where it refuses.
    if bounds and not bounds[0] <= value <= bounds[1]:
        raise InvalidRequest(
            f"{name} goes from {bounds[0]:g} to {bounds[1]:g} on this page, not {quoted(text)}."
        )
    return value
