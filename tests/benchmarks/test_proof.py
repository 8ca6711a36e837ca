"""`python -m benchmarks.proof`: the page that it writes, over measures that take no time."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import proof


def test_a_section_stays_as_it_is_when_others_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "proof.md"
    monkeypatch.setattr(proof, "PAGE", page)

    def take(measure: str, number: int) -> str:
        def rows(options: SimpleNamespace) -> Iterator[dict[str, int] | str]:
            yield {"number": number, "count": options.count}
            yield "A note."

        module = SimpleNamespace(OPTIONS={"data": "", "count": 7}, measure=rows)
        importing = SimpleNamespace(import_module=lambda _: module)
        monkeypatch.setattr(proof, "importlib", importing)
        arguments = ["proof", "--data", str(tmp_path), "--only", measure]
        monkeypatch.setattr(sys, "argv", [*arguments, "--count", str(number)])
        assert proof.main() == 0
        return page.read_text()

    take("tools", 1)
    first = take("crowd", 2)
    again = take("crowd", 3)
    assert first.count("| 1 | 1 |") == again.count("| 1 | 1 |") == 1
    assert "python -m benchmarks tools --data bfcl_eval/data --count 1" in again
    assert "| 2 | 2 |" not in again
    assert again.index("| 1 | 1 |") < again.index("| 3 | 3 |")
    assert "No run has taken: Probabilities beside PyTorch's" in again
