// The CUDA-core family: every layout, stride, alignment, batch and size, in float, double and half (summed in
// float). OUTPUT is the type of C and D: the element's own, or another of float, half and __nv_bfloat16.
//
// D = alpha A B + beta C. D is row-major; A, B and C have any strides. The host says by macro what it knows:
//   A_CONTIGUOUS   1: neighbours along k touch (A row-major)   2: neighbours along m touch   0: neither
//   B_CONTIGUOUS   1: neighbours along k touch                 2: neighbours along n touch (B row-major)   0: neither
//   A_VECTOR, B_VECTOR, D_VECTOR   elements moved at once, as pointers and strides allow (1, 2 or 4)
//
// The shape of the work, with the steps that the ladder climbs one by one:
//   block tile BM x BN, BK deep, in two shared buffers; A transposed to As[k][m], so both operands are read as rows
//   next tile travels global -> registers while this one is computed, registers -> the other buffer after it
//   warp tile WM x WN of 4 x 8 lanes in the zig-zag order of rung 11, thread tile TM x TN in groups of 4 x 4
//
//     n ->   warp_n                                 lane (4 x 8, zig-zag)
//   m   +----------+----------+           0  2  8 10 16 18 24 26
//   |   | WM x WN  |          |  BM       1  3  9 11 17 19 25 27
//   v   +----------+----------+           4  6 12 14 20 22 28 30
//       |          |          |           5  7 13 15 21 23 29 31
//       +----------+----------+           16-byte loads of one row or column pair up: 2 wavefronts in place of 4
//            BN

#include "common.cuh"
#include "addend.cuh"
#include "epilogue.cuh"
#include "share/sharing.cuh"

#ifndef OUTPUT
#define OUTPUT ELEMENT
#endif
typedef OUTPUT Out;

#ifndef BM
#define BM 64
#define BN 128
#define BK 16
#define WM 32
#define WN 64
#define TM 8
#define TN 8
#endif
#ifndef A_CONTIGUOUS
#define A_CONTIGUOUS 1
#define B_CONTIGUOUS 2
#define A_VECTOR 1
#define B_VECTOR 1
#define D_VECTOR 1
#endif
#define THREADS (BM / WM * (BN / WN) * 32)
// Registers that the planner counts on (splits.py): said here, else the assembler may save more of them, for
// more blocks on an SM, and then puts each load of shared memory right before its use.
constexpr bool SMALL = TM * TN <= 16, VECTORS = A_VECTOR == 4 && B_VECTOR == 4;
constexpr int MOST_REGISTERS = VECTORS ? SMALL ? 128 : 168 : !SMALL ? 255 : THREADS > 64 ? 168 : 208;
constexpr int RESIDENT = sizeof(Acc) == 8 ? 1 : 65536 / (THREADS * MOST_REGISTERS);
// k that are written out: 32 of large thread tiles took much longer to compile
constexpr int AT_ONCE = SMALL ? BK : 16;
static_assert(WM == 4 * TM && WN == 8 * TN, "a warp is 4 x 8 lanes, each with TM x TN results");
static_assert(TM % 4 == 0 && TN % 4 == 0, "a thread tile is made of groups of four");
static_assert(BM % WM == 0 && BN % WN == 0, "warp tiles fill the block tile");

constexpr int PAD = 4;  // keeps 16-byte alignment and spreads the transposing stores over the banks

// Two buffers of a tile of A and one of B; peers of a cluster lay a tile of sums there.
constexpr int BUFFERS = sizeof(T) * 2 * BK * (BM + BN + 2 * PAD),
              SUMS = PEERS_IN_CLUSTER ? sizeof(Acc) * BM * BN : 0;
constexpr int SHARED = BUFFERS > SUMS ? BUFFERS : SUMS;

template <int Count, typename E = T>
struct alignas(sizeof(E) * Count < 16 ? sizeof(E) * Count : 16) Vector {
  E at[Count];
};

// Moves an OUTER x BK tile (OUTER counts rows of A or columns of B) from global memory through registers to
// shared[k][outer]. Rows beyond the matrix repeat the tile's first one (nobody stores what they feed); k
// beyond it is zero, in the last tile only.
template <int OUTER, int CONTIGUOUS, int VECTOR>
struct Mover {
  static constexpr bool ALONG_K = CONTIGUOUS == 1;
  static constexpr int WIDE = ALONG_K ? BK : OUTER;  // the direction that neighbouring threads walk
  static constexpr int MOVES = OUTER * BK / VECTOR / THREADS;
  static_assert(OUTER * BK % (VECTOR * THREADS) == 0, "every thread moves the same number of vectors");
  static_assert(WIDE % VECTOR == 0, "vectors fill a row of the tile");
  static constexpr bool ALONG_OUTER = CONTIGUOUS == 2;
  const i64 outer_stride, k_stride;
  const int last;  // the last row that exists, counted from this tile's first
  const bool fit;  // no vector ends beyond it that begins before
  // Where moves are steps along k, one place walks from each to the next, and so into the next tile: places
  // take registers.
  static constexpr bool WALKS = !ALONG_K && THREADS * VECTOR % OUTER == 0;
  static constexpr int PLACES = WALKS ? 1 : MOVES, STEP = WALKS ? THREADS * VECTOR / OUTER : BK;
  const T* gmem[PLACES];  // where each move's first element comes from; walks along k
  Vector<VECTOR> reg[MOVES];

