"""The Models tab: which models there are, what each takes, and adding one."""
