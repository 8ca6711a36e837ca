"""A request's expected outcome and duration, also outside the engine's process."""
