"""The interface of the engine: cache keys, options, results, timings, errors. No TensorFlow."""
