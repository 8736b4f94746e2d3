// A file that is being written, piece by piece, or compared with one that may be the same.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "container.h"
#include "device_copies.h"
#include "staging.h"

namespace {
namespace inductor_rewriter {

struct SavedFile;

// A part of a tensor's bytes that is on its way.
struct SavePiece {
  std::shared_ptr<SavedFile> file;
  std::size_t index = 0;
  uint64_t offset = 0, size = 0;
  const char* data = nullptr;  // null: as in the file that it was compared with
  Staging::Place place;
  CopyEvent copied;
};

struct SavedFile {
  enum class State { undecided, comparing, writing, failed };

  SavedFile(const std::string& where, const std::string& what, uint64_t bytes)
      : path(where), pickle(what), size(bytes),
        count(bytes ? (bytes + Staging::piece_size - 1) / Staging::piece_size : 1), sums(count),
        equal(count), left(count) {}
  SavedFile(const SavedFile&) = delete;
  SavedFile& operator=(const SavedFile&) = delete;
  ~SavedFile() {
    if (known >= 0) ::close(known);
    if (file >= 0) ::close(file);
    if (!temporary.empty()) unlink(temporary.c_str());
  }

  SavePiece piece_at(const std::shared_ptr<SavedFile>& self, std::size_t index) const {
    SavePiece piece;
    piece.file = self;
    piece.index = index;
    piece.offset = index * Staging::piece_size;
    piece.size = std::min<uint64_t>(Staging::piece_size, size - piece.offset);
    return piece;
  }

  // Whether this thread writes the file from now on; one that does so already takes the piece.
  bool begin_turn(SavePiece& piece) {
    std::lock_guard<std::mutex> guard(lock);
    if (!is_written) return is_written = true;
    turn.push_back(std::move(piece));
    return false;
  }

  // The next piece for the thread that writes the file.
  bool next_turn(SavePiece& piece) {
    std::lock_guard<std::mutex> guard(lock);
    is_written = !turn.empty();
    if (!is_written) return false;
    piece = std::move(turn.front());
    turn.pop_front();
    return true;
  }

  State state_now() {
    std::lock_guard<std::mutex> guard(lock);
    return state;
  }

  // Open a file under a name of its own in the same directory, which is made where only it lacks:
  // zero, or what went wrong.
  int create(uint64_t number) {
    const std::size_t folder = path.rfind('/') + 1;
    // Not longer than a name may be: the file's own may be as long as that.
    temporary = path.substr(0, folder) + ".writing." + std::to_string(getpid()) + "." +
        std::to_string(number) + "." + std::to_string(reinterpret_cast<uintptr_t>(this));
    for (bool again = false;; again = true) {
      file = open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (file >= 0) return 0;
      const int error = errno;
      if (again || error != ENOENT || !make_folder()) {
        temporary.clear();
        return error;
      }
    }
  }

  // The directory of a launch. That of the call is there, unless it was removed for good.
  bool make_folder() const {
    const std::string folder = path.substr(0, path.find_last_of('/'));
    return !mkdir(folder.c_str(), 0777) || errno == EEXIST;
  }

  // The checksum of all pieces.
  uint32_t sum() const {
    uint32_t all = sums[0];
    for (std::size_t i = 1; i < count; ++i) {
      const uint64_t start = i * Staging::piece_size;
      all = Crc32::join(all, sums[i], std::min<uint64_t>(Staging::piece_size, size - start));
    }
    return all;
  }

  // Everything is in the file but what is around the tensor's bytes: let it appear under its name.
  // Zero, or what went wrong.
  int appear(struct stat& about) {
    if (!whole) {
      const Container around(pickle, size, sum());
      if (int error = put(around.before.data(), around.before.size(), 0)) return error;
      if (int error = put(around.after.data(), around.after.size(), offset + size)) return error;
    }
    if (fstat(file, &about)) return errno;
    const int closed = ::close(file);
    file = -1;
    if (closed || std::rename(temporary.c_str(), path.c_str())) return errno;
    temporary.clear();
    return 0;
  }

  // All of the file at once, where it is small.
  int put_whole(const char* data) {
    const Container around(pickle, size, sums[0]);
    std::string all;
    all.reserve(around.before.size() + size + around.after.size());
    all.append(around.before).append(data, size).append(around.after);
    whole = true;
    return put(all.data(), all.size(), 0);
  }

  // Zero, or what went wrong.
  int put(const char* data, std::size_t bytes, uint64_t at) const {
    while (bytes) {
      const ssize_t done = pwrite(file, data, bytes, static_cast<off_t>(at));
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) return done ? errno : ENOSPC;
      data += done;
      bytes -= static_cast<std::size_t>(done);
      at += static_cast<uint64_t>(done);
    }
    return 0;
  }

  const std::string path, pickle;
  const uint64_t size;
  const std::size_t count;  // of pieces
  // The first piece tells: where the tensor's bytes are in the file, and what is the same of files
  // that may be equal.
  uint64_t offset = 0;
  std::string key;
  uint64_t ticket = 0;
  bool whole = false;    // it was written in one go
  std::atomic<bool> submitted{false};  // all of its pieces are queued
  std::vector<uint32_t> sums;  // of its pieces

  std::mutex lock;  // of what follows
  State state = State::undecided;
  std::vector<char> equal;        // pieces that are as in the known file
  std::vector<SavePiece> parked;  // until the first one has decided
  std::deque<SavePiece> turn;     // that were handed over while another one was written
  bool is_written = false;
  std::size_t left;  // pieces that are not done with
  std::string temporary, known_path;
  int file = -1, known = -1;
};

}  // namespace inductor_rewriter
}  // namespace
