// Fills the buffers of a wrapper with a pattern before anything is written to them.
#pragma once

#include "../memory/watch.h"

namespace {
namespace inductor_rewriter {

class Poison : public MemoryActor {};

}  // namespace inductor_rewriter
}  // namespace
