"""The tabs, a folder each: its components and events, its report, its runs."""
