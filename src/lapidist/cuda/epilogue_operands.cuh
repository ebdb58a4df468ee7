// What an epilogue reads, and results that it stores beside D: arrays, numbers, and the positions of elements.
#pragma once

#include "config.cuh"
#include "epilogue_functions.cuh"
#include "epilogue_largest.cuh"

namespace fused {

// An array's address, or a number's bits; elements to the next row and column, and along the batch.
struct Operand {
  long long at, row, col, inner, outer;
};

template <typename Stored>
struct alignas(2 * sizeof(Stored)) Two {
  Stored at[2];
};

// Where a sum's operands are: its row, its column, and that of its neighbour. Where a tile hangs over the edge,
// the last row or column stands for what is not there: nobody stores it.
struct Spot {
  long long row, col[2];
};

// What is no array has no pieces of 16 bytes; else BYTES are those of two columns, in a function of pairs of what
// both have together.
struct NoPieces {
  static constexpr bool IN_PIECES = false, JOINED = false, ALONG_ROW = false;
  template <bool>
  static constexpr int BYTES = 0;
};

// An operand that is an array. ByRow, ByCol: whether it changes from row to row, from column to column. ByCol
// 2: neighbours lie together, and the first of two is in an even column. 4: so do 16 bytes, from a multiple on.
template <typename Type, int ByRow, int ByCol>
struct Array {
  typedef Two<typename Type::Stored> Held;
  typedef Type Of;
  static constexpr bool IN_PIECES = ByRow && ByCol == 4 && sizeof(Held) <= 8, JOINED = false,
                        ALONG_ROW = false;
  template <bool Both>
  static constexpr int BYTES = sizeof(typename Type::Stored) * (1 + Both);
  struct Kept {};  // from element to element: nothing

  static __device__ __forceinline__ typename Type::Stored* start(const Operand& o, const Spot& spot,
                                                                 long long inner, long long outer) {
    return reinterpret_cast<typename Type::Stored*>(o.at) + inner * o.inner + outer * o.outer +
           (ByRow ? spot.row * o.row : 0);
  }
  // Of two neighbours, or of the first alone.
  template <bool Both>
  static __device__ __forceinline__ void fetch(Held& to, const Operand& o, const Spot& spot, long long inner,
                                               long long outer) {
    const auto* const line = start(o, spot, inner, outer);
    if constexpr (Both && ByCol >= 2) {
      to = *reinterpret_cast<const Held*>(line + spot.col[0]);
    } else {
      to.at[0] = line[ByCol ? spot.col[0] * o.col : 0];
      if constexpr (Both) to.at[1] = ByCol ? line[spot.col[1] * o.col] : to.at[0];
    }
  }
  template <typename V>
  static __device__ __forceinline__ V value(const Held& held, const Operand&, int which) {
    return Type::value(held.at[which]);
  }
  // Likewise; `both`: whether the second one exists.
  template <bool Both>
  static __device__ __forceinline__ void store(const Held& from, Kept&, const Operand& o, const Spot& spot,
                                               bool both, long long inner, long long outer) {
    auto* const line = start(o, spot, inner, outer);
    if constexpr (Both && ByCol >= 2) {
      *reinterpret_cast<Held*>(line + spot.col[0]) = from;
    } else {
      line[spot.col[0] * o.col] = from.at[0];
      if (Both && both) line[spot.col[1] * o.col] = from.at[1];
    }
  }
  template <typename V>
  static __device__ __forceinline__ void put(Held& held, V value, int which) {
    held.at[which] = Type::stored(value);
  }
  static __device__ __forceinline__ void leave(const Kept&, const Operand&) {}
};

// Of a function of pairs, a result with a value for each of two neighbours; a spot is that of both.
template <typename Type, int ByRow, int ByCol>
struct BothArray : Array<Type, ByRow, ByCol> {
  typedef Array<Type, ByRow, ByCol> Each;
  template <bool>
  static constexpr int BYTES = Each::template BYTES<true>;
  template <bool>
  static __device__ __forceinline__ void store(const typename Each::Held& from, typename Each::Kept& kept,
                                               const Operand& o, const Spot& spot, bool, long long inner,
                                               long long outer) {
    const Spot two = {spot.row, {2 * spot.col[0], 2 * spot.col[0] + 1}};
    Each::template store<true>(from, kept, o, two, true, inner, outer);
  }
};

// A result that is the largest of all values, of two neighbours' where a function of pairs has Two of them.
template <typename Value, int Absolute, int TwoOfPair>
struct Most : NoPieces {
  typedef decltype(word_of<Absolute>(Value())) Word;
  struct Held {
    Word at[2];
  };
  typedef Largest<Word> Kept;

