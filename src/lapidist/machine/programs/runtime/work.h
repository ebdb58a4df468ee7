// What a stream is given to do: at once, or as a node of a graph.
#pragma once
#include "stand_in.h"

// As cudaGraphNodeType has them
enum { KERNEL, COPY, FILL, HOST, CHILD, EMPTY, WAIT, RECORD, ALLOCATE = 10, RELEASE };
enum { DEVICE, PINNED, MANAGED };              // kinds of memory
enum { WAITED_FOR, RETURNS_EARLY, IN_GRAPH };  // how asynchronous a copy is
enum {
  INVALID_PITCH = 12,
  INVALID_HANDLE = 400,
  ILLEGAL_STATE = 401,
  CAPTURE_UNSUPPORTED = 900,
  CAPTURE_INVALIDATED = 901,
  CAPTURE_MERGE = 902,
  CAPTURE_UNMATCHED = 903,
  CAPTURE_UNJOINED = 904,
  CAPTURE_ISOLATION = 905,
  CAPTURE_IMPLICIT = 906,
  CAPTURED_EVENT = 907,
  CAPTURE_WRONG_THREAD = 908,
  UPDATE_FAILURE = 910
};

typedef struct {
  const void* kernel;
  dim3 grid, block, cluster;
  size_t shared;
  int cooperative, overlaps;
  uint32_t nbytes, count;  // of the parameters, which lie in `bytes`
  char* bytes;
  void** arguments;
} KernelWork;

// Rows of bytes `pitch` apart; planes of rows `slice` apart.
typedef struct {
  char* start;
  size_t pitch, slice;
} Place;

typedef struct {
  Place target, source;
  size_t width, height, depth;  // bytes, rows, planes
  int kind, is_asynchronous;
} CopyWork;

typedef struct {
  Place target;
  unsigned value, element;      // bytes of an element
  size_t width, height, depth;  // elements, rows, planes
} FillWork;

typedef struct {
  void (*function)(void*);
  void* data;
} HostWork;

typedef struct {
  void* address;
  size_t nbytes;
} MemoryWork;

typedef struct Node Node;
typedef struct Graph Graph;
typedef struct Capture Capture;

typedef struct {
  double recorded;   // in milliseconds; 0 before the first time
  uint64_t capture;  // in which it was recorded last; 0 where in none
  Node** nodes;      // that came before it there
  size_t node_count;
} Event;

typedef struct {
  int kind;
  union {
    KernelWork kernel;
    CopyWork copy;
    FillWork fill;
    HostWork host;
    Graph* child;
    Event* event;
    MemoryWork memory;
  };
} Work;

// Attributes of launches, kernels' nodes and streams
enum {
  COOPERATIVE = 2,
  CLUSTER = 4,
  OVERLAPS = 6,
  EARLY_EVENT = 7,
  PRIORITY = 8,
  START_EVENT = 12,
  UPDATED_BY_KERNELS = 13,
  ATTRIBUTES = 17
};
// The name of an attribute that is lacking; NULL for others.
const char* lacking_attribute(unsigned attribute);

typedef union {
  dim3 cluster;
  int number;
  char room[64];
} __attribute__((aligned(8))) AttributeValue;

typedef struct Stream {
  unsigned flags;
  int priority;
  AttributeValue attributes[ATTRIBUTES];
  Capture* capture;  // NULL where none is under way
  Node** last;       // nodes that the next one waits for
  size_t last_count;
  struct Stream* next_captured;
  int is_destroyed;  // while it is captured, of which it stays a part
} Stream;

// Make a kernel's work of the arguments that lie at these pointers; its bytes are its own.
cudaError_t prepare_kernel(KernelWork* work, const void* kernel, dim3 grid, dim3 block, void** arguments,
                           size_t shared);
// Do it now, or where the stream is captured, make a node of it. The work belongs to the callee.
cudaError_t submit(Work* work, cudaStream_t stream);
cudaError_t perform(const Work* work, cudaStream_t stream);
Work copied_work(const Work* work);
void drop_work(Work* work);
Work plain_copy(void* target, const void* source, size_t nbytes, int kind, int is_asynchronous);
Work symbol_copy(void* address, const void* symbol, size_t nbytes, size_t offset, int kind, int is_to_symbol,
                 cudaError_t* error);

// Streams by their handles: 0 is the default one, 1 it, too, and 2 the thread's.
Stream* stream_of(cudaStream_t handle);
cudaError_t record_event(Event* event, cudaStream_t stream);
cudaError_t stream_waits(cudaStream_t stream, Event* event);

// An error where a call is not allowed while a stream is captured; the capture is then worth nothing.
cudaError_t require_no_capture(void);
cudaError_t require_not_captured(cudaStream_t stream);
cudaError_t require_no_implicit_wait(cudaStream_t stream);
int begins_capture(const Stream* stream);
cudaError_t capture_work(Stream* stream, Work* work);
cudaError_t capture_record(Stream* stream, Event* event);
cudaError_t capture_wait(Stream* stream, Event* event);
