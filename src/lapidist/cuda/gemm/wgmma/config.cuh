// What gemm/wgmma.cu is compiled with, as the host says it by macros.
#pragma once

#ifndef BM
#define BM 128    // rows of a tile of D
#define BN 256    // its columns
#define STAGES 4  // steps of k that are in shared memory or on their way there
#endif
#ifndef CLUSTER_M
#define CLUSTER_M 1  // blocks below each other, which share B
#define CLUSTER_N 1  // blocks beside each other, which share A
#endif
#ifndef BATCHED  // 0: one matrix, nothing to step through
#define BATCHED 0
#endif
#ifndef RASTER  // rows of clusters in a band of tiles
#define RASTER 8
#endif
#ifndef ALONG_M  // bands are columns of tiles
#define ALONG_M 0
#endif
#ifndef A_ROWS  // at least as many as A has, or as a tile
#define A_ROWS BM
#endif
#ifndef C_SAME  // 1: C has one row for all rows of D, as a bias is; 2: one column
#define C_SAME 0
#endif
#define C_IN_PATCHES (ADDEND && !C_SAME)  // it comes through shared memory
// Columns of the product that share a factor, where an epilogue quantises (groups.cuh).
#define GROUPED_COLUMNS (EPILOGUE_PAIRS ? 256 : 128)
#if defined(EPILOGUE_GROUPED) && BN % GROUPED_COLUMNS == 0 && !PEERS_IN_CLUSTER
#define EPILOGUE_UNSTORED (EPILOGUE_GROUPED - 1)
#endif
#ifndef D_COPY_ENGINE  // rows of D start on 16 bytes
#define D_COPY_ENGINE 1
#endif
// 1: lines of A, or of B, do not start on 16 bytes; 2: k does not touch in B, and wgmma wants it to
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
#ifndef RESIDENT  // 2: the blocks of the next launch find place beside those of this one
#define RESIDENT 1
#endif
#ifndef PING_PONG  // 1: two warpgroups have a tile each, by turns, and one stores while the other multiplies
#define PING_PONG 0
#endif
#define GROUPS (PING_PONG ? 2 : BM == 64 ? 1 : BM == 192 ? 3 : 2)
#define SHARERS (GROUPS * 128)  // of the block's threads, the first: the consumers
#define SUMS_BY_EIGHTS 1
