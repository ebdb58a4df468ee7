// Constants that follow from gemm/mma.cu's config, and a block's shared memory: STAGES of a tile of A
// and one of B; in the end, patches of D.
#pragma once

#include "config.cuh"
#include "gemm/strided.cuh"
#include "mma_tile.cuh"

constexpr int THREADS = (BM / WM * (BN / WN) * 32);
typedef Reader<true, BM, A_CONTIGUOUS != 2, BK, WM / 8> AReader;
typedef Reader<false, BN, B_CONTIGUOUS != 2, BK, WN / 8> BReader;
constexpr int A_BYTES = AReader::Shape::BYTES, STAGE = A_BYTES + BReader::Shape::BYTES;
constexpr int STEPS = BK / DEPTH, ROWS = WM / 16;  // ROWS of products of a warp

// The order of a step. Where a copy follows an ldmatrix, the assembler for sm_90 inserts three dummy reads,
// which take cycles of shared memory: where copies and reads alternate, a twentieth of all time in half. So a
// step's reads stand in the first half of its rows, and copies begin behind the first row. Copies without
// registers are spread over all steps but the last. Every other row's products go from right to left,
// starting with the columns that were read last. Measured on an H100 at 4096^3: half is 3 % faster, double
// with warps of 64 rows 1 %. tf32, 8 bits, and double with copies of 8 bytes lose up to 8 %. Half whose A
// passes registers element by element loses 5 to 10 %, on both chips, at 2047^3 and 4097^3, in all layouts.
constexpr bool WHOLE_CHUNKS = A_VECTOR * SIZE == 16 && B_VECTOR * SIZE == 16;
constexpr bool READS_FIRST = (SIZE == 2 && A_VECTOR > 1) || (SIZE == 8 && WHOLE_CHUNKS && ROWS >= 4);
constexpr int READ_ROWS = READS_FIRST && ROWS > 1 ? ROWS / 2 : ROWS;
constexpr int COPY_FROM = READS_FIRST && ROWS > 1;
constexpr int COPY_STEPS = SIZE == 2 && WHOLE_CHUNKS && ROWS >= 4 ? STEPS - 1 : 1;
constexpr int COPY_PARTS = COPY_STEPS * ROWS - COPY_FROM;
// Tiles of double at the end of D use the loop for whole tiles, and skip copies of rows and columns outside
// the matrix. The other loop compares for each copy, and a step took 1.2 times as long.
constexpr bool LEAVES_OUT = SIZE == 8;
static_assert(STAGES >= 3, "one tile is read, one is freed, one at least is under way");
static_assert(STEPS % 2 == 0, "the two fragment buffers take turns: tile after tile starts with the first");
static_assert(BM % WM == 0 && BN % WN == 0, "warp tiles divide the tile of D");
