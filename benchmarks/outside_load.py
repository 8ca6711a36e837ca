"""What a load tool that others wrote measures at `/v1`, beside what the page says of it.

    make bench-api [ARGS="--seconds 20"]

GuideLLM sends streams from 1 and from 8 clients and times them at its end of the connection; the
page's `/metrics` times them in the engine. Knows both programs' numbers from outside: GuideLLM is
installed in an environment of its own.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from benchmarks import machine, terminal
from benchmarks.served import served

MODEL = "gpt2-stories"
TOKENIZER = Path(__file__).resolve().parents[1] / "demo_models" / MODEL
PROMPT_TOKENS, NEW_TOKENS = 24, 96
CLIENTS = (1, 8)


@dataclass(frozen=True)
class Seen:
    """What one side saw: requests a second, and seconds, on average."""

    rate: float
    ttft_s: float
    tpot_s: float


@dataclass(frozen=True)
class _Counters:
    """Sums and counts of the page's histograms."""

    values: dict[str, float]

    @classmethod
    def of(cls, url: str) -> _Counters:
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            text = answer.read().decode()
        found = re.findall(rf'^(\S+?)_(sum|count){{[^}}]*"{MODEL}"[^}}]*}} (\S+)$', text, re.M)
        return cls({f"{name}_{what}": float(value) for name, what, value in found})

    def mean_since(self, before: _Counters, name: str) -> float:
        count, total = (
            self.values[f"{name}_{what}"] - before.values.get(f"{name}_{what}", 0.0)
            for what in ("count", "sum")
        )
        return total / count


def load(guidellm: str, url: str, clients: int, seconds: float) -> tuple[Seen, Seen]:
    """What GuideLLM and the page saw of so many clients."""
    before = _Counters.of(url)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        subprocess.run(
            [
                *(guidellm, "run", "--disable-console"),
                *(
                    "--backend",
                    f"kind=openai_http,target={url},model={MODEL},request_format=/v1/completions",
                ),
                *("--profile", f"kind=concurrent,streams={clients}"),
                *("--constraint", f"kind=max_duration,seconds={seconds}"),
                *("--tokenizer", f"kind=huggingface_auto,model={TOKENIZER}"),
                *(
                    "--data",
                    f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={NEW_TOKENS}",
                ),
                *("--output", f"kind=json,path={report}"),
            ],
            check=True,
        )
        metrics = json.loads(report.read_text())["benchmarks"][0]["metrics"]
    theirs = Seen(
        metrics["requests_per_second"]["successful"]["mean"],
        metrics["time_to_first_token_ms"]["successful"]["mean"] / 1000,
        metrics["inter_token_latency_ms"]["successful"]["mean"] / 1000,
    )
    now = _Counters.of(url)
    name = "gen_ai_server_time_to_first_token_seconds_count"
    answered = now.values[name] - before.values.get(name, 0.0)
    ours = Seen(
        answered / seconds,
        now.mean_since(before, "gen_ai_server_time_to_first_token_seconds"),
        now.mean_since(before, "gen_ai_server_time_per_output_token_seconds"),
    )
    return theirs, ours


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--guidellm", required=True, help="the program")
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    print(machine.description())
    terminal.print_head("clients", "measure", "GuideLLM", "the page", "ratio")
    with served("--metrics", "--models", MODEL) as url:
        for clients in (8, *CLIENTS):  # the first time, functions are made
            theirs, ours = load(arguments.guidellm, url, clients, arguments.seconds)
            for name, one, other in (
                ("requests a second", theirs.rate, ours.rate),
                ("TTFT, ms", theirs.ttft_s * 1000, ours.ttft_s * 1000),
                ("TPOT, ms", theirs.tpot_s * 1000, ours.tpot_s * 1000),
            ):
                numbers = (f"{one:.3g}", f"{other:.3g}", f"{one / other:.2f}")
                terminal.print_row(clients, name, *numbers)
            time.sleep(1)


if __name__ == "__main__":
    main()
