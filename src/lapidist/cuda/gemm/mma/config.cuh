// What gemm/mma.cu is compiled with, what follows from it, and what a block has in shared memory: STAGES of a
// tile of A and one of B; in the end, patches of D.
#pragma once

#ifndef A_CONTIGUOUS
#define A_CONTIGUOUS 1  // as gemm/mma.cu says
#define B_CONTIGUOUS 2
#define A_VECTOR 1  // elements that one move takes
#define B_VECTOR 1
#define D_VECTOR 1
#endif
#ifndef C_VECTOR
#define C_VECTOR 1
#endif
#include "mma.cuh"

#ifndef BM
#define BM 128                               // rows of a tile of D
#define BN 128                               // its columns
#define BK (sizeof(T) < 8 ? 4 * CHUNK : 16)  // steps of k in a stage
#define WM 64                                // rows of a warp's part of the tile
#define WN (sizeof(T) < 8 ? 64 : 32)
#define STAGES 4  // tiles of A and B that are in shared memory or on their way there
#endif
#ifndef RASTER  // rows of tiles in a band
#define RASTER 8
#endif
#include "gemm/strided.cuh"
#define THREADS (BM / WM * (BN / WN) * 32)
#define BLOCKS (THREADS <= 128 ? 2 : 1)  // on an SM at once; it has 65536 registers
typedef Reader<true, BM, A_CONTIGUOUS != 2, BK, WM / 8> AReader;
typedef Reader<false, BN, B_CONTIGUOUS != 2, BK, WN / 8> BReader;
constexpr int A_BYTES = AReader::Shape::BYTES, STAGE = A_BYTES + BReader::Shape::BYTES;
constexpr int STEPS = BK / DEPTH, ROWS = WM / 16;  // ROWS of products of a warp
static_assert(STAGES >= 3, "one tile is read, one is freed, one at least is under way");
static_assert(STEPS % 2 == 0, "the two fragment buffers take turns: tile after tile starts with the first");
static_assert(BM % WM == 0 && BN % WN == 0, "warp tiles divide the tile of D");
