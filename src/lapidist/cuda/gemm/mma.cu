// The tensor-core family for sm_80 and newer: every type of mma.sync, layout, stride, alignment, batch and
// size.
//
// D = alpha A B + beta C. D is row-major; A, B and C have any strides. The host says by macro what it knows:
//   A_CONTIGUOUS   1: neighbours along k touch (A row-major)   2: neighbours along m touch   0: neither
//   B_CONTIGUOUS   1: neighbours along k touch                 2: neighbours along n touch (B row-major)   0: neither
//   A_VECTOR, B_VECTOR   elements loaded at once, as pointers and strides allow: 1, 2, ... up to 16 bytes
//   D_VECTOR             elements stored at once; C_VECTOR is the same if C's rows allow it, else 1; factors: factors.cuh
//
// Rung 24 with a mover in front that knows all layouts. A tile lies in shared memory as it lies in global
// memory:
//
//      k touches               rows touch                moved by
//   m  | chunk chunk |      k  | chunk chunk chunk |     16, 8, 4 bytes: cp.async, STAGES - 1 tiles ahead
//   |  | chunk chunk |      |  | chunk chunk chunk |      2, 1 bytes:    registers, the five words that a chunk lies in,
//   v  | chunk chunk |      v                                            loaded in a tile's first step, stored in its last
// What does not exist is zero in shared memory. Readers (mma.cuh) turn either form into the fragments of
// mma.sync.
#ifndef A_CONTIGUOUS
#define A_CONTIGUOUS 1
#define B_CONTIGUOUS 2
#define A_VECTOR 1
#define B_VECTOR 1
#define D_VECTOR 1
#endif
#ifndef C_VECTOR
#define C_VECTOR 1
#endif
#include "gemm/mma/store.cuh"
#include "share/sharing.cuh"

#ifndef BM
#define BM 128
#define BN 128
#define BK (sizeof(T) < 8 ? 4 * CHUNK : 16)
#define WM 64
#define WN (sizeof(T) < 8 ? 64 : 32)
#define STAGES 4
#endif
#ifndef RASTER
#define RASTER 8
#endif
#define THREADS (BM / WM * (BN / WN) * 32)
#define BLOCKS (THREADS <= 128 ? 2 : 1)  // on an SM at once; it has 65536 registers
typedef Reader<true, BM, A_CONTIGUOUS != 2, BK, WM / 8> AReader;
typedef Reader<false, BN, B_CONTIGUOUS != 2, BK, WN / 8> BReader;
#include "gemm/mma/scales.cuh"  // whose lines the readers know
constexpr int A_BYTES = AReader::Shape::BYTES, STAGE = A_BYTES + BReader::Shape::BYTES;
constexpr int STEPS = BK / DEPTH, ROWS = WM / 16;  // ROWS of products of a warp
typedef LaidDown<AReader, BReader, ROWS, WN, STAGES * STAGE / (THREADS / 32)> Patches;
static_assert(STAGES >= 3, "one tile is read, one is freed, one at least is under way");
static_assert(STEPS % 2 == 0, "the two fragment buffers take turns: tile after tile starts with the first");
static_assert(BM % WM == 0 && BN % WN == 0, "warp tiles divide the tile of D");

