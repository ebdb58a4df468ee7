// x of 8-bit floats in 16 bits that hold all its numbers: 16 of them a thread.
#include "config.cuh"
#include "overlap.cuh"

typedef long long i64;

struct alignas(16) Numbers {
  X at[16];
};
struct alignas(16) Wider {
  T at[8];
};

extern "C" __global__ void __launch_bounds__(THREADS) converted(const Numbers* A, Wider* D, i64 vectors) {
  const i64 at = static_cast<i64>(blockIdx.x) * THREADS + threadIdx.x;
  let_next_launch_start();  // the product, which waits for what this launch writes
  wait_for_last_launch();
  if (at >= vectors) return;
  const Numbers numbers = A[at];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    Wider wider;
#pragma unroll
    for (int i = 0; i < 8; ++i) wider.at[i] = T(static_cast<float>(numbers.at[8 * half + i]));
    D[2 * at + half] = wider;
  }
}
