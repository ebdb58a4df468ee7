// Streams and events. Each call is done when it returns, in the order of the calls: an order that a card may have,
// too. The machine hears what orders streams, and finds what nothing orders.
#include "work.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EXTERNAL = 1 };  // of events: a node of its own in a capture

Stream* stream_of(cudaStream_t handle) {
  static Stream defaults[3];
  return (uintptr_t)handle < 3 ? &defaults[(uintptr_t)handle] : handle;
}

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return 1e3 * at.tv_sec + 1e-6 * at.tv_nsec;
}

API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* handle, unsigned flags, int priority) {
  Stream* stream = calloc(1, sizeof(Stream));
  stream->flags = flags, stream->priority = priority;
  *handle = stream;
  return done(ASK("stream", U(stream), flags));
}

API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

API cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }

API cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  if ((uintptr_t)handle < 3) {
    return done(INVALID_HANDLE);
  }
  Stream* stream = stream_of(handle);
  if (stream->capture != NULL && !begins_capture(stream)) {
    stream->is_destroyed = 1;
    return done(SUCCESS);
  }
  cudaError_t error = require_not_captured(handle);
  if (!error) {
    free(stream->last);
    free(handle);
  }
  return done(error);
}

API cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  *flags = stream_of(stream)->flags;
  return done(SUCCESS);
}

API cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  *priority = stream_of(stream)->priority;
  return done(SUCCESS);
}

// Attributes are hints for a card's speed: they are kept, and change nothing here.
API cudaError_t cudaStreamSetAttribute(cudaStream_t handle, unsigned attribute, const AttributeValue* value) {
  Stream* stream = stream_of(handle);
  if (attribute >= ATTRIBUTES) {
    return done(INVALID_VALUE);
  }
  stream->attributes[attribute] = *value;
  stream->priority = attribute == PRIORITY ? value->number : stream->priority;
  return done(SUCCESS);
}

API cudaError_t cudaStreamGetAttribute(cudaStream_t handle, unsigned attribute, AttributeValue* value) {
  const Stream* stream = stream_of(handle);
  if (attribute >= ATTRIBUTES) {
    return done(INVALID_VALUE);
  }
  *value = stream->attributes[attribute];
  value->number = attribute == PRIORITY ? stream->priority : value->number;
  return done(SUCCESS);
}

API cudaError_t cudaStreamCopyAttributes(cudaStream_t target, cudaStream_t source) {
  memcpy(stream_of(target)->attributes, stream_of(source)->attributes, sizeof stream_of(source)->attributes);
  stream_of(target)->priority = stream_of(source)->priority;
  return done(SUCCESS);
}

API cudaError_t cudaCtxResetPersistingL2Cache(void) { return done(SUCCESS); }

API cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  *id = U(stream);
  return done(SUCCESS);
}

API cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  *device = 0;
  return done(SUCCESS);
}

API cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  cudaError_t error = require_not_captured(stream);
  return done(error ? error : ASK("wait_for_stream", U(stream)));
}

API cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }

API cudaError_t cudaDeviceSynchronize(void) {
  cudaError_t error = require_no_capture();
  return done(error ? error : ASK("wait_for_all", 0));
}

cudaError_t stream_waits(cudaStream_t stream, Event* event) {
  return ASK("stream_waits", U(stream), U(event));
}

API cudaError_t cudaStreamWaitEvent(cudaStream_t handle, Event* event, unsigned flags) {
  Stream* stream = stream_of(handle);
  if (stream->capture != NULL && flags == EXTERNAL) {
    Work work = {WAIT, .event = event};
    return submit(&work, handle);
  }
  if (stream->capture != NULL || event->capture) {
    return done(capture_wait(stream, event));
  }
  return done(stream_waits(handle, event));
}

API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void*), void* data) {
  Work work = {HOST, .host = {function, data}};
  return submit(&work, stream);
}

API cudaError_t cudaStreamAddCallback(cudaStream_t stream, void (*function)(cudaStream_t, cudaError_t, void*),
                                      void* data, unsigned flags) {
  cudaError_t error = require_not_captured(stream);
  if (!error) {
    function(stream, SUCCESS, data);
  }
  return done(error);
}

API cudaError_t cudaEventCreate(Event** event) {
  *event = calloc(1, sizeof(Event));
  return done(SUCCESS);
}

API cudaError_t cudaEventCreateWithFlags(Event** event, unsigned flags) { return cudaEventCreate(event); }

API cudaError_t cudaEventDestroy(Event* event) {
  free(event->nodes);
  free(event);
  return done(SUCCESS);
}

cudaError_t record_event(Event* event, cudaStream_t stream) {
  event->recorded = now(), event->capture = 0;
  return ASK("record", U(event), U(stream));
}

API cudaError_t cudaEventRecordWithFlags(Event* event, cudaStream_t handle, unsigned flags) {
  Stream* stream = stream_of(handle);
  if (stream->capture != NULL && flags == EXTERNAL) {
    Work work = {RECORD, .event = event};
    return submit(&work, handle);
  }
  return done(stream->capture ? capture_record(stream, event) : record_event(event, handle));
}

API cudaError_t cudaEventRecord(Event* event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}

API cudaError_t cudaEventSynchronize(Event* event) {
  return done(event->capture ? CAPTURED_EVENT : ASK("wait_for_event", U(event)));
}

API cudaError_t cudaEventQuery(Event* event) { return cudaEventSynchronize(event); }

// The machine's time, which says nothing about a card's.
API cudaError_t cudaEventElapsedTime(float* milliseconds, const Event* start, const Event* end) {
  if (start->capture || end->capture || start->recorded == 0 || end->recorded == 0) {
    return done(start->capture || end->capture ? CAPTURED_EVENT : INVALID_HANDLE);
  }
  *milliseconds = (float)(end->recorded - start->recorded);
  return done(SUCCESS);
}

API cudaError_t cudaEventElapsedTime_v2(float* milliseconds, const Event* start, const Event* end) {
  return cudaEventElapsedTime(milliseconds, start, end);
}
