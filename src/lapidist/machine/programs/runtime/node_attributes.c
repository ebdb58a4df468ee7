// Attributes of kernels' nodes: how they are launched. Hints for a card's speed are taken, and change nothing here.
#include "graph.h"

API cudaError_t cudaGraphKernelNodeSetAttribute(Node* node, unsigned attribute, const AttributeValue* value) {
  KernelWork* work = &node->work.kernel;
  if (node->work.kind != KERNEL || attribute >= ATTRIBUTES) {
    return done(INVALID_VALUE);
  }
  if (lacking_attribute(attribute) != NULL) {
    return lacking(lacking_attribute(attribute));
  }
  if (attribute == COOPERATIVE) {
    work->cooperative = value->number;
  } else if (attribute == CLUSTER) {
    work->cluster = value->cluster;
  }
  return done(SUCCESS);
}

API cudaError_t cudaGraphKernelNodeGetAttribute(const Node* node, unsigned attribute, AttributeValue* value) {
  const KernelWork* work = &node->work.kernel;
  if (node->work.kind != KERNEL || attribute >= ATTRIBUTES) {
    return done(INVALID_VALUE);
  }
  *value = (AttributeValue){.room = {0}};
  if (attribute == COOPERATIVE) {
    value->number = work->cooperative;
  } else if (attribute == CLUSTER) {
    value->cluster = work->cluster;
  }
  return done(SUCCESS);
}

API cudaError_t cudaGraphKernelNodeCopyAttributes(Node* target, const Node* source) {
  if (target->work.kind != KERNEL || source->work.kind != KERNEL) {
    return done(INVALID_VALUE);
  }
  target->work.kernel.cooperative = source->work.kernel.cooperative;
  target->work.kernel.cluster = source->work.kernel.cluster;
  return done(SUCCESS);
}
