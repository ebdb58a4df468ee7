"""fp32 on CUDA cores fed by the copy engine."""
