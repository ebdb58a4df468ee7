// A queue of a block's units: the producer's thread walks the schedule and publishes units in shared memory,
// a few ahead of the consumers.
//
//   producer    | walk | wait read, write unit, arrive filled | load its stages | ...
//   consumers          | wait filled, read unit, arrive read  | multiply        | ...
//
// So the walk is compiled once, and consumers need no registers for it.
#pragma once
#include "config.cuh"
#include "hopper.cuh"
#include "share/sharing.cuh"

template <typename Unit>
struct QueueOf {
  static constexpr unsigned SLOTS = 4;  // enough to fill all stages with units of one or two steps
  struct alignas(16) Entry {
    Unit unit;
    int more;
  } at[SLOTS];
  Barrier filled[SLOTS], read[SLOTS];

  // `readers`: warps that receive all units.
  __device__ __forceinline__ void init(int readers) {
    for (int i = 0; i < static_cast<int>(SLOTS); ++i)
      barrier_init(&filled[i], 1), barrier_init(&read[i], readers);
  }
};
using UnitQueue = QueueOf<WorkUnit>;

// A counter: one register for the slot and its parity.
struct Turn {
  unsigned count = 0;
  __device__ __forceinline__ int place() const { return count % UnitQueue::SLOTS; }
  __device__ __forceinline__ int parity() const { return count / UnitQueue::SLOTS % 2; }
};

// One thread publishes a unit, or that there are no more.
template <typename Unit>
__device__ __forceinline__ void publish(QueueOf<Unit>& queue, Turn& turn, const Unit& unit, bool more) {
  const int place = turn.place();
  barrier_wait(&queue.read[place], turn.parity() ^ 1);  // an unused slot counts as read
  queue.at[place] = {unit, more};
  barrier_arrive(&queue.filled[place]);
  ++turn.count;
}
// A warp receives it, or one thread for its warp. False: there are no more.
template <bool Alone = false, typename Unit>
__device__ __forceinline__ bool receive(QueueOf<Unit>& queue, Turn& turn, Unit& unit) {
  const int place = turn.place();
  barrier_wait(&queue.filled[place], turn.parity());
  unit = queue.at[place].unit;
  const bool more = queue.at[place].more;
  if constexpr (!Alone) __syncwarp();  // all lanes have read it
  if (Alone || threadIdx.x % 32 == 0) barrier_arrive(&queue.read[place]);
  ++turn.count;
  return more;
}

// The producer's side: publishes each unit, and after the last one that there are no more.
struct PublishedWork : Work {
  UnitQueue& queue;
  Turn turn;
  __device__ __forceinline__ PublishedWork(const Schedule& schedule, UnitQueue& queue)
      : Work(schedule), queue(queue) {}
  __device__ __forceinline__ bool next() {
    const bool more = Work::next();
    publish(queue, turn, unit, more);
    return more;
  }
};

// The consumers' side.
struct ReceivedWork : Work {
  UnitQueue& queue;
  Turn turn;
  __device__ __forceinline__ ReceivedWork(const Schedule& schedule, UnitQueue& queue)
      : Work(schedule), queue(queue) {}
  __device__ __forceinline__ bool next() { return receive(queue, turn, unit); }
};
