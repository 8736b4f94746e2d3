// Host memory in which tensors wait to be written. It is bounded: a model that is faster than the disk
// waits.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "driver.h"

namespace inductor_rewriter {

// An event to wait for before a copy may be read.
struct CopyEvent {
  void* context = nullptr;
  void* event = nullptr;
};

class DeviceCopies {
 public:
  // Whether the process has a driver by now.
  bool available() {
    std::lock_guard<std::mutex> guard(lock_);
    if (!driver_ || !driver_->lacks.empty()) driver_ = std::make_unique<const gpu::Driver>();
    return driver_->lacks.empty();
  }

  // Pinned host memory, which copies can go to asynchronously. Null if there is none.
  char* allocate(std::size_t size) const {
    void* made = nullptr;
    constexpr unsigned portable = 1;
    const Relaxed relaxed;
    return driver_->allocate_host(&made, size, portable) ? nullptr : static_cast<char*>(made);
  }
  void release(char* memory) const {
    const Relaxed relaxed;
    driver_->free_host(memory);
  }

  // Queues a copy on a stream of the current device. 0, or the driver's error.
  int copy(char* to, uint64_t from, std::size_t size, void* stream) const {
    return driver_->copy_to_host(to, from, size, stream);
  }

  // Records an event after all that is queued on a stream. 0, or the driver's error.
  int record(void* stream, CopyEvent& mark) {
    if (int error = driver_->get_context(&mark.context)) return error;
    {
      std::lock_guard<std::mutex> guard(lock_);
      auto& free = free_events_[mark.context];
      if (!free.empty()) {
        mark.event = free.back();
        free.pop_back();
      }
    }
    constexpr unsigned sleeps_untimed = 3;  // flags: waiting threads sleep; no timing
    if (!mark.event) {
      if (int error = driver_->create_event(&mark.event, sleeps_untimed)) return error;
    }
    return driver_->record_event(mark.event, stream);
  }

  // Waits for an event; only in a thread of the saver, whose context it changes. 0, or the driver's error.
  int wait(const CopyEvent& mark) {
    static thread_local void* current = nullptr;
    if (current != mark.context) {
      if (int error = driver_->set_context(mark.context)) return error;
      current = mark.context;
    }
    const Relaxed relaxed;
    int error = driver_->wait_for_event(mark.event);
    std::lock_guard<std::mutex> guard(lock_);
    free_events_[mark.context].push_back(mark.event);
    return error;
  }

 private:
  std::unique_ptr<const gpu::Driver> driver_;  // stays once all of it is there
  std::mutex lock_;
  std::map<void*, std::vector<void*>> free_events_;  // by context
};

class Staging {
 public:
  static constexpr std::size_t piece_size = std::size_t{4} << 20;
  static constexpr std::size_t most = 64;  // pieces, for tensors on the CPU and on GPUs together
  static constexpr std::size_t alignment = 64;

  // Memory for a tensor's bytes, and the piece of staging that it is in.
  struct Place {
    char* data = nullptr;
    int piece = -1;
  };

  explicit Staging(DeviceCopies& device) : device_(device) {}

  // Takes memory for up to `piece_size` bytes; waits until there is some. An empty place if there is no
  // memory that a device can copy to.
  Place take(std::size_t size, bool pinned) {
    size = std::max(size + alignment - 1, alignment) / alignment * alignment;
    std::unique_lock<std::mutex> guard(lock_);
    int& open = open_[pinned];
    while (true) {
      // Another thread may have opened it, and filled it, meanwhile.
      if (open >= 0 && pieces_[open].used + size > piece_size) close(open);
      if (open >= 0) break;
      const int found = free_piece(pinned);
      if (found == none) return {};
      if (found >= 0) {
        pieces_[found].used = 0;
        pieces_[found].users = 1;  // for being open
        open = found;
      } else {
        returned_.wait(guard);
      }
    }
    Piece& piece = pieces_[open];
    Place place{piece.data + piece.used, open};
    piece.used += size;
    ++piece.users;
    if (piece.used == piece_size) close(open);
    return place;
  }

  void give(const Place& place) {
    if (place.piece < 0) return;
    std::lock_guard<std::mutex> guard(lock_);
    let_go(place.piece);
  }

  // Returns unused memory to the system, but for a little. Pinned memory stays: it takes long to make.
  void shrink() {
    std::lock_guard<std::mutex> guard(lock_);
    if (open_[false] >= 0 && pieces_[open_[false]].users == 1) close(open_[false]);
    std::size_t kept = 0;
    for (Piece& piece : pieces_) {
      if (piece.data && !piece.pinned && !piece.users && kept++ >= few) release(piece);
    }
  }

 private:
  static constexpr std::size_t few = 4;
  static constexpr int wait = -1, none = -2;

  struct Piece {
    char* data = nullptr;
    bool pinned = false;
    std::size_t used = 0;
    int users = 0;
  };

  void close(int& open) {
    const int piece = open;
    open = -1;
    let_go(piece);
  }

  void let_go(int piece) {
    if (!--pieces_[piece].users) returned_.notify_all();
  }

  // Finds or makes a piece without users. `wait`: later; `none`: there never will be one.
  int free_piece(bool pinned) {
    int empty = -1, other = -1;
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      if (pieces_[i].users) continue;
      if (!pieces_[i].data) empty = static_cast<int>(i);
      else if (pieces_[i].pinned == pinned) return static_cast<int>(i);
      else other = static_cast<int>(i);
    }
    if (empty < 0 && pieces_.size() < most) {
      empty = static_cast<int>(pieces_.size());
      pieces_.emplace_back();
    }
    if (empty < 0 && other >= 0) {  // the limit is reached, but a piece of the other kind is free
      release(pieces_[other]);
      empty = other;
    }
    if (empty < 0) {
      // An open piece of the other kind that holds nothing would never be returned.
      int& open = open_[!pinned];
      if (open >= 0 && pieces_[open].users == 1) {
        close(open);
        return free_piece(pinned);
      }
      return wait;
    }
    Piece& piece = pieces_[empty];
    piece.pinned = pinned;
    piece.data = pinned ? device_.allocate(piece_size) : map();
    if (piece.data) return empty;
    const bool is_any_used = std::any_of(pieces_.begin(), pieces_.end(), [](const Piece& one) { return one.users; });
    return is_any_used ? wait : none;
  }

  void release(Piece& piece) {
    if (piece.pinned) device_.release(piece.data);
    else munmap(piece.data, piece_size);
    piece.data = nullptr;
  }

  static char* map() {
    void* made = mmap(nullptr, piece_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return nullptr;
    madvise(made, piece_size, MADV_HUGEPAGE);
    return static_cast<char*>(made);
  }

  DeviceCopies& device_;
  std::vector<Piece> pieces_;
  int open_[2] = {-1, -1};  // the piece that is being filled: for the CPU, for GPUs
  std::mutex lock_;
  std::condition_variable returned_;
};

}  // namespace inductor_rewriter
