// Lesson:   with the bank conflicts gone the checks of the border show.
// From:     05_padded_tile
// Change:   as bounds_plain: each load compares its row and column inside the k loop; Bs is padded.
// Predicts: 0.95x to 1.0x of 05 on whole tiles: a few instructions more for 32 fmas and 40 loads. Ragged K is
//           faster than in 05, which takes the K % BK products straight from global memory.
// Measured: 4096^3: 8.18 TFLOP/s, 15.9 % of cuBLAS (H200, results/h200-20261121T174356-climb-fp32-4096.jsonl)
//
//   a tile over the edge of A (x: inside)
//   | x x x 0 |   each load asks: row < M and k < K?
//   | x x x 0 |   what lies outside is zero and adds nothing
//   | 0 0 0 0 |
#include "common.cuh"
#include "config.cuh"

// Config: BM 32, BN 32, BK 32
static_assert(BM == BK && BN == BK,
              "one thread loads one element of each tile: the tiles are square and equal");

extern "C" __global__ void __launch_bounds__(BM* BN)
    bounds_padded(int M, int N, int K, Acc alpha, const T* A, i64 lda, const T* B, i64 ldb, Acc beta, T* C,
                  i64 ldc) {
  // Where am I: the tile of C and my element in it.
  const int tiles_n = ceil_div(N, BN);
  const int tile_row = blockIdx.x / tiles_n * BM, tile_col = blockIdx.x % tiles_n * BN;
  const int thread_row = threadIdx.x / BN, thread_col = threadIdx.x % BN;
  const int row = tile_row + thread_row, col = tile_col + thread_col;

  // What I load: one element of each tile, zero where it would lie outside the matrix.
  __shared__ T As[BM][BK];
  __shared__ T Bs[BN][BK + 1];  // transposed: thread_col reads its own row of Bs

  Acc acc = 0;
  for (int k0 = 0; k0 < K; k0 += BK) {
    // Load.
    const int a_col = k0 + thread_col, b_row = k0 + thread_row;
    As[thread_row][thread_col] = row < M && a_col < K ? A[row * lda + a_col] : T(0);
    Bs[thread_col][thread_row] = b_row < K && col < N ? B[b_row * ldb + col] : T(0);
    __syncthreads();  // the tile is whole before anyone reads it

    // Compute.
    for (int k = 0; k < BK; ++k) acc += Acc(As[thread_row][k]) * Acc(Bs[thread_col][k]);
    __syncthreads();  // everyone is done with the tile before the next one overwrites it
  }

  // Store.
  store(C, ldc, row, col, M, N, alpha, acc, beta);
}
