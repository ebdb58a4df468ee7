// Lesson:   a value in a register serves several fmas: results that share an operand belong to one thread.
// From:     05_padded_tile
// Change:   a thread computes TM = 4 results of one column, so an element of Bs is read once for four fmas.
// Predicts: 5/4 elements are read from shared memory for an fma in place of 2. That is 64 loads for 128 fmas
//           in place of 40 for 32, as the compiler reads four k of As at a time. A thread has four
//           independent sums. 1.6x to 2.5x, and loads are still the limit.
// Measured: 4096^3: 17.5 TFLOP/s, 34.1 % of cuBLAS (H200, results/h200-20261126T003801-climb-fp32-4096.jsonl)
//
//   As            Bs (transposed)        the thread's results
//   | a0 . . |    | b . . |              acc[0] += a0 * b
//   | a1 . . |                           acc[1] += a1 * b
//   | a2 . . |    one load of b,         acc[2] += a2 * b
//   | a3 . . |    four loads of a        acc[3] += a3 * b
#include "common.cuh"
#include "config.cuh"

// Config: BM 32, BN 32, BK 32, TM 4
constexpr int THREADS = BM * BN / TM;
static_assert(BM == BK && BN == BK,
              "a thread loads the same TM x 1 elements of each tile: the tiles are square and equal");
static_assert(BM % TM == 0, "threads cover the rows of the tile in groups of TM");

extern "C" __global__ void __launch_bounds__(THREADS)
    thread_column(int M, int N, int K, Acc alpha, const T* A, i64 lda, const T* B, i64 ldb, Acc beta, T* C,
                  i64 ldc) {
  // Where am I: the tile of C and my elements in it.
  const int tiles_n = ceil_div(N, BN);
  const int tile_row = blockIdx.x / tiles_n * BM, tile_col = blockIdx.x % tiles_n * BN;
  const int thread_row = threadIdx.x / BN * TM, thread_col = threadIdx.x % BN;
  const int row = tile_row + thread_row, col = tile_col + thread_col;

  // What I load: my rows of A, my column of B, clamped to the matrix.
  const T* a_gmem[TM];
#pragma unroll
  for (int m = 0; m < TM; ++m) a_gmem[m] = A + min_of(row + m, M - 1) * lda;
  const T* b_gmem = B + min_of(col, N - 1);
  __shared__ T As[BM][BK];
  __shared__ T Bs[BN][BK + 1];  // transposed: thread_col reads its own row of Bs

  // K % BK products first, straight from global memory: the loop below sees whole tiles only.
  Acc acc[TM] = {};
  const int k_whole = K % BK;
  for (int k = 0; k < k_whole; ++k)
#pragma unroll
    for (int m = 0; m < TM; ++m) acc[m] += Acc(a_gmem[m][k]) * Acc(b_gmem[k * ldb]);

  for (int k0 = k_whole; k0 < K; k0 += BK) {
    // Load.
#pragma unroll
    for (int m = 0; m < TM; ++m) {
      As[thread_row + m][thread_col] = a_gmem[m][k0 + thread_col];
      Bs[thread_col][thread_row + m] = b_gmem[(k0 + thread_row + m) * ldb];
    }
    __syncthreads();  // the tile is whole before anyone reads it

    // Compute.
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      const Acc b = Acc(Bs[thread_col][k]);
#pragma unroll
      for (int m = 0; m < TM; ++m) acc[m] += Acc(As[thread_row + m][k]) * b;
    }
    __syncthreads();  // everyone is done with the tile before the next one overwrites it
  }

  // Store.
#pragma unroll
  for (int m = 0; m < TM; ++m) store(C, ldc, row + m, col, M, N, alpha, acc[m], beta);
}
