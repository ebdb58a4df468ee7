// D = alpha A B + beta C from the sums of parts' products (parts.cuh). If parts are not accurate enough, C alone
// moves to D, to which the product of float32 is then added.
#include "config.cuh"

typedef long long i64;

// what a product counts whose parts' numbers add up to one more; pieces have their sizes themselves
#if FLOATS
typedef float Sum;
constexpr double NEXT = 1;
#else
typedef int Sum;
constexpr double NEXT = 0x1p-8;
#endif

// `B`: what judge.cu left, then the scales of rows, and of columns.
extern "C" __global__ void __launch_bounds__(THREADS)
    join(const Sum* A, const float* B, const float* C, float* D, i64 rows, i64 columns, i64 c_row, i64 c_col,
         i64 d_row, i64 d_col, float alpha, float beta) {
  const bool accurate = B[2] != 0;
  if (!accurate && (beta == 0 || C == D)) return;
  const double* const row_scales = reinterpret_cast<const double*>(B + 4);
  const double* const column_scales = row_scales + rows;
  const i64 all = rows * columns;
  for (i64 at = blockIdx.x * static_cast<i64>(THREADS) + threadIdx.x; at < all;
       at += gridDim.x * static_cast<i64>(THREADS)) {
    const i64 row = at / columns, column = at - row * columns;
    float* const to = D + row * d_row + column * d_col;
    const float added = beta == 0 ? 0.0f : C[row * c_row + column * c_col];
    if (!accurate) {
      *to = added;
      continue;
    }
    const double sum = A[at] + A[at + all] * NEXT + A[at + 2 * all] * (NEXT * NEXT);
    const double scaled = sum * (row_scales[row] * column_scales[column]);
    *to = static_cast<float>(beta == 0 ? alpha * scaled : alpha * scaled + static_cast<double>(beta) * added);
  }
}