// Moves tile after tile of BK steps of k to shared memory, each thread a chunk of every STRIDE-th row.
template <typename Shape, int CONTIGUOUS, int VECTOR, bool GATHER>
struct Mover {
  static constexpr bool ALONG_K = CONTIGUOUS != 2, HELD = VECTOR * SIZE < 4;  // cp.async has no 2-byte form
  static constexpr bool SHIFTED = HELD && CONTIGUOUS != 0 && !GATHER;
  static constexpr int STRIDE = THREADS / Shape::CHUNKS, MOVES = Shape::ROWS / STRIDE;
  static_assert(THREADS % Shape::CHUNKS == 0 && MOVES * STRIDE == Shape::ROWS,
                "all threads move whole rows, a chunk each");
  static_assert(CHUNK % VECTOR == 0, "vectors fill a chunk");
  static_assert(!SHIFTED || STRIDE * SIZE % 4 == 0, "all chunks of a thread lie alike in their words");
  static_assert(!GATHER || ALONG_K, "rows that are gathered lie along k");
  const T* gmem[GATHER ? MOVES : 1];  // where my first chunk (gathered: each) of the next tile starts
  // between rows of the tile in shared memory; between the elements of a chunk
  i64 row_stride, inner_stride;
  // of the next tile, k that exist; of the matrix from my first place on, rows or columns
  int row, chunk, k_left, exist;
  // skew: bytes from a word's start to a chunk's, the same for all chunks of mine
  unsigned held[HELD ? MOVES : 1][5], skew;

  // `index`: row i is that of number index[i].
  __device__ Mover(const T* matrix, int first, int extent, int K, i64 outer_stride, i64 k_stride,
                   const Index* index)
      : row_stride(ALONG_K ? outer_stride : k_stride),
        inner_stride(CONTIGUOUS == 0 ? k_stride : 1),
        row(thread_now() / Shape::CHUNKS),
        chunk(thread_now() % Shape::CHUNKS),
        k_left(K) {
    exist = extent - first - (ALONG_K ? row : chunk * CHUNK);
    matrix += chunk * CHUNK * inner_stride;
    if constexpr (GATHER) {
#pragma unroll
      for (int i = 0; i < MOVES; ++i)
        gmem[i] = matrix + index[min_of(first + row + i * STRIDE, extent - 1)] * row_stride;
    } else {
      gmem[0] = matrix + first * (ALONG_K ? outer_stride : 1) + row * row_stride;
    }
    skew = reinterpret_cast<unsigned long long>(gmem[0]) % 4;
  }
  __device__ char* place(char* tile, int i) const { return tile + Shape::offset(row + i * STRIDE, chunk); }

  // Part `part` of `parts` of the next tile. `whole`, a constant: all of it exists.
  __device__ void load(char* tile, int part, int parts, bool whole) {
#pragma unroll
    for (int i = 0; i < MOVES; ++i) {
      if (i * parts / MOVES != part) continue;
      const T* from = GATHER ? gmem[GATHER ? i : 0] : gmem[0] + i * STRIDE * row_stride;
      const int there = i * STRIDE >= (ALONG_K ? exist : k_left - row) ? 0
                        : ALONG_K                                      ? k_left - chunk * CHUNK
                                                                       : exist;
      if (SHIFTED && whole) {
        const unsigned* words = reinterpret_cast<const unsigned*>(reinterpret_cast<const char*>(from) - skew);
#pragma unroll
        for (int w = 0; w < 5; ++w)
          if (w < 4 || skew) held[i][w] = words[w];
      } else if constexpr (HELD) {
        Chunk elements;
#pragma unroll
        for (int e = 0; e < CHUNK; ++e) elements.at[e] = e < there ? from[e * inner_stride] : T(0);
#pragma unroll
        for (int w = 0; w < 4; ++w) held[i][w] = reinterpret_cast<const unsigned*>(&elements)[w];
      } else {
#pragma unroll
        for (int e = 0; e < CHUNK; e += VECTOR) {
          T* to = reinterpret_cast<T*>(place(tile, i)) + e;
          if (whole) cp_async<VECTOR * SIZE>(to, from + e * inner_stride);
          else
            cp_async_fill<VECTOR * SIZE>(to, from + e * inner_stride,
                                         (there <= e ? 0 : min_of(there - e, VECTOR)) * SIZE);
        }
      }
    }
    if (part < parts - 1) return;
    k_left -= BK;
#pragma unroll
    for (int i = 0; i < (GATHER ? MOVES : 1); ++i) gmem[i] += BK * (ALONG_K ? inner_stride : row_stride);
  }

