"""The commands and their voices: what is said, and how it sounds."""

import random
from itertools import islice

import numpy as np
import pytest

from demo_models import speech
from demo_models.speech import (
    ACCENTS,
    HELD_OUT_ACCENT,
    HELD_OUT_VOICE,
    RATE,
    VARIANTS,
    WINDOW_S,
    Speaker,
    SpeechUnavailable,
    Voice,
    degrade,
    held_out_clips,
    is_held_out,
    phrases,
    random_voice,
)

# --- phrases --------------------------------------------------------------------------------------


def test_the_grammar_has_many_thousand_phrases():
    assert len(set(islice(phrases(0, held_out=False), 40_000))) > 15_000


def test_training_and_held_out_phrases_have_nothing_in_common():
    training = set(islice(phrases(0, held_out=False), 20_000))
    held_out = set(islice(phrases(0, held_out=True), 5_000))
    assert not training & held_out
    assert not {f"please {phrase}" for phrase in training} & held_out


def test_please_does_not_make_another_phrase_of_it():
    for phrase in islice(phrases(3, held_out=True), 200):
        core = phrase.replace("please ", "").replace(" please", "")
        assert is_held_out(f"please {core}")
        assert is_held_out(f"{core} please")


def test_every_held_out_word_occurs_in_training():
    words = {word for phrase in islice(phrases(0, False), 20_000) for word in phrase.split()}
    assert {word for phrase in islice(phrases(0, True), 5_000) for word in phrase.split()} <= words


def test_phrases_are_plain_words():
    for phrase in islice(phrases(1, held_out=False), 5_000):
        assert phrase == " ".join(phrase.split())
        assert set(phrase) <= set("abcdefghijklmnopqrstuvwxyz' "), phrase
        assert " for one minutes" not in phrase


def test_numbers_in_words():
    assert [speech.number(n) for n in (1, 10, 19, 20, 42, 99)] == [
        "one", "ten", "nineteen", "twenty", "forty two", "ninety nine",
    ]  # fmt: skip


def test_a_seed_gives_the_same_phrases_again():
    assert list(islice(phrases(5, False), 50)) == list(islice(phrases(5, False), 50))
    assert list(islice(phrases(5, False), 50)) != list(islice(phrases(6, False), 50))


def test_no_training_voice_is_held_out():
    assert HELD_OUT_VOICE.variant not in VARIANTS
    assert HELD_OUT_ACCENT.variant not in VARIANTS
    assert HELD_OUT_ACCENT.accent not in ACCENTS
    rng = random.Random(0)
    assert all(random_voice(rng).variant in VARIANTS for _ in range(100))


# --- synthesis ------------------------------------------------------------------------------------


def test_a_machine_without_espeak_says_so_in_one_sentence(monkeypatch):
    def absent(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(speech.ctypes, "CDLL", absent)
    with pytest.raises(SpeechUnavailable, match="espeak-ng is not installed") as raised:
        Speaker()
    assert "\n" not in str(raised.value)


def test_a_voice_that_is_not_there_is_named(say):
    with pytest.raises(SpeechUnavailable, match="no voice 'en-mars'"):
        say("hello", Voice("en-mars", ""))


def test_every_voice_speaks(say):
    for voice in [*(Voice("en", v) for v in VARIANTS), *(Voice(a, "m1") for a in ACCENTS)]:
        clip = say("lock the front door", voice)
        assert 0.5 < clip.seconds < 3.5, voice
        assert np.abs(clip.samples).max() > 2000, voice


def test_words_follow_one_another_to_the_end(say):
    clip = say("set a timer for seventeen minutes", HELD_OUT_VOICE)
    begins, ends = clip.word_times.T
    assert len(begins) == 6
    assert (np.diff(begins) > 0).all()
    assert np.allclose(begins[1:], ends[:-1])
    assert 0 <= begins[0] < 0.1
    assert ends[-1] == pytest.approx(clip.seconds)
    assert (np.diff(clip.phone_times) >= 0).all()
    assert len(clip.phones) == len(clip.phone_times) > 15


def test_a_part_of_a_clip_has_its_own_words_and_times(say):
    whole = say("turn off the kitchen light", HELD_OUT_VOICE)
    part = whole.between(2, 3)
    assert part.text == "the kitchen"
    assert part.seconds < whole.seconds / 1.5
    assert part.word_times[0, 0] == 0
    assert part.word_times[-1, 1] == pytest.approx(part.seconds, abs=0.001)


def test_two_clips_in_a_row(say):
    first = say("open the window", HELD_OUT_VOICE)
    both = first.followed_by(first, pause_s=0.5)
    assert both.text == "open the window open the window"
    assert both.seconds == pytest.approx(2 * first.seconds + 0.5, abs=0.001)
    assert both.word_times[3, 0] == pytest.approx(first.seconds + 0.5 + first.word_times[0, 0])
    assert len(both.phones) == len(both.phone_times)


def test_clips_survive_their_file(say, tmp_path, monkeypatch):
    made = speech.training_shard(60, seed=9, shard=0)
    assert {not clip.text for clip in made} == {True, False}  # silence is among them
    monkeypatch.setattr(speech, "training_shard", lambda *_: made)
    speech.save_shard(tmp_path / "clips.npz", 60, seed=9, shard=0)
    kept = speech.load_shard(tmp_path / "clips.npz")
    for a, b in zip(made, kept, strict=True):
        assert (a.text, a.phones) == (b.text, b.phones)
        assert np.array_equal(a.samples, b.samples)
        assert np.array_equal(a.word_times, b.word_times)
        assert np.array_equal(a.phone_times, b.phone_times)
        assert a.seconds <= WINDOW_S


def test_a_seed_gives_the_same_texts_and_voices_again(say):
    """Not the same samples: espeak-ng's flutter goes on from phrase to phrase."""
    first, again = (speech.training_shard(30, seed=4, shard=2) for _ in range(2))
    assert [clip.text for clip in first] == [clip.text for clip in again]
    assert [c.seconds for c in first] == pytest.approx([c.seconds for c in again], abs=0.1)


def test_held_out_clips_are_held_out_and_different(say):
    clips = held_out_clips(30)
    assert len({clip.text for clip in clips}) == 30
    assert all(is_held_out(clip.text) for clip in clips)


@pytest.mark.parametrize("snr_db", [20.0, 0.0])
def test_noise_has_the_power_that_was_asked_for(say, snr_db):
    clip = say("stop the music in the attic", HELD_OUT_VOICE)
    powers = []
    for seed in range(8):
        quiet, at = degrade(clip, np.random.default_rng(seed), None, plain=True)
        loud, same = degrade(clip, np.random.default_rng(seed), snr_db, plain=True)
        assert at == same
        begin = round(at * RATE)
        speech_at = slice(begin, begin + len(clip.samples))
        outside = np.ones(len(loud), bool)
        outside[speech_at] = False
        # Both windows are scaled to their peak: the ratio of powers is inside one window.
        noise = np.mean(np.square(loud[outside]))
        powers.append(np.mean(np.square(loud[speech_at])) / noise)
        assert quiet.shape == loud.shape == (WINDOW_S * RATE,)
        assert np.abs(loud).max() <= 1
    assert 10 * np.log10(np.mean(powers) - 1) == pytest.approx(snr_db, abs=2)
