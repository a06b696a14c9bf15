"""Programs of recorded kernel calls: simplification, fusion groups, memory plan, execution."""
