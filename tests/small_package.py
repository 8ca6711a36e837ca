"""Requirements of one small package that pip can install without a network.

Knows what a wheel is made of. Must not know who installs it.
"""

import hashlib
import zipfile
from pathlib import Path


def requirements(folder: Path) -> Path:
    """A requirements file for the package `tiny`, with its hash; its wheel lies beside it."""
    wheel = folder / "tiny-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "size = 1\n")
        about = "Metadata-Version: 2.1\nName: tiny\nVersion: 1\n"
        archive.writestr("tiny-1.dist-info/METADATA", about)
        archive.writestr("tiny-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("tiny-1.dist-info/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    file = folder / "requirements.txt"
    file.write_text(f"--no-index\n--find-links {folder}\ntiny==1 --hash=sha256:{digest}\n")
    return file
