// The file of one tensor as torch.save lays it out: a zip, not compressed, of a pickle and of the bytes, which
// torch.load reads with weights_only=True and with mmap=True. One thread hands over the bytes of the tensor piece by
// piece, another one writes them.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

#include "crc32.h"
#include "files.h"
#include "staging.h"

namespace inductor_rewriter {

// The parts of the file before and after the bytes of the tensor.
struct Container {
  std::string before, after;

  // `sum` is the checksum of the tensor's bytes; the lengths of the parts do not depend on it.
  Container(const std::string& pickle, uint64_t size, uint32_t sum) {
    const uint16_t one = 1;
    const std::string order = *reinterpret_cast<const char*>(&one) ? "little" : "big";
    add("archive/data.pkl", pickle);
    add("archive/byteorder", order);
    header("archive/data/0", size, sum);
    before.swap(after);
    offset_ = before.size() + size;
    add("archive/version", "3\n");
    close();
  }

 private:
  static constexpr uint64_t limit = 0xffffffff;

  static std::string number(uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i);
    return text;
  }

  void add(const std::string& name, const std::string& data) {
    header(name, data.size(), Crc32::add(0, data.data(), data.size()));
    after += data;
    offset_ += data.size();
  }

  // The contents start at multiples of 64 bytes, as in files of torch.save.
  void header(const std::string& name, uint64_t size, uint32_t sum) {
    const bool large = size >= limit, far = offset_ >= limit;
    const std::string sizes = large ? number(size, 8) + number(size, 8) : "";
    std::string facts = number(0, 2) + number(0, 2) + number(0, 2) + number(0x21, 2);  // 1980
    facts += number(sum, 4);
    facts += large ? number(limit, 4) + number(limit, 4) : number(size, 4) + number(size, 4);
    facts += number(name.size(), 2);
    // Local header, padded by an extra field that readers skip.
    std::string extra = large ? number(1, 2) + number(16, 2) + sizes : "";
    const uint64_t start = offset_ + 30 + name.size() + extra.size() + 4;
    const uint64_t padding = (64 - start % 64) % 64;
    extra += "FB" + number(padding, 2) + std::string(padding, 'Z');
    const std::string version = number(large || far ? 45 : 20, 2);
    // Its entry in the directory at the end.
    std::string wide = sizes + (far ? number(offset_, 8) : "");
    if (!wide.empty()) wide = number(1, 2) + number(wide.size(), 2) + wide;
    directory_ += "PK\x01\x02" + version + version + facts + number(wide.size(), 2);
    directory_ += number(0, 2) + number(0, 2) + number(0, 2) + number(0, 4);
    directory_ += number(far ? limit : offset_, 4) + name + wide;
    const std::string local = "PK\x03\x04" + version + facts + number(extra.size(), 2) + name + extra;
    after += local;
    offset_ += local.size();
    ++count_;
  }

  void close() {
    std::string end;
    if (offset_ >= limit) {
      end = "PK\x06\x06" + number(44, 8) + number(45, 2) + number(45, 2) + number(0, 4);
      end += number(0, 4) + number(count_, 8) + number(count_, 8);
      end += number(directory_.size(), 8) + number(offset_, 8);
      end += "PK\x06\x07" + number(0, 4) + number(offset_ + directory_.size(), 8) + number(1, 4);
    }
    end += "PK\x05\x06" + number(0, 2) + number(0, 2) + number(count_, 2) + number(count_, 2);
    end += number(directory_.size(), 4) + number(offset_ < limit ? offset_ : limit, 4);
    after += directory_ + end + number(0, 2);
  }

  std::string directory_;
  uint64_t offset_ = 0, count_ = 0;
};

[[noreturn]] inline void fail_with(int error) { throw std::system_error(error, std::generic_category()); }

// Reads bytes of a file into a `room` of one block, and calls `act` with the place of each block among them, and its
// size. False where the file is shorter, or `act` says so.
constexpr std::size_t save_block = std::size_t{256} << 10;  // fits into a core's cache
template <class Act>
bool each_block(int file, uint64_t from, uint64_t bytes, char* room, Act&& act) {
  for (uint64_t at = 0; at < bytes;) {
    const std::size_t most = std::min<uint64_t>(save_block, bytes - at);
    const ssize_t count = pread(file, room, most, static_cast<off_t>(from + at));
    if (count <= 0 || !act(at, static_cast<std::size_t>(count))) return false;
    at += static_cast<uint64_t>(count);
  }
  return true;
}

struct SavePiece {
  uint64_t offset = 0, size = 0;
  const char* data = nullptr;
  Staging::Place place;
  CopyEvent copied;
};

class Saved;

