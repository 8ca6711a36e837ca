"""`BackendProcess`: a `Backend` in a child process, watched, replaced when it grows or dies."""
