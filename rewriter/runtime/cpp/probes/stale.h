// Fills memory with a pattern once the wrapper no longer needs its content.
#pragma once

#include "../memory/watch.h"

namespace {
namespace inductor_rewriter {

class Stale : public MemoryActor {};

}  // namespace inductor_rewriter
}  // namespace
