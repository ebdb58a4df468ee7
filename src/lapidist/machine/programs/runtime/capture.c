// Captures: what is given to a stream becomes nodes of a graph. Other streams join by events, and join back.
#include "graph.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { GLOBAL, THREAD_LOCAL, RELAXED, NOT_BLOCKING = 1 };

struct Capture {
  Graph* graph;
  Stream *origin, *streams;
  int mode, is_invalid, is_to_graph;
  uint64_t id;
  pthread_t thread;
  Capture* next;
};

static Capture* captures;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int thread_mode;

static cudaError_t invalidate(Capture* capture, cudaError_t error) {
  capture->is_invalid = 1;
  return error;
}

cudaError_t require_not_captured(cudaStream_t stream) {
  Capture* capture = stream_of(stream)->capture;
  return capture ? invalidate(capture, CAPTURE_UNSUPPORTED) : SUCCESS;
}

cudaError_t require_no_capture(void) {
  cudaError_t error = SUCCESS;
  pthread_mutex_lock(&lock);
  for (Capture* capture = captures; capture && thread_mode != RELAXED; capture = capture->next) {
    int is_mine = pthread_equal(capture->thread, pthread_self());
    if ((capture->mode == GLOBAL && thread_mode == GLOBAL) || (capture->mode == THREAD_LOCAL && is_mine)) {
      error = invalidate(capture, CAPTURE_UNSUPPORTED);
    }
  }
  pthread_mutex_unlock(&lock);
  return error;
}

// The default stream waits for all streams that do not say otherwise, of which one that is captured cannot be.
cudaError_t require_no_implicit_wait(cudaStream_t stream) {
  cudaError_t error = SUCCESS;
  pthread_mutex_lock(&lock);
  for (Capture* capture = captures; capture && (uintptr_t)stream < 2; capture = capture->next) {
    if (!(capture->origin->flags & NOT_BLOCKING)) {
      error = invalidate(capture, CAPTURE_IMPLICIT);
    }
  }
  pthread_mutex_unlock(&lock);
  return error;
}

int begins_capture(const Stream* stream) { return stream->capture && stream->capture->origin == stream; }

static void set_last(Stream* stream, Node* const* nodes, size_t count) {
  Node** copy = calloc(count + 1, sizeof(Node*));
  if (count) {
    memcpy(copy, nodes, count * sizeof(Node*));
  }
  free(stream->last);
  stream->last = copy, stream->last_count = count;
}

static void add_last(Stream* stream, Node* const* nodes, size_t count) {
  for (size_t n = 0; n < count; n++) {
    size_t at = 0;
    while (at < stream->last_count && stream->last[at] != nodes[n]) {
      at++;
    }
    if (at == stream->last_count) {
      stream->last = realloc(stream->last, (at + 1) * sizeof(Node*));
      stream->last[at] = nodes[n], stream->last_count++;
    }
  }
}

static void join(Stream* stream, Capture* capture) {
  stream->capture = capture, stream->next_captured = capture->streams, capture->streams = stream;
}

cudaError_t capture_work(Stream* stream, Work* work) {
  if (stream->capture->is_invalid) {
    drop_work(work);
    return CAPTURE_INVALIDATED;
  }
  Node* node = add_node(stream->capture->graph, stream->last, stream->last_count, work);
  set_last(stream, &node, 1);
  return SUCCESS;
}

cudaError_t capture_record(Stream* stream, Event* event) {
  if (stream->capture->is_invalid) {
    return CAPTURE_INVALIDATED;
  }
  event->capture = stream->capture->id;
  event->nodes = realloc(event->nodes, (stream->last_count + 1) * sizeof(Node*));
  memcpy(event->nodes, stream->last, stream->last_count * sizeof(Node*));
  event->node_count = stream->last_count;
  return SUCCESS;
}

cudaError_t capture_wait(Stream* stream, Event* event) {
  Capture* capture = captures;
  while (capture && capture->id != event->capture) {
    capture = capture->next;
  }
  if (stream->capture != NULL && stream->capture->is_invalid) {
    return CAPTURE_INVALIDATED;
  }
  if (capture == NULL) {  // it was recorded outside, or in a capture that is over
    return stream->capture && !event->capture ? invalidate(stream->capture, CAPTURE_ISOLATION)
                                              : CAPTURED_EVENT;
  }
  if (stream->capture != NULL && stream->capture != capture) {
    invalidate(capture, CAPTURE_MERGE);
    return invalidate(stream->capture, CAPTURE_MERGE);
  }
  if ((uintptr_t)stream == (uintptr_t)stream_of(NULL)) {
    return invalidate(capture, CAPTURE_IMPLICIT);
  }
  if (stream->capture == NULL) {
    join(stream, capture);
    set_last(stream, event->nodes, event->node_count);
  } else {
    add_last(stream, event->nodes, event->node_count);
  }
  return SUCCESS;
}

