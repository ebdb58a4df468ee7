// Graphs: nodes of work, each behind those that it depends on.
#pragma once
#include "work.h"

struct Node {
  Work work;
  Graph* graph;
  Node** before;  // what it depends on
  size_t before_count;
  const Node* origin;  // where it was cloned from
  int is_disabled;
  // of a graph that is launched:
  Stream* branch;
  int begins_branch, is_awaited;  // by another branch, or by who launches
};

struct Graph {
  Node** nodes;
  size_t count;
  Node** order;  // of a graph that is launched, a node behind those that it depends on
  const Graph* origin;
  unsigned long long flags;
};

Graph* new_graph(void);
void drop_graph(Graph* graph);
Graph* cloned_graph(const Graph* graph);
// The work is the node's from then on, or is dropped. NULL where a dependency is of another graph.
Node* add_node(Graph* graph, Node* const* before, size_t count, Work* work);
void add_dependency(Node* node, Node* before);
int depends_on(const Node* node, const Node* other);
int has_node(const Graph* graph, const Node* node);
Node* cloned_node(const Graph* clone, const Node* origin);
void set_work(Node* node, Work* work);
// Of cudaMemAllocNodeParams or cudaMemFreeNodeParams; the former is given its address.
cudaError_t memory_of(Work* work, int kind, void* parameters);
