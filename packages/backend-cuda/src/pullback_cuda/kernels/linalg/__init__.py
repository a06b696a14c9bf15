"""Matrix products by cuBLAS, decompositions by cuSOLVER, and kernels for the rest."""
