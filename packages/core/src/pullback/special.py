"""Special functions: ``pullback.special``. They come from the op table."""
