"""Matrix products by cuBLAS, decompositions by cuSOLVER, and the kernels around them."""
