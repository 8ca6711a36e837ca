"""Spoken household commands: the grammar of the phrases and their synthesis with espeak-ng.

Knows phrases, voices, rooms' noise and where each word and phone lies in a recording. Must not know
models, tokens or TensorFlow: `training.train_whisper` turns what is made here into training rows.

Phrases, voices and noise are drawn from seeds; espeak-ng itself lets a voice flutter a little, so
a clip made again is the same to the ear, not to the bit. A phrase is held out by the hash of its
words, a voice by its name: no training clip has either.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import hashlib
import random
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Self

import numpy as np

from xla_backend.checkpoints.audio import resample

RATE = 16_000
WINDOW_S = 4
_MAX_SPEECH_S = WINDOW_S - 0.15  # a little air, so that offsets vary

# --- the grammar -----------------------------------------------------------------------------

_UNITS = "one two three four five six seven eight nine".split()
_TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_HOURS = [*_UNITS, "ten", "eleven", "twelve"]

ROOMS = """kitchen|living room|dining room|bedroom|bathroom|hallway|garage|office|attic|basement
|nursery|guest room|laundry room|garden|balcony|study""".replace("\n", "").split("|")
LIGHTS = "light|lights|lamp".split("|")
DEVICES = "fan|heater|radio|television|speaker|air conditioner|humidifier".split("|")
APPLIANCES = "dishwasher|washing machine|dryer|oven|coffee machine|vacuum cleaner|kettle".split("|")
DOORS = "front door|back door|garage door|cellar door|side gate|patio door".split("|")
SHADES = "blinds|curtains|shutters|window".split("|")
COLORS = "red|green|blue|yellow|orange|purple|pink|warm white|cool white".split("|")
MUSIC = "jazz|rock|classical music|the news|folk songs|piano music|the radio|pop music".split("|")
ITEMS = """milk|bread|butter|eggs|apples|bananas|rice|cheese|coffee|tea|sugar|salt|tomatoes
|potatoes|onions|soap|chicken|orange juice""".replace("\n", "").split("|")
CHORES = """water the plants|feed the cat|walk the dog|take out the trash|call the doctor
|buy flowers|pay the rent|check the mail|clean the windows|take my medicine|charge the car
|iron the shirts|bake the cake""".replace("\n", "").split("|")
NAMES = "anna|peter|maria|james|susan|david|laura|robert|emma|thomas|grandma|my mother".split("|")
DAYS = "monday|tuesday|wednesday|thursday|friday|saturday|sunday|tomorrow|today".split("|")
DAY_PARTS = "in the morning|in the afternoon|in the evening".split("|")


def number(value: int) -> str:
    """1 to 99 in words: 42 is "forty two"."""
    if value < 10:
        return _UNITS[value - 1]
    if value < 20:
        return _TEENS[value - 10]
    tens, units = divmod(value, 10)
    return _TENS[tens - 2] + (f" {_UNITS[units - 1]}" if units else "")


def _time(rng: random.Random) -> str:
    hour = rng.choice(_HOURS)
    minute = rng.randint(1, 59)
    return rng.choice(
        [
            f"half past {hour}",
            f"quarter {rng.choice(['past', 'to'])} {hour}",
            f"{rng.choice(['five', 'ten', 'twenty'])} {rng.choice(['past', 'to'])} {hour}",
            f"{hour} o'clock",
            f"{hour} {number(minute)}" if minute > 9 else f"{hour} o'clock",
            rng.choice(["noon", "midnight", hour]),
        ]
    )


def _duration(rng: random.Random) -> str:
    unit = rng.choices(["minutes", "seconds", "hours"], [6, 2, 2])[0]
    value = rng.randint(1, 24 if unit == "hours" else 99)
    plain = f"{number(value)} {unit if value > 1 else unit[:-1]}"
    mixed = f"{number(rng.randint(2, 12))} hours and {number(rng.randint(2, 59))} minutes"
    return rng.choices([plain, "half an hour", "an hour", mixed], [85, 4, 3, 8])[0]


def _percent(rng: random.Random) -> str:
    return f"{number(rng.randint(1, 99))} percent"


def _timers(rng: random.Random) -> str:
    return rng.choice(
        [
            f"set a timer for {_duration(rng)}",
            f"set a timer for {_duration(rng)}",
            f"start a timer for {_duration(rng)}",
            f"cancel the timer for {_duration(rng)}",
            f"add {_duration(rng)} to the timer",
            "how much time is left on the timer",
        ]
    )


def _alarms(rng: random.Random) -> str:
    when = _time(rng)
    if rng.random() < 0.4:
        when += " " + rng.choice([*DAY_PARTS, *(f"on {day}" for day in DAYS[:7]), *DAYS[7:]])
    return rng.choice(
        [
            f"wake me at {when}",
            f"wake me up at {when}",
            f"set an alarm for {when}",
            f"cancel the alarm at {when}",
        ]
    )


def _lights(rng: random.Random) -> str:
    room, light = rng.choice(ROOMS), rng.choice(LIGHTS)
    switch = rng.choice(["on", "off"])
    return rng.choice(
        [
            f"turn {switch} the {room} {light}",
            f"turn {switch} the {room} {light}",
            f"switch {switch} the {light} in the {room}",
            f"turn the {room} {light} {switch}",
            f"dim the {room} {light} to {_percent(rng)}",
            f"set the {room} {light} to {rng.choice(COLORS)}",
            f"make the {room} {light} {rng.choice(['brighter', 'darker', *COLORS])}",
        ]
    )


def _devices(rng: random.Random) -> str:
    room, device, switch = rng.choice(ROOMS), rng.choice(DEVICES), rng.choice(["on", "off"])
    appliance = rng.choice(APPLIANCES)
    return rng.choice(
        [
            f"turn {switch} the {device} in the {room}",
            f"switch {switch} the {room} {device}",
            f"turn the {device} {switch} in {_duration(rng)}",
            f"{rng.choice(['start', 'stop'])} the {appliance}",
            f"{rng.choice(['start', 'stop'])} the {appliance} at {_time(rng)}",
            f"turn {switch} the {appliance} in {_duration(rng)}",
        ]
    )


def _climate(rng: random.Random) -> str:
    room, degrees = rng.choice(ROOMS), f"{number(rng.randint(5, 35))} degrees"
    return rng.choice(
        [
            f"set the {room} to {degrees}",
            f"set the temperature in the {room} to {degrees}",
            f"{rng.choice(['heat', 'cool'])} the {room} to {degrees}",
            f"set the oven to {rng.choice(['one', 'two'])} hundred {number(rng.randint(1, 99))}"
            " degrees",
            f"what is the temperature in the {room}",
            f"how {rng.choice(['warm', 'cold', 'humid'])} is the {room}",
        ]
    )


def _doors(rng: random.Random) -> str:
    return rng.choice(
        [
            f"{rng.choice(['lock', 'unlock', 'open', 'close'])} the {rng.choice(DOORS)}",
            f"is the {rng.choice(DOORS)} {rng.choice(['locked', 'open', 'closed'])}",
            f"{rng.choice(['open', 'close'])} the {rng.choice(ROOMS)} {rng.choice(SHADES)}",
            f"{rng.choice(['raise', 'lower'])} the {rng.choice(SHADES)} in the {rng.choice(ROOMS)}",
            f"open the {rng.choice(ROOMS)} {rng.choice(SHADES)} to {_percent(rng)}",
        ]
    )


def _sound(rng: random.Random) -> str:
    return rng.choice(
        [
            f"play {rng.choice(MUSIC)} in the {rng.choice(ROOMS)}",
            f"play {rng.choice(MUSIC)} for {_duration(rng)}",
            f"stop the music in the {rng.choice(ROOMS)}",
            f"set the volume to {_percent(rng)}",
            f"turn the volume {rng.choice(['up', 'down'])} by {_percent(rng)}",
            f"play {rng.choice(MUSIC)} at {_time(rng)}",
        ]
    )


def _errands(rng: random.Random) -> str:
    amount = number(rng.randint(2, 30))
    return rng.choice(
        [
            f"add {rng.choice(ITEMS)} to the shopping list",
            f"add {rng.choice(ITEMS)} and {rng.choice(ITEMS)} to the shopping list",
            f"add {amount} {rng.choice(['boxes', 'bottles', 'bags'])} of {rng.choice(ITEMS)}",
            f"remove {rng.choice(ITEMS)} from the shopping list",
            f"remind me to {rng.choice(CHORES)} at {_time(rng)}",
            f"remind me to {rng.choice(CHORES)} in {_duration(rng)}",
            f"remind me to {rng.choice(CHORES)} on {rng.choice(DAYS[:7])}",
            f"call {rng.choice(NAMES)} at {_time(rng)}",
            f"send a message to {rng.choice(NAMES)}",
            f"what is the weather {rng.choice(DAYS[7:])} {rng.choice(DAY_PARTS)}",
            f"what is on my calendar on {rng.choice(DAYS[:7])}",
        ]
    )


_TOPICS = {
    _timers: 16, _alarms: 16, _lights: 18, _devices: 12, _climate: 10, _doors: 10, _sound: 9,
    _errands: 16,
}  # fmt: skip


def is_held_out(phrase: str) -> bool:
    """Whether a phrase is kept from training: a tenth of all, by hash, "please" disregarded."""
    core = " ".join(word for word in phrase.split() if word != "please")
    return hashlib.sha256(core.encode()).digest()[0] < 26


def phrases(seed: int, held_out: bool) -> Iterator[str]:
    """An endless stream of phrases, all held out or none; a phrase may come again."""
    rng = random.Random(f"phrases {seed} {held_out}")
    while True:
        topic = rng.choices(list(_TOPICS), list(_TOPICS.values()))[0]
        phrase = topic(rng)
        polite = rng.random()
        if polite < 0.08:
            phrase = f"please {phrase}"
        elif polite < 0.16:
            phrase = f"{phrase} please"
        if is_held_out(phrase) == held_out:
            yield phrase


# --- voices and synthesis ----------------------------------------------------------------------


@dataclass(frozen=True)
class Voice:
    """How espeak-ng speaks a phrase.

    accent, variant: its names, e.g. "en-us" and "f3"; the variant may be empty.
    speed: words a minute. pitch, pitch_range: 0 to 100, 50 is the voice's own.
    stretch: playing speed of the finished sound; it moves the formants as a longer or shorter
    throat does, so one variant stands for several speakers.
    """

    accent: str
    variant: str
    speed: int = 170
    pitch: int = 50
    pitch_range: int = 50
    stretch: float = 1.0

    @property
    def name(self) -> str:
        return f"{self.accent}+{self.variant}" if self.variant else self.accent


ACCENTS = ("en", "en-us", "en-gb-scotland", "en-gb-x-rp", "en-gb-x-gbclan", "en-us-nyc")
VARIANTS = (
    "", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "f1", "f3", "f4", "f5", "Alex", "Alicia",
    "Andrea", "Andy", "Annie", "adam", "belinda", "linda", "max", "Michael", "norbert", "steph",
    "steph2", "travis", "victor", "zac",
)  # fmt: skip
# No training clip has this variant or this second accent, in any combination.
HELD_OUT_VOICE = Voice("en", "f2")
HELD_OUT_ACCENT = Voice("en-029", "f2")


def random_voice(rng: random.Random) -> Voice:
    """A voice of the training set."""
    return Voice(
        accent=rng.choice(ACCENTS),
        variant=rng.choice(VARIANTS),
        speed=rng.randint(135, 215),
        pitch=rng.randint(25, 80),
        pitch_range=rng.randint(25, 80),
        stretch=rng.uniform(0.9, 1.12) if rng.random() < 0.5 else 1.0,
    )


@dataclass(frozen=True)
class Clip:
    """One recording with what is said in it and when.

    samples: (n,) int16 at RATE. text: the words, lower case, one space between.
    word_times: (words, 2) float32, begin and end in seconds.
    phones: espeak-ng's names of the sounds. phone_times: (phones,) float32, begins in seconds.
    """

    samples: np.ndarray
    text: str
    word_times: np.ndarray
    phones: tuple[str, ...]
    phone_times: np.ndarray

    @property
    def seconds(self) -> float:
        return len(self.samples) / RATE

    def between(self, first: int, last: int) -> Self:
        """The clip cut down to words first..last (inclusive)."""
        begin = float(self.word_times[first, 0])
        end = float(self.word_times[last, 1])
        kept = [i for i, t in enumerate(self.phone_times) if begin <= t < end]
        return replace(
            self,
            samples=self.samples[round(begin * RATE) : round(end * RATE)],
            text=" ".join(self.text.split()[first : last + 1]),
            word_times=self.word_times[first : last + 1] - np.float32(begin),
            phones=tuple(self.phones[i] for i in kept),
            phone_times=self.phone_times[kept] - np.float32(begin),
        )

    def followed_by(self, other: Self, pause_s: float) -> Self:
        """This clip, a pause, and another."""
        shift = np.float32(self.seconds + pause_s)
        pause = np.zeros(round(pause_s * RATE), np.int16)
        return replace(
            self,
            samples=np.concatenate([self.samples, pause, other.samples]),
            text=f"{self.text} {other.text}",
            word_times=np.concatenate([self.word_times, other.word_times + shift]),
            phones=(*self.phones, "_", *other.phones),
            phone_times=np.concatenate(
                [self.phone_times, [np.float32(self.seconds)], other.phone_times + shift]
            ).astype(np.float32),
        )


class SpeechUnavailable(RuntimeError):
    """espeak-ng is not installed or does not work here."""


class _EventId(ctypes.Union):
    _fields_ = (("number", ctypes.c_int), ("name", ctypes.c_char_p), ("phone", ctypes.c_char * 8))


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", _EventId),
    )


_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)
_SYNCHRONOUS, _PHONE_EVENTS, _DONT_EXIT = 2, 1, 0x8000
_SPEED, _PITCH, _PITCH_RANGE = 1, 3, 4
_END, _WORD, _PHONE = 0, 1, 7
_UTF8 = 1


class Speaker:
    """espeak-ng's library, which tells when each word and phone begins; its program does not.

    The library keeps one state a process: use one Speaker a process, from one thread.
    """

    def __init__(self) -> None:
        name = ctypes.util.find_library("espeak-ng") or "libespeak-ng.so.1"
        try:
            self._library = ctypes.CDLL(name)
        except OSError as error:
            raise SpeechUnavailable(
                "espeak-ng is not installed; it is needed to make the speech "
                "(Debian and Ubuntu: apt install espeak-ng)."
            ) from error
        self._rate = self._library.espeak_Initialize(
            _SYNCHRONOUS, 500, None, _PHONE_EVENTS | _DONT_EXIT
        )
        if self._rate <= 0:
            raise SpeechUnavailable(
                "espeak-ng is installed but its voice data is not found: reinstall espeak-ng-data."
            )
        self._sound: list[np.ndarray] = []
        self._events: list[tuple[int, int, int, str]] = []
        self._callback = _CALLBACK(self._receive)  # kept: the library calls it later
        self._library.espeak_SetSynthCallback(self._callback)

    def _receive(self, wave: ctypes.Array, count: int, events: ctypes.Array) -> int:
        if wave and count > 0:
            self._sound.append(np.ctypeslib.as_array(wave, (count,)).copy())
        index = 0
        while events[index].type != _END:
            event = events[index]
            if event.type in (_WORD, _PHONE):
                phone = bytes(event.id.phone).decode("utf-8", "replace")
                self._events.append((event.type, event.text_position, event.sample, phone))
            index += 1
        return 0

    def say(self, text: str, voice: Voice) -> Clip:
        """Speaks a phrase; leading and trailing silence is cut to a few hundredths of a second."""
        self._sound, self._events = [], []
        if self._library.espeak_SetVoiceByName(voice.name.encode()) != 0:
            raise SpeechUnavailable(f"espeak-ng has no voice {voice.name!r}: install a newer one.")
        self._library.espeak_SetParameter(_SPEED, voice.speed, 0)
        self._library.espeak_SetParameter(_PITCH, voice.pitch, 0)
        self._library.espeak_SetParameter(_PITCH_RANGE, voice.pitch_range, 0)
        spoken = text.encode()
        self._library.espeak_Synth(spoken, len(spoken) + 1, 0, 1, 0, _UTF8, None, None)
        self._library.espeak_Synchronize()
        sound = np.concatenate(self._sound).astype(np.float32) / 32768.0
        scale = self._rate * voice.stretch
        samples = resample(sound, scale, RATE)
        begins = {position: at / scale for kind, position, at, _ in self._events if kind == _WORD}
        phones = [(name, at / scale) for kind, _, at, name in self._events if kind == _PHONE]
        return _trimmed(text, samples, begins, phones)


def _trimmed(
    text: str, samples: np.ndarray, begins: dict[int, float], phones: list[tuple[str, float]]
) -> Clip:
    """A clip without the silence around the speech, each word with its begin and end."""
    loud = np.flatnonzero(np.abs(samples) > 0.01 * np.abs(samples).max())
    air = round(0.03 * RATE)
    first, last = max(0, loud[0] - air), min(len(samples), loud[-1] + air)
    offset, end = first / RATE, last / RATE

    positions = np.cumsum([1, *(len(word) + 1 for word in text.split())])[:-1]
    # Words that espeak-ng speaks as one ("in the") have one event: the others follow in their
    # share of the letters, found by interpolation over the text.
    known = sorted((p, t) for p, t in begins.items() if 1 <= p <= len(text))
    at = np.interp([*positions, len(text) + 2], *zip(*[*known, (len(text) + 2, end)], strict=True))
    times = np.stack([at[:-1], at[1:]], axis=1) - offset
    return Clip(
        samples=np.round(samples[first:last] * 32767).astype(np.int16),
        text=text,
        word_times=np.clip(times, 0, end - offset).astype(np.float32),
        phones=tuple(name for name, _ in phones),
        phone_times=np.array([max(0.0, t - offset) for _, t in phones], np.float32),
    )


@cache
def speaker() -> Speaker:
    """This process's speaker."""
    return Speaker()


