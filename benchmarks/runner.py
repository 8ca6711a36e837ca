"""`Runner`: runs a measure's calls in turn, A B C A B C, with all contenders alive.

Knows contenders and rounds. Must not know which numbers are good, nor how they are shown.
"""

from __future__ import annotations

import functools
import itertools
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import checkpoints, machine, modern_checkpoints
from benchmarks.contenders import (
    CONTENDERS,
    ENGINE,
    LIMIT,
    PEERS_PYTHON,
    PYTORCH,
    ROOT,
    THREADS,
    ContenderFailed,
    Request,
    Running,
)
from benchmarks.measures import Call, Measure
from xla_backend.checkpoints.models import PACKAGED_MODEL

WORDS = "once upon a time there was a little fox who lived near the river and went home "


def checkpoint(model: str, work: Path) -> Path:
    """A model's folder: one with random weights built in `work`, or a bundled one."""
    if model == "124m":
        return checkpoints.gpt2_124m(work)
    if model == PACKAGED_MODEL:
        return modern_checkpoints.packaged(work)
    if model in modern_checkpoints.SIZES:
        return modern_checkpoints.real_size(model, work)
    if model in checkpoints.SHAPES:
        return checkpoints.published_shape(model, work, PEERS_PYTHON)
    count, _, what = model.partition("-")
    if what == "layers":
        return checkpoints.narrow_gpt2(model, work, n_layer=int(count))
    if what == "thousand-tokens":
        return checkpoints.narrow_gpt2(model, work, n_layer=4, vocab_size=1000 * int(count))
    return ROOT / "demo_models" / model


