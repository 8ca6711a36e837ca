"""Recordings of every kind come out right, or as a sentence that says what is wrong."""

import tracemalloc
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile

from xla_backend.checkpoints.audio import read, resample, windows
from xla_backend.interface.errors import InvalidRequest

RATE = 16_000


def tone(rate: int, seconds: float, hz: float = 440.0, level: float = 0.5) -> np.ndarray:
    return (level * np.sin(2 * np.pi * hz * np.arange(round(rate * seconds)) / rate)).astype("f4")


def loudest_hz(samples: np.ndarray, rate: int = RATE) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum) * rate / len(samples))


# --- what comes out right -------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 22_050, 44_100, 48_000, 96_000, 192_000])
def test_any_rate_keeps_length_pitch_and_level(rate):
    samples = read((rate, tone(rate, 1.0)), RATE)
    assert samples.dtype == np.float32
    assert samples.ndim == 1
    assert abs(len(samples) - RATE) <= 1
    assert loudest_hz(samples) == pytest.approx(440, abs=2)
    assert np.abs(samples[2000:-2000]).max() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("name", "codec", "rate", "channels"),
    [
        ("voice.m4a", "aac", 44_100, 1),
        ("page.webm", "libopus", 48_000, 2),
        ("radio.aac", "aac", 22_050, 6),
        ("old.3gp", "aac", 8_000, 1),
        ("film.mov", "pcm_s16le", 96_000, 2),
        ("hall.m4a", "aac", 96_000, 8),
        ("phone.amr", "libopencore_amrnb", 8_000, 1),
    ],
)
def test_what_telephones_and_browsers_record_is_read(tmp_path, name, codec, rate, channels):
    layout = {1: "mono", 2: "stereo", 6: "5.1", 8: "7.1"}[channels]
    path = tmp_path / name
    wave = np.repeat(tone(rate, 2.0)[:, None], channels, axis=1)
    with av.open(path, "w", format="adts" if name.endswith(".aac") else None) as file:
        stream = file.add_stream(codec, rate=rate, layout=layout)
        frame = av.AudioFrame.from_ndarray(wave.reshape(1, -1), "flt", layout)
        frame.rate = rate
        file.mux([*stream.encode(frame), *stream.encode(None)])
    samples = read(path, RATE)
    assert len(samples) == pytest.approx(2 * RATE, abs=RATE // 4)
    assert loudest_hz(samples) == pytest.approx(440, abs=3)
    assert np.abs(samples[4000:-8000]).max() == pytest.approx(0.5, abs=0.15)
    with pytest.raises(InvalidRequest, match="at most 1 s"):
        read(path, RATE, max_seconds=1)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(InvalidRequest, match=r"cannot be read as audio|contains no sound"):
        read(path, RATE)


def film(path: Path, *tracks: np.ndarray) -> Path:
    """A film of a tenth of a second, with these sound tracks at `RATE`."""
    with av.open(path, "w") as file:
        picture = file.add_stream("mpeg4", rate=10)
        picture.width = picture.height = 16
        sounds = [file.add_stream("aac", rate=RATE, layout="mono") for _ in tracks]
        shown = av.VideoFrame.from_ndarray(np.zeros((16, 16, 3), np.uint8), "rgb24")
        file.mux([*picture.encode(shown), *picture.encode()])
        for stream, samples in zip(sounds, tracks, strict=True):
            frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), "flt", "mono")
            frame.rate = RATE
            file.mux([*stream.encode(frame), *stream.encode()])
    return path