  // `index`: row i is that of number index[i]; null: of number i.
  __device__ Mover(const T* matrix, int first, int extent, i64 outer_stride, i64 k_stride, const Index* index)
      : outer_stride(ALONG_OUTER ? 1 : outer_stride),
        k_stride(ALONG_K ? 1 : k_stride),
        last(extent - 1 - first),
        fit(VECTOR == 1 || ALONG_K || last >= OUTER - 1 || (last + 1) % VECTOR == 0) {
#pragma unroll
    for (int move = 0; move < PLACES; ++move) {
      const int outer = first + (outer_of(move) <= last ? outer_of(move) : 0);
      gmem[move] = matrix + (index ? static_cast<i64>(index[outer]) : outer) * this->outer_stride +
                   k_of(move) * this->k_stride;
    }
  }

  __device__ static int index(int move) { return (move * THREADS + threadIdx.x) * VECTOR; }
  __device__ static int outer_of(int move) { return ALONG_K ? index(move) / WIDE : index(move) % WIDE; }
  __device__ static int k_of(int move) { return ALONG_K ? index(move) % WIDE : index(move) / WIDE; }

  __device__ T element(int move, int i) const {
    const int most = last > outer_of(move) ? last - outer_of(move) : 0;
    return gmem[WALKS ? 0 : move][ALONG_K ? i * k_stride : min_of(i, most) * outer_stride];
  }

  // The next tile. `whole`: all BK steps exist, so nothing is compared; else `k_left` of them do.
  __device__ void load(bool whole, int k_left) {
    if (whole && fit) {  // in a branch of its own: behind one for each, loads wait for each other
#pragma unroll
      for (int move = 0; move < MOVES; ++move) {
        reg[move] = *reinterpret_cast<const Vector<VECTOR>*>(gmem[WALKS ? 0 : move]);
        gmem[WALKS ? 0 : move] += STEP * k_stride;
      }
      return;
    }
#pragma unroll
    for (int move = 0; move < MOVES; ++move) {
#pragma unroll
      for (int i = 0; i < VECTOR; ++i)
        reg[move].at[i] = k_of(move) + (ALONG_K ? i : 0) < k_left ? element(move, i) : T(0);
      gmem[WALKS ? 0 : move] += STEP * k_stride;
    }
  }

