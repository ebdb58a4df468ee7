"""The family sgemm: fp32 on CUDA cores, fed by TMA."""
