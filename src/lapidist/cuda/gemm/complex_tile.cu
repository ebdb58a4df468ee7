// Small products of complex numbers, read and written where they lie: D = alpha A B + beta C.
//
// A block has a square of SIDE x SIDE results of one product. It takes STEPS of k at a time through shared
// memory, and loads the next ones while it multiplies. A thread keeps ROWS x COLUMNS results, two sums each: four
// products of real numbers a step. Large products run faster as products of real numbers.
#include "config.cuh"
#include "overlap.cuh"

typedef long long i64;

constexpr int SIDE = 32, ROWS = 4, COLUMNS = 2, ACROSS = SIDE / COLUMNS, THREADS = SIDE / ROWS * ACROSS;
constexpr int EACH = SIDE * STEPS / THREADS;  // numbers of a chunk of A, and of B, that a thread loads
constexpr int PITCH = SIDE + 2;  // lines in shared memory start in different banks, and on 16 bytes

struct alignas(2 * sizeof(Part)) Complex {
  Part re, im;
};

__device__ __forceinline__ Complex times(Part re, Part im, Complex z) {
  return {re * z.re - im * z.im, re * z.im + im * z.re};
}

// A number of alpha or beta. A real one multiplies both parts, so that no infinity meets an imaginary zero.
template <bool Real>
__device__ __forceinline__ Complex scaled(Part re, Part im, Complex z) {
  return Real ? Complex{re * z.re, re * z.im} : times(re, im, z);
}

// One operand's chunk: lines across the square, `step` from one of k to the next. ALONG_K: those touch.
template <bool ALONG_K, bool CONJUGATED>
struct Chunk {
  Complex held[EACH];

  __device__ __forceinline__ static int line_of(int i) {
    const int at = threadIdx.x + i * THREADS;
    return ALONG_K ? at / STEPS : at % SIDE;
  }
  __device__ __forceinline__ static int step_of(int i) {
    const int at = threadIdx.x + i * THREADS;
    return ALONG_K ? at % STEPS : at / SIDE;
  }
  __device__ __forceinline__ void load(const Complex* from, i64 line, i64 step, int lines, int steps) {
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int l = line_of(i), s = step_of(i);
      held[i] = l < lines && s < steps ? from[l * line + s * step] : Complex{0, 0};
    }
  }
  __device__ __forceinline__ void store(Complex (&to)[STEPS][PITCH]) const {
#pragma unroll
    for (int i = 0; i < EACH; ++i)
      to[step_of(i)][line_of(i)] = {held[i].re, CONJUGATED ? -held[i].im : held[i].im};
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    complex_tile(const Complex* A, const Complex* B, const Complex* C, Complex* D, int m, int n, int k,
                 int tiles_m, int tiles, i64 a_row, i64 a_col, i64 a_matrix, i64 b_row, i64 b_col,
                 i64 b_matrix, i64 c_row, i64 c_col, i64 c_matrix, i64 d_row, i64 d_col, i64 d_matrix,
                 Part alpha, Part beta, Part alpha_im, Part beta_im) {
  // aligned, so that neighbours are loaded together
  __shared__ alignas(16) Complex as[STEPS][PITCH], bs[STEPS][PITCH];
  const int matrix = blockIdx.x / tiles, tile = blockIdx.x - matrix * tiles;
  const int row = tile % tiles_m * SIDE, col = tile / tiles_m * SIDE;
  A += matrix * a_matrix + row * a_row, B += matrix * b_matrix + col * b_col;
  if (OVERLAPS) {
    let_next_launch_start();
    wait_for_last_launch();
  }
  Chunk<A_ALONG_K, A_CONJUGATED> next_a;
  Chunk<B_ALONG_K, B_CONJUGATED> next_b;
  const int down = threadIdx.x / ACROSS * ROWS, across = threadIdx.x % ACROSS * COLUMNS;
  Complex sums[ROWS][COLUMNS] = {};
  next_a.load(A, a_row, a_col, m - row, k), next_b.load(B, b_col, b_row, n - col, k);
  for (int done = 0; done < k; done += STEPS) {
    next_a.store(as), next_b.store(bs);
    __syncthreads();
    A += STEPS * a_col, B += STEPS * b_row;
    const int left = k - done - STEPS;
    if (left > 0) next_a.load(A, a_row, a_col, m - row, left), next_b.load(B, b_col, b_row, n - col, left);
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
          const Complex x = as[step][down + i], y = bs[step][across + j];
          Complex& sum = sums[i][j];
          sum.re += x.re * y.re, sum.im += x.re * y.im;
          sum.re -= x.im * y.im, sum.im += x.im * y.re;
        }
      }
    }
    __syncthreads();
  }
  D += matrix * d_matrix, C += matrix * c_matrix;
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j) {
      const int r = row + down + i, s = col + across + j;
      if (r >= m || s >= n) continue;
      Complex z = scaled<ALPHA_REAL>(alpha, alpha_im, sums[i][j]);
      if (READS_C) {
        Complex of_c = C[r * c_row + s * c_col];
        if (C_CONJUGATED) of_c.im = -of_c.im;
        of_c = scaled<BETA_REAL>(beta, beta_im, of_c);
        z = {z.re + of_c.re, z.im + of_c.im};
      }
      D[r * d_row + s * d_col] = z;
    }
  }
}
