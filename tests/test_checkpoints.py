"""The test support for checkpoints: equal arguments give equal files, in every process."""

import hashlib
from pathlib import Path

from tests import checkpoints
from tests.program import python

FAMILIES = ("gpt2", "opt", "t5", "whisper")


def _digests(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*.*"))
    }


def test_files_are_the_same_in_another_process(tmp_path: Path):
    for family in FAMILIES:
        getattr(checkpoints, family)(tmp_path / "here" / family)
    code = (
        "import sys; from tests import checkpoints\n"
        f"for family in {FAMILIES}:\n"
        "    getattr(checkpoints, family)(f'{sys.argv[1]}/{family}')\n"
    )
    python(code, tmp_path / "there")
    assert _digests(tmp_path / "here") == _digests(tmp_path / "there")
    assert len(_digests(tmp_path / "here")) > 20


def test_another_seed_gives_other_weights_and_the_same_tokenizer(tmp_path: Path):
    first = checkpoints.gpt2(tmp_path / "first", seed=1)
    second = checkpoints.gpt2(tmp_path / "second", seed=2)
    one, two = _digests(first), _digests(second)
    assert [name for name in one if one[name] != two[name]] == ["model.safetensors"]
