// Fills memory with a pattern once the wrapper is through with what is in it.
#pragma once

#include "../memory/watch.h"

namespace {
namespace inductor_rewriter {

class Stale : public MemoryActor {};

}  // namespace inductor_rewriter
}  // namespace
