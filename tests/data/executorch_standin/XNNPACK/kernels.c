int xnn_kernels(void) { return XNN_ENABLE_ARM_SME2; }