  __device__ void store(char* tile, bool whole) {
    if constexpr (HELD)
#pragma unroll
      for (int i = 0; i < MOVES; ++i) {
        uint4 words = {held[i][0], held[i][1], held[i][2], held[i][3]};
        if (SHIFTED && whole) {
          words.x = __funnelshift_r(words.x, words.y, skew * 8),
          words.y = __funnelshift_r(words.y, words.z, skew * 8);
          words.z = __funnelshift_r(words.z, words.w, skew * 8),
          words.w = __funnelshift_r(words.w, held[i][4], skew * 8);
        }
        *reinterpret_cast<uint4*>(place(tile, i)) = words;
      }
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    mma(int M, int N, int K, Scalar alpha, Scalar beta, const T* A, const T* B, const Out* C, Out* D,
        i64 a_row, i64 a_col, i64 a_inner, i64 a_outer, i64 b_row, i64 b_col, i64 b_inner, i64 b_outer,
        i64 c_row, i64 c_col, i64 c_inner, i64 c_outer, i64 d_row, i64 d_inner, i64 d_outer, int batch,
        Modes modes, Schedule schedule, Workspace workspace LISTS SCALES_PARAMETER EPILOGUE_PARAMETER) {
  modes.read_scalars(alpha, beta);

  // Where am I in a tile.
  const int warp = thread_now() / 32, lane = thread_now() % 32;
  const int warp_row = warp / (BN / WN) * WM, warp_col = warp % (BN / WN) * WN;
  // STAGES of a tile of A and one of B; in the end, patches of D
  extern __shared__ __align__(128) char smem[];

  for (Work work(schedule); work.next<RASTER>(ceil_div(M, BM), ceil_div(N, BN), ceil_div(K, BK));) {
    // Which tile, and how much of k.
    const WorkUnit& unit = work.unit;
    const int tile_row = uniform(unit.row) * BM, tile_col = uniform(unit.column) * BN,
              matrix = uniform(unit.batch);
    const int k_first = uniform(unit.k_begin) * BK,
              there = work.ends_tile() ? K - k_first : uniform(unit.k_end) * BK - k_first;
    const int count = SCALARS && alpha == Scalar(0) ? 0 : there;  // alpha = 0 never reads A and B
    const i64 inner = matrix % batch, outer = matrix / batch;
    const Modes own = modes.of(matrix, M, N);
#if ARRAYS
    A = static_cast<const T*>(lists.a.at[matrix]);
    B = static_cast<const T*>(lists.b.at[matrix]);
    C = static_cast<const Out*>(lists.c.at[matrix]);
    D = static_cast<Out*>(const_cast<void*>(lists.d.at[matrix]));
#endif

    // What I load.
    Mover<AReader::Shape, A_CONTIGUOUS, A_VECTOR, (GATHER_A > 0)> move_a(
        A + inner * a_inner + outer * a_outer + k_first * a_col, tile_row, M, count, a_row, a_col,
        own.a_rows);
    Mover<BReader::Shape, B_CONTIGUOUS, B_VECTOR, (GATHER_B > 0)> move_b(
        B + inner * b_inner + outer * b_outer + k_first * b_row, tile_col, N, count, b_col, b_row,
        own.b_cols);

    Sums sums[ROWS][WN / 8];
    Totals<ROWS, WN / 8> totals;
    Factors<ROWS, WN / 8, true> factors;
    Eight a[2][WM / 8], b[2][WN / 8];
    const AReader read_a(warp_row);
    const BReader read_b(warp_col);
// Bytes in a loop: their moves were half of the code. Halves that pass through registers then spilled in the
// main loop.
#pragma unroll(SIZE > 1 || (A_VECTOR == 16 && B_VECTOR == 16) ? STAGES - 1 : 1)
    for (int stage = 0; stage < STAGES - 1; ++stage) {
      if (move_a.k_left > 0) {
        move_a.load(smem + stage * STAGE, 0, 1, false);
        move_b.load(smem + stage * STAGE + A_BYTES, 0, 1, false);
        move_a.store(smem + stage * STAGE, false);
        move_b.store(smem + stage * STAGE + A_BYTES, false);
      }
      cp_async_commit();  // also when there is no tile left: the wait below counts groups
    }
    if (count > 0) {
      cp_async_wait<STAGES - 2>();
      __syncthreads();  // the tile is whole before anyone reads it
      read_a.read(a[0], smem, 0);
      read_b.read(b[0], smem + A_BYTES, 0);
    }
    // Words hang over the ends of a line: of the first tiles (above) and the last one, which are therefore
    // moved by elements.
    const bool whole = M - tile_row >= BM && N - tile_col >= BN;
    const int least = BK + (move_a.SHIFTED || move_b.SHIFTED);
    unsigned k0 = 0;  // may end at 2^31
    int stage = 0, freed = STAGES - 1;
#pragma unroll
    // the loop is made twice: one moves whole tiles, the other the rest
    for (int border = 0; border < 2; ++border) {
      for (; border ? k0 < count : whole && move_a.k_left >= least; k0 += BK) {
        const bool more = !border || move_a.k_left > 0;
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
          if (step == STEPS - 1) {  // the next step is in the next tile
            if (more)
              move_a.store(smem + freed * STAGE, !border),
                  move_b.store(smem + freed * STAGE + A_BYTES, !border);
            freed = stage;
            // after the last tile any will do
            stage = stage == STAGES - 1 || k0 + BK >= count ? 0 : stage + 1;
            cp_async_wait<STAGES - 2>();
            __syncthreads();  // the tile is whole, and everyone has read the last of the one before
          }
          if (PROMOTED && step == 0)
            factors.load(SCALES, tile_row + warp_row, tile_col + warp_col, k_first + k0, M, N);
          const auto a_now = operands_of<T>(a[step % 2]);
          const auto b_now = operands_of<B_ELEMENT>(b[step % 2]);
#pragma unroll
          for (int m = 0; m < ROWS; ++m) {
            // Load: the next step's Eights, and of the tile STAGES - 1 ahead a part for each row of products.
            read_a.read(a[(step + 1) % 2], smem + stage * STAGE, (step + 1) % STEPS, m, ROWS);
            read_b.read(b[(step + 1) % 2], smem + stage * STAGE + A_BYTES, (step + 1) % STEPS, m, ROWS);
            if (step == 0 && more) {
              move_a.load(smem + freed * STAGE, m, ROWS, !border);
              move_b.load(smem + freed * STAGE + A_BYTES, m, ROWS, !border);
            }
            if (step == 0 && m == ROWS - 1) cp_async_commit();

            // Compute.
#pragma unroll
            for (int n = 0; n < WN / 8; ++n)
              sums[m][n].multiply(a_now.at[2 * m], a_now.at[2 * m + 1], b_now.at[n]);
          }
          if (PROMOTED && step == STEPS - 1) totals.promote(sums, factors);
        }
      }
    }

    totals.take(sums);
    if (!work.combine<THREADS>(workspace, smem, totals.at)) continue;
    totals.scale(SCALES, tile_row + warp_row, tile_col + warp_col, M, N);

    // Store.
    __syncthreads();  // everyone has read the last tile
    Patches(smem, warp).each(totals.at, [&](int row, const Scalar* patch) {
      if (work.owns_row(row))
        store_patch<Patches::LINES, WN, Patches::PITCH>(
            patch, C + inner * c_inner + outer * c_outer, c_row, c_col, D + inner * d_inner + outer * d_outer,
            d_row, tile_row + warp_row + row * Patches::LINES, tile_col + warp_col, M, N, alpha,
            beta IF_EPILOGUE(, fused::Epilogue(EPILOGUE_PASSED, inner, outer, M, N, own)), own);
    });
  }
}
