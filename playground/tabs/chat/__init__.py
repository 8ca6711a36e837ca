"""The Chat tab: many turns, each with what it cost and what of it was not computed again."""
