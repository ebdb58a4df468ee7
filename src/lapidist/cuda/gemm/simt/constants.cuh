// Constants that follow from gemm/simt.cu's config, and a block's shared memory: STAGES tiles of A, and
// as many of B.
#pragma once

#include "common.cuh"
#include "config.cuh"
#include "gemm/slices.cuh"
#include "gemm/strided.cuh"

// Chips before Ampere have no cp.async: tiles pass registers.
constexpr bool PAST_REGISTERS = COPIED && __CUDA_ARCH__ >= 800;
constexpr int BUFFERS = PAST_REGISTERS ? STAGES : 2;  // tiles of A, and of B, in shared memory
constexpr int THREADS = CONSUMERS;
// Registers that the planner counts on. Without this limit the assembler may use fewer,
// to fit more blocks on an SM, and then puts each load from shared memory right before its use.
constexpr int MOST_REGISTERS = PAST_REGISTERS ? REGISTERS_COPIED : REGISTERS_MOVED;
constexpr int RESIDENT = sizeof(Acc) == 8 ? 1 : 65536 / (THREADS * MOST_REGISTERS);
constexpr int STEPS = BK / SLICES;  // of k, that a thread multiplies in each tile
// steps of k that are unrolled: with large thread tiles, 32 took much longer to compile
constexpr int AT_ONCE = TM * TN <= 16 ? STEPS : 16;
static_assert(WM == 4 * TM && WN == 8 * TN, "a warp is 4 x 8 lanes, each with TM x TN results");
static_assert(TM % 4 == 0 && TN % 4 == 0, "a thread tile is made of groups of four");
static_assert(STEPS * SLICES == BK && (SLICES == 1 || STEPS % 2 == 0),
              "two fragments take turns within a slice");
static_assert(BM % WM == 0 && BN % WN == 0, "warp tiles fill the block tile");

constexpr int PAD = 4;  // keeps 16-byte alignment and spreads the transposing stores over the banks

// The tiles of A and B. Peers in a cluster write a tile of sums there, and slices of k theirs.
constexpr int TILE_BYTES = sizeof(T) * BUFFERS * BK * (BM + BN + 2 * PAD),
              SUMS = sizeof(Acc) * BM * BN * (PEERS_IN_CLUSTER && SLICES == 1 ? 1 : SLICES - 1);
constexpr int SHARED = TILE_BYTES > SUMS ? TILE_BYTES : SUMS;
struct Tiles {
  T (&A)[BUFFERS][BK][BM + PAD];
  T (&B)[BUFFERS][BK][BN + PAD];
  __device__ __forceinline__ explicit Tiles(char* shared)
      : A(*reinterpret_cast<T (*)[BUFFERS][BK][BM + PAD]>(shared)),
        B(*reinterpret_cast<T (*)[BUFFERS][BK][BN + PAD]>(shared + sizeof(T) * BUFFERS * BK * (BM + PAD))) {}
};

// Elements that one move takes.
template <int Count, typename E = T>
struct alignas(sizeof(E) * Count < 16 ? sizeof(E) * Count : 16) Vector {
  E at[Count];
};
