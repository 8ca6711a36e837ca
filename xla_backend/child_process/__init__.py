"""A Python process that works for this one: started, spoken to, ended; both sides of it."""
