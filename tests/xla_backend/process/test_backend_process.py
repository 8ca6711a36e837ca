"""Tests of `backend_process` and of the child's `engine_process`.

The first half has models without XLA, so that every moment can be chosen. The second half runs a
real engine in a real child, and kills it for real.
"""

import contextlib
import gc
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import gpt2
from tests.holding import Hold
from tests.waiting import wait_until
from tests.xla_backend.engine.fake_model import FakeRegistry, Steps, fake_models, said
from xla_backend import (
    BackendError,
    BackendProcess,
    BucketRules,
    CacheOutcome,
    EngineStatus,
    EngineStopped,
    GenerationOptions,
    InvalidRequest,
    ModelUnavailable,
    OutOfMemory,
)
from xla_backend.checkpoints.models import Registry
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.child_process.channel import Channel
from xla_backend.child_process.parent_side import ChildProcess
from xla_backend.interface.function_comparison import TOLERANCE
from xla_backend.interface.prompt import TokenIds
from xla_backend.interface.requests import Mode, TextRequest
from xla_backend.process import memory, supervisor
from xla_backend.process.engine_process import EngineProcess
from xla_backend.process.memory_bound import MemoryBound
from xla_backend.process.messages import EngineRequest, Settings
from xla_backend.rows import scheduler as row_scheduler

ROOT = Path(__file__).resolve().parents[3]
SHORT = GenerationOptions(max_new_tokens=4)
BEAMS = GenerationOptions(max_new_tokens=8, num_beams=2)
HALF = GenerationOptions(max_new_tokens=500)
LONG = GenerationOptions(max_new_tokens=1000)


# --- the child's side, over models without XLA ----------------------------------------------------


class ParentSide:
    """The other end of the channel of an `EngineProcess` that runs in threads of this process."""

    def __init__(self) -> None:
        ours, theirs = Pipe()
        self.channel, self.steps = Channel(ours), Steps()
        self._started: set[int | None] = set()
        settings = Settings(
            FakeRegistry(),  # type: ignore[arg-type]
            BucketRules(),
            preload="unknown",
            store="off",
            warm_up=None,
            log_level=0,
        )
        self.engine = EngineProcess(Channel(theirs), settings)
        self.threads = [
            threading.Thread(target=self.engine.listen, daemon=True),
            threading.Thread(target=self.engine.run, daemon=True),
        ]
        for thread in self.threads:
            thread.start()

    def ask(
        self, number: int, *, in_chunks: bool = False, prompt: str = "fox", salt: str = ""
    ) -> None:
        mode: Mode = "rows" if salt else "padded"
        payload = TextRequest("m", prompt, SHORT, mode, cache_salt=salt, in_chunks=in_chunks)
        self.channel.send(("request", EngineRequest(number, "generate", payload)))

    def told(self, *kinds: str) -> tuple[str, int | None, Any]:
        """The next message that is of one of these kinds, or any reply to a request; a request's
        first state is "started"."""
        while True:
            kind, number, value = self.channel.receive()
            if kind == "progress" and number not in self._started:
                self._started.add(number)
                kind = "started"
            if kind in (kinds or ("chunk", "result", "error", "dropped", "returned")):
                return kind, number, value

    def stop(self, number: int) -> None:
        """Sends it, and waits until it has arrived."""
        self.channel.send(("stop", number))
        wait_until(lambda: self.engine._active[number].is_stopped)

    def join(self) -> None:
        for thread in self.threads:
            thread.join()


