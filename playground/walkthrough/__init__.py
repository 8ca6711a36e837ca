"""What XLA does to one request: MISS, HIT, REUSED and DISK, measured one after the other."""
