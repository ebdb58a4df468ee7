// Functions that CUDA 13 changed: since then the plain names take the data of edges, as _v2 did before.
#include "graph.h"

cudaError_t cudaGraphGetEdges_v2(const Graph* graph, Node** from, Node** to, void* edges, size_t* count);
cudaError_t cudaGraphNodeGetDependencies_v2(const Node* node, Node** nodes, void* edges, size_t* count);
cudaError_t cudaGraphNodeGetDependentNodes_v2(const Node* node, Node** nodes, void* edges, size_t* count);
cudaError_t cudaGraphAddDependencies_v2(Graph* graph, Node* const* from, Node* const* to, const void* edges,
                                        size_t count);
cudaError_t cudaGraphRemoveDependencies_v2(Graph* graph, Node* const* from, Node* const* to,
                                           const void* edges, size_t count);
cudaError_t cudaStreamUpdateCaptureDependencies_v2(cudaStream_t stream, Node* const* nodes, const void* edges,
                                                   size_t count, unsigned replaces);
cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t stream, int* status, unsigned long long* id,
                                        Graph** graph, Node* const** last, const void** edges, size_t* count);

cudaError_t cudaGraphAddNode_v2(Node** node, Graph* graph, Node* const* before, const void* edges,
                                size_t count, void* parameters);

#if RUNTIME_VERSION >= 13000

API cudaError_t cudaGraphAddNode(Node** node, Graph* graph, Node* const* before, const void* edges,
                                 size_t count, void* parameters) {
  return cudaGraphAddNode_v2(node, graph, before, edges, count, parameters);
}

API cudaError_t cudaGraphGetEdges(const Graph* graph, Node** from, Node** to, void* edges, size_t* count) {
  return cudaGraphGetEdges_v2(graph, from, to, edges, count);
}

API cudaError_t cudaGraphNodeGetDependencies(const Node* node, Node** nodes, void* edges, size_t* count) {
  return cudaGraphNodeGetDependencies_v2(node, nodes, edges, count);
}

API cudaError_t cudaGraphNodeGetDependentNodes(const Node* node, Node** nodes, void* edges, size_t* count) {
  return cudaGraphNodeGetDependentNodes_v2(node, nodes, edges, count);
}

API cudaError_t cudaGraphAddDependencies(Graph* graph, Node* const* from, Node* const* to, const void* edges,
                                         size_t count) {
  return cudaGraphAddDependencies_v2(graph, from, to, edges, count);
}

API cudaError_t cudaGraphRemoveDependencies(Graph* graph, Node* const* from, Node* const* to,
                                            const void* edges, size_t count) {
  return cudaGraphRemoveDependencies_v2(graph, from, to, edges, count);
}

API cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, Node* const* nodes,
                                                    const void* edges, size_t count, unsigned replaces) {
  return cudaStreamUpdateCaptureDependencies_v2(stream, nodes, edges, count, replaces);
}

API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, int* status, unsigned long long* id,
                                         Graph** graph, Node* const** last, const void** edges,
                                         size_t* count) {
  return cudaStreamGetCaptureInfo_v3(stream, status, id, graph, last, edges, count);
}

#else

API cudaError_t cudaGraphAddNode(Node** node, Graph* graph, Node* const* before, size_t count,
                                 void* parameters) {
  return cudaGraphAddNode_v2(node, graph, before, NULL, count, parameters);
}

API cudaError_t cudaGraphGetEdges(const Graph* graph, Node** from, Node** to, size_t* count) {
  return cudaGraphGetEdges_v2(graph, from, to, NULL, count);
}

API cudaError_t cudaGraphNodeGetDependencies(const Node* node, Node** nodes, size_t* count) {
  return cudaGraphNodeGetDependencies_v2(node, nodes, NULL, count);
}

API cudaError_t cudaGraphNodeGetDependentNodes(const Node* node, Node** nodes, size_t* count) {
  return cudaGraphNodeGetDependentNodes_v2(node, nodes, NULL, count);
}

API cudaError_t cudaGraphAddDependencies(Graph* graph, Node* const* from, Node* const* to, size_t count) {
  return cudaGraphAddDependencies_v2(graph, from, to, NULL, count);
}

API cudaError_t cudaGraphRemoveDependencies(Graph* graph, Node* const* from, Node* const* to, size_t count) {
  return cudaGraphRemoveDependencies_v2(graph, from, to, NULL, count);
}

API cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, Node* const* nodes, size_t count,
                                                    unsigned replaces) {
  return cudaStreamUpdateCaptureDependencies_v2(stream, nodes, NULL, count, replaces);
}

API cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, int* status, unsigned long long* id,
                                            Graph** graph, Node* const** last, size_t* count) {
  return cudaStreamGetCaptureInfo_v3(stream, status, id, graph, last, NULL, count);
}

#endif
