"""Text to ids and back: what models expect around a prompt, odd text, and text as it streams."""

import functools
import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers

from tests import checkpoints
from tests.oracle import OracleTokenizer, load_oracle_tokenizer
from tests.program import python
from xla_backend import TokenIds, question
from xla_backend.answers.decoder import IncrementalDecoder
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.interface.errors import InvalidRequest, ModelUnavailable

ODD_TEXTS = [
    "plain text",
    "  leading, trailing and  double spaces  ",
    "line\nbreak\ttab\r\n",
    "NUL \x00 inside",
    "emoji 🦊👩‍👩‍👧‍👦🇩🇪 and accents naïve Ünïcödé",
    "مرحبا بالعالم שלום עולם",
    "\u202eright to left override\u202c",
    "漢字かな交じり文",
    "<|endoftext|> written out",
    "\ufffd a real replacement character",
    "\U0010ffff\ufeff\u200b",
    "ﬁne ｆｏｘ ① e\u0301",
]


@pytest.fixture(scope="module", params=["gpt2", "opt", "t5", "whisper"])
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def folder(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return getattr(checkpoints, family)(tmp_path_factory.mktemp(family))


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.load(folder)


@pytest.fixture(scope="module")
def reference(folder: Path) -> OracleTokenizer:
    return load_oracle_tokenizer(folder)


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_ids_are_those_of_transformers(
    tokenizer: Tokenizer, reference: OracleTokenizer, family: str, text: str
):
    ids = tokenizer.encode(text)
    assert ids == reference.encode(text)
    assert tokenizer.decode(ids) == reference.decode(ids)
    if family in ("gpt2", "opt") and "<|endoftext|>" not in text:
        assert tokenizer.decode(ids) == text


def test_special_tokens_are_those_of_each_model(tokenizer: Tokenizer, family: str) -> None:
    ids = tokenizer.encode("a fox")
    shown = [tokenizer.token_text(id) for id in ids]
    assert {"gpt2": shown[0] == "a", "opt": shown[0] == "</s>", "t5": shown[-1] == "</s>"}.get(
        family, True
    )
    if family in ("gpt2", "opt"):
        assert ids[-1] not in tokenizer.encode("")
    assert tokenizer.decode(ids).strip() == "a fox"

    ids = [id for id in tokenizer.encode("the fox ran") if tokenizer.visible([id])]
    joined = "".join(map(tokenizer.token_text, ids))
    assert joined == ("" if family != "t5" else " ") + "the fox ran"
    assert tokenizer.token_text(10_000) == "<10000>"

    # T5's published vocabularies are larger than their tokenizers: a model can produce such ids.
    ids = [id for id in tokenizer.encode("the fox") if tokenizer.visible([id])]
    assert tokenizer.decode([*ids, 100_000]) == tokenizer.decode(ids)


def test_opt_gets_its_first_token_from_tokenizer_json_too(tmp_path: Path):
    from transformers import AutoTokenizer

    folder = checkpoints.opt(tmp_path)
    expected = Tokenizer.load(folder).encode("a fox")
    AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    assert (folder / "tokenizer.json").exists()
    assert Tokenizer.load(folder).encode("a fox") == expected
    assert expected[0] == 2


def test_a_length_that_the_tokenizer_remembers_does_not_cut_the_prompt(tmp_path: Path):
    folder = checkpoints.gpt2(tmp_path)
    saved = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    saved.enable_truncation(4)
    saved.enable_padding(length=100)
    saved.save(str(folder / "tokenizer.json"))
    text = "Once upon a time there was a little fox."
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("text", ["\ud83e", "a\udd8a b", "x\udc80"])
def test_half_a_surrogate_pair_is_refused_with_its_position(tokenizer: Tokenizer, text: str):
    position = next(place for place, char in enumerate(text, 1) if "\ud800" <= char <= "\udfff")
    with pytest.raises(InvalidRequest, match=f"surrogate pair.* position {position}; remove it"):
        tokenizer.encode(text)


@pytest.mark.parametrize("value", [None, b"bytes", 3, ["a"]])
def test_prompts_that_are_not_text_are_refused(tokenizer: Tokenizer, value: object):
    with pytest.raises(InvalidRequest, match="must be text"):
        tokenizer.encode(value)


@pytest.mark.parametrize("unit", ["Once upon a time, ", "a", "\x00🦊"])
def test_a_megabyte_of_text(tokenizer: Tokenizer, unit: str, capfd: pytest.CaptureFixture[str]):
    assert tokenizer.encode(unit * (1_000_000 // len(unit.encode())))
    assert capfd.readouterr() == ("", "")


def test_whisper_timestamps_are_not_text(tmp_path: Path):
    folder = checkpoints.whisper(tmp_path)
    ids = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode(
        "<|0.00|> the fox<|1.20|>"
    )
    assert Tokenizer.load(folder).decode(ids.ids) == " the fox"


def test_a_special_token_is_text_only_where_it_is_asked_for(tokenizer: Tokenizer, family: str):
    name = {"gpt2": "<|endoftext|>", "whisper": "<|endoftext|>"}.get(family, "</s>")
    shown = tokenizer.special_ids([name, "the", "no token"])
    ids = [*tokenizer.encode("the fox"), *shown, *tokenizer.encode("fox")]
    assert len(shown) == 1
    for size in (1, 3, len(ids)):
        decoder = IncrementalDecoder(tokenizer, shown)
        pieces = [decoder.push(ids[at : at + size]) for at in range(0, len(ids), size)]
        assert "the fox" + name in "".join([*pieces, decoder.finish()]).replace(f" {name}", name)
    assert name not in tokenizer.decode(ids)


def test_a_token_without_a_row_is_refused(tmp_path: Path):
    """Added to the tokenizer and not to the weights: it would be read as another one."""
    from transformers import AutoTokenizer

    checkpoints.instruct(tmp_path)
    rows = json.loads((tmp_path / "config.json").read_text())["vocab_size"]
    added = AutoTokenizer.from_pretrained(tmp_path)
    added.add_tokens(["<kite>"])
    added.save_pretrained(tmp_path)
    tokenizer = Tokenizer.load(tmp_path, rows)
    assert tokenizer.encode("a kite")
    for prompt in ("a <kite>", TokenIds((rows,)), question("a <kite>")):
        with pytest.raises(InvalidRequest, match="'<kite>', a token that was added"):
            tokenizer.encode(prompt)


@pytest.mark.parametrize("name", ["<|fim_%s|>", "<fim_%s>"])
def test_a_model_fills_in_the_middle_by_its_own_tokens(tmp_path: Path, name: str) -> None:
    from transformers import AutoTokenizer

    checkpoints.instruct(tmp_path)
    with pytest.raises(InvalidRequest, match="cannot fill in the middle"):
        Tokenizer.load(tmp_path).fill_in("a", "b")
    added = AutoTokenizer.from_pretrained(tmp_path)
    tokens = [name % part for part in ("prefix", "suffix", "middle")]
    added.add_special_tokens({"additional_special_tokens": tokens})
    added.save_pretrained(tmp_path)
    first, second, third = tokens
    whole = f"{first}def f(x):\n{second}\n  return y{third}"
    assert Tokenizer.load(tmp_path).fill_in("def f(x):\n", "\n  return y") == added.encode(whole)


# Streaming


@functools.cache
def _size(tokenizer: Tokenizer) -> int:
    """Tokens in the vocabulary, special ones too; an id beyond has only itself for a text."""
    return next(id for id in itertools.count() if tokenizer.token_text(id) == f"<{id}>")


def _random_ids(tokenizer: Tokenizer, rng: random.Random, count: int) -> list[int]:
    size = _size(tokenizer) + 8  # some beyond the vocabulary
    if rng.random() < 0.5:
        return [rng.randrange(size) for _ in range(count)]
    # Real text, so that characters of several tokens are whole, with some noise.
    ids = tokenizer.encode("".join(rng.choice(ODD_TEXTS) for _ in range(3)))
    return [id if rng.random() < 0.9 else rng.randrange(size) for id in ids]


def _chunks(ids: list[int], rng: random.Random) -> list[list[int]]:
    chunks = []
    while ids:
        size = rng.choice([0, 1, 1, 1, 2, 7])
        chunks.append(ids[:size])
        ids = ids[size:]
    return chunks


def _assert_chunks_join(tokenizer: Tokenizer, ids: list[int], chunks: list[list[int]]) -> None:
    decoder = IncrementalDecoder(tokenizer)
    chunks = [decoder.push(chunk) for chunk in chunks]
    assert "".join(chunks) + decoder.finish() == tokenizer.decode(ids)


def test_deltas_join_to_the_whole_text(tokenizer: Tokenizer):
    rng = random.Random(1)
    for _ in range(400):
        ids = _random_ids(tokenizer, rng, rng.randrange(40))
        _assert_chunks_join(tokenizer, ids, _chunks(ids, rng))


def test_an_unfinished_character_is_held_back(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(checkpoints.gpt2(tmp_path))
    ids = tokenizer.encode("a🦊b")
    assert len(ids) == 6  # the fox is four tokens
    decoder = IncrementalDecoder(tokenizer)
    assert [decoder.push([id]) for id in ids] == ["a", "", "", "", "🦊", "b"]
    assert decoder.finish() == ""
    decoder = IncrementalDecoder(tokenizer)
    assert [decoder.push([id]) for id in ids[:3]] == ["a", "", ""]
    assert decoder.finish() == "\ufffd"

    # Single-byte tokens only: every way in which UTF-8 can be wrong turns up.
    lead = [id for id in range(400) if len(tokenizer.piece_bytes(id)) == 1]
    high = [id for id in lead if tokenizer.piece_bytes(id)[0] >= 0x80]
    assert len(lead) == 256
    rng = random.Random(2)
    for _ in range(3000):
        ids = rng.choices(high if rng.random() < 0.7 else lead, k=rng.randrange(1, 9))
        _assert_chunks_join(tokenizer, ids, [[id] for id in ids])


def test_only_the_first_sentencepiece_loses_its_space(tmp_path: Path):
    tokenizer = Tokenizer.load(checkpoints.t5(tmp_path))
    ids = tokenizer.encode("the fox and the owl")
    special = ids[-1]
    decoder = IncrementalDecoder(tokenizer)
    # A special token at the front, as T5's decoder starts, changes nothing.
    chunks = [decoder.push([id]) for id in [special, *ids[:1], special, *ids[1:]]]
    assert chunks[:2] == ["", "the"]
    assert "".join(chunks) == "the fox and the owl"


def test_pieces_that_stand_for_bytes_are_held_until_the_run_ends(tmp_path: Path):
    from tokenizers import decoders, models
    from transformers import PreTrainedTokenizerFast

    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁the", "a"]
    rust = tokenizers.Tokenizer(
        models.Unigram([(piece, 0.0) for piece in pieces], unk_id=0, byte_fallback=True)
    )
    rust.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")]
    )
    tokenizer = Tokenizer(PreTrainedTokenizerFast(tokenizer_object=rust))
    fox = [1 + byte for byte in "🦊".encode()]
    rng = random.Random(3)
    for _ in range(300):
        ids = rng.choice([[], [257], [258]]) + rng.choice([fox, fox[:2], [1 + 0xFF]])
        ids += rng.choice([[], [257], [257, 258], fox])
        _assert_chunks_join(tokenizer, ids, _chunks(ids, rng))


@pytest.mark.parametrize("repeat", [lambda size: [0xF0], lambda size: range(256)])
def test_no_token_is_decoded_more_than_a_few_times(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, repeat: Callable[[int], list[int]]
):
    """However many have come before it: the time is linear in their number."""
    visible = tokenizer.visible(range(_size(tokenizer)))
    some = [visible[place % len(visible)] for place in repeat(len(visible))]
    decoded = 0

    def counting(method: Callable) -> Callable:
        def counted(given: int | list[int], *others: object) -> object:
            nonlocal decoded
            decoded += 1 if isinstance(given, int) else len(given)
            return method(given, *others)

        return counted

    for name in ("decode", "piece", "piece_bytes"):
        monkeypatch.setattr(tokenizer, name, counting(getattr(tokenizer, name)))
    decoder = IncrementalDecoder(tokenizer)
    for place in range(2_000):
        decoder.push([some[place % len(some)]])
    decoder.finish()
    assert 2_000 <= decoded < 5 * 2_000


# Loading


@pytest.mark.parametrize("content", ["", "{", "[]", '{"model": {"type": "BPE"}}', "\x00"])
def test_a_damaged_tokenizer_is_a_clear_error(tmp_path: Path, content: str):
    folder = checkpoints.gpt2(tmp_path)
    (folder / "tokenizer.json").write_text(content)
    with pytest.raises(ModelUnavailable, match=r"tokenizer in .* cannot be loaded"):
        Tokenizer.load(folder)


def test_a_folder_without_a_tokenizer_is_a_clear_error(tmp_path: Path):
    with pytest.raises(ModelUnavailable, match=r"tokenizer in .* cannot be loaded"):
        Tokenizer.load(tmp_path)


def test_tokenization_imports_no_tensorflow(tmp_path: Path):
    folder = checkpoints.t5(tmp_path)
    code = (
        "import sys; from pathlib import Path\n"
        "from xla_backend.answers.decoder import IncrementalDecoder\n"
        "from xla_backend.checkpoints.tokenization import Tokenizer\n"
        "assert 'transformers' not in sys.modules\n"
        "tokenizer = Tokenizer.load(Path(sys.argv[1]))\n"
        "IncrementalDecoder(tokenizer).push(tokenizer.encode('the fox'))\n"
        "assert not {'tensorflow', 'keras', 'torch'} & set(sys.modules)\n"
    )
    python(code, folder)


def test_a_token_reads_as_text_where_bytes_are_only_a_step_of_decoding() -> None:
    tokenizer = Tokenizer.load(Path("demo_models/t5-stories"))
    assert [tokenizer.token_text(id) for id in tokenizer.encode("Ned was glad")][:2] == [
        " Ned",
        " was",
    ]
