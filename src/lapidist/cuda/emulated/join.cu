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

constexpr unsigned AT_ONCE = 4;  // elements of a thread, so that many loads are under way

// A block has `width` columns of some rows at a time: a division for each of them, not for each element.
extern "C" __global__ void __launch_bounds__(THREADS)
    join(const Sum* A, float* B, const float* C, float* D, int rows, int columns, int width, i64 c_row,
         i64 c_col, i64 d_row, i64 d_col, float alpha, float beta) {
  const OfLines of_lines = {B, rows, columns};
  if (B[0] == 0) return;
  const double *const row_scales = of_lines.scales(false), *const column_scales = of_lines.scales(true);
  const i64 all = static_cast<i64>(rows) * columns;
  const int below = threadIdx.x / width, beside = threadIdx.x % width, tall = THREADS / width;
  const unsigned across = (columns - 1u) / width + 1, units = across * ((rows - 1u) / tall + 1);
  for (unsigned first = blockIdx.x * AT_ONCE; first < units; first += gridDim.x * AT_ONCE) {
    Sum sums[AT_ONCE][SUMS];
    float added[AT_ONCE];
    i64 row[AT_ONCE], column[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const unsigned unit = first + i, down = unit / across;
      row[i] = static_cast<i64>(down) * tall + below;
      column[i] = static_cast<i64>(unit - down * across) * width + beside;
      if (row[i] >= rows || column[i] >= columns) continue;
#pragma unroll
      for (int level = 0; level < SUMS; ++level)
        sums[i][level] = A[row[i] * columns + column[i] + level * all];
      added[i] = beta == 0 ? 0.0f : C[row[i] * c_row + column[i] * c_col];
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      if (row[i] >= rows || column[i] >= columns) continue;
      double sum = 0, size = 1;
#pragma unroll
      for (int level = 0; level < SUMS; ++level, size *= NEXT) sum += sums[i][level] * size;
      const double scaled = sum * (row_scales[row[i]] * column_scales[column[i]]);
      D[row[i] * d_row + column[i] * d_col] = static_cast<float>(
          beta == 0 ? alpha * scaled : alpha * scaled + static_cast<double>(beta) * added[i]);
    }
  }
}