# --- what a room does to the sound --------------------------------------------------------------

NOISES = ("white", "pink", "hum")


def degrade(
    clip: Clip, rng: np.random.Generator, snr_db: float | None, *, plain: bool = False
) -> tuple[np.ndarray, float]:
    """Places a clip in a window, with noise, an echo and a gain.

    Args:
        clip: at most WINDOW_S long.
        rng: decides offset, kind of noise, echo and gain.
        snr_db: the speech's power over the noise's, decibels; None adds no noise.
        plain: no echo and no gain, noise only.

    Returns:
        (WINDOW_S * RATE,) float32 in -1..1, and the second at which the clip begins.
    """
    size = WINDOW_S * RATE
    speech = clip.samples.astype(np.float32) / 32768.0
    if not plain and len(speech) and rng.random() < 0.3:
        speech = _echo(speech, rng)
    room = size - len(speech)
    offset = int(min(rng.exponential(0.5) * RATE, room)) if rng.random() < 0.8 else 0
    window = np.zeros(size, np.float32)
    window[offset : offset + len(speech)] = speech
    if snr_db is not None:
        power = float(np.mean(np.square(speech))) if len(speech) else 1e-3
        noise = _noise(size, rng)
        window += noise * np.float32(np.sqrt(power / 10 ** (snr_db / 10)))
    peak = float(np.abs(window).max())
    gain = 0.9 if plain else 10 ** (-rng.uniform(0, 30) / 20)
    return (window * np.float32(gain / peak) if peak else window), offset / RATE


