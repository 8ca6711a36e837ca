"""One step of a recipe, which leaves a folder like the bundled one."""

import subprocess
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

BUNDLED = Path(__file__).resolve().parents[2] / "demo_models"
# In a process of its own, for it sees the overlay's Transformers.
SCRIPT = """
import sys
from functools import partial
from pathlib import Path
from demo_models.recipes import text, training
make = partial(text.packed, training.processor("gpt2-stories"), 2, 16, "train")
training.train("gpt2-stories", [(make, 1)], make, 1e-3, Path(sys.argv[1]))
"""


def test_a_recipe_makes_a_folder_like_the_bundled_one(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, cwd=BUNDLED.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "val_loss" in done.stdout
    made, bundled = (
        load_file(f / "model.safetensors") for f in (tmp_path, BUNDLED / "gpt2-stories")
    )
    assert {name: w.shape for name, w in made.items()} == {n: w.shape for n, w in bundled.items()}
    assert not np.array_equal(made["transformer.wte.weight"], bundled["transformer.wte.weight"])
    for file in ("config.json", "generation_config.json", "tokenizer.json"):
        assert (tmp_path / file).read_bytes() == (BUNDLED / "gpt2-stories" / file).read_bytes()
