"""Spoken household commands: phrases of a small grammar, spoken by espeak-ng in a noisy room.

Knows the grammar's form, espeak-ng's voices and what a room does to sound. A phrase is held out by
the hash of its words, a voice by its name: no training clip has either.
"""

from __future__ import annotations

import hashlib
import random
import re
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import soxr

RATE = 16_000
WINDOW = 4 * RATE
LONGEST = WINDOW - RATE // 8  # a little air, so that speech begins here and there

GRAMMAR = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
RULES = {name: re.split(r",\s+", rule.strip()) for name, rule in GRAMMAR.items()}
BELOW_TWENTY = """one two three four five six seven eight nine ten eleven twelve thirteen fourteen
fifteen sixteen seventeen eighteen nineteen""".split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()

ESPEAK_RATE = 22_050
ACCENTS = "en en-us en-gb-scotland en-gb-x-rp en-gb-x-gbclan en-us-nyc".split()
VARIANTS = """m1 m2 m3 m4 m5 m6 m7 f1 f3 f4 f5 Alex Alicia Andrea Andy Annie adam belinda linda max
Michael norbert steph steph2 travis victor zac""".split()
HELD_OUT_VOICE = "en+f2"


def number(value: int) -> str:
    """1 to 99 in words.

    >>> number(7), number(42)
    ('seven', 'forty two')
    """
    if value < 20:
        return BELOW_TWENTY[value - 1]
    return " ".join([TENS[value // 10 - 2], *BELOW_TWENTY[value % 10 - 1 : value % 10]])


def draw(rng: random.Random, rule: str) -> str:
    """One of a rule's alternatives, filled in."""

    def fill(slot: re.Match[str]) -> str:
        first, _, last = slot[1].partition("..")
        return number(rng.randint(int(first), int(last))) if last else draw(rng, first)

    return re.sub(r"\{(.+?)\}", fill, rng.choice(RULES[rule]))


def is_held_out(phrase: str) -> bool:
    """Whether a phrase is held out of training: a tenth of all, by hash, "please" disregarded."""
    core = " ".join(word for word in phrase.split() if word != "please")
    return hashlib.sha256(core.encode()).digest()[0] < 26


def phrase(rng: random.Random, held_out: bool) -> str:
    while is_held_out(found := draw(rng, "phrase")) != held_out:
        pass
    return found


def speak(text: str, rng: random.Random, voice: str = "") -> np.ndarray:
    """At most `LONGEST` samples of speech without silence around it, float32.

    Args:
        text: of the command.
        rng: draws speed, pitch, the speaker's size, and the voice where none is named.
        voice: espeak-ng's name of one.
    """
    voice = voice or f"{rng.choice(ACCENTS)}+{rng.choice(VARIANTS)}"
    speed, pitch = rng.randint(135, 215), rng.randint(25, 80)
    # Played faster or slower, formants move as they do in a shorter or longer throat.
    played = ESPEAK_RATE * (rng.uniform(0.9, 1.12) if rng.random() < 0.5 else 1)
    while True:
        command = ["espeak-ng", "-v", voice, "-s", f"{speed}", "-p", f"{pitch}", "--stdout", text]
        wave = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
        sound = np.frombuffer(wave, np.int16, offset=44).astype(np.float32) / 2**15
        sound = soxr.resample(sound, played, RATE)
        loud = np.flatnonzero(np.abs(sound) > 0.01 * np.abs(sound).max())
        sound = sound[loud[0] : loud[-1]]
        if len(sound) <= LONGEST:
            return sound
        speed += 30


def training_clip(rng: random.Random) -> tuple[np.ndarray, str]:
    """Speech and its words: a phrase, seldom a part of one, two in a row, or silence.

    Parts and pairs are what the windows of a longer recording hold.
    """
    kind = rng.random()
    if kind < 0.02:
        return np.zeros(0, np.float32), ""
    text = phrase(rng, held_out=False)
    if kind < 0.1:
        words = text.split()
        first = rng.randrange(len(words))
        text = " ".join(words[first : rng.randint(first + 1, len(words))])
    sound = speak(text, rng)
    if kind > 0.92:
        other = phrase(rng, held_out=False)
        pause = np.zeros(rng.randrange(RATE // 10, RATE * 6 // 10), np.float32)
        both = np.concatenate([sound, pause, speak(other, rng)])
        if len(both) <= LONGEST:
            return both, f"{text} {other}"
    return sound, text


def in_a_room(speech: np.ndarray, rng: np.random.Generator, snr_db: float | None) -> np.ndarray:
    """(WINDOW,) float32: the speech somewhere in it, with echo, noise and a gain.

    Args:
        speech: at most `LONGEST` samples.
        rng: draws offset, echo, kind of noise and gain.
        snr_db: the speech's power over the noise's, decibels; None adds no noise.
    """
    if len(speech) and rng.random() < 0.3:  # reflections that die out within a quarter of a second
        tail = rng.standard_normal(rng.integers(RATE // 20, RATE // 4))
        tail *= np.exp(-7 * np.arange(len(tail)) / len(tail))
        tail *= rng.uniform(0.1, 0.5) / np.linalg.norm(tail)
        tail[0] = 1
        size = 2**17  # above both lengths together; powers of two transform fastest
        echoed = np.fft.irfft(np.fft.rfft(speech, size) * np.fft.rfft(tail, size), size)
        speech = echoed[: len(speech)]
    window = np.zeros(WINDOW)
    offset = min(int(rng.exponential(RATE / 2)), WINDOW - len(speech))
    window[offset : offset + len(speech)] = speech
    if snr_db is not None:
        noise = _noise(rng)
        power = np.mean(speech**2) if len(speech) else 1e-3
        window += noise * np.sqrt(power / np.mean(noise**2) / 10 ** (snr_db / 10))
    peak = np.abs(window).max()
    return (window * 10 ** (-rng.uniform(0, 1.5)) / (peak or 1)).astype(np.float32)


def _noise(rng: np.random.Generator) -> np.ndarray:
    """(WINDOW,) of white or pink noise, or mains hum."""
    white = rng.standard_normal(WINDOW)
    kind = rng.integers(3)
    if kind == 0:
        return white
    if kind == 1:
        spectrum = np.fft.rfft(white)
        return np.fft.irfft(spectrum / np.sqrt(np.maximum(np.arange(len(spectrum)), 20)), WINDOW)
    turns = 2 * np.pi * rng.choice([50, 60]) * np.arange(WINDOW) / RATE
    waves = [rng.uniform() * np.sin(k * turns + rng.uniform(0, 6)) / k for k in range(1, 13)]
    return 0.2 * white + np.sum(waves, axis=0)
