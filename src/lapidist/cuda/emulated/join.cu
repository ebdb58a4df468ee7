// D = alpha A B + beta C from the sums of parts' products (parts.cuh), where parts hold the numbers. Where they do
// not, others write D.
#include "config.cuh"
#include "emulated/of_lines.cuh"

typedef long long i64;

// what a product counts whose parts' numbers add up to one more; pieces have their sizes themselves
#if FLOATS
typedef float Sum;
constexpr int SUMS = FLOATS == 2 ? 2 : 3;
constexpr double NEXT = FLOATS == 2 ? 0x1p-12 : 1;
#else
typedef int Sum;
constexpr int SUMS = 3;
constexpr double NEXT = 0x1p-8;
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
    join(const Sum* A, float* B, const float* C, float* D, int rows, int columns, i64 c_row, i64 c_col,
         i64 d_row, i64 d_col, float alpha, float beta) {
  const OfLines of_lines = {B, rows, columns};
  if (B[0] == 0) return;
  const double *const row_scales = of_lines.scales(false), *const column_scales = of_lines.scales(true);
  const i64 all = static_cast<i64>(rows) * columns;
  for (i64 at = blockIdx.x * static_cast<i64>(THREADS) + threadIdx.x; at < all;
       at += gridDim.x * static_cast<i64>(THREADS)) {
    const i64 row = at / columns, column = at - row * columns;
    float* const to = D + row * d_row + column * d_col;
    const float added = beta == 0 ? 0.0f : C[row * c_row + column * c_col];
    double sum = A[at] + A[at + all] * NEXT;
    if (SUMS == 3) sum += A[at + 2 * all] * (NEXT * NEXT);
    const double scaled = sum * (row_scales[row] * column_scales[column]);
    *to = static_cast<float>(beta == 0 ? alpha * scaled : alpha * scaled + static_cast<double>(beta) * added);
  }
}
