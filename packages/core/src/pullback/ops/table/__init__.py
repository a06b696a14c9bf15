"""The op table: schema of entries, primitives, sample calls, kinks."""
