"""The measures, one module each: `OPTIONS` and `measure(options)`, as `harness` describes."""
