// Which calls stay in a dump.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/process.h"
#include "engine/files.h"

namespace inductor_rewriter {

// The calls of one wrapper that are over. The last `keep` calls stay, 0 for all, up to `most` bytes, 0 for no
// limit. Saved tensors count if calls are removed; otherwise they have their own limit.
class KeptCalls {
 public:
  KeptCalls(std::string root, std::size_t keep, uint64_t most)
      : keep(keep), most(most), root_(std::move(root)) {}

  const std::size_t keep;
  const uint64_t most;

  uint64_t used() {
    std::lock_guard<std::mutex> guard(lock_);
    return used_;
  }

  // Makes the file that readers lock, before there is a call to read.
  void admit_readers() {
    if (!keep) return;
    const int file = open((root_ + "/.readers").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file >= 0) close(file);
  }

  // Adds the directory of a call that is over.
  void add(const std::string& path) {
    if (!keep && !most) return;
    std::lock_guard<std::mutex> guard(lock_);
    Call call;
    call.path = path;
    const uint64_t before = used_;
    if (most) {
      measure(path, call);
      used_ += call.rows;
    }
    expected_ = used_ - before;
    if (!keep) return;
    calls_.push_back(std::move(call));
    if (calls_.size() <= keep) return;
    const Unread unread(*this);
    while (unread.may_remove && calls_.size() > keep) drop();
  }

  // Whether there is room for another call. If the dump rotates, old calls are removed for it.
  bool has_room() {
    if (!most) return true;
    std::lock_guard<std::mutex> guard(lock_);
    if (!keep) return used_ < most;
    while (!calls_.empty() && used_ + expected_ > most) drop();
    return true;
  }

 private:
  // The bytes of a call's rows, and its files, which it may share with other calls.
  struct Call {
    std::string path;
    uint64_t rows = 0;
    std::vector<std::pair<uint64_t, uint64_t>> files;
  };
  static constexpr int64_t patience = 30;  // seconds that a reader may hold up removing calls

  void measure(const std::string& path, Call& call) {
    each_file(path, [&](const std::string& name) {
      struct stat about;
      if (lstat((path + "/" + name).c_str(), &about)) return;
      const uint64_t size = uint64_t(about.st_size);
      if (S_ISDIR(about.st_mode)) {
        if (keep) measure(path + "/" + name, call);
      } else if (name != "launches.json" && (name.size() < 3 || name.compare(name.size() - 3, 3, ".pt"))) {
        call.rows += size;
      } else {
        call.files.emplace_back(about.st_ino, size);
        if (++names_[about.st_ino] == 1) used_ += size;
      }
    });
  }

  // Removes the oldest call.
  void drop() {
    const Call call = std::move(calls_.front());
    calls_.pop_front();
    used_ -= call.rows;
    for (const auto& [number, size] : call.files) {
      if (--names_[number]) continue;
      names_.erase(number);
      used_ -= size;
    }
    const std::size_t end = call.path.rfind('/');
    const std::string ranked = call.path.substr(0, end);
    clear(ranked);
    const std::string gone = ranked + "/.gone." + std::to_string(getpid()) + "." + call.path.substr(end + 1);
    // The user may have moved it away, to keep it.
    if (!std::rename(call.path.c_str(), gone.c_str())) remove_tree(gone);
    else if (errno != ENOENT) fail("remove", call.path);
  }

  // Removes what a process left behind that was killed while it removed a call.
  void clear(const std::string& ranked) {
    if (is_clear_) return;
    is_clear_ = true;
    each_file(ranked, [&](const std::string& name) {
      if (!name.compare(0, 6, ".gone.")) remove_tree(ranked + "/" + name);
    });
  }

  static void remove_tree(const std::string& path) {
    if (!unlink(path.c_str())) return;
    // unlink() fails on a directory but removes a link to one, so this never leaves the dump.
    each_file(path, [&](const std::string& name) { remove_tree(path + "/" + name); });
    if (rmdir(path.c_str()) && errno != ENOENT) fail("remove", path);
  }

  // Keeps others from starting to read the dump. Calls must not be removed while a reader has the dump open,
  // unless it has had it for long. Readers lock the whole file; each process that removes calls locks one
  // byte.
  struct Unread {
    explicit Unread(KeptCalls& kept) {
      const std::string path = kept.root_ + "/.readers";
      file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
      if (file < 0) return;
      struct flock lock {};
      lock.l_type = F_WRLCK;
      lock.l_whence = SEEK_SET;
      const uint64_t own = reinterpret_cast<uintptr_t>(&kept) * 0x9e3779b97f4a7c15u + uint64_t(getpid());
      lock.l_start = static_cast<off_t>(1 + (own >> 24));
      lock.l_len = 1;
      constexpr int set_lock = 37;  // F_OFD_SETLK, since Linux 3.15
      const bool is_read = fcntl(file, set_lock, &lock) && (errno == EAGAIN || errno == EACCES);
      const int64_t now = clock_ns() / 1000000000 + 1;
      if (!is_read || !kept.since_) kept.since_ = is_read ? now : 0;
      may_remove = !is_read || now - kept.since_ >= patience;
    }
    Unread(const Unread&) = delete;
    Unread& operator=(const Unread&) = delete;
    ~Unread() {
      if (file >= 0) close(file);
    }
    int file = -1;
    bool may_remove = true;
  };

  const std::string root_;
  std::mutex lock_;
  std::deque<Call> calls_;
  std::map<uint64_t, uint64_t> names_;  // of files that calls may share
  uint64_t used_ = 0, expected_ = 0;
  int64_t since_ = 0;  // when a reader was first seen, plus 1
  bool is_clear_ = false;
};

}  // namespace inductor_rewriter
