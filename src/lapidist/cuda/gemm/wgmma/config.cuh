// The macros by which the host configures gemm/wgmma.cu, with their defaults.
#pragma once

#ifndef BM
#define BM 128    // rows of a tile of D
#define BN 256    // its columns
#define STAGES 4  // iterations of k that are in shared memory or being loaded
#endif
#ifndef CLUSTER_M
#define CLUSTER_M 1  // blocks whose tiles lie below each other, which share B
#define CLUSTER_N 1  // blocks whose tiles lie side by side, which share A
#endif
#ifndef BATCHED  // 0: a single matrix
#define BATCHED 0
#endif
#ifndef RASTER  // rows of clusters in a band of tiles
#define RASTER 8
#endif
#ifndef ALONG_M  // bands are columns of tiles
#define ALONG_M 0
#endif
#ifndef A_ROWS  // rows of A, rounded up to 16, if they are few; else BM
#define A_ROWS BM
#endif
#ifndef C_SAME  // 1: C has one row for all rows of D, like a bias; 2: one column
#define C_SAME 0
#endif
#define C_IN_PATCHES (ADDEND && !C_SAME)  // C is loaded through shared memory
// Columns of the product that share a factor if an epilogue quantises (quantise_groups.cuh).
#define GROUPED_COLUMNS (EPILOGUE_PAIRS ? 256 : 128)
#if defined(EPILOGUE_GROUPED) && BN % GROUPED_COLUMNS == 0 && !PEERS_IN_CLUSTER
#define EPILOGUE_UNSTORED (EPILOGUE_GROUPED - 1)
#endif
#ifndef D_COPY_ENGINE  // TMA stores D: its rows start and end on multiples of 16 bytes
#define D_COPY_ENGINE 1
#endif
// 1: packed, as lines of A, or of B, do not start on multiples of 16 bytes. 2: B is also transposed, as wgmma
// reads its type K-major only.
#ifndef PACK_A
#define PACK_A 0
#define PACK_B 0
#endif
#define CLUSTER (CLUSTER_M * CLUSTER_N)
#if CLUSTER > 1
#define CLUSTERED __cluster_dims__(CLUSTER, 1, 1)
#else
#define CLUSTERED
#endif
#ifndef RESIDENT  // 2: an SM has room for a block of the next launch beside one of this launch
#define RESIDENT 1
#endif
#ifndef PING_PONG  // 1: two warpgroups have a tile each; one stores while the other multiplies
#define PING_PONG 0
#endif
#define GROUPS (PING_PONG ? 2 : BM == 64 ? 1 : BM == 192 ? 3 : 2)
#define SHARERS (GROUPS * 128)  // threads that hold sums: the consumers, which are the first of the block
#define SUMS_BY_EIGHTS 1