static cudaError_t begin(cudaStream_t handle, int mode, Graph* graph, Node* const* before, size_t count) {
  static uint64_t count_of_captures;
  Stream* stream = stream_of(handle);
  if ((uintptr_t)handle < 2) {
    return done(CAPTURE_UNSUPPORTED);
  }
  if (stream->capture != NULL) {
    return done(ILLEGAL_STATE);
  }
  Capture* capture = calloc(1, sizeof(Capture));
  capture->graph = graph ? graph : new_graph();
  capture->is_to_graph = graph != NULL;
  capture->origin = stream, capture->mode = mode, capture->thread = pthread_self();
  join(stream, capture);
  set_last(stream, before, count);
  pthread_mutex_lock(&lock);
  capture->id = ++count_of_captures;
  capture->next = captures, captures = capture;
  pthread_mutex_unlock(&lock);
  return done(SUCCESS);
}

API cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int mode) {
  return begin(stream, mode, NULL, NULL, 0);
}

API cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, Graph* graph, Node* const* before,
                                              const void* edges, size_t count, int mode) {
  return begin(stream, mode, graph, before, count);
}

// Whether all that joined is waited for by the stream where the capture began.
static int is_joined(const Capture* capture) {
  for (const Stream* stream = capture->streams; stream != NULL; stream = stream->next_captured) {
    for (size_t n = 0; n < stream->last_count; n++) {
      int found = 0;
      for (size_t m = 0; !found && m < capture->origin->last_count; m++) {
        found = depends_on(capture->origin->last[m], stream->last[n]);
      }
      if (!found) {
        return 0;
      }
    }
  }
  return 1;
}

API cudaError_t cudaStreamEndCapture(cudaStream_t handle, Graph** graph) {
  Stream* stream = stream_of(handle);
  Capture* capture = stream->capture;
  *graph = NULL;
  if (capture == NULL) {
    return done(ILLEGAL_STATE);
  }
  if (capture->origin != stream) {
    return done(invalidate(capture, CAPTURE_UNMATCHED));
  }
  if (capture->mode != RELAXED && !pthread_equal(capture->thread, pthread_self())) {
    return done(CAPTURE_WRONG_THREAD);
  }
  cudaError_t error = capture->is_invalid  ? CAPTURE_INVALIDATED
                      : is_joined(capture) ? SUCCESS
                                           : CAPTURE_UNJOINED;
  pthread_mutex_lock(&lock);
  Capture** place = &captures;
  while (*place != capture) {
    place = &(*place)->next;
  }
  *place = capture->next;
  pthread_mutex_unlock(&lock);
  for (Stream *each = capture->streams, *next; each != NULL; each = next) {
    next = each->next_captured;
    each->capture = NULL;
    set_last(each, NULL, 0);
    if (each->is_destroyed) {
      free(each->last);
      free(each);
    }
  }
  if (!error) {
    *graph = capture->graph;
  } else if (!capture->is_to_graph) {
    drop_graph(capture->graph);
  }
  free(capture);
  return done(error);
}

API cudaError_t cudaStreamIsCapturing(cudaStream_t stream, int* status) {
  const Capture* capture = stream_of(stream)->capture;
  *status = capture == NULL ? 0 : capture->is_invalid ? 2 : 1;
  return done(SUCCESS);
}

API cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t handle, int* status, unsigned long long* id,
                                            Graph** graph, Node* const** last, const void** edges,
                                            size_t* count) {
  static const char no_edges[8 * 1024];
  const Stream* stream = stream_of(handle);
  const Capture* capture = stream->capture;
  cudaError_t error = cudaStreamIsCapturing(handle, status);
  if (id) *id = capture ? capture->id : 0;
  if (graph) *graph = capture ? capture->graph : NULL;
  if (last) *last = stream->last;
  if (edges) *edges = no_edges;
  if (count) *count = capture ? stream->last_count : 0;
  return error;
}

API cudaError_t cudaStreamUpdateCaptureDependencies_v2(cudaStream_t handle, Node* const* nodes,
                                                       const void* edges, size_t count, unsigned replaces) {
  Stream* stream = stream_of(handle);
  if (stream->capture == NULL) {
    return done(ILLEGAL_STATE);
  }
  if (replaces) {
    set_last(stream, nodes, count);
  } else {
    add_last(stream, nodes, count);
  }
  return done(SUCCESS);
}

API cudaError_t cudaThreadExchangeStreamCaptureMode(int* mode) {
  int before = thread_mode;
  thread_mode = *mode, *mode = before;
  return done(SUCCESS);
}
