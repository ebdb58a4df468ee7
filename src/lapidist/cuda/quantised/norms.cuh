// RMSNorm of rows of x in the launch of their product: sums are divided by the root of the mean square of a row.
// Each block computes it while its first codes are on their way. On an H200 one row by 6144 x 4096 took 5.3 us
// without a norm, 6.3 with squares behind the products, and 8.2 with squares by mma.sync between them.
#pragma once
#include "config.cuh"
#include "quantised/decode.cuh"

#if NORM
#define NORM_PARAMETERS , float norm_share, float norm_epsilon
#define NORM_OF(squares) rsqrtf((squares) * norm_share + norm_epsilon)
#else
#define NORM_PARAMETERS
#define NORM_OF(squares) 1.0f
#endif

namespace quantised {

template <typename T>
__device__ __forceinline__ float squares_of(unsigned bits) {
  const auto pair = Decode<T>::pair_of(bits);
  const float low = __low2float(pair), high = __high2float(pair);
  return low * low + high * high;
}

// The sum of squares of a warp's part of a row, so many steps long, of which all warps have one vector after another.
template <int Warps, typename T>
__device__ __forceinline__ void keep_squares(const T* row, int steps, float& to) {
  float sum = 0;
  for (int at = threadIdx.x; at < steps / 8; at += 32 * Warps) {
    const uint4 eight = reinterpret_cast<const uint4*>(row)[at];
    sum += squares_of<T>(eight.x) + squares_of<T>(eight.y) + squares_of<T>(eight.z) + squares_of<T>(eight.w);
  }
#pragma unroll
  for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, other);
  if (threadIdx.x % 32 == 0) to = sum;
}

}  // namespace quantised
