"""`Backend`, which puts the rooms below together: requests in, answers with true timings out."""
