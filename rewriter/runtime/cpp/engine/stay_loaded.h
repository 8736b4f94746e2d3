// Keeps libraries from being unloaded.
#pragma once

#include <dlfcn.h>

namespace inductor_rewriter {

// Keeps our library loaded although its owner unloads it, as a package's loader does when it is destroyed:
// threads that do not end, and deleters of tensors that the program keeps, still call into it.
inline void stay_loaded() {
  static const char here = 0;
  Dl_info about;
  if (dladdr(&here, &about) && about.dli_fname) {
    dlopen(about.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
  }
}

// Keeps another library loaded, by something in it: what is compiled into our own goes when that goes.
inline void stay_loaded(const void* there) {
  static const char here = 0;
  Dl_info own, other;
  const bool found = dladdr(&here, &own) && dladdr(there, &other) && other.dli_fname;
  if (found && own.dli_fbase != other.dli_fbase) {
    dlopen(other.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
  }
}

}  // namespace inductor_rewriter