def _noise(size: int, rng: np.random.Generator) -> np.ndarray:
    """(size,) float32 of mean power 1."""
    match NOISES[rng.integers(len(NOISES))]:
        case "white":
            noise = rng.standard_normal(size, np.float32)
        case "pink":
            spectrum = np.fft.rfft(rng.standard_normal(size, np.float32))
            spectrum /= np.sqrt(np.maximum(np.arange(len(spectrum)), 20.0))
            noise = np.fft.irfft(spectrum, size)
        case _:
            t = np.arange(size) / RATE
            base = rng.choice([50.0, 60.0]) * rng.integers(1, 4)
            noise = 0.2 * rng.standard_normal(size)
            for harmonic in range(1, 7):
                phase = rng.uniform(0, 2 * np.pi)
                wave = np.sin(2 * np.pi * base * harmonic * t + phase)
                noise += rng.uniform(0, 1) / harmonic * wave
    noise = noise.astype(np.float32)
    return noise / np.float32(np.sqrt(np.mean(np.square(noise))) + 1e-9)


def _echo(speech: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The speech in a small room: itself, and an exponentially dying tail of reflections."""
    length = int(rng.uniform(0.05, 0.25) * RATE)
    response = rng.standard_normal(length) * np.exp(-6.9 * np.arange(length) / length)
    response *= rng.uniform(0.1, 0.5) / (np.sqrt(np.sum(np.square(response))) + 1e-9)
    response[0] = 1.0
    size = 1 << (len(speech) + length).bit_length()  # a power of two transforms fastest
    wet = np.fft.irfft(np.fft.rfft(speech, size) * np.fft.rfft(response, size), size)
    return wet[: len(speech)].astype(np.float32)


# --- corpora --------------------------------------------------------------------------------


def training_clip(rng: random.Random, source: Iterator[str]) -> Clip:
    """One clip as training wants them: mostly one phrase, sometimes two, a part of one, or none.

    Parts and pairs are what the windows of a longer recording hold; silence has no words.
    """
    kind = rng.random()
    if kind < 0.02:
        empty = np.zeros((0, 2), np.float32)
        return Clip(np.zeros(0, np.int16), "", empty, (), np.zeros(0, np.float32))
    clip = _fitting(rng, source, random_voice(rng))
    words = len(clip.text.split())
    if kind < 0.10 and words > 2:
        first = rng.randrange(words - 1)
        return clip.between(first, rng.randrange(first, words))
    if kind < 0.18:
        pause = rng.uniform(0.1, 0.6)
        other = speaker().say(next(source), random_voice(rng))
        if clip.seconds + pause + other.seconds <= _MAX_SPEECH_S:
            return clip.followed_by(other, pause)
    return clip


def _fitting(rng: random.Random, source: Iterator[str], voice: Voice) -> Clip:
    """The next phrase as a clip that fits into the window, spoken faster where it must be."""
    phrase = next(source)
    while True:
        clip = speaker().say(phrase, voice)
        if clip.seconds <= _MAX_SPEECH_S:
            return clip
        voice = replace(voice, speed=voice.speed + rng.randint(20, 50))


def held_out_clips(count: int, seed: int = 0, voice: Voice = HELD_OUT_VOICE) -> list[Clip]:
    """Different held-out phrases in a held-out voice, at speeds and pitches of the training."""
    rng = random.Random(f"held out {seed}")
    clips: dict[str, Clip] = {}
    for phrase in phrases(seed, held_out=True):
        if len(clips) == count:
            break
        if phrase not in clips:
            spoken = replace(voice, speed=rng.randint(140, 200), pitch=rng.randint(35, 65))
            clips[phrase] = _fitting(rng, iter([phrase]), spoken)
    return list(clips.values())


def training_shard(count: int, seed: int, shard: int) -> list[Clip]:
    """The clips of one of several shards of different phrases."""
    rng = random.Random(f"clips {seed} {shard}")
    source = phrases(seed * 100_003 + shard, held_out=False)
    return [training_clip(rng, source) for _ in range(count)]


def save_shard(path: Path, count: int, seed: int, shard: int) -> None:
    """Makes one shard's file unless it is there; written aside first, so it is whole or absent."""
    if path.exists():
        return
    clips = training_shard(count, seed, shard)
    aside = path.with_suffix(".part.npz")
    np.savez(
        aside,
        samples=np.concatenate([clip.samples for clip in clips]),
        lengths=[len(clip.samples) for clip in clips],
        texts=[clip.text for clip in clips],
        word_times=np.concatenate([clip.word_times for clip in clips]),
        phones=["\t".join(clip.phones) for clip in clips],
        phone_times=np.concatenate([clip.phone_times for clip in clips]),
    )
    aside.rename(path)


def load_shard(path: Path) -> list[Clip]:
    """The clips of one shard's file."""
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files}
    clips, sample, word, phone = [], 0, 0, 0
    for length, text, phones in zip(
        arrays["lengths"], arrays["texts"], arrays["phones"], strict=True
    ):
        names = tuple(str(phones).split("\t")) if phones else ()
        words = len(str(text).split())
        clips.append(
            Clip(
                samples=arrays["samples"][sample : sample + length],
                text=str(text),
                word_times=arrays["word_times"][word : word + words],
                phones=names,
                phone_times=arrays["phone_times"][phone : phone + len(names)],
            )
        )
        sample, word, phone = sample + length, word + words, phone + len(names)
    return clips


def training_shards(
    cache_dir: Path, shards: int, clips_each: int, seed: int, processes: int
) -> Iterable[Path]:
    """Files of training clips in `cache_dir`, made in parallel where they are missing, in order."""
    speaker()  # says at once, and in this process, that espeak-ng is missing
    cache_dir.mkdir(parents=True, exist_ok=True)
    paths = [
        cache_dir / f"clips-seed{seed}-{clips_each}-{shard:03d}.npz" for shard in range(shards)
    ]
    # Fresh processes: the library's state must not be shared with this one.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        made = pool.map(save_shard, paths, repeat(clips_each), repeat(seed), range(shards))
        for path, _ in zip(paths, made, strict=True):
            yield path
