// Writes files and directories of a dump.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

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

// Opens a file with these flags, writes all of it and closes it. Returns 0, or the error.
inline int write_file(const std::string& path, int flags, const char* data, std::size_t size) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);
  if (file < 0) return errno;
  std::size_t done;
  const int error = write_all(file, data, size, done);
  return ::close(file) && !error ? errno : error;
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Calls `act` with the name of each file in a folder.
template <class Act>
void each_file(const std::string& folder, Act&& act) {
  DIR* const open = opendir(folder.c_str());
  if (!open) return;
  while (const dirent* entry = readdir(open)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") act(name);
  }
  closedir(open);
}

[[noreturn]] inline void fail(const char* what, const std::string& path) {
  throw std::runtime_error(std::string("cannot ") + what + " " + path + ": " + strerror(errno));
}

inline std::string host_name() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return host;
}

// Writes a file that gets its name when it is complete.
inline void write_whole(const std::string& path, const std::string& text) {
  static std::atomic<unsigned> number{0};
  // The file's own name may have the maximal length. Hosts that share a directory may have the same process IDs.
  const std::string temporary = path.substr(0, path.rfind('/') + 1) + ".writing." + host_name() + "." +
      std::to_string(getpid()) + "." + std::to_string(number++) + "." +
      std::to_string(reinterpret_cast<uintptr_t>(&number));
  int problem = write_file(temporary, O_TRUNC, text.data(), text.size());
  if (!problem && std::rename(temporary.c_str(), path.c_str())) problem = errno;
  if (!problem) return;
  unlink(temporary.c_str());
  errno = problem;
  fail("write", path);
}

// Makes a folder in one that exists. False if that fails.
inline bool make_folder(const std::string& path) { return !mkdir(path.c_str(), 0777) || errno == EEXIST; }

inline void make_directories(const std::string& path) {
  for (std::size_t end = 1; end <= path.size(); ++end) {
    if (end < path.size() && path[end] != '/') continue;
    std::string part = path.substr(0, end);
    if (!make_folder(part)) {
      const int problem = errno;
      struct stat status;  // a read-only file system refuses even a directory that exists
      if (!stat(part.c_str(), &status)) continue;
      errno = problem;
      fail("make", part);
    }
  }
}

}  // namespace inductor_rewriter
