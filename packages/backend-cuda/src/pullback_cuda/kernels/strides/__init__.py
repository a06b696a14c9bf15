"""How kernels walk through strided arrays: coalesced dims, and the position that an index has."""
