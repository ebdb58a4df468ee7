// D = the sum of all ranks' terms, in the order of ranks, or by the tree of neighbours. The launch meets the other
// ranks itself, so that the stream needs no operation between the product and the sum, nor behind it:
//
//   block 0    | takes back "free", says "arrived" to all peers |
//   each block | waits for the peers' "arrived" | adds its vectors |
//   last block                                                     | takes back "arrived", says "free" to all peers |
//              | waits for theirs, so that the next product may store to the same memory |
//
// Waits have limits (share/rank_flags.cuh). All blocks wait for block 0 of each peer, which cards start first.
#include "config.cuh"
#include "share/rank_flags.cuh"
#include "exchange/rank_terms.cuh"

typedef long long i64;

struct Meeting {
  const Term* terms[RANKS];
  int* flags[RANKS];            // the first flag in each rank's memory
  unsigned long long* reports;  // one for each rank: 1 more than rank 0's flag, if it was waited for in vain
  i64 limit;                    // nanoseconds
  unsigned* done;               // blocks that have read their terms; 0 again behind the last one
  int rank;                     // this one
  int arrived, free, step;      // rank 0's flags of both kinds; from one rank's to the next one's
};

// Loads of a thread that are under way, of peers: blocks that wait hold their SMs, so there is one on each.
constexpr int AT_ONCE = RANKS < 5 ? 4 / (RANKS - 1) : 1;

extern "C" __global__ void __launch_bounds__(THREADS)
    add_terms(const __grid_constant__ Meeting meeting, Term* D, i64 count) {
  const int peer = threadIdx.x;
  const bool meets = peer < RANKS && peer != meeting.rank;
  bool in_time = true;
  int* const from_peer = meeting.flags[meeting.rank] + peer * meeting.step;
  if (meets) {
    int* const to_peer = meeting.flags[peer] + meeting.rank * meeting.step;
    if (blockIdx.x == 0) {
      set_flag(from_peer + meeting.free, 0);
      set_flag(to_peer + meeting.arrived, 1);
    }
    in_time = raised_in_time(from_peer + meeting.arrived, meeting.limit, meeting.reports + peer,
                             meeting.arrived + 1ull);
  }
  __syncthreads();
  const i64 whole = count / TOGETHER, first = blockIdx.x * static_cast<i64>(THREADS) + threadIdx.x;
  const i64 step = gridDim.x * static_cast<i64>(THREADS);
  for (i64 i = first; i < whole; i += AT_ONCE * step) {
    Vector vectors[AT_ONCE][RANKS];
#pragma unroll
    for (int j = 0; j < AT_ONCE; ++j)
#pragma unroll
      for (int rank = 0; rank < RANKS; ++rank)
        if (i + j * step < whole)
          vectors[j][rank] = reinterpret_cast<const Vector*>(meeting.terms[rank])[i + j * step];
#pragma unroll
    for (int j = 0; j < AT_ONCE; ++j)
      if (i + j * step < whole) reinterpret_cast<Vector*>(D)[i + j * step] = sum_of(vectors[j]);
  }
  if (const i64 i = whole * TOGETHER + first; i < count) {
    Term terms[RANKS];
#pragma unroll
    for (int rank = 0; rank < RANKS; ++rank) terms[rank] = meeting.terms[rank][i];
    D[i] = sum_of(terms);
  }
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    is_last = atomicInc(meeting.done, gridDim.x - 1) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (is_last && meets) {
    set_flag(from_peer + meeting.arrived, 0);
    set_flag(meeting.flags[peer] + meeting.rank * meeting.step + meeting.free, 1);
    if (in_time)
      raised_in_time(from_peer + meeting.free, meeting.limit, meeting.reports + peer, meeting.free + 1ull);
  }
}