def test_a_film_is_read_by_the_track_that_has_its_sound(tmp_path):
    sound, silence = tone(RATE, 0.5).astype(np.float32), np.zeros(RATE // 2, np.float32)
    for name, tracks in (("first.mp4", [sound, silence]), ("second.mkv", [silence, sound])):
        assert abs(loudest_hz(read(film(tmp_path / name, *tracks), RATE)) - 440) < 5
    assert not np.any(read(film(tmp_path / "still.mp4", silence, silence), RATE))
    with pytest.raises(InvalidRequest, match=r"'mute\.mp4' has no sound track"):
        read(film(tmp_path / "mute.mp4"), RATE)


def test_a_playlist_is_no_recording(tmp_path):
    """It would have other files and addresses read."""
    soundfile.write(tmp_path / "secret.wav", tone(RATE, 1.0), RATE)
    for name, text in (
        ("list.m3u8", "#EXTM3U\n#EXTINF:1,\nsecret.wav\n#EXT-X-ENDLIST\n"),
        ("list.ffconcat", "ffconcat version 1.0\nfile secret.wav\n"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(InvalidRequest, match="cannot be read as audio"):
            read(tmp_path / name, RATE)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "float16", "float32", "f8"])
def test_any_sample_format_gives_the_same_sound(dtype):
    wave = tone(RATE, 0.5)
    match np.dtype(dtype):
        case np.dtype(kind="f"):
            samples = wave.astype(dtype)
        case np.dtype(name="uint8"):
            samples = np.round(wave * 127 + 128).astype(dtype)
        case _:
            samples = (wave.astype("f8") * np.iinfo(dtype).max).astype(dtype)
    assert np.abs(read((RATE, samples), RATE) - wave).max() < 0.02


def test_full_scale_integers_and_floats_beyond_it_stay_within_one() -> None:
    extremes = np.array([-32768, 32767, 0], np.int16)
    assert read((RATE, extremes), RATE).tolist() == pytest.approx([-1.0, 1.0, 0.0], abs=1e-4)
    samples = read((48_000, tone(48_000, 1.0, hz=11_000)), RATE)
    assert np.abs(samples[1000:-1000]).max() < 0.01

    left, right = tone(RATE, 0.2, 300), tone(RATE, 0.2, 500)
    mean = (left + right) / 2
    for stereo in (np.stack([left, right], axis=1), np.stack([left, right])):
        assert np.allclose(read((RATE, stereo), RATE), mean, atol=1e-6)

    stereo = np.stack([tone(96_000, 0.5)] * 2, axis=1)
    samples = read((96_000, (stereo * 32767).astype("i2")), RATE)
    assert len(samples) == RATE // 2
    assert loudest_hz(samples) == pytest.approx(440, abs=3)


def test_silence_one_sample_and_a_pair_as_a_list_are_recordings() -> None:
    samples = read((RATE, np.zeros(RATE, np.int16)), RATE)
    assert len(samples) == RATE
    assert not samples.any()
    assert len(read((192_000, np.zeros(1, np.float32)), RATE)) == 1
    assert len(read([np.int64(RATE), tone(RATE, 0.1)], RATE)) == 1600
    assert len(read((RATE, np.zeros(RATE, np.int16)), RATE, max_seconds=1.0)) == RATE
    with pytest.raises(InvalidRequest):
        read((RATE, np.zeros(RATE + 1, np.int16)), RATE, max_seconds=1.0)


@pytest.mark.parametrize("seconds", [0.05, 0.001])
def test_a_very_short_recording_is_kept(seconds):
    samples = read((44_100, tone(44_100, seconds)), RATE)
    assert len(samples) == pytest.approx(seconds * RATE, abs=1)


@pytest.mark.parametrize("level", [20_000.0, 1e30])
def test_floats_beyond_full_scale_are_brought_down_to_it(level):
    samples = read((RATE, tone(RATE, 0.1).astype("f8") * level), RATE)
    assert np.abs(samples).max() == pytest.approx(1.0)
    assert np.isfinite(samples).all()


@pytest.mark.parametrize(
    ("name", "subtype"),
    [
        ("a.wav", "PCM_U8"),
        ("a.wav", "PCM_16"),
        ("a.wav", "PCM_24"),
        ("a.wav", "FLOAT"),
        ("a.wav", "ULAW"),
        ("a.flac", "PCM_16"),
        ("a.ogg", "VORBIS"),
        ("a.mp3", "MPEG_LAYER_III"),
    ],
)
def test_files_are_read(tmp_path, name, subtype):
    path = tmp_path / name
    soundfile.write(path, np.stack([tone(44_100, 1.0)] * 2, axis=1), 44_100, subtype=subtype)
    for given in (path, str(path)):
        samples = read(given, RATE)
        assert len(samples) == pytest.approx(RATE, abs=1200)  # MP3 pads
        assert loudest_hz(samples) == pytest.approx(440, abs=3)


def test_a_file_is_what_it_holds_and_not_what_it_says(tmp_path) -> None:
    path = tmp_path / "really-flac.wav"
    soundfile.write(path, tone(RATE, 0.1), RATE, format="FLAC")
    assert len(read(path, RATE)) == 1600

    path = tmp_path / "cut.wav"
    soundfile.write(path, tone(RATE, 1.0), RATE, subtype="PCM_16")
    path.write_bytes(path.read_bytes()[: 44 + RATE])  # half of the samples
    assert len(read(path, RATE)) == RATE // 2

    path = tmp_path / "lie.wav"
    soundfile.write(path, tone(RATE, 1.0), RATE, subtype="PCM_16")
    content = bytearray(path.read_bytes())
    content[40:44] = (0x7FFFFFF0).to_bytes(4, "little")
    path.write_bytes(bytes(content))
    assert len(read(path, RATE)) == RATE

    path = tmp_path / "nan.wav"
    soundfile.write(path, np.full(100, np.nan, np.float32), RATE, subtype="FLOAT")
    with pytest.raises(InvalidRequest, match="100 of 100 samples"):
        read(path, RATE)


# --- what is refused, in words --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("audio", "words"),
    [
        ((RATE, np.zeros(0, np.float32)), "empty"),
        ((RATE, np.zeros((0, 2), np.int16)), "empty"),
        ((RATE, np.float32(1.0)), r"shape \(\)"),
        ((RATE, np.zeros((2, 3, 4), np.float32)), r"shape \(2, 3, 4\)"),
        ((RATE, np.zeros((500, 500), np.float32)), "number of channels"),
        ((RATE, [[0.1], [0.2, 0.3]]), "do not form an array"),
        ((RATE, np.array([0.0, np.nan, np.inf])), "2 of 3 samples are not finite"),
        ((RATE, np.zeros(9, bool)), "type bool"),
        ((RATE, np.zeros(9, np.int64)), "type int64"),
        ((RATE, np.zeros(9, np.uint16)), "type uint16"),
        ((RATE, np.zeros(9, np.complex64)), "type complex64"),
        ((RATE, np.array(["a", "b"])), "type <U1"),
        ((RATE, None), "shape"),
        ((RATE, np.zeros(7200 * 100, np.int8)[None].repeat(2, 0).T), None),
        ((0, np.zeros(9, np.float32)), "whole number of Hz"),
        ((-16_000, np.zeros(9, np.float32)), "whole number of Hz"),
        ((10**9, np.zeros(9, np.float32)), "whole number of Hz"),
        ((float("nan"), np.zeros(9, np.float32)), "whole number of Hz"),
        ((44_100.5, np.zeros(9, np.float32)), "whole number of Hz"),
        (("fast", np.zeros(9, np.float32)), "'fast'"),
        ((None, np.zeros(9, np.float32)), "None"),
        ((True, np.zeros(9, np.float32)), "True"),
        (None, "NoneType"),
        (np.zeros(9, np.float32), "ndarray"),
        ((RATE,), "tuple"),
    ],
)
def test_bad_samples_are_refused_in_words(audio, words):
    if words is None:  # 45 s at this rate: long, but allowed
        assert len(read(audio, RATE)) == 7200 * 100
        return
    with pytest.raises(InvalidRequest, match=words):
        read(audio, RATE)


