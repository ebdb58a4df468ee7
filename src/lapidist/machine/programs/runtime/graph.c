// Graphs as values: made, cloned, asked and taken apart.
#include "graph.h"

#include <stdlib.h>
#include <string.h>

Graph* new_graph(void) { return calloc(1, sizeof(Graph)); }

static void drop_node(Node* node) {
  if (node->work.kind == CHILD) {
    drop_graph(node->work.child);
  }
  drop_work(&node->work);
  if (node->begins_branch) {
    free(node->branch);
  }
  free(node->before);
  free(node);
}

void drop_graph(Graph* graph) {
  for (size_t n = 0; n < graph->count; n++) {
    drop_node(graph->nodes[n]);
  }
  free(graph->nodes);
  free(graph->order);
  free(graph);
}

int has_node(const Graph* graph, const Node* node) {
  for (size_t n = 0; n < graph->count; n++) {
    if (graph->nodes[n] == node) {
      return 1;
    }
  }
  return 0;
}

void add_dependency(Node* node, Node* before) {
  for (size_t n = 0; n < node->before_count; n++) {
    if (node->before[n] == before) {
      return;
    }
  }
  node->before = realloc(node->before, (node->before_count + 1) * sizeof(Node*));
  node->before[node->before_count++] = before;
}

void set_work(Node* node, Work* work) {
  drop_work(&node->work);
  node->work = *work;
  if (work->kind == COPY) {
    node->work.copy.is_asynchronous = IN_GRAPH;
  }
}

Node* add_node(Graph* graph, Node* const* before, size_t count, Work* work) {
  for (size_t n = 0; n < count; n++) {
    if (!has_node(graph, before[n])) {
      drop_work(work);
      return NULL;
    }
  }
  Node* node = calloc(1, sizeof(Node));
  node->graph = graph;
  set_work(node, work);
  for (size_t n = 0; n < count; n++) {
    add_dependency(node, before[n]);
  }
  graph->nodes = realloc(graph->nodes, (graph->count + 1) * sizeof(Node*));
  graph->nodes[graph->count++] = node;
  return node;
}

int depends_on(const Node* node, const Node* other) {
  for (size_t n = 0; n < node->before_count; n++) {
    if (depends_on(node->before[n], other)) {
      return 1;
    }
  }
  return node == other;
}

Node* cloned_node(const Graph* clone, const Node* origin) {
  for (size_t n = 0; n < clone->count; n++) {
    if (clone->nodes[n]->origin == origin) {
      return clone->nodes[n];
    }
  }
  return NULL;
}

static Work cloned_work(const Work* work) {
  Work copy = copied_work(work);
  if (copy.kind == CHILD) {
    copy.child = cloned_graph(work->child);
  }
  return copy;
}

Graph* cloned_graph(const Graph* graph) {
  Graph* clone = new_graph();
  clone->origin = graph;
  for (size_t n = 0; n < graph->count; n++) {
    Work work = cloned_work(&graph->nodes[n]->work);
    Node* node = add_node(clone, NULL, 0, &work);
    node->origin = graph->nodes[n], node->is_disabled = graph->nodes[n]->is_disabled;
  }
  for (size_t n = 0; n < graph->count; n++) {
    for (size_t m = 0; m < graph->nodes[n]->before_count; m++) {
      add_dependency(clone->nodes[n], cloned_node(clone, graph->nodes[n]->before[m]));
    }
  }
  return clone;
}

API cudaError_t cudaGraphCreate(Graph** graph, unsigned flags) {
  *graph = new_graph();
  return done(SUCCESS);
}

API cudaError_t cudaGraphDestroy(Graph* graph) {
  drop_graph(graph);
  return done(SUCCESS);
}

API cudaError_t cudaGraphClone(Graph** clone, const Graph* graph) {
  *clone = cloned_graph(graph);
  return done(SUCCESS);
}

API cudaError_t cudaGraphNodeFindInClone(Node** node, const Node* origin, const Graph* clone) {
  *node = cloned_node(clone, origin);
  return done(*node ? SUCCESS : INVALID_VALUE);
}

