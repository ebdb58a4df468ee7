// A matrix of a complex product as real kernels multiply it, row by row without gaps.
//
//   WIDENED 0    z        -> re im              numbers as they are, of another layout
//   WIDENED 1    z        ->  re im             what (re im) of the left operand is multiplied by:
//                            -im re             row r becomes rows 2r and 2r + 1, of twice the length
//
// A block takes a square of SIDE x SIDE numbers through shared memory, so that lines are read and written as
// they lie. CONJUGATED and SCALED come first.
#include "config.cuh"
#include "overlap.cuh"

typedef long long i64;

constexpr int SIDE = 32, LINES = THREADS / SIDE;

struct alignas(2 * sizeof(Part)) Complex {
  Part re, im;
};

__device__ __forceinline__ Complex number_at(const Part* A, i64 index) {
  if (OF_REAL) return {A[index], Part(0)};
  return reinterpret_cast<const Complex*>(A)[index];
}

__device__ __forceinline__ Complex finished(Complex z, Part re, Part im) {
  if (CONJUGATED) z.im = -z.im;
  if (SCALED) z = {re * z.re - im * z.im, re * z.im + im * z.re};
  return z;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    widen(const Part* A, Complex* D, int rows, int columns, i64 a_row, i64 a_col, i64 a_matrix, Part re,
          Part im) {
  // a column of the square is read across banks: rows are one number longer
  __shared__ Complex square[SIDE][SIDE + 1];
  const int across = (columns + SIDE - 1) / SIDE, squares = across * ((rows + SIDE - 1) / SIDE);
  const int matrix = blockIdx.x / squares, number = blockIdx.x - matrix * squares;
  const int row = number / across * SIDE, col = number % across * SIDE;
  const int lane = threadIdx.x % SIDE;
  if (OVERLAPS) {
    let_next_launch_start();  // the product, which waits for what this launch writes
    wait_for_last_launch();
  }
  D += static_cast<i64>(matrix) * rows * columns * (WIDENED ? 2 : 1);
#pragma unroll
  for (int line = threadIdx.x / SIDE; line < SIDE; line += LINES) {
    const int r = READ_DOWN ? lane : line, c = READ_DOWN ? line : lane;
    if (row + r < rows && col + c < columns)
      square[r][c] = number_at(A, matrix * a_matrix + (row + r) * a_row + (col + c) * a_col);
  }
  __syncthreads();
  if (col + lane >= columns) return;
#pragma unroll
  for (int line = threadIdx.x / SIDE; line < SIDE; line += LINES) {
    if (row + line >= rows) return;
    const Complex z = finished(square[line][lane], re, im);
    if (WIDENED) {
      Complex* const to = D + (2ll * (row + line)) * columns + col + lane;
      to[0] = z;
      // the left operand's conjugates have the other sign
      to[columns] = LEFT_CONJUGATED ? Complex{z.im, -z.re} : Complex{-z.im, z.re};
    } else {
      D[static_cast<i64>(row + line) * columns + col + lane] = z;
    }
  }
}