  template <typename V>
  static __device__ __forceinline__ void put(Held& held, V value, int which) {
    held.at[which] = word_of<Absolute>(static_cast<Value>(value));
  }
  template <bool Both>
  static __device__ __forceinline__ void store(const Held& from, Kept& kept, const Operand&, const Spot&,
                                               bool both, long long, long long) {
    kept.add(from.at[0]);
    if (TwoOfPair || (Both && both)) kept.add(from.at[1]);
  }
  static __device__ __forceinline__ void leave(const Kept& kept, const Operand& o) { kept.leave(o.at); }
};

// A result that a second pass reduces: lanes join 16 values of a column first, or of a row (gemm/wgmma/reduce_in_epilogue.cuh).
// The array has a row for each 16. Operation: 0 sum, 1 max, 2 amax; TwoOfPair: as above. AlongRow 1: they are those
// of 16 columns of the product, and all rows of D lie one behind another.
template <typename Value, int Operation, int TwoOfPair, int AlongRow>
struct Joined : NoPieces {
  static constexpr bool JOINED = true, ALONG_ROW = AlongRow;
  static constexpr int OF_TWO = EPILOGUE_PAIRS && !TwoOfPair ? 1 : 2;  // values of two neighbours
  typedef Value Of;
  struct Held {
    Value at[2];
  };
  struct Kept {};

  static __device__ __forceinline__ Value nothing() { return Operation == 1 ? -infinity() : 0; }
  static __device__ __forceinline__ Value joined(Value x, Value y) {
    return Operation == 0 ? x + y : maximum(x, y);
  }
  template <typename V>
  static __device__ __forceinline__ void put(Held& held, V value, int which) {
    held.at[which] = Operation == 2 ? absolute(value) : value;
  }
  template <bool Both>
  static __device__ __forceinline__ void store(const Held&, Kept&, const Operand&, const Spot&, bool,
                                               long long, long long) {}
  static __device__ __forceinline__ void leave(const Kept&, const Operand&) {}
};

// One that is a number, passed with the launch.
struct Number : NoPieces {
  struct Held {};
  template <bool Both>
  static __device__ __forceinline__ void fetch(Held&, const Operand&, const Spot&, long long, long long) {}
  template <typename V>
  static __device__ __forceinline__ V value(const Held&, const Operand& o, int) {
    if constexpr (sizeof(V) == 8) return __longlong_as_double(o.at);
    else return __int_as_float(static_cast<int>(o.at));
  }
};

// A seed that is a whole number, passed with the launch.
struct Whole : Number {
  template <typename V>
  static __device__ __forceinline__ V value(const Held&, const Operand& o, int) {
    return static_cast<V>(o.at);
  }
};

// Numbers of D's elements, reckoned as addresses of an array are: so tiles that were exchanged, batches and later
// launches of a call all have those of the caller. Side: neighbours lie side by side, and the second one's number
// follows from the first's, which saves registers.
template <bool Side>
struct Position : NoPieces {
  struct Held {
    long long at[2 - Side];
  };
  template <bool Both>
  static __device__ __forceinline__ void fetch(Held& to, const Operand& o, const Spot& spot, long long inner,
                                               long long outer) {
    const long long line = o.at + inner * o.inner + outer * o.outer + spot.row * o.row;
    to.at[0] = line + spot.col[0] * o.col;
    if constexpr (Both && !Side) to.at[1] = line + spot.col[1] * o.col;
  }
  template <typename V>
  static __device__ __forceinline__ V value(const Held& held, const Operand& o, int which) {
    if constexpr (Side) return static_cast<V>(held.at[0] + which * o.col);
    else return static_cast<V>(held.at[which]);
  }
};

}  // namespace fused
