"""Why a prefix was not reused: conversations as agents change them, place and cause of each.

The place is where the token ids of two prompts part, which Python's `os.path.commonprefix` says.
"""

import contextlib
import dataclasses
import os.path
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import checkpoints
from xla_backend import Backend, GenerationOptions, GenerationResult, Message
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.interface.prompt import Prompt, TokenIds
from xla_backend.interface.requests import Prepared, TextRequest

CONTEXT = 1024
TEMPLATE = (
    "{% if date_string %}<|turn|>system\nToday is {{ date_string }}.<|endoftext|>\n{% endif %}"
    "{% if tools %}<|turn|>system\n# Tools\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}"
    "<|endoftext|>\n{% endif %}"
    "{% for m in messages %}<|turn|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('</think>')[-1] }}"
    "{% elif m.role == 'user' and loop.last %}{{ m.content }} Answer briefly."
    "{% else %}{{ m.content }}{% endif %}"
    "{% if not loop.last or add_generation_prompt %}<|endoftext|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)
"""Drops earlier thoughts, and writes something behind the newest question alone."""
RULES = "You are the helper of a fox. Answer in short words, and look for the lost red kite. "
TALK = (
    Message("system", RULES),
    Message("user", "Good morning, what shall we do today in the old mill near the river?"),
    Message("assistant", "We shall find the red kite, walk through the forest and ask a rabbit."),
    Message("user", "And then, when the rain begins to fall and the wind blows hard?"),
    Message("assistant", "Then we go home over the bridge and are happy ever after."),
)
ASKED = (*TALK, Message("user", "Turn on the light."))


def tool(name: str, description: str = "Sets a timer.") -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"minutes": {"type": "integer"}}}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def changed(place: int, content: str, talk: tuple[Message, ...] = ASKED) -> tuple[Message, ...]:
    return (*talk[:place], talk[place]._replace(content=content), *talk[place + 1 :])


class Case(NamedTuple):
    """What was sent before, what is sent now, and how these part."""

    before: dict[str, Any]
    sent: dict[str, Any]
    field: str
    message: int | None
    text: str = ""  # how the new prompt goes on there


def talk(messages: tuple[Message, ...] = ASKED, **fields: Any) -> dict[str, Any]:
    return {"prompt": messages, **fields}


