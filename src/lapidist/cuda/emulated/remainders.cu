// Lines of float64 as integers, and these by their remainders modulo MODULI numbers: a block for each line.
//
//   x = round(number * 2^exponent)     below 2^62; the norm of the line below the root of half the moduli's product
//   x = high * 2^42 + middle * 2^21 + low
//   D[i] = x modulo p_i, from -p_i / 2 up; those of A times the inverse of the other moduli's product
#include "config.cuh"
#include "emulated/moduli.cuh"

constexpr int PART = 21, STEPS = 4;  // bits of a part of x; steps of k of a thread

template <bool WEIGHTED, int I = 0>
__device__ __forceinline__ void store(const int (&low)[STEPS], const int (&middle)[STEPS],
                                      const int (&high)[STEPS], signed char* to, i64 modulus_step) {
  if constexpr (I < MODULI) {
    constexpr int P = moduli().at[I], WEIGHT = WEIGHTED ? inverse_of_others(I) : 1;
    constexpr int LOW = centred(WEIGHT % P, P);
    constexpr int MIDDLE = centred(power_of_two(PART, P) * WEIGHT % P, P);
    constexpr int HIGH = centred(power_of_two(2 * PART, P) * WEIGHT % P, P);
    // sums are at most 3 * 2^28: a multiple of P above makes them positive, P / 2 more is taken off again
    constexpr unsigned ABOVE = (1u << 30) / P * P + P + P / 2;
    unsigned word = 0;
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
      const unsigned sum = low[s] * LOW + middle[s] * MIDDLE + high[s] * HIGH + ABOVE;
      word |= ((sum % P - P / 2) & 255u) << 8 * s;
    }
    *reinterpret_cast<unsigned*>(to) = word;
    store<WEIGHTED, I + 1>(low, middle, high, to + modulus_step, modulus_step);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    remainders(const double* A, int* B, signed char* D, i64 line_step, i64 k_step, int lines, int k,
               int padded, int weighted, double most) {
  __shared__ double of_warp[THREADS / 32];
  const double* const from = A + blockIdx.x * line_step;
  double largest = 0;
  for (int i = threadIdx.x; i < k; i += THREADS) largest = fmax(largest, fabs(from[i * k_step]));
#pragma unroll
  for (int far = 16; far > 0; far /= 2) largest = fmax(largest, __shfl_xor_sync(0xffffffffu, largest, far));
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = largest;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < THREADS / 32; ++warp) largest = fmax(largest, of_warp[warp]);
  __syncthreads();
  const int above = largest == 0 ? 0 : ilogb(largest);
  double squares = 0;
  for (int i = threadIdx.x; i < k; i += THREADS) {
    const double scaled = scalbn(from[i * k_step], -above);
    squares += scaled * scaled;
  }
#pragma unroll
  for (int far = 16; far > 0; far /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, far);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = squares;
  __syncthreads();
  squares = 0;
#pragma unroll
  for (int warp = 0; warp < THREADS / 32; ++warp) squares += of_warp[warp];
  const bool finite = squares < 1e30;  // not of NaN, either
  const int exponent =
      squares == 0 ? 0 : static_cast<int>(floor(most - 0.5 * log2f(static_cast<float>(squares)))) - above;
  if (threadIdx.x == 0) B[blockIdx.x] = finite ? exponent : NO_NUMBER;
  signed char* const to = D + blockIdx.x * static_cast<i64>(padded);
  const i64 modulus_step = static_cast<i64>(lines) * padded;
  for (int i = threadIdx.x * STEPS; i < padded; i += THREADS * STEPS) {
    int low[STEPS], middle[STEPS], high[STEPS];
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
      const double number = finite && i + s < k ? from[(i + s) * k_step] : 0.0;
      const i64 x = __double2ll_rn(scalbn(number, exponent));
      low[s] = static_cast<int>(x) & ((1 << PART) - 1);
      middle[s] = static_cast<int>(x >> PART) & ((1 << PART) - 1);
      high[s] = static_cast<int>(x >> 2 * PART);
    }
    if (weighted) store<true>(low, middle, high, to + i, modulus_step);
    else store<false>(low, middle, high, to + i, modulus_step);
  }
}
