// Nodes of graphs, by their parameters.
#include "graph.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  void* kernel;
  dim3 grid, block;
  unsigned shared;
  void **arguments, **extra;
} KernelParameters;

typedef struct {
  void* start;
  size_t pitch, width, height;
} Pitched;

typedef struct {
  void* source_array;
  size_t source_position[3];
  Pitched source;
  void* target_array;
  size_t target_position[3];
  Pitched target;
  size_t extent[3];
  int kind;
} CopyParameters;

typedef struct {
  void* target;
  size_t pitch;
  unsigned value, element;
  size_t width, height;
} FillParameters;

typedef struct {
  int type, reserved[3];
  union {
    KernelParameters kernel;
    struct {
      int flags, reserved[3];
      CopyParameters parameters;
    } copy;
    FillParameters fill;
    HostWork host;
    Graph* child;
    Event* event;
  };
} NodeParameters;

static Place place_of(const Pitched* pitched, const size_t* position) {
  size_t slice = pitched->pitch * pitched->height;
  char* start = (char*)pitched->start + position[0] + position[1] * pitched->pitch + position[2] * slice;
  return (Place){start, pitched->pitch, slice};
}

// Arrays are lacking: their layout is the card's own.
static cudaError_t copy_of(Work* work, const CopyParameters* from, int is_asynchronous) {
  if (from->source_array != NULL || from->target_array != NULL) {
    return lacking("cudaMemcpy3D of a cudaArray");
  }
  Place target = place_of(&from->target, from->target_position);
  Place source = place_of(&from->source, from->source_position);
  const size_t* extent = from->extent;
  *work =
      (Work){COPY, .copy = {target, source, extent[0], extent[1], extent[2], from->kind, is_asynchronous}};
  return SUCCESS;
}

static cudaError_t kernel_of(Work* work, const KernelParameters* from) {
  if (from->arguments == NULL && from->extra != NULL) {
    return lacking("a graph's kernel by `extra`");
  }
  work->kind = KERNEL;
  return prepare_kernel(&work->kernel, from->kernel, from->grid, from->block, from->arguments, from->shared);
}

static cudaError_t fill_of(Work* work, const FillParameters* from) {
  Place target = {from->target, from->pitch, 0};
  *work = (Work){FILL, .fill = {target, from->value, from->element, from->width, from->height, 1}};
  return from->element == 1 || from->element == 2 || from->element == 4 ? SUCCESS : INVALID_VALUE;
}

static cudaError_t add(Node** node, Graph* graph, Node* const* before, size_t count, Work* work,
                       cudaError_t error) {
  *node = error ? NULL : add_node(graph, before, count, work);
  return done(error ? error : *node ? SUCCESS : INVALID_VALUE);
}

static cudaError_t set(Node* node, Work* work, cudaError_t error) {
  if (!error && (node == NULL || node->work.kind != work->kind)) {
    drop_work(work);
    error = INVALID_VALUE;
  }
  if (!error) {
    set_work(node, work);
  }
  return done(error);
}

static cudaError_t work_of(Work* work, const NodeParameters* from) {
  *work = (Work){from->type};
  switch (from->type) {
    case KERNEL:
      return kernel_of(work, &from->kernel);
    case COPY:
      return copy_of(work, &from->copy.parameters, 1);
    case FILL:
      return fill_of(work, &from->fill);
    case HOST:
      work->host = from->host;
      return SUCCESS;
    case CHILD:
      work->child = cloned_graph(from->child);
      return SUCCESS;
    case WAIT:
    case RECORD:
      work->event = from->event;
      return SUCCESS;
    case EMPTY:
      return SUCCESS;
    default:
      return lacking("a graph's node of semaphores or conditions");
  }
}

API cudaError_t cudaMemcpy3DAsync(const CopyParameters* parameters, cudaStream_t stream) {
  Work work;
  cudaError_t error = copy_of(&work, parameters, 1);
  return error ? error : submit(&work, stream);
}

API cudaError_t cudaMemcpy3D(const CopyParameters* parameters) {
  Work work;
  cudaError_t error = copy_of(&work, parameters, 0);
  return error ? error : submit(&work, NULL);
}

API cudaError_t cudaGraphAddKernelNode(Node** node, Graph* graph, Node* const* before, size_t count,
                                       const KernelParameters* parameters) {
  Work work;
  cudaError_t error = kernel_of(&work, parameters);
  return add(node, graph, before, count, &work, error);
}

API cudaError_t cudaGraphKernelNodeSetParams(Node* node, const KernelParameters* parameters) {
  Work work;
  cudaError_t error = kernel_of(&work, parameters);
  return set(node, &work, error);
}

API cudaError_t cudaGraphExecKernelNodeSetParams(Graph* graph, const Node* node,
                                                 const KernelParameters* parameters) {
  return cudaGraphKernelNodeSetParams(cloned_node(graph, node), parameters);
}

API cudaError_t cudaGraphAddMemcpyNode(Node** node, Graph* graph, Node* const* before, size_t count,
                                       const CopyParameters* parameters) {
  Work work;
  cudaError_t error = copy_of(&work, parameters, 1);
  return add(node, graph, before, count, &work, error);
}

