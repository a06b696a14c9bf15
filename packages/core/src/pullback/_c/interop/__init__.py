"""Memory of other libraries: arrays, DLPack, nested Python sequences."""
