"""A conversation as a file: Markdown to read, JSON to bring back.

Knows both formats and what may not be in them. Must not know components or events.
"""

from playground.context.json_file import JsonFile
from playground.tabs.chat.conversation import Conversation, Figures, checked
from playground.ui import quantities
from playground.ui.markup import clean
from playground.ui.wording import model_name
from xla_backend import InvalidRequest

FILE = JsonFile("xla-playground-chat", "conversation", "JSON", 2 * 2**20)


def to_markdown(conversation: Conversation) -> str:
    """The conversation as a text, each answer with what it cost."""
    parts = [f"# {conversation.name}", f"Model: {model_name(conversation.model)}"]
    if system := conversation.system.strip():
        parts.append(f"System prompt: {system}")
    for turn in conversation.turns:
        parts += ["## User", turn.question, "## Assistant", turn.answer]
        if turn.figures:
            parts.append(f"*{_line(turn.figures)}*")
    return clean("\n\n".join(parts) + "\n")


def to_json(conversation: Conversation) -> str:
    """The conversation with every value, without the folder that its model lies in."""
    values = conversation.to_dict()
    del values["id"]
    values["model"] = model_name(conversation.model)
    units = "every name that ends in _s is seconds; changed_s is seconds since 1970"
    return FILE.written({"units": units, "conversation": values})


def from_json(text: str) -> Conversation:
    """The conversation of a file that `to_json` wrote, as a new one.

    Raises:
        InvalidRequest: it is no such file.
    """
    values = FILE.read(text).get("conversation")
    found = checked({**values, "id": "0"}) if isinstance(values, dict) else None
    if found is None or not found.turns:
        raise InvalidRequest(
            "The conversation in the file cannot be read; was it edited? Nothing was changed."
        )
    return found.branch()


def _line(figures: Figures) -> str:
    return " · ".join(
        [
            figures.cache.value.upper(),
            f"TTFT {quantities.seconds_or_dash(figures.ttft_s)}",
            f"TPOT {quantities.seconds_or_dash(figures.tpot_s)}",
            quantities.count(figures.new_tokens, "token"),
            f"reused {figures.cached_tokens} of "
            f"{quantities.count(figures.prompt_tokens, 'prompt token')}",
        ]
    )
