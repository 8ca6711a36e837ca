"""Reads compiled functions as XLA wrote them: messages, costs, control flow, origin."""
