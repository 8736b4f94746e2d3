// The files of a dump by what is in them: the same bytes are stored once, under several names.
// See rewriter/runtime/saved.py.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace {
namespace inductor_rewriter {

class Saved {
 public:
  // Make `path` another name of a file that was added under this key and holds these bytes; false
  // where there is none.
  bool link(
      const std::string& key, const char* data, uint64_t size, const std::string& path) {
    std::lock_guard<std::mutex> guard(lock_);
    auto known = files_.find(key);
    if (!can_link_ || known == files_.end() || !holds(known->second, data, size)) return false;
    if (::link(known->second.path.c_str(), path.c_str())) {
      if (errno != EMLINK && errno != ENOENT && errno != EEXIST) can_link_ = false;
      return false;
    }
    known->second.path = path;  // the last one: the directories of earlier calls may be removed
    return true;
  }

  // The bytes stand at this offset of the file.
  void add(const std::string& key, const std::string& path, uint64_t offset) {
    std::lock_guard<std::mutex> guard(lock_);
    if (files_.size() >= most) files_.clear();
    files_[key] = {path, offset};
  }

 private:
  static constexpr std::size_t most = 1 << 16;  // files that are remembered

  struct File {
    std::string path;
    uint64_t offset;
  };

  static bool holds(const File& file, const char* data, uint64_t size) {
    int descriptor = open(file.path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return false;
    struct stat about;
    bool same = false;
    if (!fstat(descriptor, &about) && uint64_t(about.st_size) >= file.offset + size) {
      std::size_t length = static_cast<std::size_t>(file.offset + size);
      void* all = mmap(nullptr, length, PROT_READ, MAP_PRIVATE, descriptor, 0);
      if (all != MAP_FAILED) {
        same = !size || !std::memcmp(static_cast<char*>(all) + file.offset, data, size);
        munmap(all, length);
      }
    }
    ::close(descriptor);
    return same;
  }

  std::map<std::string, File> files_;
  bool can_link_ = true;
  std::mutex lock_;
};

}  // namespace inductor_rewriter
}  // namespace
