// Lesson:   what a whole block reads again and again is fetched once and shared.
// From:     03_hoisted_indices
// Change:   the block copies a 32x32 tile of A and of B into shared memory, then multiplies from there. A
//           column of B is a row of Bs, so both operands are walked the same way. The banks pay for it.
// Predicts: 32 times fewer loads from global memory, but slower than 03. Lane n reads Bs[n][k]: 32 elements
//           in one bank, so 32 turns (wavefronts). With one turn for As that is 16.5 a load. Rung 05 mends
//           it.
// Measured: 4096^3: 1.59 TFLOP/s, 3.1 % of cuBLAS (H200, results/h200-20261126T003801-climb-fp32-4096.jsonl)
//
//   C tile = sum over k0 of   As            Bs (transposed)
//                             | k -> |      | k -> |  row n of Bs = column n of B
//                             | row  |  x   | col  |
#include "common.cuh"
#include "config.cuh"

// Config: BM 32, BN 32, BK 32
static_assert(BM == BK && BN == BK,
              "one thread loads one element of each tile: the tiles are square and equal");

extern "C" __global__ void __launch_bounds__(BM* BN)
    shared_tile(int M, int N, int K, Acc alpha, const T* A, i64 lda, const T* B, i64 ldb, Acc beta, T* C,
                i64 ldc) {
  // Where am I: the tile of C and my element in it.
  const int tiles_n = ceil_div(N, BN);
  const int tile_row = blockIdx.x / tiles_n * BM, tile_col = blockIdx.x % tiles_n * BN;
  const int thread_row = threadIdx.x / BN, thread_col = threadIdx.x % BN;
  const int row = tile_row + thread_row, col = tile_col + thread_col;

  // What I load: my row of A, my column of B, clamped to the matrix.
  const T* a_gmem = A + min_of(row, M - 1) * lda;
  const T* b_gmem = B + min_of(col, N - 1);
  __shared__ T As[BM][BK];
  __shared__ T Bs[BN][BK];  // transposed: thread_col reads its own row of Bs

  // K % BK products first, straight from global memory: the loop below sees whole tiles only.
  Acc acc = 0;
  const int k_whole = K % BK;
  for (int k = 0; k < k_whole; ++k) acc += Acc(a_gmem[k]) * Acc(b_gmem[k * ldb]);

  for (int k0 = k_whole; k0 < K; k0 += BK) {
    // Load.
    As[thread_row][thread_col] = a_gmem[k0 + thread_col];
    Bs[thread_col][thread_row] = b_gmem[(k0 + thread_row) * ldb];
    __syncthreads();  // the tile is whole before anyone reads it

    // Compute.
    for (int k = 0; k < BK; ++k) acc += Acc(As[thread_row][k]) * Acc(Bs[thread_col][k]);
    __syncthreads();  // everyone is done with the tile before the next one overwrites it
  }

  // Store.
  store(C, ldc, row, col, M, N, alpha, acc, beta);
}
