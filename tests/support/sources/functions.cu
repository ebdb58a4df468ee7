// Functions that are not inlined: one that calls another, with a struct, an early return and a branch; sums of
// 128 bits, and products of 24 bits and of halves by bytes.
struct Both {
  unsigned long long low, high;
  float rest;
};

__device__ __noinline__ float half_of(float x) {
  if (x < 0.0f) return -1.0f;
  return 0.5f * x;
}

__device__ __noinline__ Both added(Both a, Both b) {
  Both result;
  asm("add.cc.u64 %0, %2, %4; addc.u64 %1, %3, %5; sub.cc.u64 %0, %0, 3; subc.u64 %1, %1, 0;"
      : "=&l"(result.low), "=&l"(result.high)
      : "l"(a.low), "l"(a.high), "l"(b.low), "l"(b.high));
  result.rest = half_of(a.rest) + half_of(b.rest);
  return result;
}

extern "C" __global__ void wide(const Both* a, const Both* b, Both* sums) {
  int i = threadIdx.x;
  if (i % 3) sums[i] = added(a[i], b[i]);
}

extern "C" __global__ void narrow(const int* a, const int* b, int* out) {
  int i = threadIdx.x;
  out[4 * i] = __mul24(a[i], b[i]);
  out[4 * i + 1] = __umul24(a[i], b[i]);
  out[4 * i + 2] = __dp2a_lo(a[i], b[i], 7);
  out[4 * i + 3] = __dp2a_hi((unsigned)a[i], (unsigned)b[i], 7u);
}
