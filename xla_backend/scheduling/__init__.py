"""Who runs when, and with whom: scheduler, batches, background work, what a request will meet."""
