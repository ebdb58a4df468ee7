// gemm/simt.cu's macros, constants that follow from them, and a block's shared memory: STAGES tiles of A, and
// as many of B.
#pragma once

#include "common.cuh"

#ifndef OUTPUT
#define OUTPUT ELEMENT
#endif
typedef OUTPUT Out;
typedef Acc Scalar;

#ifndef BM
#define BM 64   // rows of a tile of D
#define BN 128  // its columns
#define BK 16   // steps of k in a tile of A or B
#define WM 32   // rows of a warp's part of the tile
#define WN 64
#define TM 8  // rows of a thread's part of that
#define TN 8
#endif
#if STAGES > 2 && __CUDA_ARCH__ < 800
#undef STAGES  // chips before Ampere have no cp.async: two tiles, through registers
#endif
#ifndef STAGES
#define STAGES 2  // tiles of A, and of B, in shared memory; more than two: copied there without registers
#endif
#ifndef A_CONTIGUOUS
#define A_CONTIGUOUS 1  // as gemm/simt.cu says
#define B_CONTIGUOUS 2
#define A_VECTOR 1  // elements that one move takes
#define B_VECTOR 1
#define D_VECTOR 1
#endif
#include "gemm/strided.cuh"
#define THREADS (BM / WM * (BN / WN) * 32)
// Registers that the planner counts on (kernels/budgets.py). Without this limit the assembler may use fewer,
// to fit more blocks on an SM, and then puts each load from shared memory right before its use.
constexpr bool COPIED = STAGES > 2, SMALL = TM * TN <= 16,
               VECTORS = COPIED || (A_VECTOR == 4 && B_VECTOR == 4);
constexpr int MOST_REGISTERS = VECTORS ? SMALL ? 128 : 168 : !SMALL ? 255 : THREADS > 64 ? 168 : 208;
constexpr int RESIDENT = sizeof(Acc) == 8 ? 1 : 65536 / (THREADS * MOST_REGISTERS);
// steps of k that are unrolled: with large thread tiles, 32 took much longer to compile
constexpr int AT_ONCE = SMALL ? BK : 16;
static_assert(WM == 4 * TM && WN == 8 * TN, "a warp is 4 x 8 lanes, each with TM x TN results");
static_assert(TM % 4 == 0 && TN % 4 == 0, "a thread tile is made of groups of four");
static_assert(BM % WM == 0 && BN % WN == 0, "warp tiles fill the block tile");

constexpr int PAD = 4;  // keeps 16-byte alignment and spreads the transposing stores over the banks

// The tiles of A and B. Peers in a cluster write a tile of sums there.
constexpr int BUFFERS = sizeof(T) * STAGES * BK * (BM + BN + 2 * PAD),
              SUMS = PEERS_IN_CLUSTER ? sizeof(Acc) * BM * BN : 0;
constexpr int SHARED = BUFFERS > SUMS ? BUFFERS : SUMS;
struct Tiles {
  T (&A)[STAGES][BK][BM + PAD];
  T (&B)[STAGES][BK][BN + PAD];
  __device__ __forceinline__ explicit Tiles(char* shared)
      : A(*reinterpret_cast<T (*)[STAGES][BK][BM + PAD]>(shared)),
        B(*reinterpret_cast<T (*)[STAGES][BK][BN + PAD]>(shared + sizeof(T) * STAGES * BK * (BM + PAD))) {}
};

// Elements that one move takes.
template <int Count, typename E = T>
struct alignas(sizeof(E) * Count < 16 ? sizeof(E) * Count : 16) Vector {
  E at[Count];
};
