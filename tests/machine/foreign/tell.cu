// For nvcc 13.0: nvcc -O3 -ptx -arch=sm_80 tell.cu -o nvcc_tell.ptx. What kernels say, how they stop, and an
// ordinary expf.
#include <cassert>
#include <cstdio>

extern "C" __global__ void tell(const float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  assert(x[i] >= 0.0f && "no roots of these");
  if (i < n)
    printf("%s %d: %6.2f, %#x, %c, %lld|%-4u|%p\n", "lane", i, x[i], 16 * i, 'a' + i, 1ll << (40 + i), i,
           (void*)(size_t)i);
}

extern "C" __global__ void powers(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = expf(x[i]);
}

extern "C" __global__ void stop(int n) {
  if (n > 3) __trap();
}
