"""What the requirements files pin, for tests that hold other files beside them."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def requirement_lines(name: str) -> list[str]:
    """The requirements of a file, without comments and hashes."""
    whole = (ROOT / name).read_text().replace("\\\n", " ")
    lines = (re.split("#|--hash", line)[0].strip() for line in whole.splitlines())
    return [line for line in lines if line]
