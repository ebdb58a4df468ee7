// Streams, events and the device. Each call is done when it returns, in the order of the calls: an order that a
// card may have, too. The machine hears what orders streams, and finds what nothing orders.
#include "stand_in.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
  double recorded;  // in milliseconds; 0 before the first time
} Event;

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return 1e3 * at.tv_sec + 1e-6 * at.tv_nsec;
}

API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  *stream = malloc(1);  // an address of its own
  return done(ASK("stream", U(*stream), flags));
}

API cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }

API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return cudaStreamCreateWithFlags(stream, flags);
}

API cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  free(stream);
  return done(SUCCESS);
}

API cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return done(ASK("wait_for_stream", U(stream))); }
API cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }

API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, void* event, unsigned flags) {
  return done(ASK("stream_waits", U(stream), U(event)));
}

API cudaError_t cudaStreamIsCapturing(cudaStream_t stream, int* status) {
  *status = 0;
  return done(SUCCESS);
}

API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return done(SUCCESS);
}

API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void*), void* data) {
  function(data);
  return done(SUCCESS);
}

API cudaError_t cudaStreamAddCallback(cudaStream_t stream, void (*function)(cudaStream_t, cudaError_t, void*),
                                      void* data, unsigned flags) {
  function(stream, SUCCESS, data);
  return done(SUCCESS);
}

API cudaError_t cudaEventCreate(Event** event) {
  *event = calloc(1, sizeof(Event));
  return done(SUCCESS);
}

API cudaError_t cudaEventCreateWithFlags(Event** event, unsigned flags) { return cudaEventCreate(event); }

API cudaError_t cudaEventDestroy(Event* event) {
  free(event);
  return done(SUCCESS);
}

API cudaError_t cudaEventRecord(Event* event, cudaStream_t stream) {
  event->recorded = now();
  return done(ASK("record", U(event), U(stream)));
}

API cudaError_t cudaEventRecordWithFlags(Event* event, cudaStream_t stream, unsigned flags) {
  return cudaEventRecord(event, stream);
}

API cudaError_t cudaEventSynchronize(Event* event) { return done(ASK("wait_for_event", U(event))); }
API cudaError_t cudaEventQuery(Event* event) { return cudaEventSynchronize(event); }

// The machine's time, which says nothing about a card's.
API cudaError_t cudaEventElapsedTime(float* milliseconds, const Event* start, const Event* end) {
  if (start->recorded == 0 || end->recorded == 0) {
    return done(400);  // cudaErrorInvalidResourceHandle
  }
  *milliseconds = (float)(end->recorded - start->recorded);
  return done(SUCCESS);
}

API cudaError_t cudaEventElapsedTime_v2(float* milliseconds, const Event* start, const Event* end) {
  return cudaEventElapsedTime(milliseconds, start, end);
}

API cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return done(SUCCESS);
}

API cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return done(SUCCESS);
}

API cudaError_t cudaSetDevice(int device) { return done(device == 0 ? SUCCESS : 101); }
API cudaError_t cudaSetDeviceFlags(unsigned flags) { return done(SUCCESS); }
API cudaError_t cudaInitDevice(int device, unsigned flags, unsigned more) { return cudaSetDevice(device); }
API cudaError_t cudaDeviceSynchronize(void) { return done(ASK("wait_for_all", 0)); }
API cudaError_t cudaDeviceReset(void) { return done(SUCCESS); }
API cudaError_t cudaDeviceSetLimit(int limit, size_t value) { return done(SUCCESS); }
API cudaError_t cudaDeviceSetCacheConfig(int config) { return done(SUCCESS); }
API cudaError_t cudaDeviceSetSharedMemConfig(int config) { return done(SUCCESS); }
API cudaError_t cudaProfilerStart(void) { return done(SUCCESS); }
API cudaError_t cudaProfilerStop(void) { return done(SUCCESS); }

API cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = 0;
  return done(SUCCESS);
}

API cudaError_t cudaGetDeviceProperties(void* properties, int device) {
  cudaError_t error = ASK("properties", U(device));
  if (!error) {
    memcpy(properties, answered_bytes, answered[0]);
  }
  return done(error);
}

API cudaError_t cudaGetDeviceProperties_v2(void* properties, int device) {
  return cudaGetDeviceProperties(properties, device);
}

API cudaError_t cudaDeviceGetAttribute(int* value, int attribute, int device) {
  cudaError_t error = ASK("attribute", U(attribute), U(device));
  *value = error ? 0 : (int)answered[0];
  return done(error);
}

API cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = RUNTIME_VERSION;
  return done(SUCCESS);
}

API cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }

// The one function of the driver that kernels need: it makes tensor maps.
static int encode(void* map, int type, unsigned rank, void* address, const uint64_t* shape,
                  const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int interleave,
                  int swizzle, int promotion, int fill) {
  uint64_t numbers[32] = {U(type), rank, U(address), U(interleave), U(swizzle), U(promotion), U(fill)};
  if (rank < 1 || rank > 5) {
    return INVALID_VALUE;
  }
  for (unsigned n = 0; n < rank; n++) {
    numbers[7 + n] = shape[n], numbers[12 + n] = n + 1 < rank ? strides[n] : 0;
    numbers[17 + n] = box[n], numbers[22 + n] = steps[n];
  }
  cudaError_t error = ask("tensor_map", numbers, 27, NULL, 0);
  if (!error) {
    memcpy(map, answered_bytes, answered[0]);
  }
  return error;
}

API cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                                 uint64_t flags, int* status) {
  int is_known = strcmp(name, "cuTensorMapEncodeTiled") == 0;
  *function = is_known ? (void*)encode : NULL;
  if (status != NULL) {
    *status = is_known ? 0 : 1;  // cudaDriverEntryPointSymbolNotFound
  }
  if (!is_known) {
    ask("lacking", NULL, 0, name, strlen(name));
  }
  return done(SUCCESS);
}

API cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, uint64_t flags, int* status) {
  return cudaGetDriverEntryPointByVersion(name, function, 0, flags, status);
}
