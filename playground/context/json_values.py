"""Types with which pydantic checks JSON values from a browser or a file.

Knows types and bounds. Must not know what a value means.
"""

from typing import Annotated

from pydantic import BeforeValidator, Field, PlainValidator

from playground.ui.markup import clean
from xla_backend import BackendError, GenerationOptions

ERRORS = (ValueError, TypeError, KeyError, AttributeError, OverflowError, BackendError)
"""Errors of such checks."""
LATEST = 1e11
"""Seconds since 1970: in about a thousand years."""


def _cleaned(value: object) -> object:
    return clean(value) if isinstance(value, str) else value


Whole = Annotated[int, Field(strict=True, ge=0, lt=2**53)]
Positive = Annotated[int, Field(strict=True, ge=1, lt=2**53)]
Rate = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Seconds = Annotated[Rate, Field(le=1e6)]
Date = Annotated[Rate, Field(le=LATEST)]
Truth = Annotated[bool, Field(strict=True)]
Text = Annotated[str, BeforeValidator(_cleaned)]
Options = Annotated[GenerationOptions, PlainValidator(GenerationOptions.from_dict)]
