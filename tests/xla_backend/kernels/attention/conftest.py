"""The fixture of another processor."""

from tests.xla_backend.older_processor import older_processor  # noqa: F401
