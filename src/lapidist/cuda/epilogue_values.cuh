// What an epilogue fetches for two neighbours of a row, and what it leaves beside D: config.cuh has the constants.
#pragma once

#include "config.cuh"

#if FUSED
#include "epilogue_operands.cuh"

namespace fused {

struct Operands {
  Operand of[EPILOGUE_OPERANDS > 0 ? EPILOGUE_OPERANDS : 1];
};

// A lane's values for pairs of columns may be read, or stored, as pieces of 16 bytes: how many pairs one takes,
// or 1; and whether so many do.
template <typename Kind, bool Both>
constexpr int pairs_of_piece =
    Kind::IN_PIECES && Kind::template BYTES<Both> <= 4 ? 16 / Kind::template BYTES<Both> : 1;
template <typename Kind, bool Both, int Pairs>
constexpr bool stored_in_pieces =
    Pairs > 0 && pairs_of_piece<Kind, Both> > 1 && Pairs % pairs_of_piece<Kind, Both> == 0;
template <typename Kind, bool Both, int Pairs>
constexpr bool read_in_pieces = stored_in_pieces<Kind, Both, Pairs> && pairs_of_piece<Kind, Both> == 4;
__device__ constexpr int most_of(int a, int b) { return a > b ? a : b; }

// One of several kinds, and its number.
template <typename The, int Which>
struct Numbered {
  typedef The Kind;
  static constexpr int NUMBER = Which;
};

// What was fetched for two neighbours of a row: of each operand, from number First on.
template <int First, typename... Kinds>
struct Fetched {
  template <bool Both, int Pairs = 0>
  __device__ __forceinline__ void fetch(const Operands&, const Spot&, long long, long long) {}
  template <bool Both>
  static constexpr int PAIRS = 1;
  template <bool Both, int Pairs, typename Use>
  __device__ __forceinline__ static void each_in_pieces(Use) {}
};
template <int First, typename Kind, typename... Kinds>
struct Fetched<First, Kind, Kinds...> {
  typename Kind::Held held;
  Fetched<First + 1, Kinds...> others;

  // Pairs: of so many, what comes in pieces for all of them together does not come here.
  template <bool Both, int Pairs = 0>
  __device__ __forceinline__ void fetch(const Operands& operands, const Spot& spot, long long inner,
                                        long long outer) {
    if constexpr (!read_in_pieces<Kind, Both, Pairs>)
      Kind::template fetch<Both>(held, operands.of[First], spot, inner, outer);
    others.template fetch<Both, Pairs>(operands, spot, inner, outer);
  }
  template <bool Both>  // of its pieces, at most
  static constexpr int PAIRS =
      most_of(pairs_of_piece<Kind, Both> == 4 ? 4 : 1, decltype(others)::template PAIRS<Both>);
  template <bool Both, int Pairs, typename Use>
  __device__ __forceinline__ static void each_in_pieces(Use use) {
    if constexpr (read_in_pieces<Kind, Both, Pairs>) use(Numbered<Kind, First>());
    decltype(others)::template each_in_pieces<Both, Pairs>(use);
  }
  template <int Which>
  __device__ __forceinline__ auto& at() {
    if constexpr (Which == First) return held;
    else return others.template at<Which>();
  }
  template <typename V, int Which>
  __device__ __forceinline__ V value(const Operands* operands, int which) const {
    if constexpr (Which == First) return Kind::template value<V>(held, operands->of[First], which);
    else return others.template value<V, Which>(operands, which);
  }
};
typedef Fetched<0 EPILOGUE_KINDS> AllFetched;

// What two neighbours of a row have beside D, on its way: each result, from number First on.
template <int First, typename... Kinds>
struct Results {
  struct Kept {
    __device__ __forceinline__ void leave(const Operand*) const {}
  };
  template <bool Both, int Pairs = 0>
  __device__ __forceinline__ void store(Kept&, const Operand*, const Spot&, bool, long long,
                                        long long) const {}
  template <bool Both>
  static constexpr int PAIRS = 1;
  template <bool Both, int Pairs, typename Use>
  __device__ __forceinline__ static void each_in_pieces(Use) {}
  template <typename Use>
  __device__ __forceinline__ static void each_joined(Use) {}
};
template <int First, typename Kind, typename... Kinds>
struct Results<First, Kind, Kinds...> {
  typename Kind::Held held;
  Results<First + 1, Kinds...> others;
  // Of all elements of a thread.
  struct Kept {
    typename Kind::Kept own;
    typename Results<First + 1, Kinds...>::Kept others;
    __device__ __forceinline__ void leave(const Operand* to) const {
      Kind::leave(own, *to);
      others.leave(to + 1);
    }
  };

  template <int Which, typename V>
  __device__ __forceinline__ void put(V value, int which) {
    if constexpr (Which == First) Kind::put(held, value, which);
    else others.template put<Which>(value, which);
  }
  template <bool Both, int Pairs = 0>
  __device__ __forceinline__ void store(Kept& kept, const Operand* to, const Spot& spot, bool both,
                                        long long inner, long long outer) const {
    if constexpr (First != EPILOGUE_UNSTORED && !stored_in_pieces<Kind, Both, Pairs>)
      Kind::template store<Both>(held, kept.own, *to, spot, both, inner, outer);
    others.template store<Both, Pairs>(kept.others, to + 1, spot, both, inner, outer);
  }
  template <bool Both>  // of its pieces, at most
  static constexpr int PAIRS = most_of(pairs_of_piece<Kind, Both>, decltype(others)::template PAIRS<Both>);
  template <bool Both, int Pairs, typename Use>
  __device__ __forceinline__ static void each_in_pieces(Use use) {
    if constexpr (First != EPILOGUE_UNSTORED && stored_in_pieces<Kind, Both, Pairs>)
      use(Numbered<Kind, First>());
    decltype(others)::template each_in_pieces<Both, Pairs>(use);
  }
  template <typename Use>
  __device__ __forceinline__ static void each_joined(Use use) {
    if constexpr (Kind::JOINED) use(Numbered<Kind, First>());
    decltype(others)::each_joined(use);
  }
  template <int Which>
  __device__ __forceinline__ const auto& at() const {
    if constexpr (Which == First) return held;
    else return others.template at<Which>();
  }
};
typedef Results<0 EPILOGUE_RESULTS> AllResults;

}  // namespace fused
#endif