API cudaError_t cudaGraphMemcpyNodeSetParams(Node* node, const CopyParameters* parameters) {
  Work work;
  cudaError_t error = copy_of(&work, parameters, 1);
  return set(node, &work, error);
}

API cudaError_t cudaGraphExecMemcpyNodeSetParams(Graph* graph, const Node* node,
                                                 const CopyParameters* parameters) {
  return cudaGraphMemcpyNodeSetParams(cloned_node(graph, node), parameters);
}

API cudaError_t cudaGraphAddMemsetNode(Node** node, Graph* graph, Node* const* before, size_t count,
                                       const FillParameters* parameters) {
  Work work;
  cudaError_t error = fill_of(&work, parameters);
  return add(node, graph, before, count, &work, error);
}

API cudaError_t cudaGraphMemsetNodeSetParams(Node* node, const FillParameters* parameters) {
  Work work;
  cudaError_t error = fill_of(&work, parameters);
  return set(node, &work, error);
}

API cudaError_t cudaGraphExecMemsetNodeSetParams(Graph* graph, const Node* node,
                                                 const FillParameters* parameters) {
  return cudaGraphMemsetNodeSetParams(cloned_node(graph, node), parameters);
}

API cudaError_t cudaGraphAddHostNode(Node** node, Graph* graph, Node* const* before, size_t count,
                                     const HostWork* parameters) {
  Work work = {HOST, .host = *parameters};
  return add(node, graph, before, count, &work, SUCCESS);
}

API cudaError_t cudaGraphHostNodeSetParams(Node* node, const HostWork* parameters) {
  Work work = {HOST, .host = *parameters};
  return set(node, &work, SUCCESS);
}

API cudaError_t cudaGraphExecHostNodeSetParams(Graph* graph, const Node* node, const HostWork* parameters) {
  return cudaGraphHostNodeSetParams(cloned_node(graph, node), parameters);
}

API cudaError_t cudaGraphAddEmptyNode(Node** node, Graph* graph, Node* const* before, size_t count) {
  Work work = {EMPTY};
  return add(node, graph, before, count, &work, SUCCESS);
}

API cudaError_t cudaGraphAddChildGraphNode(Node** node, Graph* graph, Node* const* before, size_t count,
                                           const Graph* child) {
  Work work = {CHILD, .child = cloned_graph(child)};
  return add(node, graph, before, count, &work, SUCCESS);
}

API cudaError_t cudaGraphAddEventRecordNode(Node** node, Graph* graph, Node* const* before, size_t count,
                                            Event* event) {
  Work work = {RECORD, .event = event};
  return add(node, graph, before, count, &work, SUCCESS);
}

API cudaError_t cudaGraphEventRecordNodeSetEvent(Node* node, Event* event) {
  Work work = {RECORD, .event = event};
  return set(node, &work, SUCCESS);
}

API cudaError_t cudaGraphEventRecordNodeGetEvent(const Node* node, Event** event) {
  *event = node->work.event;
  return done(node->work.kind == RECORD ? SUCCESS : INVALID_VALUE);
}

API cudaError_t cudaGraphExecEventRecordNodeSetEvent(Graph* graph, const Node* node, Event* event) {
  return cudaGraphEventRecordNodeSetEvent(cloned_node(graph, node), event);
}

API cudaError_t cudaGraphAddEventWaitNode(Node** node, Graph* graph, Node* const* before, size_t count,
                                          Event* event) {
  Work work = {WAIT, .event = event};
  return add(node, graph, before, count, &work, SUCCESS);
}

API cudaError_t cudaGraphEventWaitNodeSetEvent(Node* node, Event* event) {
  Work work = {WAIT, .event = event};
  return set(node, &work, SUCCESS);
}

API cudaError_t cudaGraphEventWaitNodeGetEvent(const Node* node, Event** event) {
  *event = node->work.event;
  return done(node->work.kind == WAIT ? SUCCESS : INVALID_VALUE);
}

API cudaError_t cudaGraphExecEventWaitNodeSetEvent(Graph* graph, const Node* node, Event* event) {
  return cudaGraphEventWaitNodeSetEvent(cloned_node(graph, node), event);
}

API cudaError_t cudaGraphAddMemcpyNode1D(Node** node, Graph* graph, Node* const* before, size_t count,
                                         void* target, const void* source, size_t nbytes, int kind) {
  Work work = plain_copy(target, source, nbytes, kind, 1);
  return add(node, graph, before, count, &work, SUCCESS);
}

API cudaError_t cudaGraphMemcpyNodeSetParams1D(Node* node, void* target, const void* source, size_t nbytes,
                                               int kind) {
  Work work = plain_copy(target, source, nbytes, kind, 1);
  return set(node, &work, SUCCESS);
}

API cudaError_t cudaGraphExecMemcpyNodeSetParams1D(Graph* graph, const Node* node, void* target,
                                                   const void* source, size_t nbytes, int kind) {
  return cudaGraphMemcpyNodeSetParams1D(cloned_node(graph, node), target, source, nbytes, kind);
}

