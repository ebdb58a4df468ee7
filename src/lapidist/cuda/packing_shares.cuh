// One or two operands (Both), packed by all warps of the grid in even shares: each takes as many stretches as the others, and the
// stretches are as long as they then need to be. A warp that had one more of a fixed length kept all blocks waiting for it.
//
//   32s of pieces   | A's first | A, stretch | A, stretch | ... | A's last | B's first | B, stretch | ... | B's last |
//                     the last warps, an end each                   the first warps, a stretch each or more
#pragma once

#include "packing.cuh"

template <typename Element, bool Both> struct Shares {
  using Of = Lines<Element>;
  Of a, b;
  int each, a_items, b_items, a_inners, inners;  // 32s in a stretch; stretches of a matrix, of A and of all

  // Before anything is read: divisions, which may lie beside the end of the launch before.
  __device__ __forceinline__ Shares(const Of& a, const Of& b) : a(a), b(b) {
    const int all = a.inner() * a.batch.matrices() + (Both ? b.inner() * b.batch.matrices() : 0);
    const int warps = gridDim.x * (blockDim.x / 32), free = warps > 16 ? warps - 8 : warps;  // the others have the ends
    const float share = __fdividef(static_cast<float>(all), static_cast<float>(free)), turns = ceilf(share * (1.0f / Of::MOST));
    const int even = static_cast<int>(ceilf(__fdividef(share, turns > 1.0f ? turns : 1.0f) - 0.01f));
    each = even < 1 ? 1 : min_of(Of::MOST, even);
    a_items = (a.inner() + each - 1) / each, b_items = Both ? (b.inner() + each - 1) / each : 0;
    a_inners = a_items * a.batch.matrices(), inners = a_inners + b_items * b.batch.matrices();
  }

  __device__ __forceinline__ Of chosen(bool is_b) const {
    const Batch batch = {is_b ? b.batch.inner : a.batch.inner, is_b ? b.batch.outer : a.batch.outer,
                         is_b ? b.batch.inner_step : a.batch.inner_step, is_b ? b.batch.outer_step : a.batch.outer_step};
    return {is_b ? b.from : a.from, is_b ? b.pitch : a.pitch, is_b ? b.lines : a.lines, is_b ? b.length : a.length, batch,
            is_b ? b.to : a.to};
  }

  __device__ __forceinline__ void pack_stretch(int item) const {
    const bool is_b = Both && item >= a_inners;
    const Of of = chosen(is_b);
    const int items = is_b ? b_items : a_items;
    if (is_b) item -= a_inners;
    const int matrix = of.batch.matrices() > 1 ? item / items : 0, first = (item - matrix * items) * each;
    of.pack_inner(matrix, first + 1, min_of(each, of.inner() - first));
  }

  __device__ __forceinline__ void pack() const {
    const int warps = gridDim.x * (blockDim.x / 32), mine = first_item();
    const int a_edges = a.edges() * a.batch.matrices(), edges = a_edges + (Both ? b.edges() * b.batch.matrices() : 0);
#pragma unroll 1
    for (int edge = warps - 1 - mine; edge < edges; edge += warps) {
      const bool is_b = Both && edge >= a_edges;
      chosen(is_b).pack_edge(is_b ? edge - a_edges : edge);
    }
#pragma unroll 1
    for (int item = mine; item < inners; item += warps) pack_stretch(item);
  }
};
