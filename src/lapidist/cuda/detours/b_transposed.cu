// Lesson:   what it costs when both operands are contiguous in k (B transposed beforehand).
// From:     10_transposed_a
// Change:   B is given as N x K, row-major, ldb its row length: element (k, n) is B[n * ldb + k]. It is
//           staged as A is.
// Predicts: 0.98x to 1.0x: eight scalar stores a tile instead of four and a Four; the same 569 instructions
//           for 512 fmas. A request of B is 16 rows of 32 bytes instead of one run of 512: whole sectors, but
//           16 lines.
// Measured: 4096^3: 46.6 TFLOP/s, 90.7 % of cuBLAS (H200, results/h200-20261121T174356-climb-fp32-4096.jsonl)
//
//   B as given (N x K)      Bs
//   | n0: k0 k1 k2 k3 |     | k0: n0 n1 .. |   one Four along k becomes four stores down a column
//   | n1: k0 k1 k2 k3 |     | k1: n0 n1 .. |
#include "common.cuh"
#include "config.cuh"

// Config: BM 128, BN 128, BK 8, TM 8, TN 8
constexpr int THREADS = (BM / TM) * (BN / TN);
constexpr int BLOCKS = TM * TN * sizeof(Acc) <= 256 ? 2 : 1;  // on an SM at once; it has 65536 registers
constexpr int ROW_STEP = BM / (TM / 4);  // from one group of four rows of a thread to the next
constexpr int COL_STEP = BN / (TN / 4);
static_assert(BM * BK == 4 * THREADS && BK * BN == 4 * THREADS, "a thread loads one Four of each tile");
static_assert(TM % 4 == 0 && TN % 4 == 0 && BM % TM == 0 && BN % TN == 0,
              "thread tiles are whole Fours and divide C's");

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    b_transposed(int M, int N, int K, Acc alpha, const T* A, i64 lda, const T* B, i64 ldb, Acc beta, T* C,
                 i64 ldc) {
  // Where am I: the tile of C and my TM x TN elements in it.
  const int tiles_n = ceil_div(N, BN);
  const int tile_row = blockIdx.x / tiles_n * BM, tile_col = blockIdx.x % tiles_n * BN;
  const int thread_row = threadIdx.x / (BN / TN) * 4, thread_col = threadIdx.x % (BN / TN) * 4;
  const int row = tile_row + thread_row, col = tile_col + thread_col;

  // What I load: my part of the tiles of A and B, clamped to the matrix.
  const int a_row = threadIdx.x / (BK / 4), a_col = threadIdx.x % (BK / 4) * 4;
  const T* a_gmem = A + min_of(tile_row + a_row, M - 1) * lda + a_col;
  const int b_row = threadIdx.x / (BK / 4), b_col = threadIdx.x % (BK / 4) * 4;
  const T* b_gmem = B + min_of(tile_col + b_row, N - 1) * ldb + b_col;
  alignas(16) __shared__ T As[BK][BM + 4];  // transposed; padded, so that a warp stores to 32 banks
  alignas(16) __shared__ T Bs[BK][BN + 4];  // as As

  // K % BK products first, straight from global memory: the loop below sees whole tiles only.
  Acc acc[TM][TN] = {}, a_frag[TM], b_frag[TN];
  const int k_whole = K % BK;
#pragma unroll 1
  for (int k = 0; k < k_whole; ++k) {
#pragma unroll
    for (int m = 0; m < TM; ++m) a_frag[m] = Acc(A[min_of(row + spread<ROW_STEP>(m), M - 1) * lda + k]);
#pragma unroll
    for (int n = 0; n < TN; ++n) b_frag[n] = Acc(B[min_of(col + spread<COL_STEP>(n), N - 1) * ldb + k]);
    outer_product(acc, a_frag, b_frag);
  }

  Four<T> a_next, b_next;
  a_gmem += k_whole, b_gmem += k_whole;
  if (k_whole < K) {
    a_next = load4(a_gmem, 3);
    b_next = load4(b_gmem, 3);
  }
  for (int k0 = k_whole; k0 < K; k0 += BK) {
    // Load: this tile from registers to shared memory, the next one from global memory to registers.
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      As[a_col + i][a_row] = a_next.at[i];
      Bs[b_col + i][b_row] = b_next.at[i];
    }
    __syncthreads();  // the tile is whole before anyone reads it
    a_gmem += BK, b_gmem += BK;
    if (k0 + BK < K) {
      a_next = load4(a_gmem, 3);
      b_next = load4(b_gmem, 3);
    }

    // Compute.
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      read_fragment<ROW_STEP>(a_frag, &As[k][thread_row]);
      read_fragment<COL_STEP>(b_frag, &Bs[k][thread_col]);
      outer_product(acc, a_frag, b_frag);
    }
    __syncthreads();  // everyone is done with the tile before the next one overwrites it
  }

  // Store.
  store_tile<ROW_STEP, COL_STEP>(C, ldc, row, col, M, N, alpha, acc, beta);
}
