// The macros by which the host configures gemm/sgemm.cu, with their defaults.
#pragma once

#include "common.cuh"

#define SHARERS 256  // threads that hold sums: the consumers, which are the first of the block
// With the turnstile, such statements made the assembler put sums in one bank, and slowed the main loop.
#define SUMS_BY_EIGHTS SEPARATE
#ifndef BM
#define BM 256  // rows of a tile of D
#define BN 128  // its columns
#define BK 32   // steps of k in a stage
#define WM 64   // rows of a warp's part of the tile
#define WN 64
#define TM 16  // rows of a thread's part of that
#define TN 8
#define STAGES 4  // tiles of A and B that are in shared memory or being loaded
#endif
#ifndef A_ALONG_K
#define A_ALONG_K 1  // elements along k are adjacent in A; else elements along m
#define B_ALONG_K 0  // elements along k are adjacent in B, which is transposed when it is packed
#define PACK_A 0     // 1: TMA cannot load A as it is, so blocks pack it first
#define PACK_B 0
#define D_VECTOR 1  // 4: quads of D start on multiples of 16 bytes, and rows are whole quads
#endif
#ifndef BATCHED  // 0: a single matrix
#define BATCHED 0
#endif
#ifndef SLICES  // slices of each stage's k, computed by different warps if a tile needs fewer than the block has
#define SLICES 1
#endif
#define TILE_WARPS (BM / WM * (BN / WN))
#define CONSUMERS (TILE_WARPS * SLICES * 32)
