// Reductions of 16 rows of a column, or of 16 columns of a row, by a warp's lanes before values are stored.
// The second pass then reads a 16th of the values.
//
// Columns:
//
//   a lane        reduces its two rows
//   eight lanes   have the same columns of 16 rows; they reduce by shuffles over 16, 8 and 4 lanes. While two
//                 lanes have several columns, each keeps half of them, so all lanes end with different columns
//
// The order is the same for each column, whatever the tile is and however many columns come at once.
//
// Rows:
//
//   a lane        reduces neighbouring columns, then those eight columns apart, in each of its two rows
//   four lanes    have the same 16 columns of two rows; they reduce by shuffles over two lanes, in which each
//                 keeps one row, then over one lane. With two groups of 16 columns each lane keeps one of them
//
// The order is that of second/reduce_rows.cu for values that were not reduced here.
#pragma once

#include "config.cuh"
#include "gemm/wgmma/quantise_groups.cuh"

#if FUSED
namespace fused {

template <typename>
constexpr bool any_joined = false;
template <int First, typename Kind, typename... Kinds>
constexpr bool any_joined<Results<First, Kind, Kinds...>> =
    Kind::JOINED || any_joined<Results<First + 1, Kinds...>>;
template <typename>
constexpr bool any_along_row = false;
template <int First, typename Kind, typename... Kinds>
constexpr bool any_along_row<Results<First, Kind, Kinds...>> =
    Kind::ALONG_ROW || any_along_row<Results<First + 1, Kinds...>>;

// Reduces rows. results[2 j + h] has the values of two neighbouring columns, 8 j columns behind the lane's
// first, in the lane's row h of two.
template <int Pairs>
struct JoiningRows {
  static constexpr int AT_ONCE = Pairs % 8 == 0 ? 8 : 4, SIXTEENS = AT_ONCE / 4;  // columns
  const Pieces& of;
  const AllResults (&results)[Pairs];
  int row, col;

  template <typename It>
  __device__ __forceinline__ void of_all() const {
    static_assert(Pairs % 4 == 0, "16 columns of both rows");
    typedef typename It::Kind Kind;
    constexpr int OF_TWO = Kind::OF_TWO;
#pragma unroll
    for (int begin = 0; begin < Pairs; begin += AT_ONCE) {
      typename Kind::Of values[AT_ONCE][OF_TWO], mine[2 * SIXTEENS];  // mine[2 g + h]: row h, 16 columns g
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i)
#pragma unroll
        for (int e = 0; e < OF_TWO; ++e) values[i][e] = results[begin + i].template at<It::NUMBER>().at[e];
      if (col + (begin + AT_ONCE) * 4 > columns()) leave_out<Kind>(values, col + begin * 4);
#pragma unroll
      for (int i = 0; i < 2 * SIXTEENS; ++i) {
        const int pair = i / 2 * 4 + i % 2;  // pair + 2: the same row, eight columns further
        mine[i] = Kind::joined(of_pair<Kind>(values[pair]), of_pair<Kind>(values[pair + 2]));
      }
      join<It>(mine, col + begin * 4);
    }
  }
  __device__ __forceinline__ int columns() const { return EPILOGUE_PAIRS ? 2 * of.N : of.N; }
  template <typename Kind, int OfTwo>
  __device__ __forceinline__ static auto of_pair(const typename Kind::Of (&values)[OfTwo]) {
    if constexpr (OfTwo == 1) return values[0];
    else return Kind::joined(values[0], values[1]);
  }
  // Values of columns outside the matrix do not count.
  template <typename Kind, int OfTwo>
  __device__ __forceinline__ void leave_out(typename Kind::Of (&values)[AT_ONCE][OfTwo], int col) const {
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i)
#pragma unroll
      for (int e = 0; e < OfTwo; ++e)
        if (col + i / 2 * 8 + threadIdx.x % 4 * 2 + e >= columns()) values[i][e] = Kind::nothing();
  }
  template <typename It, typename Value>
  __device__ __forceinline__ void join(Value (&mine)[2 * SIXTEENS], int col) const {
    typedef typename It::Kind Kind;
    const int lower = threadIdx.x / 2 % 2, odd = threadIdx.x % 2;  // the lane's row and group
#pragma unroll
    for (int g = 0; g < SIXTEENS; ++g) {
      const Value theirs = __shfl_xor_sync(0xffffffffu, lower ? mine[2 * g] : mine[2 * g + 1], 2);
      mine[g] = Kind::joined(lower ? mine[2 * g + 1] : mine[2 * g], theirs);
    }
    const Value own = SIXTEENS == 2 && odd ? mine[SIXTEENS - 1] : mine[0];
    const Value theirs =
        __shfl_xor_sync(0xffffffffu, SIXTEENS == 2 && !odd ? mine[SIXTEENS - 1] : mine[0], 1);
    const int group = col / 16 + odd, at = row + of.row_of(lower);
    const bool exists = (SIXTEENS == 2 || !odd) && at < of.M && group * 16 < columns();
    Value* const to = reinterpret_cast<Value*>(of.stored()[It::NUMBER].at);
    if (exists) to[static_cast<long long>(group) * of.M + at] = Kind::joined(own, theirs);
  }
};

// Reduces columns, or rows if the kind of result asks for them.
template <int Pairs>
struct Joining {
  static constexpr int AT_ONCE = Pairs % 8 == 0 ? 8 : Pairs;  // pairs that are reduced together
  const Pieces& of;
  const AllResults (&results)[Pairs];
  int row, col;

  template <typename It>
  __device__ __forceinline__ void operator()(It) const {
    if constexpr (It::Kind::ALONG_ROW) JoiningRows<Pairs>{of, results, row, col}.template of_all<It>();
    else of_columns<It>();
  }
  template <typename It>
  __device__ __forceinline__ void of_columns() const {
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

  // Reduce over lanes that are Far apart. This lane has Count columns from number `first` on, counted from
  // `col`.
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
