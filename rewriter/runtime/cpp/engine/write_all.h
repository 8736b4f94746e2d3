// Writes all of some data, although each system call may accept only a part of it.
#pragma once

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>

namespace inductor_rewriter {

// Waits until files that are saved are whole or removed, where any are: one that the disk has no
// room for holds the last of it until then. Set by `Saver`.
inline std::atomic<void (*)()>& wait_for_saved_files() {
  static std::atomic<void (*)()> wait{nullptr};
  return wait;
}

// Writes all of it, waiting for the reader if necessary. Returns 0, or the error. `done` is the number of
// bytes written.
inline int write_all(int descriptor, const char* data, std::size_t size, std::size_t& done) {
  bool has_waited = false;
  for (done = 0; done < size;) {
    const ssize_t count = ::write(descriptor, data + done, size - done);
    if (count >= 0) {
      done += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN) {
      pollfd wait = {descriptor, POLLOUT, 0};
      ::poll(&wait, 1, -1);
    } else if ((errno == ENOSPC || errno == EDQUOT) && !has_waited && wait_for_saved_files()) {
      has_waited = true;
      wait_for_saved_files().load()();
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace inductor_rewriter