def test_two_hours_are_refused_before_they_are_decoded(tmp_path):
    path = tmp_path / "long.flac"
    with soundfile.SoundFile(path, "w", 8_000, 1, format="FLAC") as file:
        for _ in range(120):
            file.write(np.zeros(60 * 8_000, np.int16))
    with pytest.raises(InvalidRequest, match=r"7,200 s long; at most 600 s"):
        read(path, RATE)
    with pytest.raises(InvalidRequest, match=r"7,200 s long; at most 30 s"):
        read((8_000, np.zeros(7200 * 8_000, np.int8)), RATE, max_seconds=30)


@pytest.mark.parametrize("tells_its_length", [True, False])
def test_channels_and_rates_cost_no_memory(tmp_path, tells_its_length):
    """Half a megabyte of FLAC held 20 minutes of eight silent channels: 2 GB as floats."""
    path = tmp_path / "wide.flac"
    soundfile.write(path, np.zeros((20 * 48_000, 8), np.int16), 48_000)
    header = bytearray(path.read_bytes())
    if not tells_its_length:
        header[21] &= 0xF0  # with the next four bytes: how many samples there are
        header[22:26] = bytes(4)
    path.write_bytes(header)
    tracemalloc.start()
    try:
        if tells_its_length:
            assert len(read(path, RATE)) == 20 * RATE
        else:
            with pytest.raises(InvalidRequest, match="19 s long; at most 19 s"):
                read(path, RATE, 19.0)
        assert tracemalloc.get_traced_memory()[1] < 16e6  # as floats they are 31 MB
    finally:
        tracemalloc.stop()


