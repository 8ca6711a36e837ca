"""Why `tf.function` traces again: two calls of a function, tried in their own process."""