TIMER, LIGHT, KITE = tool("timer"), tool("light"), tool("kite")
CASES = {
    "date in the system prompt": Case(
        talk(changed(0, f"Today is 2026-11-27. {RULES}")),
        talk(changed(0, f"Today is 2026-11-28. {RULES}")),
        *("date", 0, "8. You are"),
    ),
    "time in the system prompt": Case(
        talk(changed(0, f"{RULES} It is 12:03:59 now.")),
        talk(changed(0, f"{RULES} It is 12:04:07 now.")),
        *("date", 0, "4:07 now."),
    ),
    "weekday in the system prompt": Case(
        talk(changed(0, f"It is Saturday. {RULES}")),
        talk(changed(0, f"It is Monday. {RULES}")),
        *("date", 0, "Monday."),
    ),
    "date in the template": Case(
        talk(template={"date_string": "27 Nov 2026"}),
        talk(template={"date_string": "28 Nov 2026"}),
        *("date", None, "8 Nov 2026."),
    ),
    "reordered tools": Case(
        talk(tools=(TIMER, LIGHT, KITE)), talk(tools=(LIGHT, TIMER, KITE)), "tools", None, "light"
    ),
    "one tool more": Case(
        talk(tools=(TIMER, LIGHT)), talk(tools=(TIMER, LIGHT, KITE)), "tools", None
    ),
    "one tool less": Case(talk(tools=(TIMER, LIGHT)), talk(tools=(TIMER,)), "tools", None),
    "a tool's description": Case(
        talk(tools=(TIMER, LIGHT)),
        talk(tools=(TIMER, tool("light", "Turns on the light."))),
        *("tools", None, "Turns on"),
    ),
    "dropped thoughts": Case(
        talk(changed(4, f"<think>It may rain today.</think>{TALK[4].content}", TALK)),
        talk(changed(4, f"<think>It may rain today.</think>{TALK[4].content}")),
        *("thoughts", 4, "Then we go"),
    ),
    "edited early message": Case(
        talk(),
        talk(changed(1, "Good morning, what shall we eat today?")),
        "content",
        1,
        "eat today",
    ),
    "edited answer": Case(
        talk(), talk(changed(2, "We shall find the blue café.")), "content", 2, "blue café"
    ),
    "trailing space": Case(talk(), talk(changed(0, f"{RULES} ")), "space", 0),
    "other line ends": Case(
        talk(changed(1, "Good morning.\nWhat shall we do?")),
        talk(changed(1, "Good morning.\r\nWhat shall we do?")),
        *("space", 1, "\r\nWhat"),
    ),
    "truncated context": Case(talk(), talk((ASKED[0], *ASKED[3:])), "left out", 1, "And then"),
    "a summary inserted": Case(
        talk(),
        talk(
            (ASKED[0], Message("user", "Once upon a time there was an old grey owl."), *ASKED[1:])
        ),
        *("inserted", 1, "Once upon"),
    ),
    "template rewrites the question": Case(
        talk(TALK[:4]), talk(ASKED), "left out", 3, "<|endoftext|>"
    ),
    "other role": Case(
        talk(),
        talk((ASKED[0], ASKED[1]._replace(role="system"), *ASKED[2:])),
        "template",
        1,
        "system",
    ),
    "placeholder of an image": Case(
        talk(changed(1, "What is in (an image of 1 MB)? The kite?")),
        talk(changed(1, "What is in (an image, left out)? The kite?")),
        *("content", 1, ", left out)"),
    ),
    "edited text": Case(
        {"prompt": f"Once upon a time. {RULES}"},
        {"prompt": f"Once upon a kite. {RULES}"},
        *("content", None, "kite."),
    ),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two models that answer in the same form."""
    root = tmp_path_factory.mktemp("prefixes")
    made = [
        checkpoints.instruct(root / name, max_position_embeddings=CONTEXT, seed=seed)
        for seed, name in enumerate(("one", "two"))
    ]
    for folder in made:
        (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return [str(folder) for folder in made]


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    """With memory for a few texts of each model."""
    with contextlib.closing(Backend(store="off", kv_bytes=2_000_000)) as made:
        yield made


Ask = Callable[..., tuple[Prepared, GenerationResult]]


@pytest.fixture
def ask(backend: Backend, folders: list[str], request: pytest.FixtureRequest) -> Ask:
    """Each test has a salt of its own."""

    def ask(
        prompt: Prompt, salt: str = "", model: str = folders[0], **fields: Any
    ) -> tuple[Prepared, GenerationResult]:
        asked = TextRequest(
            model,
            prompt,
            GenerationOptions(max_new_tokens=1),
            cache_salt=request.node.name + salt,
            **fields,
        )
        backend.load(model)
        prepared = backend.prepare(asked)
        result = backend.submit(prepared).read_all()
        assert result is not None
        return prepared, result

    return ask


@pytest.mark.parametrize("name", CASES)
def test_place_and_cause(ask: Ask, name: str) -> None:
    case = CASES[name]
    before, _ = ask(**case.before)
    sent, result = ask(**case.sent)
    miss = result.prefix_miss
    assert miss is not None
    common = len(os.path.commonprefix([before.token_ids, sent.token_ids]))  # noqa: RUF071
    role = "" if case.message is None else case.sent["prompt"][case.message].role
    assert (miss.cause, miss.place, miss.field) == ("differs", common, case.field)
    assert (miss.message, miss.role) == (case.message, role)
    assert miss.sent.startswith(case.text)
    assert miss.cached != miss.sent
    # As many tokens are read again as both have behind the place, less what is new there.
    assert 8 <= miss.tokens <= len(sent.token_ids) - common
    assert 0 <= miss.seconds <= result.timing.prefill_s
    again = ask(**case.sent)[1]
    assert (again.prefix_miss, again.cached_tokens) == (None, len(sent.token_ids) - 1)
    # Callers who do not know each other see no text.
    ask(**case.before, salt="shared")
    shared = ask(**case.sent, salt="shared", shares_salt=True)[1].prefix_miss
    assert shared is not None
    nothing = {"before": "", "sent": "", "cached": "", "seconds": shared.seconds}
    assert shared == dataclasses.replace(miss, **nothing)


def test_the_same_text_in_other_tokens(ask: Ask, folders: list[str]) -> None:
    """As an answer is whose tokens the model chose, and which comes back as text."""
    prepared, _ = ask(" ".join([RULES] * 2))
    ids, tokenizer = list(prepared.token_ids), Tokenizer.load(Path(folders[0]))
    place = next(at for at in range(20, 60) if len(tokenizer.token_text(ids[at])) > 1)
    letters = [tokenizer.encode(each)[0] for each in tokenizer.token_text(ids[place])]
    _, result = ask(TokenIds((*ids[:place], *letters, *ids[place + 1 :])))
    assert result.prefix_miss is not None
    assert (result.prefix_miss.field, result.prefix_miss.place) == ("tokens", place)


@pytest.mark.parametrize("by_others", [True, False])
def test_evicted(ask: Ask, by_others: bool) -> None:
    prepared, _ = ask(**talk())
    for number in range(8):
        ask(TokenIds((number + 5,) * (CONTEXT - 10)), salt="other" if by_others else "")
    miss = ask(**talk())[1].prefix_miss
    assert miss is not None
    assert (miss.cause, miss.place, miss.by_others) == ("evicted", 0, by_others)
    assert miss.tokens == len(prepared.token_ids) - 1
    assert ask(**talk())[1].prefix_miss is None


def test_restarted(ask: Ask, backend: Backend, folders: list[str]) -> None:
    prepared, first = ask(**talk())
    with contextlib.closing(Backend(store="off", prefixes_before=backend.prefixes())) as after:
        after.load(folders[0])
        miss = after.submit(prepared).read_all().prefix_miss
        twice = after.submit(prepared).read_all()
    assert miss is not None
    assert first.cached_tokens == 0
    assert (miss.cause, miss.place, miss.tokens) == ("restarted", 0, len(prepared.token_ids) - 1)
    assert (twice.prefix_miss, twice.cached_tokens) == (None, len(prepared.token_ids) - 1)


def test_other_salt_and_other_model(ask: Ask, folders: list[str]) -> None:
    first = ask(**talk())[1].prefix_miss
    salt = ask(**talk(), salt="other")[1].prefix_miss
    model = ask(**talk(), model=folders[1])[1].prefix_miss
    other_text = ask("Something else", model=folders[1], salt="other")[1].prefix_miss
    assert [each and (each.cause, each.model) for each in (first, salt, model, other_text)] == [
        ("new salt", ""),
        ("new salt", ""),  # not whose it is
        ("other model", folders[0]),
        ("new salt", ""),
    ]


def test_not_written_yet(backend: Backend, ask: Ask, folders: list[str]) -> None:
    """Both wait for the engine, and are read side by side."""
    prepared, _ = ask("First of its salt")
    long = dataclasses.replace(prepared.request, prompt=" ".join([RULES] * 4))
    both = [backend.prepare(long), backend.prepare(long)]
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        release.wait(60)

    holding = threading.Thread(target=backend._loop.call, args=(hold,))
    holding.start()
    assert held.wait(60)
    streams = [backend.submit(each) for each in both]
    release.set()
    one, other = (stream.read_all() for stream in streams)
    holding.join()
    assert one.prefix_miss is None
    assert other.prefix_miss is not None
    assert other.prefix_miss.cause == "not written"
    assert other.prefix_miss.tokens == len(both[0].token_ids) - 1 - other.cached_tokens


def test_the_text_it_was_made_of_is_found_among_others(ask: Ask) -> None:
    """Another one of today begins alike for longer, as it has the new date."""
    ask(changed(0, f"Today is 2026-11-27. {RULES}"))
    ask(changed(0, "Today is 2026-11-28. The owl blinked.", ASKED[:2]))
    miss = ask(changed(0, f"Today is 2026-11-28. {RULES}"))[1].prefix_miss
    assert miss is not None
    assert (miss.field, miss.sent[:2], miss.cached[:2]) == ("date", "8.", "7.")


def test_another_question_is_no_miss(ask: Ask) -> None:
    """Nothing that was there is read again."""
    ask(**talk())
    for prompt in (changed(5, "Set a timer, please."), "Once upon a time"):
        assert ask(prompt)[1].prefix_miss is None
