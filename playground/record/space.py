"""A folder for a static Space: the page and the front matter that Hugging Face reads."""

import json
from pathlib import Path

_README = """---
title: {title}
emoji: ⏱️
colorFrom: indigo
colorTo: green
sdk: static
pinned: false
---

Recorded runs of XLA Playground. Nothing is computed here: the page replays them with their own
times.
"""


def write_space(folder: Path, page: str, title: str) -> None:
    """Writes `index.html` and `README.md`; replaces those that are there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.html").write_text(page, encoding="utf-8")
    # JSON's strings are YAML's, too; unquoted, a title may be read as something else.
    front = _README.format(title=json.dumps(title))
    (folder / "README.md").write_text(front, encoding="utf-8")