  __device__ void store(T (*shared)[OUTER + PAD]) {
#pragma unroll
    for (int move = 0; move < MOVES; ++move) {
      if (ALONG_K) {
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) shared[k_of(move) + i][outer_of(move)] = reg[move].at[i];
      } else {
        *reinterpret_cast<Vector<VECTOR>*>(&shared[k_of(move)][outer_of(move)]) = reg[move];
      }
    }
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    simt(int M, int N, int K, Acc alpha, Acc beta, const T* A, const T* B, const Out* C, Out* D, i64 a_row,
         i64 a_col, i64 a_inner, i64 a_outer, i64 b_row, i64 b_col, i64 b_inner, i64 b_outer, i64 c_row,
         i64 c_col, i64 c_inner, i64 c_outer, i64 d_row, i64 d_inner, i64 d_outer, int batch, Modes modes,
         Schedule schedule, Workspace workspace LISTS EPILOGUE_PARAMETER) {
  modes.read_scalars(alpha, beta);

  // Where am I in a tile.
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int lane_m = (lane & 1) | (lane >> 1 & 2), lane_n = (lane >> 1 & 1) | (lane >> 2 & 6);
  const int warp_row = warp / (BN / WN) * WM, warp_col = warp % (BN / WN) * WN;
  __shared__ __align__(16) char shared[SHARED];
  T(*const As)[BK][BM + PAD] = reinterpret_cast<T(*)[BK][BM + PAD]>(shared);
  T(*const Bs)[BK][BN + PAD] = reinterpret_cast<T(*)[BK][BN + PAD]>(shared + sizeof(T) * 2 * BK * (BM + PAD));

  for (Work work(schedule); work.next(ceil_div(M, BM), ceil_div(N, BN), ceil_div(K, BK));) {
    // Which tile, and how much of k.
    const WorkUnit& unit = work.unit;
    const int tile_row = unit.row * BM, tile_col = unit.column * BN;
    const int k_first = unit.k_begin * BK,
              there = work.ends_tile() ? K - k_first : (unit.k_end - unit.k_begin) * BK;
    const int count = SCALARS && alpha == Acc(0) ? 0 : there;  // alpha = 0 never reads A and B
    const i64 inner = unit.batch % batch, outer = unit.batch / batch;
    const Modes own = modes.of(unit.batch, M, N);
#if ARRAYS
    A = static_cast<const T*>(lists.a.at[unit.batch]);
    B = static_cast<const T*>(lists.b.at[unit.batch]);
    C = static_cast<const Out*>(lists.c.at[unit.batch]);
    D = static_cast<Out*>(const_cast<void*>(lists.d.at[unit.batch]));
#endif

    // What I load.
    Mover<BM, A_CONTIGUOUS, A_VECTOR> move_a(A + inner * a_inner + outer * a_outer + k_first * a_col,
                                             tile_row, M, a_row, a_col, GATHER_A ? own.a_rows : nullptr);
    Mover<BN, B_CONTIGUOUS, B_VECTOR> move_b(B + inner * b_inner + outer * b_outer + k_first * b_row,
                                             tile_col, N, b_col, b_row, GATHER_B ? own.b_cols : nullptr);
    Acc acc[TM][TN] = {};
    if (count > 0) {
      move_a.load(BK <= count, count);
      move_b.load(BK <= count, count);
      move_a.store(As[0]);
      move_b.store(Bs[0]);
    }
    int buffer = 0;
    for (int k0 = 0; k0 < count; k0 += BK, buffer ^= 1) {
      __syncthreads();  // this buffer is whole, and no one reads the other one any more
      // Load the next tile into registers; it arrives while this one is computed.
      const bool more = k0 + BK < count;
      if (more) {
        move_a.load(k0 + 2 * BK <= count, count - k0 - BK);
        move_b.load(k0 + 2 * BK <= count, count - k0 - BK);
      }

      // Compute.
#pragma unroll(AT_ONCE)
      for (int k = 0; k < BK; ++k) {
        Acc a_reg[TM], b_reg[TN];
#pragma unroll
        for (int i = 0; i < TM; i += 4) {
          const Four<T> four =
              *reinterpret_cast<const Four<T>*>(&As[buffer][k][warp_row + i * 4 + lane_m * 4]);
#pragma unroll
          for (int e = 0; e < 4; ++e) a_reg[i + e] = Acc(four.at[e]);
        }
#pragma unroll
        for (int j = 0; j < TN; j += 4) {
          const Four<T> four =
              *reinterpret_cast<const Four<T>*>(&Bs[buffer][k][warp_col + j * 8 + lane_n * 4]);
#pragma unroll
          for (int e = 0; e < 4; ++e) b_reg[j + e] = Acc(four.at[e]);
        }
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
          for (int j = 0; j < TN; ++j) acc[i][j] += a_reg[i] * b_reg[j];
      }
      if (more) {
        move_a.store(As[buffer ^ 1]);
        move_b.store(Bs[buffer ^ 1]);
      }
    }

    if (!work.combine<THREADS>(workspace, shared, acc)) continue;

    // Store.
    const auto row_of = [&](int i) { return tile_row + warp_row + i / 4 * 16 + lane_m * 4 + i % 4; };
    const auto col_of = [&](int j) { return tile_col + warp_col + j / 4 * 32 + lane_n * 4 + j % 4; };
    scale_sums(acc, alpha);
    add_addend(
        acc, beta, C + inner * c_inner + outer * c_outer, c_row, c_col, M, N, own,
        [&](int i) { return work.owns_row(i) ? row_of(i) : M; }, col_of);
    IF_EPILOGUE(fused::finish(
                    acc, fused::Epilogue(EPILOGUE_PASSED, inner, outer, M, N, own),
                    [&](int i) { return work.owns_row(i) ? row_of(i) : M; }, col_of);)
    Out* to = D + inner * d_inner + outer * d_outer;
#pragma unroll
    for (int i = 0; i < TM; ++i) {
      const int row = row_of(i);
      if (row >= M || !work.owns_row(i)) continue;
#pragma unroll
      for (int j = 0; j < TN; j += D_VECTOR) {
        const int col = col_of(j);
        if (SCATTER_COLS && col >= N) continue;
        Vector<D_VECTOR, Out> result;
#pragma unroll
        for (int e = 0; e < D_VECTOR; ++e) result.at[e] = Out(acc[i][j + e]);
        Out* place = to + own.to_row(row, d_row) + own.to_col(col);
        if (col + D_VECTOR <= N) {
          *reinterpret_cast<Vector<D_VECTOR, Out>*>(place) = result;
        } else {
#pragma unroll
          for (int e = 0; e < D_VECTOR; ++e)
            if (col + e < N) place[e] = result.at[e];
        }
      }
    }
  }
}
