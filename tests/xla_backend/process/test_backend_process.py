"""Tests of `backend_process` and of the child's `engine_process`.

The first half has an engine that only pretends, so that every moment can be chosen. The second half
runs a real engine in a real child, and kills it for real.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import gpt2
from tests.holding import Hold
from tests.waiting import wait_until
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
from xla_backend.interface.results import PrefixCacheUse
from xla_backend.process import supervisor
from xla_backend.process.engine_process import EngineProcess
from xla_backend.process.messages import Request, Settings

ROOT = Path(__file__).resolve().parents[3]
SHORT = GenerationOptions(max_new_tokens=4)
BEAMS = GenerationOptions(max_new_tokens=8, num_beams=2)
HALF = GenerationOptions(max_new_tokens=500)
LONG = GenerationOptions(max_new_tokens=1000)


# --- the child's side, with an engine that pretends -----------------------------------------------


class PretendedStream:
    """Waits for those before it; gives its chunks only when told to, a whole text at once."""

    def __init__(
        self, backend: PretendedBackend, prompt: str, in_chunks: bool, should_start: Callable
    ) -> None:
        self._backend = backend
        self._prompt = prompt
        self._in_chunks = in_chunks
        self._should_start = should_start
        self.stopped = threading.Event()
        self.result: str | None = None

    def __iter__(self) -> Iterator[str]:
        turns, queue = self._backend.turns, self._backend.queue
        with turns:
            turns.wait_for(lambda: queue[0] is self or self.stopped.is_set())
            is_next = queue[0] is self
        try:
            if is_next and self._should_start():
                self._backend.prompts.append(self._prompt)
                yield from self._chunks() if self._in_chunks else self._whole()
        finally:
            with turns:
                queue.remove(self)
                turns.notify_all()

    def _chunks(self) -> Iterator[str]:
        for chunk in ("one ", "two ", "three "):
            self._backend.gate.acquire()
            if self.stopped.is_set():
                self.result = "stopped"
                return
            yield chunk
        self.result = "complete"

    def _whole(self) -> Iterator[str]:
        if self._prompt == "wait":
            self._backend.gate.acquire()
        if self._prompt == "starved":
            raise MemoryError
        if self._prompt == "bug":
            raise ZeroDivisionError("first line\nsecond line")
        if not self._prompt:
            raise InvalidRequest("the prompt is empty.")
        self.result = self._prompt.upper()
        yield self.result

    def stop(self) -> None:
        self.stopped.set()
        with self._backend.turns:
            if self._backend.queue[:1] == [self]:
                self._backend.gate.release()
            self._backend.turns.notify_all()


class PretendedBackend:
    """Records what it is asked for."""

    def __init__(self, **settings: Any) -> None:
        self.prompts: list[str] = []
        self.streams: list[PretendedStream] = []
        self.gate = threading.Semaphore(0)
        self.turns = threading.Condition()
        self.queue: list[PretendedStream] = []
        PretendedBackend.last = self

    def load(self, model: str) -> str:
        if model == "unknown":
            raise ModelUnavailable("there is no model 'unknown'.")
        return model

    def stream(
        self,
        model: str,
        prompt: str,
        options: Any,
        *,
        in_chunks: bool,
        should_start: Callable[[], bool],
        **how: Any,
    ) -> PretendedStream:
        self.streams.append(PretendedStream(self, prompt, in_chunks, should_start))
        self.queue.append(self.streams[-1])
        return self.streams[-1]

    def models(self) -> list[Any]:
        return []

    def cached_functions(self) -> list[Any]:
        return []

    def past(self) -> dict[str, Any]:
        return {}

    def stored_keys(self) -> list[Any]:
        return []

    def prefix_cache(self) -> PrefixCacheUse:
        return PrefixCacheUse()

    def prefetching(self) -> list[Any]:
        return []

    def close(self) -> None:
        pass


class ParentSide:
    """The other end of the channel of an `EngineProcess` that runs in threads of this process."""

    def __init__(self) -> None:
        ours, theirs = Pipe()
        self.channel = Channel(ours)
        settings = Settings(
            Registry(), BucketRules(), preload="unknown", store="off", warm_up=None, log_level=0
        )
        self.engine = EngineProcess(Channel(theirs), settings)
        self.threads = [
            threading.Thread(target=self.engine.listen, daemon=True),
            threading.Thread(target=self.engine.run, daemon=True),
        ]
        for thread in self.threads:
            thread.start()
        self.reply("ready")  # although the model to preload is unknown

    @property
    def backend(self) -> PretendedBackend:
        return PretendedBackend.last

    def ask(self, number: int, kind: Any, prompt: str = "") -> None:
        self.channel.send(("request", Request(number, kind, "model", prompt)))

    def reply(self, *kinds: str) -> tuple[str, int | None, Any]:
        """The next message that is of one of these kinds, or any reply to a request."""
        while True:
            message = self.channel.receive()
            if message[0] in (kinds or ("chunk", "result", "error", "dropped")):
                return message


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[ParentSide]:
    module = types.ModuleType("xla_backend.engine.backend")
    module.Backend = PretendedBackend
    monkeypatch.setitem(sys.modules, "xla_backend.engine.backend", module)
    side = ParentSide()
    yield side
    side.channel.send(("close", None))
    for thread in side.threads:
        thread.join()
        assert not thread.is_alive()


def test_requests_are_served_in_the_order_of_arrival(parent: ParentSide) -> None:
    for number in range(20):
        parent.ask(number, "generate", f"prompt {number}")
    replies = [parent.reply() for _ in range(20)]
    assert set(replies) == {("result", number, f"PROMPT {number}") for number in range(20)}
    assert parent.backend.prompts == [f"prompt {number}" for number in range(20)]


def test_errors_are_told_and_the_engine_goes_on(
    parent: ParentSide, caplog: pytest.LogCaptureFixture
) -> None:
    parent.ask(1, "generate", "")
    kind, number, error = parent.reply()
    assert (kind, number, type(error)) == ("error", 1, InvalidRequest)
    assert str(error) == "the prompt is empty."
    parent.ask(2, "generate", "bug")
    kind, number, error = parent.reply()
    assert (kind, number, type(error)) == ("error", 2, BackendError)
    assert "ZeroDivisionError: first line)" in str(error)
    assert "second line" not in str(error)
    assert "Traceback" in caplog.text, "the log has the whole of it"
    parent.ask(3, "generate", "next")
    assert parent.reply() == ("result", 3, "NEXT")


def test_stop_reaches_a_stream_between_its_chunks(parent: ParentSide) -> None:
    parent.ask(1, "stream", "story")
    parent.backend.gate.release()
    assert parent.reply() == ("chunk", 1, "one ")
    parent.channel.send(("stop", 1))
    assert parent.reply() == ("result", 1, "stopped")


def test_stop_of_a_request_that_waits_drops_it_at_once(parent: ParentSide) -> None:
    parent.ask(1, "generate", "wait")
    parent.ask(2, "stream", "never begun")
    parent.ask(3, "generate", "served")
    wait_until(lambda: len(parent.backend.streams) == 3)
    parent.channel.send(("stop", 2))
    assert parent.reply() == ("dropped", 2, None)
    parent.backend.gate.release()
    replies = {parent.reply(), parent.reply()}
    assert replies == {("result", 1, "WAIT"), ("result", 3, "SERVED")}
    assert parent.backend.prompts == ["wait", "served"]


def test_stop_of_a_finished_or_unknown_request_does_nothing(parent: ParentSide) -> None:
    parent.ask(1, "generate", "a")
    parent.reply()
    for number in (1, 99):
        parent.channel.send(("stop", number))
    parent.ask(2, "stream", "b")
    for _ in range(3):
        parent.backend.gate.release()
    assert [parent.reply()[2] for _ in range(4)] == ["one ", "two ", "three ", "complete"]


def test_told_to_drain_it_ends_the_request_at_work_and_leaves_the_rest(
    parent: ParentSide,
) -> None:
    parent.ask(1, "generate", "wait")
    parent.ask(2, "generate", "left to the successor")
    assert parent.reply("started")[1] == 1
    parent.ask(3, "generate", "dropped")
    parent.channel.send(("stop", 3))
    assert parent.reply() == ("dropped", 3, None)
    parent.channel.send(("drain", None))
    wait_until(lambda: parent.engine._draining)
    parent.backend.gate.release()
    assert parent.reply() == ("result", 1, "WAIT")
    assert parent.reply("drained") == ("drained", None, ())
    assert parent.backend.prompts == ["wait"]


def test_memory_that_runs_out_is_told_and_no_other_request_is_taken_up(parent: ParentSide) -> None:
    parent.ask(1, "generate", "starved")
    assert parent.reply("hard_limit")[0] == "hard_limit"
    parent.ask(2, "generate", "left to the successor")
    kind, number, error = parent.reply()
    assert (kind, number, type(error)) == ("error", 1, OutOfMemory)
    assert "fewer beams" in str(error)
    parent.channel.send(("drain", None))
    parent.reply("drained")
    assert parent.backend.prompts == ["starved"]


def test_end_of_the_parent_ends_a_running_stream(parent: ParentSide) -> None:
    parent.ask(1, "stream", "story")
    wait_until(lambda: parent.backend.prompts)
    parent.channel.close()
    for thread in parent.threads:
        thread.join()
        assert not thread.is_alive()
    assert parent.backend.streams[0].result == "stopped"


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
        """Waits until the engine, which is held there, comes to a state."""
        wait_until(lambda: self.process.status.state == state)

    def generate(
        self, prompt: str = "Once upon a time", options: Any = SHORT, model: str = ""
    ) -> Any:
        return self.process.generate(model or self.model, prompt, options)

    def stream(
        self, prompt: str = "Once upon a time", options: Any = SHORT, model: str = ""
    ) -> Any:
        return self.process.stream(model or self.model, prompt, options)


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


def test_stop_keeps_what_was_written(watched: Watched) -> None:
    with watched.hold.at("chunk"):
        stream = watched.stream(options=LONG)
        text = next(stream)
        stream.stop()
    text += "".join(stream)
    assert stream.result.finish == "stopped"
    assert stream.result.text == text
    assert stream.result.new_tokens < LONG.max_new_tokens


def test_stop_before_the_engine_takes_the_stream_up(watched: Watched) -> None:
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
    predicted.append(predict(SHORT, exact_key=True))
    assert {each.prompt_tokens for each in predicted} == {result.prompt_tokens}
    assert encoded.count(prompt) == 1


@pytest.mark.parametrize("way", ["closed", "dropped"])
def test_the_engine_is_told_of_an_abandoned_stream(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
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
        watched.process.generate("no-such-model", "hello")
    with pytest.raises(ModelUnavailable, match="no-such-model"):
        watched.process.predict("no-such-model", "hello")
    for prompt in ("", "word " * 5000):  # the parent refuses what the engine refuses, alike
        with pytest.raises(InvalidRequest) as from_engine:
            watched.generate(prompt)
        with pytest.raises(InvalidRequest) as from_parent:
            watched.process.predict(watched.model, prompt, SHORT)
        assert str(from_engine.value) == str(from_parent.value)
    assert watched.generate().cache is CacheOutcome.HIT


def test_prediction_is_what_happens(watched: Watched) -> None:
    for prompt in ("Once", "Once upon a time there was a little fox who lived near the river."):
        for _ in range(2):  # a miss, then a hit
            predicted = watched.process.predict(watched.model, prompt, BEAMS)
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
    assert watched.process.status.state == "ready"


def test_the_parent_answers_at_once_while_the_engine_compiles(watched: Watched) -> None:
    watched.process.predict(watched.model, "warm")
    del watched.statuses[:]
    options = GenerationOptions(max_new_tokens=20, num_beams=3)
    thread = threading.Thread(target=watched.generate, kwargs={"options": options})
    with watched.hold.at("compiling"):
        thread.start()
        watched.wait_for("compiling")
        predicted = watched.process.predict(watched.model, "Once upon a time", options)
        names = [info.name for info in watched.process.models()]
        watched.process.cached_functions()
    assert predicted.outcome is CacheOutcome.MISS
    assert watched.model in names
    thread.join()


def test_a_child_killed_while_idle_is_replaced(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.generate()
    old = watched.process.pid
    del watched.statuses[:]
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: watched.process.pid != old)  # without anybody asking for it
    stopped = next(status for status in watched.statuses if status.state == "stopped")
    assert "while it was idle" in stopped.detail
    assert "while it was idle" in caplog.text
    assert watched.process.cached_functions() == []
    assert watched.process.predict(watched.model, "hello").outcome is CacheOutcome.MISS
    assert watched.generate().cache is CacheOutcome.MISS
    assert watched.process.pid != old


def test_a_child_killed_at_work_tells_its_callers(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "NOTE_S", 600.0)  # a busy machine's restart may outlast it
    watched.process.wait_ready(240)
    with watched.hold.at("compiling"):
        stream = watched.stream(options=LONG)
        behind = watched.stream()
        watched.wait_for("compiling")
        os.kill(watched.process.pid, signal.SIGKILL)
        with pytest.raises(EngineStopped, match=r"while compiling padded .* new engine"):
            list(stream)
    # What had not begun is served by the new child.
    list(behind)
    assert behind.result.cache is CacheOutcome.MISS
    assert watched.process.status.note == "restarted after it stopped"


@pytest.mark.release
def test_an_unguarded_script_that_is_killed_leaves_no_orphan(
    small_gpt2: Path, tmp_path: Path
) -> None:
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
    registry = Registry(weights="int8")
    process = BackendProcess(registry, default_model=None, store=tmp_path / "s", warm_up=None)
    with contextlib.closing(process):
        result = process.generate(model, "Once upon a time", SHORT)
        assert result.rounded_bits == 8
        assert process.predict(model, "Once upon a time", SHORT).outcome is CacheOutcome.HIT
        [info] = [info for info in process.models() if info.name == model]
        assert (info.weights, info.rounded_bits) == ("int8", 8)
    stored = BackendProcess(registry, default_model=None, store=tmp_path / "s", warm_up=None)
    with contextlib.closing(stored):
        assert stored.predict(model, "Once upon a time", SHORT).outcome is CacheOutcome.DISK
    other = Registry(weights="float32")
    wide = BackendProcess(other, default_model=None, store=tmp_path / "s", warm_up=None)
    with contextlib.closing(wide):
        predicted = wide.predict(model, "Once upon a time", SHORT)
        assert (predicted.outcome, predicted.expected_s) == (CacheOutcome.MISS, None)
