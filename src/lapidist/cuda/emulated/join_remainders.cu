// D = A B from the sums of remainders' products, by the Chinese remainder theorem: a thread for each element.
//
//   x = sum over i of (sum_i modulo p_i) * (P / p_i)   modulo P, the moduli's product
//
// Remainders of A hold the inverses that the theorem asks for. x is at most P / 4, so how often P goes into the
// sum follows from a sum of float32.
#include "config.cuh"
#include "emulated/moduli.cuh"

typedef unsigned long long u64;

struct Sum {
  u64 words[4] = {};
  float times = 0;  // of P
};

template <int I = 0>
__device__ __forceinline__ void add(Sum& sum, const int* from, i64 modulus_step) {
  if constexpr (I < MODULI) {
    constexpr int P = moduli().at[I];
    constexpr Wide OTHERS = product(I);
    // sums of int32 plus 2^31 are positive; remainders up to 2 P are as good as those below P
    const unsigned remainder = (static_cast<unsigned>(*from) ^ 0x80000000u) % P + (P - power_of_two(31, P));
    sum.words[0] += static_cast<u64>(remainder) * OTHERS.words[0];
    sum.words[1] += static_cast<u64>(remainder) * OTHERS.words[1];
    sum.words[2] += static_cast<u64>(remainder) * OTHERS.words[2];
    sum.words[3] += static_cast<u64>(remainder) * OTHERS.words[3];
    sum.times += remainder * (1.0f / P);
    add<I + 1>(sum, from + modulus_step, modulus_step);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    join_remainders(const int* A, const int* B, double* D, int rows, int columns, i64 d_row, i64 d_col) {
  const int blocks = (columns + THREADS - 1) / THREADS, row = blockIdx.x / blocks;
  const int column = (blockIdx.x - row * blocks) * THREADS + threadIdx.x;
  if (column >= columns) return;
  Sum sum;
  add(sum, A + static_cast<i64>(row) * columns + column, static_cast<i64>(rows) * columns);
  constexpr Wide ALL = product(-1);
  const i64 times = __float2int_rn(sum.times);
  i64 word = static_cast<i64>(sum.words[0]) - times * ALL.words[0];
  u64 low = static_cast<unsigned>(word);
  word = static_cast<i64>(sum.words[1]) - times * ALL.words[1] + (word >> 32);
  low |= static_cast<u64>(static_cast<unsigned>(word)) << 32;
  word = static_cast<i64>(sum.words[2]) - times * ALL.words[2] + (word >> 32);
  u64 high = static_cast<unsigned>(word);
  word = static_cast<i64>(sum.words[3]) - times * ALL.words[3] + (word >> 32);
  high |= static_cast<u64>(static_cast<unsigned>(word)) << 32;
  // its magnitude first: the low words of a small negative number would lose it to rounding
  const bool negative = static_cast<i64>(high) < 0;
  if (negative) low = ~low + 1, high = ~high + (low == 0);
  const double size = fma(__ull2double_rn(high), 0x1p64, __ull2double_rn(low));
  const int of_row = B[row], of_column = B[rows + column];
  const double number = scalbn(negative ? -size : size, -(of_row + of_column));
  const bool finite = of_row != NO_NUMBER && of_column != NO_NUMBER;
  D[row * d_row + column * d_col] = finite ? number : __longlong_as_double(0x7ff8000000000000);
}
