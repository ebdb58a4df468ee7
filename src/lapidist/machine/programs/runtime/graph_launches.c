// Launches of graphs. Nodes run one after the other; the machine hears what orders them: each chain of nodes is a
// stream of its own, a branch, which waits for others where it depends on them.
#include "graph.h"

#include <stdlib.h>

enum { BRANCH = 0x101 };  // to the machine: it does not wait for the default stream, and is of a graph
enum { FREE_FIRST = 1 };  // cudaGraphInstantiateFlagAutoFreeOnLaunch
enum { UPDATED, OTHER_TOPOLOGY = 2, OTHER_KIND };  // cudaGraphExecUpdateResult

typedef struct {
  int result;
  Node *node, *from;
} UpdateResult;

typedef struct {
  unsigned long long flags;
  cudaStream_t stream;
  Node* node;
  int result;
} InstantiateParameters;

// The nodes in an order in which each stands behind those that it depends on; false in a circle.
static int put_in_order(Graph* graph) {
  size_t placed = 0, before = 1;
  char* is_placed = calloc(graph->count + 1, 1);
  graph->order = calloc(graph->count + 1, sizeof(Node*));
  while (placed != before) {
    before = placed;
    for (size_t n = 0; n < graph->count; n++) {
      Node* node = graph->nodes[n];
      size_t met = 0;
      for (size_t m = 0; m < placed; m++) {
        for (size_t k = 0; k < node->before_count; k++) {
          met += graph->order[m] == node->before[k];
        }
      }
      if (!is_placed[n] && met == node->before_count) {
        graph->order[placed++] = node, is_placed[n] = 1;
      }
    }
  }
  free(is_placed);
  return placed == graph->count;
}

static cudaError_t choose_branches(Graph* graph) {
  cudaError_t error = SUCCESS;
  for (size_t n = 0; n < graph->count && !error; n++) {
    Node* node = graph->order[n];
    for (size_t m = 0; m < node->before_count; m++) {
      Node* last = node->before[m];
      if (node->branch == NULL && !last->is_awaited) {
        node->branch = last->branch;
      }
      last->is_awaited = 1;
    }
    if (node->branch == NULL) {
      node->branch = calloc(1, sizeof(Stream));
      node->begins_branch = 1;
      error = ASK("stream", U(node->branch), BRANCH);
    }
  }
  return error;
}

static cudaError_t prepare(Graph* graph) {
  cudaError_t error = put_in_order(graph) ? choose_branches(graph) : INVALID_VALUE;
  for (size_t n = 0; n < graph->count && !error; n++) {
    if (graph->nodes[n]->work.kind == CHILD) {
      error = prepare(graph->nodes[n]->work.child);
    }
  }
  return error;
}

API cudaError_t cudaGraphInstantiateWithFlags(Graph** launchable, const Graph* graph,
                                              unsigned long long flags) {
  Graph* clone = cloned_graph(graph);
  cudaError_t error = prepare(clone);
  clone->flags = flags;
  if (error) {
    drop_graph(clone);
  }
  *launchable = error ? NULL : clone;
  return done(error);
}

API cudaError_t cudaGraphInstantiate(Graph** launchable, const Graph* graph, unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(launchable, graph, flags);
}

API cudaError_t cudaGraphInstantiateWithParams(Graph** launchable, const Graph* graph,
                                               InstantiateParameters* parameters) {
  cudaError_t error = cudaGraphInstantiateWithFlags(launchable, graph, parameters->flags);
  parameters->node = NULL, parameters->result = error ? 1 : 0;
  return error;
}

API cudaError_t cudaGraphExecGetFlags(const Graph* graph, unsigned long long* flags) {
  *flags = graph->flags;
  return done(SUCCESS);
}

API cudaError_t cudaGraphExecDestroy(Graph* graph) {
  drop_graph(graph);
  return done(SUCCESS);
}

static cudaError_t run(Graph* graph, cudaStream_t stream) {
  cudaError_t error = ASK("record", U(graph), U(stream));
  for (size_t n = 0; n < graph->count && !error && !has_failed(); n++) {
    Node* node = graph->order[n];
    if (node->before_count == 0) {
      error = ASK("stream_waits", U(node->branch), U(graph));
    }
    for (size_t m = 0; m < node->before_count && !error; m++) {
      error = ASK("stream_waits", U(node->branch), U(node->before[m]));
    }
    if (!error && !node->is_disabled) {
      error =
          node->work.kind == CHILD ? run(node->work.child, node->branch) : perform(&node->work, node->branch);
    }
    if (!error && !has_failed()) {
      error = ASK("record", U(node), U(node->branch));
    }
  }
  for (size_t n = 0; n < graph->count && !error && !has_failed(); n++) {
    error = ASK("stream_waits", U(stream), U(graph->order[n]));
  }
  return error;
}

