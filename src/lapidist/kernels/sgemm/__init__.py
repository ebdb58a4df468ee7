"""fp32 on CUDA cores fed by TMA."""