class Runner:
    """Starts contenders when they are needed, and times their calls."""

    def __init__(self, work: Path) -> None:
        """Starts nothing yet.

        Args:
            work: folder for built and converted checkpoints; kept for the next run.
        """
        work.mkdir(parents=True, exist_ok=True)
        self._work = work
        self._alive: dict[tuple[str, str], Running] = {}
        self.versions: dict[str, str] = {}

    def run(
        self, measure: Measure, calls: tuple[Call, ...], rounds: int, least_s: float = 0.0
    ) -> dict[str, Any]:
        """Times the calls in turn, after running each once to compile it.

        Runs at least `rounds` rounds and `least_s` seconds: five calls of 25 ms would only measure
        the machine's state at that moment.

        A contender that fails is left out and its error is kept; the engine's error is raised.

        Returns:
            "calls" (each with its seconds, tokens and its contender's details), "failures" by
            contender, "bystanders" (see `machine.Bystanders`).

        Raises:
            ContenderFailed: the engine failed, or a contender wrote too few tokens.
        """
        failures: dict[str, str] = {}
        requests = {call: self._request(call) for call in calls}
        wanted = list(dict.fromkeys((call.contender, call.model) for call in calls))
        with ThreadPoolExecutor(THREADS) as side_by_side:
            jobs = [side_by_side.submit(self._prepare, *who, requests) for who in wanted]
        for (contender, _), job in zip(wanted, jobs, strict=True):
            if sentence := job.result():
                failures[contender] = sentence
                _note(f"{contender} is left out: {sentence}")
        rows = [_row(call) for call in calls if call.contender not in failures]
        prepared = [call for call in calls if call.contender not in failures]
        bystanders = machine.Bystanders([running.process_id for running in self._alive.values()])
        begin = time.perf_counter()
        for number in itertools.count(1):
            start = time.perf_counter()
            for call, row in zip(prepared, rows, strict=True):
                answer = self._alive[call.contender, call.model].generate(requests[call])
                row["seconds"].append(answer.pop("seconds"))
                row["tokens"] = answer.pop("tokens")
                for name, value in answer.items():
                    row["details"].setdefault(name, []).append(value)
                if call.contender != LIMIT and len(row["tokens"]) != call.new_tokens:
                    raise ContenderFailed(
                        f"{call.contender} wrote {len(row['tokens'])} tokens of {call.new_tokens} "
                        f"({measure.name}, {call.model}): its time would not compare"
                    )
            now = time.perf_counter()
            if number <= rounds:
                _note(f"  round {number} of {rounds}: {now - start:.1f} s")
            if number >= rounds and now - begin >= least_s:
                _note(f"  {number} rounds: {now - begin:.1f} s")
                break
        result = {"calls": rows, "failures": failures, "bystanders": round(bystanders.share(), 3)}
        if measure.same_tokens:
            result["tokens"] = self._agreement(rows)
        return result

    def memory(self, model: str) -> int:
        """Resident memory of the engine's process in bytes; it must be alive."""
        return self._alive[ENGINE, model].memory()

    def clear(self, models: set[str] | None = None) -> None:
        """Ends the contenders of these models, or all."""
        for who in [who for who in self._alive if models is None or who[1] in models]:
            self._alive.pop(who).end()

    def _prepare(self, contender: str, model: str, requests: dict[Call, Request]) -> str | None:
        """Starts a contender if needed, and compiles its calls; returns its error, if any."""
        start = time.perf_counter()
        folder = checkpoint(model, self._work)
        running = None
        try:
            if (contender, model) not in self._alive:
                running = Running(CONTENDERS[contender], folder, self._work)
                self.versions |= running.wait_until_ready()
                self._alive[contender, model] = running
            for call, request in requests.items():
                if (call.contender, call.model) == (contender, model):
                    self._alive[contender, model].prepare(request)
        except (ContenderFailed, OSError) as error:
            if running is not None:
                self._alive.pop((contender, model), None)
                running.end()
            if contender == ENGINE:
                raise
            return str(error)
        _note(f"  {contender} ({model}) ready after {time.perf_counter() - start:.1f} s")
        return None

    def _request(self, call: Call) -> Request:
        prompt, ids = _prompt(checkpoint(call.model, self._work), call.prompt_tokens)
        sampling = {"temperature": 0.9, "top_k": 50, "top_p": 0.95} if call.sampling else {}
        return Request(prompt, ids, call.new_tokens, call.num_beams, stream=call.stream, **sampling)

    def _agreement(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Where float32 contenders' tokens differ from the engine's, and the logits' lead there."""
        differences = []
        mine = {row["new_tokens"]: row for row in rows if row["contender"] == ENGINE}
        for row in rows:
            own = mine[row["new_tokens"]]
            is_equal = row["tokens"] == own["tokens"]
            if row["contender"] == LIMIT or is_equal or not CONTENDERS[row["contender"]].is_float32:
                continue
            pairs = zip(row["tokens"], own["tokens"], strict=True)
            place = next(i for i, (theirs, ours) in enumerate(pairs) if theirs != ours)
            differences.append(
                {
                    "contender": row["contender"],
                    "new_tokens": row["new_tokens"],
                    "place": place,
                    "lead": self._lead(row, place),
                }
            )
            _note(f"  different tokens: {differences[-1]}")
        return differences

    def _lead(self, row: dict[str, Any], place: int) -> float | None:
        """The most likely logit's lead at a place, by PyTorch; None if PyTorch does not run."""
        running = self._alive.get((PYTORCH, row["model"]))
        if running is None:
            return None
        call = Call(**{name: row[name] for name in ("contender", "model", "new_tokens")})
        request = self._request(
            Call(call.contender, call.model, call.new_tokens, row["prompt_tokens"])
        )
        return round(running.margins(request, place + 1)[place], 5)


def _row(call: Call) -> dict[str, Any]:
    return {
        "contender": call.contender,
        "model": call.model,
        "setting": call.setting,
        "new_tokens": call.new_tokens,
        "prompt_tokens": call.prompt_tokens,
        "num_beams": call.num_beams,
        "x": call.x,
        "seconds": [],
        "tokens": [],
        "details": {},
    }


@functools.cache
def _prompt(folder: Path, tokens: int) -> tuple[str, tuple[int, ...]]:
    """A text of exactly this many tokens, and its tokens; empty for a speech model."""
    import transformers

    if (folder / "preprocessor_config.json").exists():
        return "", ()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    text = WORDS * (1 + tokens // 8)
    for end in range(1, len(text)):
        ids = tokenizer(text[:end]).input_ids
        # Libraries differ in whether they strip a space at the end.
        if len(ids) == tokens and text[end - 1] != " ":
            return text[:end], tuple(ids)
    raise ValueError(f"no prompt of {tokens} tokens for {folder.name}")


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
