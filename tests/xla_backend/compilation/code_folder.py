"""Where TensorFlow is told to look for compiled code, read from its flags as TensorFlow does."""

import os
from pathlib import Path

FLAG = "--tf_xla_persistent_cache_directory"


def code_folder(flags: str | None = None) -> Path:
    """The folder that these flags name; without any, those of this process."""
    given = os.environ["TF_XLA_FLAGS"] if flags is None else flags
    [reported] = [flag for flag in given.split() if flag.startswith(FLAG)]
    return Path(reported.removeprefix(f"{FLAG}="))