// What the last launch allocated and nobody freed: an error, unless the graph says that it is freed now.
static cudaError_t free_first(const Graph* graph, int may_free) {
  cudaError_t error = SUCCESS;
  for (size_t n = 0; n < graph->count && !error; n++) {
    const Work* work = &graph->nodes[n]->work;
    if (work->kind == CHILD) {
      error = free_first(work->child, may_free);
    } else if (work->kind == ALLOCATE && ASK("pointer", U(work->memory.address)) == SUCCESS) {
      error = may_free ? ASK("free", U(work->memory.address), 1) : INVALID_VALUE;
    }
  }
  return error;
}

API cudaError_t cudaGraphLaunch(Graph* graph, cudaStream_t handle) {
  Stream* stream = stream_of(handle);
  if (stream->capture != NULL) {
    Work work = {CHILD, .child = cloned_graph(graph)};
    return done(capture_work(stream, &work));
  }
  cudaError_t error = require_no_implicit_wait(handle);
  int had_failed = has_failed();
  if (!error) {
    error = free_first(graph, graph->flags & FREE_FIRST);
  }
  if (!error) {
    error = run(graph, handle);
  }
  return has_failed() && !had_failed ? SUCCESS : done(error);  // a fault shows in the calls behind it
}

API cudaError_t cudaGraphUpload(Graph* graph, cudaStream_t stream) { return done(SUCCESS); }

API cudaError_t cudaGraphNodeSetEnabled(Graph* graph, const Node* node, unsigned is_enabled) {
  Node* mine = cloned_node(graph, node);
  if (mine == NULL || mine->work.kind > FILL) {
    return done(INVALID_VALUE);
  }
  mine->is_disabled = !is_enabled;
  return done(SUCCESS);
}

API cudaError_t cudaGraphNodeGetEnabled(Graph* graph, const Node* node, unsigned* is_enabled) {
  const Node* mine = cloned_node(graph, node);
  *is_enabled = mine != NULL && !mine->is_disabled;
  return done(mine ? SUCCESS : INVALID_VALUE);
}

static int has_dependency(const Node* node, const Node* before) {
  for (size_t n = 0; n < node->before_count; n++) {
    if (node->before[n] == before) {
      return 1;
    }
  }
  return 0;
}

// Whether two graphs have the same nodes and dependencies, in the order in which the nodes were added.
static UpdateResult comparison(const Graph* graph, const Graph* other) {
  if (graph->count != other->count) {
    return (UpdateResult){OTHER_TOPOLOGY};
  }
  for (size_t n = 0; n < graph->count; n++) {
    Node *mine = graph->nodes[n], *theirs = other->nodes[n];
    if (mine->work.kind != theirs->work.kind) {
      return (UpdateResult){OTHER_KIND, theirs};
    }
    for (size_t m = 0; m < graph->count; m++) {
      if (has_dependency(mine, graph->nodes[m]) != has_dependency(theirs, other->nodes[m])) {
        return (UpdateResult){OTHER_TOPOLOGY, theirs, other->nodes[m]};
      }
    }
    UpdateResult inside = {UPDATED};
    if (mine->work.kind == CHILD) {
      inside = comparison(mine->work.child, theirs->work.child);
    }
    if (inside.result) {
      return inside;
    }
  }
  return (UpdateResult){UPDATED};
}

static void update(Graph* graph, const Graph* other) {
  for (size_t n = 0; n < graph->count; n++) {
    if (graph->nodes[n]->work.kind == CHILD) {
      update(graph->nodes[n]->work.child, other->nodes[n]->work.child);
    } else {
      Work work = copied_work(&other->nodes[n]->work);
      set_work(graph->nodes[n], &work);
    }
  }
}

API cudaError_t cudaGraphExecUpdate(Graph* graph, const Graph* other, UpdateResult* result) {
  UpdateResult found = comparison(graph, other);
  if (result != NULL) {
    *result = found;
  }
  if (found.result) {
    return done(UPDATE_FAILURE);
  }
  update(graph, other);
  return done(SUCCESS);
}

API cudaError_t cudaGraphExecChildGraphNodeSetParams(Graph* graph, const Node* node, const Graph* child) {
  Node* mine = cloned_node(graph, node);
  if (mine == NULL || mine->work.kind != CHILD || comparison(mine->work.child, child).result) {
    return done(INVALID_VALUE);
  }
  update(mine->work.child, child);
  return done(SUCCESS);
}
