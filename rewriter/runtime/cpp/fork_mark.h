// Detects a fork: a forked process sees a page zeroed.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

namespace inductor_rewriter {

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

}  // namespace inductor_rewriter