API cudaError_t cudaGraphAddMemcpyNodeToSymbol(Node** node, Graph* graph, Node* const* before, size_t count,
                                               const void* symbol, const void* source, size_t nbytes,
                                               size_t offset, int kind) {
  cudaError_t error;
  Work work = symbol_copy((void*)source, symbol, nbytes, offset, kind, 1, &error);
  return add(node, graph, before, count, &work, error);
}

API cudaError_t cudaGraphMemcpyNodeSetParamsToSymbol(Node* node, const void* symbol, const void* source,
                                                     size_t nbytes, size_t offset, int kind) {
  cudaError_t error;
  Work work = symbol_copy((void*)source, symbol, nbytes, offset, kind, 1, &error);
  return set(node, &work, error);
}

API cudaError_t cudaGraphExecMemcpyNodeSetParamsToSymbol(Graph* graph, const Node* node, const void* symbol,
                                                         const void* source, size_t nbytes, size_t offset,
                                                         int kind) {
  return cudaGraphMemcpyNodeSetParamsToSymbol(cloned_node(graph, node), symbol, source, nbytes, offset, kind);
}

API cudaError_t cudaGraphAddMemcpyNodeFromSymbol(Node** node, Graph* graph, Node* const* before, size_t count,
                                                 void* target, const void* symbol, size_t nbytes,
                                                 size_t offset, int kind) {
  cudaError_t error;
  Work work = symbol_copy(target, symbol, nbytes, offset, kind, 0, &error);
  return add(node, graph, before, count, &work, error);
}

API cudaError_t cudaGraphMemcpyNodeSetParamsFromSymbol(Node* node, void* target, const void* symbol,
                                                       size_t nbytes, size_t offset, int kind) {
  cudaError_t error;
  Work work = symbol_copy(target, symbol, nbytes, offset, kind, 0, &error);
  return set(node, &work, error);
}

API cudaError_t cudaGraphExecMemcpyNodeSetParamsFromSymbol(Graph* graph, const Node* node, void* target,
                                                           const void* symbol, size_t nbytes, size_t offset,
                                                           int kind) {
  return cudaGraphMemcpyNodeSetParamsFromSymbol(cloned_node(graph, node), target, symbol, nbytes, offset,
                                                kind);
}

API cudaError_t cudaGraphKernelNodeGetParams(const Node* node, KernelParameters* parameters) {
  const KernelWork* work = &node->work.kernel;
  *parameters = (KernelParameters){(void*)work->kernel,    work->grid,      work->block,
                                   (unsigned)work->shared, work->arguments, NULL};
  return done(node->work.kind == KERNEL ? SUCCESS : INVALID_VALUE);
}

API cudaError_t cudaGraphMemcpyNodeGetParams(const Node* node, CopyParameters* parameters) {
  const CopyWork* work = &node->work.copy;
  if (node->work.kind != COPY) {
    return done(INVALID_VALUE);
  }
  const Place *from = &work->source, *to = &work->target;
  size_t rows_from = from->pitch ? from->slice / from->pitch : 1,
         rows_to = to->pitch ? to->slice / to->pitch : 1;
  *parameters = (CopyParameters){.source = {from->start, from->pitch, work->width, rows_from},
                                 .target = {to->start, to->pitch, work->width, rows_to},
                                 .extent = {work->width, work->height, work->depth},
                                 .kind = work->kind};
  return done(SUCCESS);
}

API cudaError_t cudaGraphMemsetNodeGetParams(const Node* node, FillParameters* parameters) {
  const FillWork* work = &node->work.fill;
  if (node->work.kind != FILL) {
    return done(INVALID_VALUE);
  }
  *parameters = (FillParameters){work->target.start, work->target.pitch, work->value,
                                 work->element,      work->width,        work->height};
  return done(SUCCESS);
}

API cudaError_t cudaGraphHostNodeGetParams(const Node* node, HostWork* parameters) {
  *parameters = node->work.host;
  return done(node->work.kind == HOST ? SUCCESS : INVALID_VALUE);
}

API cudaError_t cudaGraphChildGraphNodeGetGraph(const Node* node, Graph** graph) {
  *graph = node->work.kind == CHILD ? node->work.child : NULL;
  return done(*graph ? SUCCESS : INVALID_VALUE);
}

API cudaError_t cudaGraphAddNode_v2(Node** node, Graph* graph, Node* const* before, const void* edges,
                                    size_t count, NodeParameters* parameters) {
  Work work;
  int kind = parameters->type;
  cudaError_t error = kind == ALLOCATE || kind == RELEASE ? memory_of(&work, kind, &parameters->kernel)
                                                          : work_of(&work, parameters);
  return add(node, graph, before, count, &work, error);
}

API cudaError_t cudaGraphNodeSetParams(Node* node, const NodeParameters* parameters) {
  Work work;
  cudaError_t error =
      parameters->type == CHILD ? lacking("cudaGraphNodeSetParams of a graph") : work_of(&work, parameters);
  return set(node, &work, error);
}

API cudaError_t cudaGraphExecNodeSetParams(Graph* graph, const Node* node, const NodeParameters* parameters) {
  return cudaGraphNodeSetParams(cloned_node(graph, node), parameters);
}
