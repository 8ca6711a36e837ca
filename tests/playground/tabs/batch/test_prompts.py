"""Prompts in a text or a file: what is read, and which line is at fault."""

import pytest

from playground.tabs.batch.prompts import MAX_PROMPTS, BatchPrompt, prompts_in, text_of_file
from playground.ui.csv_cells import csv_table
from xla_backend import InvalidRequest


def test_each_line_is_a_prompt_and_empty_ones_are_none() -> None:
    assert prompts_in("one\r\n\n  two, too \n\t\nthree")[0] == [
        BatchPrompt(1, "one"),
        BatchPrompt(3, "two, too"),
        BatchPrompt(5, "three"),
    ]

    assert len(prompts_in("x\n" * MAX_PROMPTS)[0]) == MAX_PROMPTS
    assert text_of_file("a.csv", "\ufeffprompt\nnaïve 🦊\n".encode()) == "prompt\nnaïve 🦊\n"
    assert [each.prompt for each in prompts_in("prompt,other\ra,1\rb,2")[0]] == ["a", "b"]
    assert [each.prompt for each in prompts_in("a" * 200_000)[0]] == ["a" * 200_000]
    prompts = ["=1+1", "it's", '"quoted", and\ntwo lines', "'=x"]
    text = csv_table(["prompt", "text"], [[prompt, "..."] for prompt in prompts])
    assert [each.prompt for each in prompts_in(text)[0]] == prompts


@pytest.mark.parametrize(
    "head", ["prompt,note", "Note; PROMPT ", "\ufeffprompt", "a\tprompt", "sep=|\na|prompt"]
)
def test_a_first_line_that_names_the_column_makes_it_csv(head: str) -> None:
    delimiter = next((each for each in ",;\t|" if each in head), ",")
    lines = head.count("\n")
    names = head.split("\n")[-1].split(delimiter)
    cells = ['"first, or\nso"' if "prompt" in name.lower() else "x" for name in names]
    text = f"{head}\n{delimiter.join(cells)}\n\n{delimiter.join(cells)}\n"
    prompts, without = prompts_in(text)
    assert [(each.line - lines, each.prompt) for each in prompts] == [
        (2, "first, or\nso"),
        (5, "first, or\nso"),
    ]
    assert [line - lines for line in without] == [4]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('{"prompt": "a"}\n\n{"id": 1, "prompt": " b\\n"}\n{"prompt": ""}', [1, 3]),
        ('[\n {"prompt": "a"},\n {"prompt": "b"}\n]', [1, 2]),
        ('[{"prompt": "a"}, {"prompt": "b", "note": null}]', [1, 2]),
    ],
)
def test_json_gives_the_texts_under_its_key(text: str, lines: list[int]) -> None:
    assert prompts_in(text)[0] == [BatchPrompt(lines[0], "a"), BatchPrompt(lines[1], "b")]


@pytest.mark.parametrize("text", ["{name} says\n[x]", "[{who}] says", "{", '["a"]', "42"])
def test_braces_do_not_make_a_text_json(text: str) -> None:
    assert [each.prompt for each in prompts_in(text)[0]] == text.split("\n")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-8"])
def test_a_file_may_be_as_spreadsheets_write_it(encoding: str) -> None:
    text = "note;prompt\r\nx;naïve 🦊\r\n"
    read = text_of_file("a.csv", text.encode(encoding))
    assert [each.prompt for each in prompts_in(read)[0]] == ["naïve 🦊"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "There are no prompts yet"),
        (" \n\t\n", "There are no prompts yet"),
        ("prompt,note\n", "There are no prompts yet"),
        ("prompt,note\n,b\n", "There are no prompts yet"),
        ('prompt\ngood\n"never closed\n', "Line 3 cannot be read as CSV"),
        ('{"prompt": "a"}\nb', 'Line 2 is not a JSON object with a text under "prompt"'),
        ('{"text": "a"}', "Line 1 is not a JSON object"),
        ('[{"prompt": 5}]', "Line 1 is not a JSON object"),
        ("\n".join(["x"] * 63), "There are 63 prompts, and at most 50 run at once. Leave out those "
         "from line 51 on."),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line(text: str, sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        prompts_in(text)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.txt", b"one\ntwo \xff\n", "Line 2 of the file is not UTF-8"),
        ("a.csv", b"text,note\na,b\n", 'Line 1 of the CSV file names no column "prompt"'),
        ("a.CSV", b"", 'Line 1 of the CSV file names no column "prompt"'),
        ("a.txt", b"x" * (2**20 + 1), "larger than 1 MB"),
    ],
)
def test_a_file_that_cannot_be_used_is_told(name: str, content: bytes, sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        text_of_file(name, content)


@pytest.mark.parametrize("text", ["0\r0", "\r\na\rb"])
def test_a_lone_carriage_return_ends_a_line(text: str) -> None:
    assert [each.prompt for each in prompts_in(text)[0]] == text.split()


@pytest.mark.parametrize("text", ['x,"prompt', 'x,"prompt\na,b'])
def test_a_heading_whose_quote_nothing_closes_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="Line 1 cannot be read"):
        prompts_in(text)


@pytest.mark.parametrize(
    ("text", "prompts", "without"),
    [
        ("prompt,note\na,b\n,c\n\nd,e\n", ["a", "d"], [3, 4]),
        ('note,prompt\n"two\nlines",x\njust one\n', ["x"], [4]),
    ],
)
def test_a_row_without_a_prompt_is_named(text: str, prompts: list[str], without: list[int]) -> None:
    read, left_out = prompts_in(text)
    assert ([each.prompt for each in read], left_out) == (prompts, without)


@pytest.mark.parametrize(
    "text",
    [
        'prompt,Animal,place\n"The {{animal}} in the {{ Place }}",fox,wood\n',
        '{"prompt": "The {{animal}} in the {{ Place }}", "Animal": "fox", "place": "wood"}',
        '[{"prompt": "The {{animal}} in the {{ Place }}", "Animal": "fox", "place": "wood"}]',
    ],
)
def test_a_prompt_is_filled_in_from_its_row(text: str) -> None:
    [found], _ = prompts_in(text)
    assert found.prompt == "The fox in the wood"
    with pytest.raises(InvalidRequest, match=r"no 'colour' for {{colour}}.*'animal', 'place'"):
        prompts_in(text.replace("{{animal}}", "{{colour}}"))


@pytest.mark.parametrize("text", ["A {{name}}", 'prompt\n"A {{name}}"', '{"prompt": "A {{name}}"}'])
def test_what_looks_like_a_variable_is_text_where_there_are_none(text: str) -> None:
    [found], _ = prompts_in(text)
    assert found.prompt == "A {{name}}"
