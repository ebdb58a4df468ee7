// One or two operands (Both), packed by all warps of the grid in even shares. A and B have warps by their
// bytes; those of an operand take as many stretches as each other, and the stretches are as long as they then
// need to be.
//
//   32s of pieces   | A's first | A, stretch | A, stretch | ... | A's last | B's first | B, stretch | ... | B's last |
//                     the last warps, an end each                   the first warps, a stretch each or more
//
// A warp's arithmetic lies before its wait for the launch ahead: there are divisions in it, and it takes as
// long as the loads.
#pragma once

#include "packing/packing.cuh"

template <typename Element, bool Both, int Most = Lines<Element>::MOST>
struct Shares {
  using Of = Lines<Element>;
  Of a, b;
  // in the grid, this one's number, those that have no ends, and of these those for A
  int warps, mine, free, of_a;

  __device__ __forceinline__ Shares(const Of& a, const Of& b, const Packers& packers = Packers(0))
      : a(a), b(b) {
    warps = gridDim.x * packers.of_block, mine = packers.mine, free = warps > 16 ? warps - 8 : warps;
    const float all_a = a.inner() * a.batch.matrices(), all_b = b.inner() * b.batch.matrices();
    of_a = Both ? min_of(free - 1, 1 + __float2int_rd(__fdividef(all_a, all_a + all_b) * (free - 1))) : free;
  }

  __device__ __forceinline__ Of chosen(bool is_b) const {
    const Batch batch = {is_b ? b.batch.inner : a.batch.inner, is_b ? b.batch.outer : a.batch.outer,
                         is_b ? b.batch.inner_step : a.batch.inner_step,
                         is_b ? b.batch.outer_step : a.batch.outer_step};
    return {is_b ? b.from : a.from,
            is_b ? b.pitch : a.pitch,
            is_b ? b.lines : a.lines,
            is_b ? b.length : a.length,
            batch,
            is_b ? b.to : a.to,
            is_b ? b.whole : a.whole};
  }

  __device__ __forceinline__ void pack_ends() const {
    const int a_edges = a.edges() * a.batch.matrices(),
              edges = a_edges + (Both ? b.edges() * b.batch.matrices() : 0);
#pragma unroll 1
    for (int edge = warps - 1 - mine; edge < edges; edge += warps) {
      const bool is_b = Both && edge >= a_edges;
      chosen(is_b).pack_edge(is_b ? edge - a_edges : edge);
    }
  }

  // 32s that a warp takes at a time, so that all take as many.
  __device__ __forceinline__ static int even_stretch(int inner, int others) {
    if (inner <= others) return 1;
    const float share = __fdividef(inner, others), turns = ceilf(share * (1.0f / Most));
    return min_of(Most, __float2int_ru(__fdividef(share, turns) - 0.01f));
  }

  // Waits for the launch ahead by itself.
  __device__ __forceinline__ void pack() const {
    pack_ends();
    const bool is_b = Both && mine >= of_a;
    const Of of = chosen(is_b);
    const int number = is_b ? mine - of_a : mine, others = is_b ? free - of_a : of_a, inner = of.inner();
    const bool one = of.batch.matrices() == 1;
    const int each = one ? even_stretch(inner, others) : Most, stretches = (inner + Most - 1) / Most;
#pragma unroll 1
    for (int item = number; mine < free && inner > 0; item += others) {
      const int matrix = one ? 0 : item / stretches, first = (item - matrix * stretches) * each;
      if (one ? first >= inner : matrix >= of.batch.matrices()) break;
      of.template pack_inner<Most>(matrix, first, min_of(each, inner - first));
    }
    wait_for_last_launch();
  }
};
