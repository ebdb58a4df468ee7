// Columns of 16 rows that a warp's lanes join before anything is stored: what a second pass reads then is a 16th of
// the values.
//
//   a lane        joins its two rows
//   eight lanes   have the same columns of 16 rows; they join theirs 16, 8 and 4 lanes apart. While two lanes have
//                 several columns, each keeps half of them: so all lanes end with columns of their own
//
// The order is the same for each column, whatever the tile is and however many columns come at once.
#pragma once

#include "gemm/wgmma/groups.cuh"

#ifdef EPILOGUE
namespace fused {

template <typename>
constexpr bool any_joined = false;
template <int First, typename Kind, typename... Kinds>
constexpr bool any_joined<Results<First, Kind, Kinds...>> =
    Kind::JOINED || any_joined<Results<First + 1, Kinds...>>;

// What two neighbours of a row, of several columns and both rows of this lane, have: results[2 j + h] is that of
// columns 8 j behind the lane's first, in its row h.
template <int Pairs>
struct Joining {
  static constexpr int AT_ONCE = Pairs % 8 == 0 ? 8 : Pairs;  // columns for each lane, once
  const Pieces& of;
  const AllResults (&results)[Pairs];
  int row, col;

  template <typename It>
  __device__ __forceinline__ void operator()(It) const {
    typedef typename It::Kind Kind;
    typedef typename Kind::Of Value;
    const bool exists[2] = {row + of.row_of(0) < of.M, row + of.row_of(1) < of.M};
#pragma unroll
    for (int begin = 0; begin < Pairs; begin += AT_ONCE) {
      Value mine[AT_ONCE / 2 * Kind::OF_TWO];
#pragma unroll
      for (int i = 0; i < AT_ONCE / 2 * Kind::OF_TWO; ++i) {
        Value own[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const auto& held = results[begin + i / Kind::OF_TWO * 2 + h].template at<It::NUMBER>();
          own[h] = exists[h] ? held.at[i % Kind::OF_TWO] : Kind::nothing();
        }
        mine[i] = Kind::joined(own[0], own[1]);
      }
      join<It, AT_ONCE / 2 * Kind::OF_TWO, 16>(mine, 0, row < of.M, col + begin * 4);
    }
  }

  // Lanes so far apart; this one has the columns from number `first` on, of those from `col` on.
  template <typename It, int Count, int Far, typename Value>
  __device__ __forceinline__ void join(Value* mine, int first, bool stores, int col) const {
    typedef typename It::Kind Kind;
    if constexpr (Far < 4) {
#pragma unroll
      for (int i = 0; i < Count; ++i) store<It>(mine[i], first + i, stores, col);
    } else {
      const bool upper = threadIdx.x & Far;
      if constexpr (Count % 2 == 0) {
#pragma unroll
        for (int i = 0; i < Count / 2; ++i) {
          const Value theirs = __shfl_xor_sync(0xffffffffu, upper ? mine[i] : mine[i + Count / 2], Far);
          mine[i] = Kind::joined(upper ? mine[i + Count / 2] : mine[i], theirs);
        }
        join<It, Count / 2, Far / 2>(mine, first + upper * (Count / 2), stores, col);
      } else {
#pragma unroll
        for (int i = 0; i < Count; ++i)
          mine[i] = Kind::joined(mine[i], __shfl_xor_sync(0xffffffffu, mine[i], Far));
        join<It, Count, Far / 2>(mine, first, stores && !upper, col);
      }
    }
  }
  template <typename It, typename Value>
  __device__ __forceinline__ void store(Value value, int number, bool stores, int col) const {
    constexpr int OF_TWO = It::Kind::OF_TWO;
    const Operand& to = of.stored()[It::NUMBER];
    const int lane = threadIdx.x % 4, columns = EPILOGUE_PAIRS && OF_TWO == 2 ? 2 * of.N : of.N;
    const int at =
        (OF_TWO == 2 ? col : col / 2) + number / OF_TWO * (4 * OF_TWO) + lane * OF_TWO + number % OF_TWO;
    if (stores && at < columns) reinterpret_cast<Value*>(to.at)[row / 16 * to.row + at * to.col] = value;
  }
};

}  // namespace fused
#endif
