// A file that is being written piece by piece, or compared with a known file that may be equal.
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

namespace inductor_rewriter {

struct SavedFile;

// A piece of a tensor's bytes, on its way into the file.
struct SavePiece {
  std::shared_ptr<SavedFile> file;
  std::size_t index = 0;
  uint64_t offset = 0, size = 0;
  const char* data = nullptr;  // null: copy it from the known file
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

  // Whether this thread writes the file from now on. If another thread does, it gets the piece.
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

  // Opens a temporary file in the same directory, which is made if its parent exists. 0, or errno.
  int create(uint64_t number) {
    const std::size_t folder = path.rfind('/') + 1;
    // Does not contain the file's own name, which may be as long as a name may be.
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

  // Makes the directory of a launch. If that of the call is missing, the user has removed it.
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

  // All bytes of the tensor are in the file: writes what is around them, and gives the file its name. 0, or
  // errno.
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

  // Writes a small file in one go. 0, or errno.
  int put_whole(const char* data) {
    const Container around(pickle, size, sums[0]);
    std::string all;
    all.reserve(around.before.size() + size + around.after.size());
    all.append(around.before).append(data, size).append(around.after);
    whole = true;
    return put(all.data(), all.size(), 0);
  }

  // 0, or errno.
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
  // Known with the first piece: where the tensor's bytes begin in the file, and a key that is the same for
  // files that may be equal.
  uint64_t offset = 0;
  std::string key;
  uint64_t ticket = 0;
  bool whole = false;    // whether it was written in one go
  std::atomic<bool> submitted{false};  // whether all pieces are queued
  std::vector<uint32_t> sums;          // the checksum of each piece

  std::mutex lock;  // guards the members below
  State state = State::undecided;
  std::vector<char> equal;        // for each piece, whether it is as in the known file
  std::vector<SavePiece> parked;  // pieces that wait for the first one
  std::deque<SavePiece> turn;     // pieces that came while the thread wrote another one
  bool is_written = false;
  std::size_t left;  // how many pieces are not finished
  std::string temporary, known_path;
  int file = -1, known = -1;
};

}  // namespace inductor_rewriter