API cudaError_t cudaGraphDestroyNode(Node* node) {
  Graph* graph = node->graph;
  size_t kept = 0;
  for (size_t n = 0; n < graph->count; n++) {
    Node* other = graph->nodes[n];
    size_t left = 0;
    for (size_t m = 0; m < other->before_count; m++) {
      if (other->before[m] != node) {
        other->before[left++] = other->before[m];
      }
    }
    other->before_count = left;
    if (other != node) {
      graph->nodes[kept++] = other;
    }
  }
  graph->count = kept;
  drop_node(node);
  return done(SUCCESS);
}

API cudaError_t cudaGraphNodeGetType(const Node* node, int* type) {
  *type = node->work.kind;
  return done(SUCCESS);
}

// Lists are given up to the room that there is, and their full length where no room is named.
static cudaError_t listed(Node** into, size_t* room, Node* const* nodes, size_t count) {
  for (size_t n = 0; into != NULL && n < *room; n++) {
    into[n] = n < count ? nodes[n] : NULL;
  }
  *room = count;
  return done(SUCCESS);
}

API cudaError_t cudaGraphGetNodes(const Graph* graph, Node** nodes, size_t* count) {
  return listed(nodes, count, graph->nodes, graph->count);
}

API cudaError_t cudaGraphGetRootNodes(const Graph* graph, Node** nodes, size_t* room) {
  Node** roots = calloc(graph->count + 1, sizeof(Node*));
  size_t count = 0;
  for (size_t n = 0; n < graph->count; n++) {
    if (graph->nodes[n]->before_count == 0) {
      roots[count++] = graph->nodes[n];
    }
  }
  cudaError_t error = listed(nodes, room, roots, count);
  free(roots);
  return error;
}

static void clear_edges(void* edges, size_t count) {
  if (edges != NULL) {
    memset(edges, 0, 8 * count);  // cudaGraphEdgeData of full dependencies
  }
}

API cudaError_t cudaGraphGetEdges_v2(const Graph* graph, Node** from, Node** to, void* edges, size_t* room) {
  size_t count = 0;
  for (size_t n = 0; n < graph->count; n++) {
    for (size_t m = 0; m < graph->nodes[n]->before_count; m++, count++) {
      if (from != NULL && to != NULL && count < *room) {
        from[count] = graph->nodes[n]->before[m], to[count] = graph->nodes[n];
      }
    }
  }
  clear_edges(edges, from != NULL && count > *room ? *room : count);
  *room = count;
  return done(SUCCESS);
}

API cudaError_t cudaGraphNodeGetDependencies_v2(const Node* node, Node** nodes, void* edges, size_t* room) {
  clear_edges(edges, *room < node->before_count ? *room : node->before_count);
  return listed(nodes, room, node->before, node->before_count);
}

API cudaError_t cudaGraphNodeGetDependentNodes_v2(const Node* node, Node** nodes, void* edges, size_t* room) {
  Node** behind = calloc(node->graph->count + 1, sizeof(Node*));
  size_t count = 0;
  for (size_t n = 0; n < node->graph->count; n++) {
    Node* other = node->graph->nodes[n];
    for (size_t m = 0; m < other->before_count; m++) {
      if (other->before[m] == node) {
        behind[count++] = other;
      }
    }
  }
  clear_edges(edges, *room < count ? *room : count);
  cudaError_t error = listed(nodes, room, behind, count);
  free(behind);
  return error;
}

API cudaError_t cudaGraphAddDependencies_v2(Graph* graph, Node* const* from, Node* const* to,
                                            const void* edges, size_t count) {
  for (size_t n = 0; n < count; n++) {
    if (!has_node(graph, from[n]) || !has_node(graph, to[n])) {
      return done(INVALID_VALUE);
    }
  }
  for (size_t n = 0; n < count; n++) {
    add_dependency(to[n], from[n]);
  }
  return done(SUCCESS);
}

API cudaError_t cudaGraphRemoveDependencies_v2(Graph* graph, Node* const* from, Node* const* to,
                                               const void* edges, size_t count) {
  for (size_t n = 0; n < count; n++) {
    size_t left = 0;
    for (size_t m = 0; m < to[n]->before_count; m++) {
      if (to[n]->before[m] != from[n]) {
        to[n]->before[left++] = to[n]->before[m];
      }
    }
    to[n]->before_count = left;
  }
  return done(SUCCESS);
}
