// Finds files of a dump by their content, so that the same bytes are stored once, under several names.
//
// The names are hard links, so that every path of a dump is a file like any other, and a copy of the
// dump has them all.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "saved_file.h"

namespace inductor_rewriter {

class KnownFiles {
 public:
  // Looks for a file that may be equal to this one, of which the first piece is here. True: such a file is still being
  // written; this one gets the piece back, and `ended` returns it later. False: such a file was opened as `known`,
  // or there is none, and this file is remembered.
  bool wait_or_open(const std::shared_ptr<SavedFile>& file, SavePiece& first) {
    std::vector<Known> alike;
    {
      std::lock_guard<std::mutex> guard(lock_);
      auto& all = files_[file->key];
      for (Known& one : all) {
        // Equal tensors mostly come shortly one after the other, such as before and after a launch.
        if (!one.pending || !one.pending->submitted) continue;
        file->put_back(std::move(first));
        one.waiting.push_back(file);
        return true;
      }
      for (Known& one : all) {
        if (can_link_ && !one.pending) alike.push_back(one);
      }
      if (alike.empty()) remember(all, file);
    }
    for (std::size_t i = alike.size(); i-- > 0;) {
      if (open_known(*file, alike[i])) return false;
    }
    if (!alike.empty()) remember(file);
    return false;
  }

  // Whether a file that is written, but has no name yet, is equal to a known one. Then it becomes another
  // name of that file.
  bool link_same(SavedFile& file) {
    std::vector<Known> alike;
    {
      std::lock_guard<std::mutex> guard(lock_);
      for (Known& one : files_[file.key]) {
        if (can_link_ && !one.pending && one.sum == file.sum) alike.push_back(one);
      }
    }
    std::vector<char> room(2 * save_block);
    for (const Known& one : alike) {
      if (file.known >= 0) ::close(file.known);
      file.known = -1;
      if (open_known(file, one) && has_bytes_of(file, room.data()) && link(file)) return true;
    }
    return false;
  }

  // Remembers a file that is written as one of its own.
  void remember(const std::shared_ptr<SavedFile>& file) {
    std::lock_guard<std::mutex> guard(lock_);
    remember(files_[file->key], file);
  }

  // Links the known file to a name. The newest name is remembered, since directories of earlier calls may
  // be removed.
  bool link(const SavedFile& file) {
    for (bool again = false; ::link(file.known_path.c_str(), file.path.c_str()); again = true) {
      const int error = errno;
      if (error == ENOENT && !again && file.make_own_folder()) continue;
      if (error != EMLINK && error != ENOENT && error != EEXIST) can_link_ = false;
      return false;
    }
    std::lock_guard<std::mutex> guard(lock_);
    for (Known& one : files_[file.key]) {
      if (!one.pending && one.path == file.known_path) one.path = file.path;
    }
    return true;
  }

  // A file is complete, or was given up if `about` is null. Returns those that waited for it.
  std::vector<std::shared_ptr<SavedFile>> ended(const std::shared_ptr<SavedFile>& file, const struct stat* about) {
    std::vector<std::shared_ptr<SavedFile>> waiting;
    std::lock_guard<std::mutex> guard(lock_);
    auto found = files_.find(file->key);
    if (found == files_.end()) return waiting;
    auto& all = found->second;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].pending != file) continue;
      waiting.swap(all[i].waiting);
      all[i].pending = nullptr;
      if (about) {
        all[i].path = file->path;
        all[i].about = *about;
        all[i].sum = file->sum;
      } else {
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
        --count_;
      }
      break;
    }
    return waiting;
  }

 private:
  static constexpr std::size_t most = 1 << 16;  // files that are remembered
  static constexpr std::size_t most_alike = 4;  // of them, with one key

  // A complete file, with its size and time; or one that is being written, and those that wait for it.
  struct Known {
    std::string path;
    struct stat about;
    uint32_t sum;
    std::shared_ptr<SavedFile> pending;
    std::vector<std::shared_ptr<SavedFile>> waiting;
  };

  static bool has_bytes_of(const SavedFile& file, char* room) {
    char* const other = room + save_block;
    return each_block(file.file, file.offset, file.size, room, [&](uint64_t at, std::size_t size) {
      const ssize_t count = pread(file.known, other, size, static_cast<off_t>(file.offset + at));
      return count == static_cast<ssize_t>(size) && !std::memcmp(room, other, size);
    });
  }

  // False if the file was removed or changed since.
  static bool open_known(SavedFile& file, const Known& known) {
    const int opened = open(known.path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat now;
    if (opened < 0) return false;
    const struct stat& then = known.about;
    if (fstat(opened, &now) || now.st_dev != then.st_dev || now.st_ino != then.st_ino ||
        now.st_size != then.st_size || now.st_mtim.tv_sec != then.st_mtim.tv_sec ||
        now.st_mtim.tv_nsec != then.st_mtim.tv_nsec) {
      ::close(opened);
      return false;
    }
    file.known = opened;
    file.known_path = known.path;
    return true;
  }

  void remember(std::vector<Known>& all, const std::shared_ptr<SavedFile>& file) {
    for (std::size_t i = 0; all.size() >= most_alike && i < all.size(); ++i) {
      if (all[i].pending) continue;
      all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
      --count_;
      break;
    }
    all.push_back({"", {}, 0, file, {}});
    if (++count_ > most) forget();
  }

  // Forgets all files but those that are being written.
  void forget() {
    count_ = 0;
    for (auto one = files_.begin(); one != files_.end();) {
      std::vector<Known> kept;
      for (Known& known : one->second) {
        if (known.pending) kept.push_back(std::move(known));
      }
      count_ += kept.size();
      one->second = std::move(kept);
      one = one->second.empty() ? files_.erase(one) : std::next(one);
    }
  }

  std::mutex lock_;
  std::map<std::string, std::vector<Known>> files_;
  std::size_t count_ = 0;
  std::atomic<bool> can_link_{true};
};

}  // namespace inductor_rewriter
