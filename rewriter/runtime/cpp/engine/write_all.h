// Writes as a whole what a device or a reader takes in pieces.
#pragma once

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include <cstddef>

namespace {
namespace inductor_rewriter {

// Writes all of it, waiting for whoever reads it; 0, or what went wrong. `done` is what was written.
inline int write_all(int descriptor, const char* data, std::size_t size, std::size_t& done) {
  for (done = 0; done < size;) {
    const ssize_t count = ::write(descriptor, data + done, size - done);
    if (count >= 0) {
      done += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN) {
      pollfd wait = {descriptor, POLLOUT, 0};
      ::poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace inductor_rewriter
}  // namespace