class SavedFile {
 public:
  SavedFile(std::shared_ptr<Saved> in, const std::string& where, const std::string& what, uint64_t bytes)
      : to(std::move(in)), path(where), pickle(what), size(bytes),
        count(bytes ? (bytes + Staging::piece_size - 1) / Staging::piece_size : 1) {}
  ~SavedFile() {
    if (known >= 0) ::close(known);
    if (file >= 0) ::close(file);
    forget_temporary();
  }

  // Hands over the next piece; `put_back` the first one again.
  void add(SavePiece&& piece) {
    std::lock_guard<std::mutex> guard(lock_);
    pieces_.push_back(std::move(piece));
    came_.notify_one();
  }
  void put_back(SavePiece&& piece) {
    std::lock_guard<std::mutex> guard(lock_);
    pieces_.push_front(std::move(piece));
    --taken_;
  }
  // No further piece will come.
  void give_up() {
    std::lock_guard<std::mutex> guard(lock_);
    is_given_up_ = true;
    came_.notify_one();
  }

  // Takes the next piece, waiting for it. False after the last one.
  bool next(SavePiece& piece) {
    std::unique_lock<std::mutex> guard(lock_);
    came_.wait(guard, [&] { return !pieces_.empty() || taken_ == count || is_given_up_; });
    if (pieces_.empty()) return false;
    piece = std::move(pieces_.front());
    pieces_.pop_front();
    ++taken_;
    return true;
  }
  bool is_complete() const { return taken_ == count; }

  // Opens a temporary file in the same directory, which is made if its parent exists.
  void create() {
    const std::size_t folder = path.rfind('/') + 1;
    // Does not contain the file's own name, which may be as long as a name may be.
    temporary_ = path.substr(0, folder) + ".writing." + std::to_string(getpid()) + "." +
        std::to_string(ticket) + "." + std::to_string(reinterpret_cast<uintptr_t>(this));
    for (bool again = false; file < 0; again = true) {
      file = open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (file >= 0) return;
      const int error = errno;
      if (!again && error == ENOENT && make_own_folder()) continue;
      temporary_.clear();
      fail_with(error);
    }
  }

  // Makes the directory of a launch. If that of the call is missing, the user has removed it.
  bool make_own_folder() const { return make_folder(path.substr(0, path.find_last_of('/'))); }

  // Writes the tensor's next bytes; those of the first piece are in `sum` already.
  void append(const char* data, std::size_t bytes, bool is_first = false) {
    if (!is_first) sum = Crc32::add(sum, data, bytes);
    put(data, bytes, offset + written_);
    written_ += bytes;
  }

  void put_whole(const char* data) {
    const Container around(pickle, size, sum);
    std::string all;
    all.reserve(around.before.size() + size + around.after.size());
    all.append(around.before).append(data, size).append(around.after);
    put(all.data(), all.size(), 0);
    is_whole_ = true;
  }

  // All bytes of the tensor are in the file: writes what is around them, and gives the file its name.
  struct stat appear() {
    if (!is_whole_) {
      const Container around(pickle, size, sum);
      put(around.before.data(), around.before.size(), 0);
      put(around.after.data(), around.after.size(), offset + size);
    }
    struct stat about;
    if (fstat(file, &about)) fail_with(errno);
    const int closed = ::close(std::exchange(file, -1));
    if (closed || std::rename(temporary_.c_str(), path.c_str())) fail_with(errno);
    temporary_.clear();
    return about;
  }

  void forget_temporary() {
    if (!temporary_.empty()) unlink(temporary_.c_str());
    temporary_.clear();
  }

  const std::shared_ptr<Saved> to;
  const std::string path, pickle;
  const uint64_t size;
  const std::size_t count;  // of pieces
  uint64_t ticket = 0;
  std::atomic<bool> submitted{false};  // whether all pieces were handed over
  // Known with the first piece: where the tensor's bytes begin in the file, and a key that is the same for
  // files that may be equal.
  uint64_t offset = 0;
  std::string key;
  uint32_t sum = 0;             // of the bytes so far
  int file = -1, known = -1;    // the file, and one that may be equal
  std::string known_path;

 private:
  void put(const char* data, std::size_t bytes, uint64_t at) const {
    while (bytes) {
      const ssize_t done = pwrite(file, data, bytes, static_cast<off_t>(at));
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) fail_with(done ? errno : ENOSPC);
      data += done;
      bytes -= static_cast<std::size_t>(done);
      at += static_cast<uint64_t>(done);
    }
  }

  std::string temporary_;
  uint64_t written_ = 0;
  bool is_whole_ = false;  // whether it was written in one go
  std::mutex lock_;        // guards the members below
  std::condition_variable came_;
  std::deque<SavePiece> pieces_;
  std::size_t taken_ = 0;
  bool is_given_up_ = false;
};

}  // namespace inductor_rewriter
