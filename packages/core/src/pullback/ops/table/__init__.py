"""What an entry of the op table is: its schema, the primitives, sample calls, further names."""
