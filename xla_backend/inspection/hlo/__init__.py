"""Reads XLA's files of compiled functions: messages, costs, control flow, origin."""
