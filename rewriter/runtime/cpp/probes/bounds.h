// Puts guard bands around the buffers of a wrapper, and compares them after each launch.
#pragma once

#include "../memory/watch.h"

namespace {
namespace inductor_rewriter {

class Bounds : public MemoryActor {};

}  // namespace inductor_rewriter
}  // namespace
