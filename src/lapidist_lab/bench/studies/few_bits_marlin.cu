// Marlin as a shared library for the bench: its kernel and the choice of its config are included from a checkout.
#include <cuda_runtime.h>

#include <cstdint>

#include "marlin/marlin_cuda_kernel.cu"

// `room`: of 16 numbers for each 128 columns, all 0 before and after.
extern "C" int marlin_multiply(const void* x, const void* codes, void* result, void* factors, int m, int n,
                               int k, void* room, int group, int device, cudaStream_t stream) {
  return marlin_cuda(x, codes, result, factors, m, n, k, room, group, device, stream);
}
