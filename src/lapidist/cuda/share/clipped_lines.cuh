// Boxes of TMA that end where a group of lines does (share/groups.cuh), by maps that the host makes without knowing
// where that is (kernels/clipped_maps.py).
#pragma once

#include "common.cuh"
#include "config.cuh"
#include "share/groups.cuh"

// Lines of a clipped map. Its box starts so near the end of these that it ends with the group. A second
// dimension of the same step moves them to the group's place. A third one takes CLIPPED_SHIFT lines back: its
// step times its place is 2^64 less so many lines, which wraps.
constexpr int CLIPPED_LINES = 256, CLIPPED_SHIFT = 1 << 25;
constexpr bool A_CLIPPED = RAGGED == RAGGED_ROWS || RAGGED == RAGGED_K,
               B_CLIPPED = RAGGED == RAGGED_COLS || RAGGED == RAGGED_K;

struct ClippedLine {
  int line, shift;
  __device__ __forceinline__ ClippedLine(int at, int end) {
    const int left = max_of(0, min_of(end - at, CLIPPED_LINES));
    line = CLIPPED_LINES - left, shift = at + left - CLIPPED_LINES + CLIPPED_SHIFT;
  }
};
