"""Why `tf.function` traces again: two calls of a function, tried in a process of their own."""
