// Small products of complex numbers, read and written where they lie: D = alpha A B + beta C.
//
// A block has a square of SIDE x SIDE results of one product. It takes STEPS of k at a time through shared
// memory, and loads the next ones while it multiplies. A thread keeps THREAD_ROWS x THREAD_COLUMNS results, two sums each: four
// products of real numbers a step. Large products run faster as products of real numbers.
//
// PARTS blocks of a cluster share the k of a square. Each then adds the sums of all, in the order of k, for its
// share of the results.
#include "config.cuh"
#include "gemm/complex_results.cuh"
#include "overlap.cuh"

constexpr int ACROSS = SIDE / THREAD_COLUMNS, THREADS = SIDE / THREAD_ROWS * ACROSS;
constexpr int EACH = SIDE * STEPS / THREADS;  // numbers of a chunk of A, and of B, that a thread loads
constexpr int PITCH = SIDE + 2;  // lines in shared memory start in different banks, and on 16 bytes

// A thread's columns: so many side by side fill 16 bytes, and those of neighbours lie next to them, so that
// threads which load together meet no bank twice.
static_assert(THREAD_COLUMNS % WIDE == 0 && SIDE * STEPS % THREADS == 0, "threads share the square evenly");
__device__ __forceinline__ int column_of(int across, int j) {
  return (j / WIDE * ACROSS + across) * WIDE + j % WIDE;
}

// A block's chunks, and behind them the sums of its part of k, which the others read.
union Shared {
  struct {
    Complex a[STEPS][PITCH], b[STEPS][PITCH];
  };
  Complex sums[PARTS > 1 ? SIDE : 1][SIDE];
};
static_assert(sizeof(Shared) <= 48 * 1024, "what a kernel has without asking");

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
  __shared__ alignas(16) Shared shared;
  const int unit = blockIdx.x / PARTS, part = blockIdx.x % PARTS, matrix = unit / tiles;
  const int tile = unit - matrix * tiles, row = tile % tiles_m * SIDE, col = tile / tiles_m * SIDE;
  const int chunks = (k + STEPS - 1) / STEPS, first = i64(chunks) * part / PARTS * STEPS,
            end = min(k, int(i64(chunks) * (part + 1) / PARTS) * STEPS);
  A += matrix * a_matrix + row * a_row + first * a_col, B += matrix * b_matrix + col * b_col + first * b_row;
  if (OVERLAPS) {
    let_next_launch_start();
    wait_for_last_launch();
  }
  Chunk<A_ALONG_K, A_CONJUGATED> next_a;
  Chunk<B_ALONG_K, B_CONJUGATED> next_b;
  const int down = threadIdx.x / ACROSS * THREAD_ROWS, across = threadIdx.x % ACROSS;
  Complex sums[THREAD_ROWS][THREAD_COLUMNS] = {};
  next_a.load(A, a_row, a_col, m - row, end - first), next_b.load(B, b_col, b_row, n - col, end - first);
  for (int done = first; done < end; done += STEPS) {
    next_a.store(shared.a), next_b.store(shared.b);
    __syncthreads();
    A += STEPS * a_col, B += STEPS * b_row;
    const int left = end - done - STEPS;
    if (left > 0) next_a.load(A, a_row, a_col, m - row, left), next_b.load(B, b_col, b_row, n - col, left);
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      Complex of_b[THREAD_COLUMNS];
#pragma unroll
      for (int j = 0; j < THREAD_COLUMNS; ++j) of_b[j] = shared.b[step][column_of(across, j)];
#pragma unroll
      for (int i = 0; i < THREAD_ROWS; ++i) {
#pragma unroll
        for (int j = 0; j < THREAD_COLUMNS; ++j) {
          const Complex x = shared.a[step][down + i], y = of_b[j];
          Complex& sum = sums[i][j];
          sum.re += x.re * y.re, sum.im += x.re * y.im;
          sum.re -= x.im * y.im, sum.im += x.im * y.re;
        }
      }
    }
    __syncthreads();
  }
  const Results results{D + matrix * d_matrix + row * d_row + col * d_col,
                        C + matrix * c_matrix + row * c_row + col * c_col,
                        d_row,
                        d_col,
                        c_row,
                        c_col,
                        m - row,
                        n - col,
                        alpha,
                        beta,
                        alpha_im,
                        beta_im};
  if constexpr (PARTS > 1) {
#pragma unroll
    for (int i = 0; i < THREAD_ROWS; ++i)
#pragma unroll
      for (int j = 0; j < THREAD_COLUMNS; ++j) shared.sums[down + i][column_of(across, j)] = sums[i][j];
    store_joined<SIDE, SIDE, SIDE, THREADS>(shared.sums[0], part, results);
  } else {
#pragma unroll
    for (int i = 0; i < THREAD_ROWS; ++i) {
#pragma unroll
      for (int j = 0; j < THREAD_COLUMNS; ++j) results.store(down + i, column_of(across, j), sums[i][j]);
    }
  }
}
