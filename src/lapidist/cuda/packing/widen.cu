// A matrix of a complex product as real kernels multiply it, row by row, `pitch` numbers from one to the next.
//
//   WIDENED 0    z        -> re im              numbers as they are, of another layout
//   WIDENED 1    z        ->  re im             what (re im) of the left operand is multiplied by:
//                            -im re             row r becomes rows 2r and 2r + 1, of twice the length
//
// A block takes a square of SIDE x SIDE numbers through shared memory, so that lines are read and written as
// they lie. CONJUGATED and SCALED come first. Rows or columns of A may be gathered. Matrices may lie anywhere:
// then A is an array of their addresses, and those of the results go to C.
#include "config.cuh"
#include "overlap.cuh"

typedef long long i64;

constexpr int SIDE = 32, LINES = THREADS / SIDE;
constexpr int ROWS = 1, COLUMNS = 2;  // of A, that are gathered

struct alignas(2 * sizeof(Part)) Complex {
  Part re, im;
};

#if GATHERS
#define INDEX_PARAMETERS , const Index *B, i64 b_matrix
#define PICKED(i) static_cast<int>(B[matrix * b_matrix + (i)])
#else
#define INDEX_PARAMETERS
#define PICKED(i) (i)
#endif
#if LISTED
#define LIST_PARAMETERS , i64* C
#else
#define LIST_PARAMETERS
#endif

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
    widen(const Part* A, Complex* D, int rows, int columns, int pitch, i64 a_row, i64 a_col, i64 a_matrix,
          Part re, Part im INDEX_PARAMETERS LIST_PARAMETERS) {
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
  D += static_cast<i64>(matrix) * rows * pitch * (WIDENED ? 2 : 1);
#if LISTED
  A = reinterpret_cast<const Part*>(reinterpret_cast<const i64*>(A)[matrix]);
  if (number == 0 && threadIdx.x == 0) C[matrix] = reinterpret_cast<i64>(D);
#endif
#pragma unroll
  for (int line = threadIdx.x / SIDE; line < SIDE; line += LINES) {
    const int r = READ_DOWN ? lane : line, c = READ_DOWN ? line : lane;
    if (row + r < rows && col + c < columns) {
      const i64 of_row = GATHERS == ROWS ? PICKED(row + r) : row + r;
      const i64 of_col = GATHERS == COLUMNS ? PICKED(col + c) : col + c;
      square[r][c] = number_at(A, matrix * a_matrix + of_row * a_row + of_col * a_col);
    }
  }
  __syncthreads();
  if (col + lane >= columns) return;
#pragma unroll
  for (int line = threadIdx.x / SIDE; line < SIDE; line += LINES) {
    if (row + line >= rows) return;
    const Complex z = finished(square[line][lane], re, im);
    if (WIDENED) {
      Complex* const to = D + (2ll * (row + line)) * pitch + col + lane;
      to[0] = z;
      // the left operand's conjugates have the other sign
      to[pitch] = LEFT_CONJUGATED ? Complex{z.im, -z.re} : Complex{-z.im, z.re};
    } else {
      D[static_cast<i64>(row + line) * pitch + col + lane] = z;
    }
  }
}