def test_a_stereo_file_is_scaled_by_its_loudest_channel(tmp_path):
    path, loud = tmp_path / "loud.wav", np.stack([4 * tone(RATE, 0.5), tone(RATE, 0.5)], axis=1)
    soundfile.write(path, loud, RATE, subtype="FLOAT")
    np.testing.assert_allclose(read(path, RATE), read((RATE, loud), RATE), atol=1e-6)


def broken(folder: Path, kind: str) -> Path:
    path = folder / f"{kind}.wav"
    match kind:
        case "text":
            path.write_text("turn on the kitchen light\n" * 50)
        case "empty":
            path.touch()
        case "no samples":
            soundfile.write(path, np.zeros(0, np.float32), RATE)
        case "header only":
            soundfile.write(path, tone(RATE, 1.0), RATE)
            path.write_bytes(path.read_bytes()[:30])
        case "folder":
            path.mkdir()
    return path


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("text", "cannot be read as audio"),
        ("empty", "is empty"),
        ("no samples", "contains no sound"),
        ("header only", "cannot be read as audio|contains no sound"),
        ("folder", "no audio file"),
        ("missing", "no audio file"),
    ],
)
def test_bad_files_are_refused_in_words(tmp_path, kind, words):
    path = broken(tmp_path, kind)
    with pytest.raises(InvalidRequest, match=words) as raised:
        read(path, RATE)
    assert str(tmp_path) not in str(raised.value)  # a visitor need not learn the server's folders


@pytest.mark.parametrize("name", ["bad\0name.wav", "x" * 5000, "", "sound.raw"])
def test_odd_paths_are_refused_in_words(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("sound.raw").write_bytes(bytes(1000))
    with pytest.raises(InvalidRequest):
        read(name, RATE)


# --- windows --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.05, 3.99, 4.0, 4.01, 9.0, 61.3])
def test_windows_joined_are_the_recording(seconds):
    rng = np.random.default_rng(0)
    samples = rng.standard_normal(round(seconds * RATE)).astype("f4")
    cut = windows(samples, RATE, 4.0)
    assert np.array_equal(np.concatenate([w.samples for w in cut]), samples)
    assert all(0 < len(w.samples) <= 4 * RATE for w in cut)
    starts = np.cumsum([0, *(len(w.samples) for w in cut)])[:-1] / RATE
    assert [w.start_s for w in cut] == pytest.approx(starts)
    assert len(cut) <= max(1, np.ceil(seconds / 2))


def test_windows_are_few_and_cut_on_pauses() -> None:
    sound = tone(RATE, 8.0)
    sound[round(3.1 * RATE) : round(3.4 * RATE)] = 0
    first, second, *_ = windows(sound, RATE, 4.0)
    assert 3.1 < second.start_s < 3.4
    assert len(first.samples) == round(second.start_s * RATE)

    assert len(windows(np.zeros(4 * RATE, np.float32), RATE, 4.0)) == 1
    assert len(windows(np.zeros(40 * RATE, np.float32), RATE, 4.0)) <= 11
    for window_s in (0.0, -1.0, 1e-9, float("nan")):
        with pytest.raises(ValueError, match="holds no samples"):
            windows(np.zeros(10, np.float32), RATE, window_s)
    assert len(windows(np.zeros(10, np.float32), 1000, 0.001)) == 10
    samples = tone(RATE, 0.1)
    assert np.array_equal(resample(samples, RATE, RATE), samples)
