// Memory in the order of streams, from pools, and memory of graphs: nodes that allocate and free.
#include "graph.h"

#include <stdlib.h>

enum { THRESHOLD = 4, RESERVED, RESERVED_HIGH, USED, USED_HIGH, POOL_ATTRIBUTES };
enum { READ_AND_WRITE = 3 };

typedef struct {
  uint64_t attributes[POOL_ATTRIBUTES];
} Pool;

typedef struct {
  char properties[88];
  const void* access;
  size_t access_count, nbytes;
  void* address;
} AllocationParameters;

static Pool default_pool = {{0, 1, 1, 1}};
static Pool* chosen_pool = &default_pool;

// An address that is allocated when the node of the graph runs.
static cudaError_t allocation(Work* work, size_t nbytes) {
  cudaError_t error = ASK("reserve", nbytes);
  *work = (Work){ALLOCATE, .memory = {error ? NULL : (void*)answered[0], nbytes}};
  return error;
}

API cudaError_t cudaMallocAsync(void** pointer, size_t nbytes, cudaStream_t handle) {
  Stream* stream = stream_of(handle);
  if (stream->capture == NULL) {
    cudaError_t error = ASK("allocate", nbytes, U(DEVICE));
    *pointer = error ? NULL : (void*)answered[0];
    return done(error);
  }
  Work work;
  cudaError_t error = allocation(&work, nbytes);
  *pointer = work.memory.address;
  return done(error ? error : capture_work(stream, &work));
}

API cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t nbytes, Pool* pool, cudaStream_t stream) {
  return cudaMallocAsync(pointer, nbytes, stream);
}

API cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  Work work = {RELEASE, .memory = {pointer}};
  return pointer ? submit(&work, stream) : done(SUCCESS);
}

API cudaError_t cudaDeviceGetDefaultMemPool(Pool** pool, int device) {
  *pool = &default_pool;
  return cudaSetDevice(device);
}

API cudaError_t cudaDeviceGetMemPool(Pool** pool, int device) {
  *pool = chosen_pool;
  return cudaSetDevice(device);
}

API cudaError_t cudaDeviceSetMemPool(int device, Pool* pool) {
  chosen_pool = pool;
  return cudaSetDevice(device);
}

typedef struct {
  int kind, number;
} Location;

API cudaError_t cudaMemGetDefaultMemPool(Pool** pool, const Location* location, int kind) {
  return cudaDeviceGetDefaultMemPool(pool, location->number);
}

API cudaError_t cudaMemGetMemPool(Pool** pool, const Location* location, int kind) {
  return cudaDeviceGetMemPool(pool, location->number);
}

API cudaError_t cudaMemSetMemPool(const Location* location, int kind, Pool* pool) {
  return cudaDeviceSetMemPool(location->number, pool);
}

API cudaError_t cudaMemPoolCreate(Pool** pool, const void* properties) {
  *pool = malloc(sizeof(Pool));
  **pool = (Pool){{0, 1, 1, 1}};
  return done(SUCCESS);
}

API cudaError_t cudaMemPoolDestroy(Pool* pool) {
  if (pool == &default_pool) {
    return done(INVALID_VALUE);
  }
  chosen_pool = chosen_pool == pool ? &default_pool : chosen_pool;
  free(pool);
  return done(SUCCESS);
}

API cudaError_t cudaMemPoolTrimTo(Pool* pool, size_t kept) { return done(SUCCESS); }

static cudaError_t check_attribute(unsigned attribute) {
  if (attribute >= RESERVED && attribute < POOL_ATTRIBUTES) {
    return lacking("an attribute of a pool's bytes");
  }
  return done(attribute > 0 && attribute < POOL_ATTRIBUTES ? SUCCESS : INVALID_VALUE);
}

API cudaError_t cudaMemPoolSetAttribute(Pool* pool, unsigned attribute, const void* value) {
  cudaError_t error = check_attribute(attribute);
  if (!error) {
    pool->attributes[attribute] = attribute == THRESHOLD ? *(const uint64_t*)value : *(const unsigned*)value;
  }
  return error;
}

API cudaError_t cudaMemPoolGetAttribute(Pool* pool, unsigned attribute, void* value) {
  cudaError_t error = check_attribute(attribute);
  if (!error && attribute == THRESHOLD) {
    *(uint64_t*)value = pool->attributes[attribute];
  } else if (!error) {
    *(unsigned*)value = (unsigned)pool->attributes[attribute];
  }
  return error;
}

typedef struct {
  Location who;
  int flags;
} Access;

API cudaError_t cudaMemPoolSetAccess(Pool* pool, const Access* accesses, size_t count) {
  return cudaSetDevice(count ? accesses->who.number : 0);
}

API cudaError_t cudaMemPoolGetAccess(int* flags, Pool* pool, const Location* location) {
  *flags = READ_AND_WRITE;
  return cudaSetDevice(location->number);
}

static cudaError_t add_memory(Node** node, Graph* graph, Node* const* before, size_t count, Work* work,
                              cudaError_t error) {
  *node = error ? NULL : add_node(graph, before, count, work);
  return done(error ? error : *node ? SUCCESS : INVALID_VALUE);
}

API cudaError_t cudaGraphAddMemAllocNode(Node** node, Graph* graph, Node* const* before, size_t count,
                                         AllocationParameters* parameters) {
  Work work;
  cudaError_t error = allocation(&work, parameters->nbytes);
  parameters->address = work.memory.address;
  return add_memory(node, graph, before, count, &work, error);
}

API cudaError_t cudaGraphMemAllocNodeGetParams(const Node* node, AllocationParameters* parameters) {
  if (node->work.kind != ALLOCATE) {
    return done(INVALID_VALUE);
  }
  int where[4] = {1, 0, 1, 0};  // pinned in place, not shared, on a device: device 0
  *parameters =
      (AllocationParameters){.nbytes = node->work.memory.nbytes, .address = node->work.memory.address};
  for (size_t n = 0; n < sizeof where; n++) {
    parameters->properties[n] = ((char*)where)[n];
  }
  return done(SUCCESS);
}

API cudaError_t cudaGraphAddMemFreeNode(Node** node, Graph* graph, Node* const* before, size_t count,
                                        void* address) {
  Work work = {RELEASE, .memory = {address}};
  return add_memory(node, graph, before, count, &work, SUCCESS);
}

API cudaError_t cudaGraphMemFreeNodeGetParams(const Node* node, void** address) {
  *address = node->work.memory.address;
  return done(node->work.kind == RELEASE ? SUCCESS : INVALID_VALUE);
}

cudaError_t memory_of(Work* work, int kind, void* parameters) {
  if (kind == RELEASE) {
    *work = (Work){RELEASE, .memory = {*(void**)parameters}};
    return SUCCESS;
  }
  AllocationParameters* wanted = parameters;
  cudaError_t error = allocation(work, wanted->nbytes);
  wanted->address = work->memory.address;
  return error;
}

API cudaError_t cudaDeviceGetGraphMemAttribute(int device, unsigned attribute, uint64_t* value) {
  cudaError_t error = attribute > 3 ? INVALID_VALUE : ASK("graph_memory", 0);
  *value = error ? 0 : answered[attribute];
  return done(error);
}

API cudaError_t cudaDeviceSetGraphMemAttribute(int device, unsigned attribute, const uint64_t* value) {
  return done(attribute % 2 == 0 || *value != 0 ? INVALID_VALUE : ASK("reset_graph_memory", U(attribute)));
}

API cudaError_t cudaDeviceGraphMemTrim(int device) { return done(ASK("trim_graph_memory", 0)); }
