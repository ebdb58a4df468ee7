// Partial sums in the workspace, and how reduction blocks add those of all peers. A slot is one tile of sums as threads hold them:
// piece i of thread t lies at [i * THREADS + t]. A fragment is those rows of a thread's sums whose number leaves it when divided by
// the fragments.
#pragma once
#include "common.cuh"
#include "schedule.cuh"

// 16 bytes of sums: one move.
template <typename Sum> struct alignas(16) Piece { Sum at[16 / sizeof(Sum)]; };

// In one move, which the compiler makes four of where it sees the elements used one by one.
template <typename Sum> __device__ __forceinline__ Piece<Sum> load(const Piece<Sum>& from) {
  const uint4 bits = reinterpret_cast<const uint4&>(from);
  return reinterpret_cast<const Piece<Sum>&>(bits);
}

// The sum of all peers' slots, in their order. Several loads are under way at once: alone, each would take a microsecond.
template <int THREADS, typename Sum, int ROWS, int COLS>
__device__ __forceinline__ void reduce(const Schedule& schedule, const WorkUnit& unit, const Piece<Sum>* slots,
                                       Sum (&sums)[ROWS][COLS]) {
  constexpr int EACH = 16 / sizeof(Sum), PIECES = COLS / EACH;
  constexpr int GROUP = PIECES % 4 == 0 ? 4 : PIECES % 2 == 0 ? 2 : 1, AT_ONCE = 4;
  const Piece<Sum>* const start = slots + thread_now();
#pragma unroll
  for (int row = 0; row < ROWS; ++row) {
    if (row % schedule.fragments != unit.fragment) continue;
#pragma unroll
    for (int piece = 0; piece < PIECES; piece += GROUP) {
#pragma unroll 1
      for (int peer = 0; peer < unit.peers; peer += AT_ONCE) {
        Piece<Sum> held[AT_ONCE][GROUP];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
          const long long slot = schedule.peer_slot(unit, peer + i < unit.peers ? peer + i : peer);
#pragma unroll
          for (int g = 0; g < GROUP; ++g)
            held[i][g] = start[slot * (ROWS * PIECES * THREADS) + (row * PIECES + piece + g) * THREADS];
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i)
#pragma unroll
          for (int e = 0; e < GROUP * EACH; ++e)
            sums[row][piece * EACH + e] += peer + i < unit.peers ? held[i][e / EACH].at[e % EACH] : Sum(0);
      }
    }
  }
}

// The same one row after another, in code and registers for one: where a thread's sums leave few registers.
template <int THREADS, typename Sum, int ROWS, int COLS>
__device__ __forceinline__ void reduce_by_rows(const Schedule& schedule, const WorkUnit& unit, const Piece<Sum>* slots,
                                               Sum (&sums)[ROWS][COLS]) {
  constexpr int EACH = 16 / sizeof(Sum), PIECES = COLS / EACH, AT_ONCE = 4;
  const Piece<Sum>* const start = slots + threadIdx.x;
#pragma unroll 1
  for (int row = unit.fragment; row < ROWS; row += schedule.fragments) {
    Sum found[COLS] = {};
#pragma unroll 1
    for (int peer = 0; peer < unit.peers; peer += AT_ONCE) {
      Piece<Sum> held[AT_ONCE][PIECES];
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) {
        const long long slot = schedule.peer_slot(unit, peer + i < unit.peers ? peer + i : peer);
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) held[i][piece] = start[((slot * ROWS + row) * PIECES + piece) * THREADS];
      }
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i)
        if (peer + i < unit.peers)
#pragma unroll
          for (int e = 0; e < COLS; ++e) found[e] += held[i][e / EACH].at[e % EACH];
    }
#pragma unroll
    for (int i = 0; i < ROWS; ++i)  // registers have no index
#pragma unroll
      for (int e = 0; e < COLS; ++e) sums[i][e] = i == row ? found[e] : sums[i][e];
  }
}
