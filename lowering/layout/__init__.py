"""Elements that change their places: transposes, interleaved axes, results past the caches."""
