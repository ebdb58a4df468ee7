// What gemm/sgemm.cu is compiled with, as the host says it by macros.
#pragma once

#include "common.cuh"

#define SHARERS 256  // of the block's threads, the first: the consumers
// by turnstile they would come to lie in one bank, and the main loop wait for them
#define SUMS_BY_EIGHTS SEPARATE
#ifndef BM
#define BM 256  // rows of a tile of D
#define BN 128  // its columns
#define BK 32   // steps of k in a stage
#define WM 64   // rows of a warp's part of the tile
#define WN 64
#define TM 16  // rows of a thread's part of that
#define TN 8
#define STAGES 4  // tiles of A and B that are in shared memory or on their way there
#endif
#ifndef A_ALONG_K
#define A_ALONG_K 1  // elements along k are adjacent in A; else elements along m
#define B_ALONG_K 0  // elements along k are adjacent in B, which is transposed when it is packed
#define PACK_A 0     // TMA cannot load A as it lies: blocks copy it first
#define PACK_B 0
#define D_VECTOR 1  // 4: quads of D start on 16 bytes, and rows are whole quads
#endif
#ifndef BATCHED  // 0: one matrix, nothing to step through
#define BATCHED 0
#endif
#ifndef SLICES  // of k in each stage, with warps of their own: tiles have fewer warps than the block
#define SLICES 1
#endif
#define TILE_WARPS (BM / WM * (BN / WN))
#define CONSUMERS (TILE_WARPS * SLICES * 32)
