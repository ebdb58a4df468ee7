// Writes every unit of every launched block, for many schedules at once: thread t does block
// `launch_index[t]` of schedule `which[t]` and writes `counts[t]` records of WORDS ints from record
// `start[t]` on.
#include "share/schedule.cuh"

#define WORDS 14

extern "C" __global__ void schedule_units(int threads, const Schedule* schedules, const int* which,
                                          const int* launch_index, const int* start, int* counts,
                                          int* records) {
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= threads) return;
  const Schedule schedule = schedules[which[t]];
  Walk walk = schedule.walk(launch_index[t]);
  WorkUnit unit;
  int count = 0;
  for (; schedule.next(walk, unit); ++count) {
    int* to = records + (start[t] + count) * WORDS;
    const int words[WORDS] = {unit.tile,
                              unit.row,
                              unit.column,
                              unit.batch,
                              unit.k_begin,
                              unit.k_end,
                              unit.peer,
                              unit.peers,
                              unit.slot,
                              unit.flag,
                              unit.fragment,
                              schedule.arrivals_needed(unit),
                              schedule.finishes(unit),
                              schedule.peer_slot(unit, unit.fragment < 0 ? 0 : unit.peers - 1)};
    for (int i = 0; i < WORDS; ++i) to[i] = words[i];
  }
  counts[t] = count;
}
