"""Words, colours and parts that all tabs share. No engine, no visitor."""
