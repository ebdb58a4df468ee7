// Constants that follow from gemm/wgmma.cu's config, and a block's shared memory: stages of A and B, patches
// of D, and the barriers that synchronise producer and consumers.
#pragma once

#include "config.cuh"
#include "gemm/wgmma/scales.cuh"
#include "gemm/wgmma/operands.cuh"
#include "gemm/wgmma/misaligned_a.cuh"
constexpr int THREADS = SHARERS + 128;
static_assert(BM % 64 == 0 && BM <= 256 && BN % 8 == 0 && BN <= 256,
              "tiles are counted in 64 rows, 8 columns");
static_assert(CLUSTER <= 8, "larger clusters find no place on the chip");
static_assert(!A_SKEWED || CLUSTER_N <= 2, "two blocks share rows that are shifted");

constexpr int TILE_GROUPS = PING_PONG ? 1 : GROUPS;  // warpgroups that share a tile
constexpr int ROWS = BM / 64 / TILE_GROUPS;          // products of 64 rows that each of them computes
static_assert(D_COPY_ENGINE || !D_M_MAJOR, "columns of D leave by TMA alone");
static_assert(!PING_PONG || !SCHEDULED, "who shares a tile meets at barriers of all consumers");
// If one row of tiles holds all of A, a stage has space for A's rows only, rounded up to 16. wgmma reads a
// whole tile all the same, and so some of B; those sums are not stored.
constexpr int A_LEAST = A_ROWS > BM - BN ? A_ROWS : (BM - BN + 15) / 16 * 16;
// rows of A that the thread that loads B loads too
constexpr int A_LOADED = A_SKEWED || GATHER_A ? 0 : CLUSTER == 1 && A_LEAST < BM ? A_LEAST : BM;
constexpr int A_BYTES = A_SKEWED ? 8 * SKEWED_BOX : tile_bytes(A_M_MAJOR, GATHER_A ? BM : A_LOADED),
              B_BYTES = tile_bytes(B_N_MAJOR, BN);
static_assert(!A_SKEWED || (BM <= 128 && !PING_PONG), "a warp has all of its rows from two boxes at most");
static_assert(!A_SKEWED || (!D_COPY_ENGINE && !ADDEND),
              "rows of D that are not neighbours leave by hand, and nothing is added");
// sets of fragments: those of a step are loaded during the products of the step before
constexpr int TURNS = A_IN_REGISTERS ? 2 : 1;
static_assert(STAGES >= LOADERS && !(PING_PONG && LOADERS > 1),
              "a warp that loads would find the phase before the last one complete");
constexpr int D_COLS = patch_columns(BN, C_IN_PATCHES ? 64 : 128), D_PATCHES = (BN + D_COLS - 1) / D_COLS;
// If patches do not divide the tile, the last one overlaps the one before it and stores some columns again.
constexpr bool OVERLAPS = BN % D_COLS > 0;
static_assert(!OVERLAPS || (D_COPY_ENGINE && !ADDEND && !PEERS_IN_CLUSTER),
              "what leaves twice meets no C, and has one owner");
__device__ constexpr int patch_begin(int patch) {
  return (patch + 1) * D_COLS > BN ? BN - D_COLS : patch * D_COLS;
}
constexpr int ALL_PATCHES = ROWS * D_PATCHES;  // of a warp
// Each warp has 4 KB of buffers, used in turn, tile after tile. With three warpgroups it is 2 KB, and one
// stage more. C takes half of them.
constexpr int PATCH_ROOM = (GROUPS == 3 ? 2048 : 4096) / (C_IN_PATCHES ? 2 : 1),
              C_BUFFERS = PATCH_ROOM / (16 * D_COLS * sizeof(Out));
constexpr int D_BUFFERS = D_COPY_ENGINE ? C_BUFFERS : 1;
// Number of patches among which a store selects its sums: stores by threads are a loop over all patches.
// LIVE: sums that a thread holds meanwhile.
constexpr int AMONG = PEERS_IN_CLUSTER || D_COPY_ENGINE || C_IN_PATCHES ? 1 : ALL_PATCHES;
constexpr int LIVE = PEERS_IN_CLUSTER ? D_COLS / 2 : ROWS * BN / 2;
// The four warps of a warpgroup store columns of D together, in lines of 128 bytes: TMA takes twice as long
// for lines of 32.
constexpr bool BY_GROUP = D_M_MAJOR && D_COPY_ENGINE && sizeof(Out) == 2 && !PING_PONG && !A_IN_REGISTERS &&
                          !PEERS_IN_CLUSTER && !C_IN_PATCHES;
// A tile's first products replace its sums, if every unit has products.
constexpr bool ANEW = !PROMOTED && !(SCHEDULED && (SEPARATE || PEERS_IN_CLUSTER));
// Columns for which a C of one row is loaded ahead, and registers for it. With 192 sums more would spill.
constexpr int LINE_COLS = BN % 64 == 0 && ROWS * BN <= 256   ? 64
                          : BN % 32 == 0 && ROWS * BN <= 256 ? 32
                          : BN % 16 == 0                     ? 16
                                                             : 8,
              LINE_REGISTERS = C_SAME == 1 ? LINE_COLS * sizeof(Out) / 16 : 2 * ROWS;
// Patches of a tile that registers can hold, as elements of D, beside the sums of the next tile.
constexpr int PATCH_REGISTERS = D_COLS * sizeof(Out) / 8,
              ROOM = REGISTERS - (BESIDE_SUMS + BN / 2) * ROWS - (C_SAME ? 2 * LINE_REGISTERS : 0);
constexpr bool MAY_HOLD = !PROMOTED && FIXED_PARTS == 1 && !SCHEDULED && !PING_PONG && !BY_GROUP &&
                          D_COPY_ENGINE && sizeof(Out) > 1 && !A_IN_REGISTERS && GROUPS < 3 && !OVERLAPS &&
                          !C_IN_PATCHES;
constexpr int HELD = !MAY_HOLD || ROOM < 0                  ? 0
                     : ALL_PATCHES * PATCH_REGISTERS < ROOM ? ALL_PATCHES
                                                            : ROOM / PATCH_REGISTERS;

struct alignas(1024) Stage {
  char A[A_BYTES], B[B_BYTES];
};
struct PatchesOfD {
  Patch<D_COLS, !D_COPY_ENGINE> D[GROUPS * 4][D_BUFFERS];
};
struct PatchesOfDAndC : PatchesOfD {
  Patch<D_COLS> C[GROUPS * 4][C_BUFFERS];
};
struct Barriers {
  Barrier full[STAGES], empty[STAGES], turn_of[2];
};
struct BarriersAndQueue : Barriers {
  Choose<(RAGGED > 0), TileQueue, UnitQueue>::Type queue;
};
struct Pipeline {
  Stage stage[STAGES];
  Choose<C_IN_PATCHES, PatchesOfDAndC, PatchesOfD>::Type patch;
  Choose<QUEUED, BarriersAndQueue, Barriers>::Type barriers;
  TileFactors<BM, BN> factors[FACTORS_ALONG_K ? STAGES : 1];
};
