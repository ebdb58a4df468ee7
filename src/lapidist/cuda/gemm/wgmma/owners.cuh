// Rows of D that other ranks own: each owner's go to its memory, by a map of its own.
//
//   tile of D   | rows of owner 0        -> maps[0], from row 0 of its share on
//               | rows of owner 1        -> maps[1], ...
//
// No box has rows of two owners: TMA leaves out what lies behind a map's end, but refuses boxes that start before it.
#pragma once

#include "common.cuh"
#include "config.cuh"
#include "hopper.cuh"

#if OWNERS
struct Owners {
  TensorMap maps[OWNERS];
  int rows, first;  // of an owner; the owner of the first tile
};
#define OWNERS_PARAMETER , const __grid_constant__ Owners owners
#define OWNERS_PASSED , &owners

// Tiles go to one owner after the other, so that links have work as long as there are products. Ranks begin with
// other owners. `index`: of tiles along D's rows, which are so high.
__device__ __forceinline__ int in_turns(const Owners& owners, int index, int height) {
  const int each = owners.rows / height, turn = index / OWNERS;
  if (each * height != owners.rows) return index;
  int owner = index - turn * OWNERS + owners.first;
  if (owner >= OWNERS) owner -= OWNERS;
  return owner * each + turn;
}

struct RowsOfOwners {
  const Owners* owners;
};
__device__ __forceinline__ void store_line(const Owners& owners, int x, int line, const void* from) {
  const int owner = line / owners.rows;
  if (owner < OWNERS) tma_store(&owners.maps[owner], x, line - owner * owners.rows, 0, 0, from);
}
#else
#define OWNERS_PARAMETER
#define OWNERS_PASSED
#endif
