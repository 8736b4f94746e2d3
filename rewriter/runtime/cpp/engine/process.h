// The process: its clocks, whether it was forked, and which libraries stay loaded in it.
#pragma once

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include <cstdint>

namespace inductor_rewriter {

inline int64_t clock_ns(clockid_t clock = CLOCK_MONOTONIC) {
  timespec now;
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

// How often this process was forked from another one that called `count_forks`.
inline int forks = 0;
inline int count_forks() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++forks; });
  static_cast<void>(registered);
  return forks;
}

// Whether this process is a fork of the one that made the mark.
class ForkMark {
 public:
  bool is_fork() const { return forks_ != forks; }

 private:
  const int forks_ = count_forks();
};

// A function of a library, which any pointer to a function can be set to; null if there is none.
struct LibraryFunction {
  void* at;
  template <class Function>
  operator Function*() const {
    return reinterpret_cast<Function*>(at);
  }
};

// One that the program has loaded.
inline LibraryFunction loaded(const char* name) { return {dlsym(RTLD_DEFAULT, name)}; }

// Keeps our library loaded although its owner unloads it, as a package's loader does when it is destroyed:
// threads that do not end, and deleters of tensors that the program keeps, still call into it. Or another one, which
// has `other` in it: what is compiled into our own goes when that goes.
inline void stay_loaded(const void* other = nullptr) {
  static const char here = 0;
  Dl_info own, about;
  if (!dladdr(&here, &own) || !dladdr(other ? other : &here, &about)) return;
  if (other && own.dli_fbase == about.dli_fbase) return;
  if (about.dli_fname) dlopen(about.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

}  // namespace inductor_rewriter