@pytest.fixture
def mapped(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the share of memory mappings, which other tests have made of this process."""
    monkeypatch.setattr(memory, "mapped_share", lambda: getattr(request, "param", 0.0))


@pytest.fixture
def parent(mapped: None) -> Iterator[ParentSide]:
    side = ParentSide()
    with fake_models(side.steps):
        side.told("ready")  # although the model to preload is unknown
        side.ask(100)
        assert side.told()[:2] == ("result", 100)
        yield side
        side.channel.send(("close", None))
    side.join()


def test_requests_begin_in_the_order_of_arrival(parent: ParentSide) -> None:
    for number in range(20):
        parent.ask(number)
    messages = [parent.told("started", "result") for _ in range(40)]
    for kind in ("started", "result"):
        assert [number for told, number, _ in messages if told == kind] == list(range(20))
    assert {result.text for kind, _, result in messages if kind == "result"} == {said("fox", 4)}


def test_rows_run_beside_each_other(parent: ParentSide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_scheduler, "CHUNK_S", 0.0)  # a token a chunk
    parent.ask(1, salt="a")
    assert parent.told()[1] == 1
    gate = parent.steps.hold("decode")
    parent.ask(2, salt="a")
    gate.wait()
    parent.ask(3, salt="a")
    wait_until(lambda: parent.engine._backend._loop._inbox)
    gate.open()
    messages = [parent.told("started", "result") for _ in range(4)]
    assert [message[:2] for message in messages[:2]] == [("started", 2), ("started", 3)]
    assert {message[2].text for message in messages[2:]} == {said("fox", 4)}


def test_the_state_is_told_before_a_reply_that_changed_it(parent: ParentSide) -> None:
    for number, salt in ((1, ""), (2, "a"), (3, "a")):
        parent.ask(number, salt=salt)
        _, _, snapshot = parent.told("snapshot")
        while (message := parent.told("snapshot", "result"))[0] != "result":
            snapshot = message[2]
        entry = next(entry for entry in snapshot.entries if entry.key == message[2].key)
        assert entry.hits == {1: 1, 2: 0, 3: 1}[number]
        assert snapshot.past["m"][entry.key].times == {1: 2, 2: 1, 3: 2}[number]


def test_errors_are_told(parent: ParentSide, caplog: pytest.LogCaptureFixture) -> None:
    parent.ask(1, prompt="")
    kind, number, error = parent.told()
    assert (kind, number, type(error)) == ("error", 1, InvalidRequest)
    assert "The prompt is empty" in str(error)
    parent.steps.fail("advance", ZeroDivisionError("first line\nsecond line"))
    parent.ask(2)
    kind, number, error = parent.told()
    assert (kind, number, type(error)) == ("error", 2, BackendError)
    assert "ZeroDivisionError: first line)" in str(error)
    assert "second line" not in str(error)
    assert "Traceback" in caplog.text, "the log has the whole of it"
    parent.ask(3)
    assert parent.told()[:2] == ("result", 3)


def test_a_stop_reaches_a_stream_and_what_waits_and_nothing_else(parent: ParentSide) -> None:
    gate = parent.steps.hold("advance")
    parent.ask(1, in_chunks=True)
    gate.wait()
    parent.ask(2)
    wait_until(lambda: len(parent.engine._active) == 2)
    for number in (100, 99):  # ended, and unknown
        parent.channel.send(("stop", number))
    parent.stop(1)
    parent.channel.send(("stop", 2))
    wait_until(lambda: all(one.is_stopped for one in [*parent.engine._active.values()]))
    gate.open()
    messages = {(kind, number): value for kind, number, value in (parent.told() for _ in range(3))}
    assert messages["chunk", 1] == messages["result", 1].text == said("fox", 1)
    assert messages["result", 1].finish == "stopped"
    assert messages["dropped", 2] is None


def test_memory_that_runs_out_is_told_and_what_has_not_started_is_returned(
    parent: ParentSide,
) -> None:
    gate = parent.steps.hold("advance")
    parent.ask(1)
    gate.wait()
    parent.ask(2)
    wait_until(lambda: len(parent.engine._active) == 2)
    parent.steps.fail("advance", MemoryError())
    gate.open()
    assert parent.told("hard_limit")[0] == "hard_limit"
    kind, number, error = parent.told()
    assert (kind, number, type(error)) == ("error", 1, OutOfMemory)
    assert "fewer beams" in str(error)
    assert parent.told()[:2] == ("returned", 2)
    parent.ask(3)
    assert parent.told()[:2] == ("returned", 3)
    assert parent.steps.done.count("prefill m") == 2


def test_a_close_returns_what_has_not_started(parent: ParentSide) -> None:
    gate = parent.steps.hold("advance")
    parent.ask(1)
    gate.wait()
    parent.ask(2)
    wait_until(lambda: len(parent.engine._active) == 2)
    parent.channel.send(("close", None))
    parent.threads[0].join()
    gate.open()
    messages = {parent.told()[:2] for _ in range(2)}
    assert messages == {("result", 1), ("returned", 2)}


def test_freed_memory_goes_back_before_the_engine_counts_as_large(
    parent: ParentSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [10**12]
    monkeypatch.setattr(memory, "resident", lambda *_: held[0])
    monkeypatch.setattr(memory, "give_back", lambda: held.__setitem__(0, 10**9))
    monkeypatch.setattr(parent.engine, "_bound", MemoryBound(3 * 10**9, at_start=10**9))
    parent.ask(1)
    parent.ask(2)
    told = [parent.told("result", "soft_limit", "hard_limit")[:2] for _ in range(2)]
    assert told == [("result", 1), ("result", 2)]


@pytest.mark.parametrize(
    ("mapped", "mark"), [(0.85, "soft_limit"), (0.95, "hard_limit")], indirect=["mapped"]
)
def test_code_that_needs_too_many_mappings_is_told(parent: ParentSide, mark: str) -> None:
    assert parent.told("soft_limit", "hard_limit")[0] == mark


def test_end_of_the_parent_ends_a_running_stream(parent: ParentSide) -> None:
    gate = parent.steps.hold("advance")
    parent.ask(1, in_chunks=True)
    gate.wait()
    [running] = parent.engine._active.values()
    parent.channel.close()
    wait_until(lambda: running.is_stopped)
    gate.open()
    parent.join()
    result = running.read_all()
    assert result.finish == "stopped"


# --- a real engine in a real child ----------------------------------------------------------------


class Watched:
    """A `BackendProcess` whose statuses are kept, and whose engine can be held."""

    def __init__(self, model: Path, hold: Hold) -> None:
        self.model = str(model)
        self.hold = hold
        self.statuses: list[EngineStatus] = []
        self.process = BackendProcess(
            on_status=self._take, default_model=self.model, store="off", warm_up=None
        )

    def _take(self, status: EngineStatus) -> None:
        self.statuses.append(status)

    def wait_for(self, state: str) -> None:
        """Waits until the engine comes to a state, in which it stays or is held."""
        wait_until(lambda: self.process.status.state == state)

    def generate(
        self, prompt: str = "Once upon a time", options: Any = SHORT, model: str = ""
    ) -> Any:
        return self.process.generate(model or self.model, prompt, options, mode="padded")

    def stream(
        self, prompt: str = "Once upon a time", options: Any = SHORT, model: str = ""
    ) -> Any:
        return self.process.stream(model or self.model, prompt, options, mode="padded")


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that takes a good second for 500 tokens."""
    folder = tmp_path_factory.mktemp("process") / "slow"
    return str(gpt2(folder, seed=61, n_positions=1100, n_embd=512, n_layer=6, n_head=8))


@pytest.fixture(scope="module")
def watched(small_gpt2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    hold = Hold(tmp_path_factory.mktemp("hold"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(hold.folder))
        engine = Watched(small_gpt2, hold)
        yield engine
        engine.process.close()


def test_a_child_says_what_it_does_and_answers(watched: Watched) -> None:
    assert watched.process.wait_ready(240)
    assert watched.process.status.state == "ready"
    states = [status.state for status in watched.statuses]
    assert states[0] == "starting"
    assert "loading" in states
    assert any(watched.model in status.detail for status in watched.statuses)

    del watched.statuses[:]
    result = watched.generate()
    assert result.cache is CacheOutcome.MISS
    assert 0 < result.new_tokens <= 4
    watched.wait_for("ready")
    states = [status.state for status in watched.statuses]
    order = [states.index(state) for state in ("tracing", "compiling", "generating", "ready")]
    assert order == sorted(order)
    assert any(str(result.key) in status.detail for status in watched.statuses)
    sinces = [status.since for status in watched.statuses]
    assert sinces == sorted(sinces)
    assert watched.generate().cache is CacheOutcome.HIT


def test_the_parent_has_no_tensorflow_and_knows_the_entries(watched: Watched) -> None:
    result = watched.generate()
    entries = {entry.key: entry for entry in watched.process.cached_functions()}
    assert entries[result.key].hits >= 1
    infos = {info.name: info for info in watched.process.models()}
    assert infos[watched.model].loaded


def test_stream_passes_the_text_on_as_it_comes(watched: Watched) -> None:
    options = GenerationOptions(max_new_tokens=16)
    whole = watched.generate(options=options)
    stream = watched.stream(options=options)
    chunks = list(stream)
    assert "".join(chunks) == whole.text == stream.result.text
    assert list(stream) == []


def test_a_stop_keeps_what_was_written(watched: Watched) -> None:
    with watched.hold.at("chunk"):
        stream = watched.stream(options=LONG)
        text = next(stream)
        stream.stop()
    text += "".join(stream)
    assert stream.result.finish == "stopped"
    assert stream.result.text == text
    assert stream.result.new_tokens < LONG.max_new_tokens

    with watched.hold.at("chunk"):
        first = watched.stream(options=LONG)
        next(first)
        second = watched.stream(options=LONG)
        second.stop()
        first.stop()
    assert list(second) == []
    assert second.result is None
    list(first)


def test_a_prompt_is_tokenized_once(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often its request is predicted, with these and with other options."""
    # A prompt of its own: threads of other tests may still ask about theirs.
    prompt = "Counted once upon a time"
    encoded: list[str] = []
    encode = Tokenizer.encode
    monkeypatch.setattr(
        Tokenizer, "encode", lambda self, text: encoded.append(text) or encode(self, text)
    )
    predict = partial(watched.process.predict, watched.model, prompt)
    predicted = [predict(options) for options in (BEAMS, SHORT)]
    result = watched.generate(prompt)
    predicted.append(predict(SHORT.replace(exact_key=True)))
    assert {each.prompt_tokens for each in predicted} == {result.prompt_tokens}
    assert encoded.count(prompt) == 1


@pytest.mark.parametrize("way", ["closed", "dropped"])
def test_abandoned_streams(watched: Watched, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    sent: list[str] = []
    send = ChildProcess.send
    monkeypatch.setattr(
        ChildProcess,
        "send",
        lambda self, kind, value: sent.append(kind) or send(self, kind, value),
    )
    with watched.hold.at("generating"):
        stream = watched.stream(options=LONG)
        watched.wait_for("generating")
        assert "stop" not in sent
        if way == "closed":
            stream.close()
            assert list(stream) == []
        del stream
        gc.collect()
        assert "stop" in sent
    assert watched.generate().cache is CacheOutcome.HIT


def test_errors_keep_their_class_and_sentence(watched: Watched) -> None:
    with pytest.raises(InvalidRequest, match="empty"):
        watched.generate("")
    with pytest.raises(InvalidRequest, match="empty"):
        next(watched.stream(""))
    with pytest.raises(InvalidRequest, match="token"):
        watched.generate("word " * 5000)
    with pytest.raises(ModelUnavailable, match="no-such-model"):
        watched.process.generate("no-such-model", "hello", mode="padded")
    with pytest.raises(ModelUnavailable, match="no-such-model"):
        watched.process.predict("no-such-model", "hello", mode="padded")
    for prompt in ("", "word " * 5000):  # the parent refuses what the engine refuses, alike
        with pytest.raises(InvalidRequest) as from_engine:
            watched.generate(prompt)
        with pytest.raises(InvalidRequest) as from_parent:
            watched.process.predict(watched.model, prompt, SHORT, mode="padded")
        assert str(from_engine.value) == str(from_parent.value)
    assert watched.generate().cache is CacheOutcome.HIT


def test_wrong_flags_for_xla_are_told(small_gpt2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_no_such_flag=true")
    process = BackendProcess(default_model=str(small_gpt2), store="off")
    with pytest.raises(EngineStopped, match=r"cannot start: .*XLA_FLAGS.* --xla_no"):
        process.wait_ready(240)
    process.close()


def test_a_prompt_is_tokenized_in_the_caller_s_process(watched: Watched) -> None:
    request = TextRequest(watched.model, "Once upon a time", SHORT, mode="padded")
    prepared = watched.process.prepare(request)
    assert prepared.token_ids == tuple(Tokenizer.load(Path(watched.model)).encode(request.prompt))
    assert watched.process.predict_text(prepared) == watched.process.predict_text(request)
    result = watched.process.submit(prepared).read_all()
    assert (result.requested_key, result.prompt_tokens) == (prepared.key, len(prepared.token_ids))


def test_prediction_is_what_happens(watched: Watched) -> None:
    for prompt in ("Once", "Once upon a time there was a little fox who lived near the river."):
        for _ in range(2):  # a miss, then a hit
            predicted = watched.process.predict(watched.model, prompt, BEAMS, mode="padded")
            result = watched.generate(prompt, BEAMS)
            assert predicted.outcome is result.cache
            assert predicted.key == result.key
            assert predicted.prompt_tokens == result.prompt_tokens
        assert predicted.outcome is CacheOutcome.HIT
        assert predicted.expected_s is not None


def test_prompts_may_hold_any_character(watched: Watched) -> None:
    for prompt in ("\udcff\ud800", "\x00", "🦊🏳️‍🌈", "שלום עולם"):
        with contextlib.suppress(InvalidRequest):
            watched.generate(prompt, BEAMS)
    watched.wait_for("ready")


def test_the_parent_answers_at_once_while_the_engine_compiles(watched: Watched) -> None:
    watched.process.predict(watched.model, "warm", mode="padded")
    del watched.statuses[:]
    options = GenerationOptions(max_new_tokens=20, num_beams=3)
    thread = threading.Thread(target=watched.generate, kwargs={"options": options})
    with watched.hold.at("compiling"):
        thread.start()
        watched.wait_for("compiling")
        predicted = watched.process.predict(
            watched.model, "Once upon a time", options, mode="padded"
        )
        names = [info.name for info in watched.process.models()]
        watched.process.cached_functions()
    assert predicted.outcome is CacheOutcome.MISS
    assert watched.model in names
    thread.join()


def test_an_example_function_is_compared_in_the_child(watched: Watched) -> None:
    def outcomes(batch_size: int, pad: bool = False) -> list[CacheOutcome | None]:
        compared = watched.process.compare_function("dense", batch_size, pad=pad)
        assert compared.difference <= TOLERANCE
        return [result.cache for result in compared.results]

    first, later = ([None, each, each] for each in (CacheOutcome.MISS, CacheOutcome.HIT))
    assert [outcomes(3, pad=True), outcomes(4)] == [first, later]
    [kept] = watched.process.stored_keys()
    assert (kept.rows, kept.batch_sizes) == (4, (3, 4))
    with pytest.raises(InvalidRequest, match="no function 'gone'"):
        watched.process.compare_function("gone", 3)


def test_a_child_killed_while_idle(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    watched.generate()
    watched.wait_for("ready")
    old = watched.process.pid
    del watched.statuses[:]
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: watched.process.pid != old)  # without anybody asking for it
    stopped = next(status for status in watched.statuses if status.state == "stopped")
    assert "while it was idle" in stopped.detail
    assert "while it was idle" in caplog.text
    assert watched.process.cached_functions() == watched.process.stored_keys() == []
    assert (
        watched.process.predict(watched.model, "hello", mode="padded").outcome is CacheOutcome.MISS
    )
    assert watched.generate().cache is CacheOutcome.MISS
    assert watched.process.pid != old


_KILL = """
import os, signal, sys

def kill(event, arguments):
    is_step = event in ("open", "os.rename") and "/prefixes/" in str(arguments[0])
    if is_step and os.path.exists({left!r}):
        with open({left!r}) as file:
            left = int(file.read())
        if not left:
            os.remove({left!r})
            os.kill(os.getpid(), signal.SIGKILL)
        with open({left!r}, "w") as file:
            file.write(str(left - 1))

if "xla_backend.process.engine_process" in sys.orig_argv:
    sys.addaudithook(kill)
"""


@pytest.mark.release
@pytest.mark.timeout(1800)
def test_killed_while_writing_prefixes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next engine says the same, from what was whole."""
    left, dice = tmp_path / "left", random.Random(4)
    (tmp_path / "sitecustomize.py").write_text(_KILL.format(left=str(left)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    model = str(gpt2(tmp_path / "model", seed=62, n_positions=300))
    process = BackendProcess(
        default_model=model,
        store=tmp_path / "store",
        warm_up=None,
        kv_memory="1MB",  # so that every text evicts those before
        prefix_store="1GB",
    )

    def ask(prompt: TokenIds) -> Any:
        return process.generate(model, prompt, SHORT, cache_salt="a")

    def words() -> TokenIds:
        return TokenIds(tuple(dice.randrange(3, 250) for _ in range(200)))

    with contextlib.closing(process):
        prompts = [words() for _ in range(3)]
        texts = [ask(prompt).text for prompt in prompts]
        reused = 0
        for step in range(7):  # a block's file is made, then written, then named
            engine = process.pid
            left.write_text(str(step))
            while process.pid == engine:
                with contextlib.suppress(EngineStopped):
                    ask(words())
            assert not left.exists(), "it was killed where it should be"
            for prompt, text in zip(prompts, texts, strict=True):
                result = ask(prompt)
                assert result.text == text
                reused += result.cached_tokens
            assert not [*(tmp_path / "store").rglob(f"*.{engine}")]
        assert reused > 0


def test_a_child_killed_at_work(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "NOTE_S", 600.0)  # a busy machine's restart may outlast it
    watched.process.wait_ready(240)
    watched.generate()
    watched.wait_for("ready")
    with watched.hold.at("generating"):
        stream, behind = watched.stream(), watched.stream()
        watched.wait_for("generating")
        os.kill(watched.process.pid, signal.SIGKILL)
        with pytest.raises(EngineStopped, match=r"while generating padded .* new engine"):
            list(stream)
    # What had not begun is served by the new child.
    list(behind)
    assert behind.result.cache is CacheOutcome.MISS
    assert watched.process.status.note == "restarted after it stopped"


@pytest.mark.release
def test_a_killed_script_leaves_no_orphan(small_gpt2: Path, tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import os\n"
        "from xla_backend import BackendProcess\n"
        "def tell(line):\n"  # in one chunk: print() of two threads may mingle
        "    os.write(1, f'{line}\\n'.encode())\n"
        "engine = BackendProcess(default_model=None, on_status=lambda s: tell(s.state))\n"
        "tell(engine.pid)\n"
        f"engine.generate({str(small_gpt2)!r}, 'Once upon a time')\n"
    )
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as parent:
        lines = []
        for line in parent.stdout:
            lines.append(line.strip())
            if line.strip() == "compiling":
                break
        parent.kill()
    pid = next(int(line) for line in lines if line.isdigit())
    expected = {"starting", "loading", "ready", "tracing", "compiling", str(pid)}
    assert set(lines) <= expected, "the child's own output stays off the parent's"
    wait_until(lambda: not is_running(pid))


def is_running(pid: int) -> bool:
    """Whether a process exists and is more than an entry that nobody has collected."""
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return bool(done.stdout.strip()) and not done.stdout.startswith("Z")


def test_close_ends_the_child_and_later_calls_say_so(watched: Watched, slow: str) -> None:
    watched.process.wait_ready(240)
    pid = watched.process.pid
    running = watched.stream(options=HALF, model=slow)
    begin = next(running)
    waiting = watched.stream(options=HALF, model=slow)
    watched.process.close()
    watched.process.close()
    assert not is_running(pid)
    assert watched.process.status.state == "stopped"
    assert begin + "".join(running) == running.result.text
    assert running.result.finish == "stopped", "what was written is kept"
    with pytest.raises(EngineStopped, match="closed"):
        list(waiting)
    with pytest.raises(EngineStopped, match="closed"):
        watched.generate()
    with pytest.raises(BackendError):
        watched.process.wait_ready(1)


@pytest.mark.release
def test_page_and_engine_see_the_same_weights(tmp_path: Path) -> None:
    """Else the page would look for functions of another kind in the store."""
    model = str(gpt2(tmp_path / "gpt2", n_embd=64, vocab_size=4200))  # so large that it is rounded
    registry = Registry(weights="int8", activations="int8")
    process = BackendProcess(registry, default_model=None, store=tmp_path / "s", warm_up=None)
    with contextlib.closing(process):
        result = process.generate(model, "Once upon a time", SHORT, mode="padded")
        assert (result.rounded_bits, result.activations) == (8, "int8")
        assert (
            process.predict(model, "Once upon a time", SHORT, mode="padded").outcome
            is CacheOutcome.HIT
        )
        [info] = [info for info in process.models() if info.name == model]
        assert (info.weights, info.rounded_bits) == ("int8", 8)
    stored = BackendProcess(registry, default_model=None, store=tmp_path / "s", warm_up=None)
    with contextlib.closing(stored):
        assert (
            stored.predict(model, "Once upon a time", SHORT, mode="padded").outcome
            is CacheOutcome.DISK
        )
    other = Registry(weights="float32")
    wide = BackendProcess(other, default_model=None, store=tmp_path / "s", warm_up=None)
    with contextlib.closing(wide):
        predicted = wide.predict(model, "Once upon a time", SHORT, mode="padded")
        assert (predicted.outcome, predicted.expected_s) == (CacheOutcome.MISS, None)
