// Lesson:   one instruction can move four elements, and a load asked for early is there when it is needed.
// From:     06_thread_column
// Change:   every move is a Four: global to register, register to shared memory, shared memory to the fma,
//           result to C. The thread's four results become neighbours in a row, and Bs keeps the rows of B as
//           they come. The next tile is loaded into registers while this one is multiplied.
// Predicts: for 128 fmas 40 loads from shared memory in place of 64, and 2 from global memory in place of 8.
//           The trip to global memory hides behind BK steps of work. 1.3x to 2x.
// Measured: 4096^3: 13.0 TFLOP/s, 25.3 % of cuBLAS (H200, results/h200-20261126T003801-climb-fp32-4096.jsonl)
//
//   As               Bs                        the thread's results
//   | . a . . |      | b0 b1 b2 b3 |           acc[0..3] += a * b[0..3]
//   one load         one load of a Four
#include "common.cuh"
#include "config.cuh"

// Config: BM 32, BN 32, BK 32, TN 4
constexpr int THREADS = BM * BN / TN;
static_assert(BM * BK == 4 * THREADS && BK * BN == 4 * THREADS, "a thread loads one Four of each tile");
static_assert(TN == 4, "the results of a thread are one Four of a row");

extern "C" __global__ void __launch_bounds__(THREADS)
    vector_loads(int M, int N, int K, Acc alpha, const T* A, i64 lda, const T* B, i64 ldb, Acc beta, T* C,
                 i64 ldc) {
  // Where am I: the tile of C and my elements in it.
  const int tiles_n = ceil_div(N, BN);
  const int tile_row = blockIdx.x / tiles_n * BM, tile_col = blockIdx.x % tiles_n * BN;
  const int thread_row = threadIdx.x / (BN / TN), thread_col = threadIdx.x % (BN / TN) * TN;
  const int row = tile_row + thread_row, col = tile_col + thread_col;

  // What I load: my part of the tiles of A and B, clamped to the matrix.
  const int a_row = threadIdx.x / (BK / 4), a_col = threadIdx.x % (BK / 4) * 4;
  const int b_row = threadIdx.x / (BN / 4), b_col = threadIdx.x % (BN / 4) * 4;
  const T* a_gmem = A + min_of(tile_row + a_row, M - 1) * lda + a_col;
  const int b_first = clamp4(tile_col + b_col, N - 1), b_last = N - 1 - b_first;
  const T* b_gmem = B + b_row * ldb + b_first;
  // padded: the rows that a warp reads together lie in different banks
  alignas(16) __shared__ T As[BM][BK + 4];
  alignas(16) __shared__ T Bs[BK][BN];

  // K % BK products first, straight from global memory: the loop below sees whole tiles only.
  Acc acc[TN] = {};
  const int k_whole = K % BK;
  for (int k = 0; k < k_whole; ++k)
#pragma unroll
    for (int n = 0; n < TN; ++n)
      acc[n] += Acc(A[min_of(row, M - 1) * lda + k]) * Acc(B[k * ldb + min_of(col + n, N - 1)]);

  Four<T> a_next, b_next;
  a_gmem += k_whole, b_gmem += k_whole * ldb;
  if (k_whole < K) {
    a_next = load4(a_gmem, 3);
    b_next = load4(b_gmem, b_last);
  }
  for (int k0 = k_whole; k0 < K; k0 += BK) {
    // Load: this tile from registers to shared memory, the next one from global memory to registers.
    four_at(&As[a_row][a_col]) = a_next;
    four_at(&Bs[b_row][b_col]) = b_next;
    __syncthreads();  // the tile is whole before anyone reads it
    a_gmem += BK, b_gmem += BK * ldb;
    if (k0 + BK < K) {
      a_next = load4(a_gmem, 3);
      b_next = load4(b_gmem, b_last);
    }

    // Compute.
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      const Acc a = Acc(As[thread_row][k]);
      const Four<T> b = four_at(&Bs[k][thread_col]);
#pragma unroll
      for (int n = 0; n < TN; ++n) acc[n] += a * Acc(b.at[n]);
    }
    __syncthreads();  // everyone is done with the tile before the next one overwrites it
  }

  // Store.
  store4(C, ldc, row, col, M, N, alpha, acc, beta);
}
