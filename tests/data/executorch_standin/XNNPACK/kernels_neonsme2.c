int xnn_neonsme2_kernels(void) { return 1; }
