// The process: its clocks, whether it was forked, and which libraries stay loaded in it.
#pragma once

#include <dlfcn.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>

namespace inductor_rewriter {

inline int64_t clock_ns(clockid_t clock = CLOCK_MONOTONIC) {
  timespec now;
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

// Detects a fork: a forked process sees a page zeroed.
class ForkMark {
 public:
  ForkMark() {
    constexpr int wipe_on_fork = 18;  // MADV_WIPEONFORK, since Linux 4.14
    void* page = mmap(nullptr, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    if (madvise(page, 1, wipe_on_fork)) munmap(page, 1);
    else *(page_ = static_cast<char*>(page)) = 1;
  }
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;
  ~ForkMark() {
    if (page_) munmap(const_cast<char*>(page_), 1);
  }
  bool is_fork() const { return page_ ? !*page_ : getpid() != pid_; }

 private:
  const int pid_ = getpid();
  volatile char* page_ = nullptr;
};

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
