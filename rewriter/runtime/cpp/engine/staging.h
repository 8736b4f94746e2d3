// Host memory in which values wait to be written: bounded, so that the model waits where the disk
// is slower than it.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device_copies.h"

namespace {
namespace inductor_rewriter {

class Staging {
 public:
  static constexpr std::size_t piece_size = std::size_t{4} << 20;
  static constexpr std::size_t alignment = 64;

  // A run of memory, and the piece that it is a part of.
  struct Place {
    char* data = nullptr;
    int piece = -1;
  };

  // At most `bound` bytes, for values of the CPU and of GPUs together.
  Staging(DeviceCopies& device, std::size_t bound)
      : device_(device), most_(std::max<std::size_t>(bound / piece_size, 4)) {}

  // Memory for up to `piece_size` bytes; waits until there is some. No place where the system has
  // no memory that a device could copy to.
  Place take(std::size_t size, bool pinned) {
    size = std::max(size + alignment - 1, alignment) / alignment * alignment;
    std::unique_lock<std::mutex> guard(lock_);
    int& open = open_[pinned];
    while (true) {
      // Another thread may have opened it, and filled it since.
      if (open >= 0 && pieces_[open].used + size > piece_size) close(open);
      if (open >= 0) break;
      const int found = free_piece(pinned);
      if (found == none) return {};
      if (found >= 0) {
        pieces_[found].used = 0;
        pieces_[found].users = 1;  // as long as it is open
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

  // Give the system back what nothing waits in, but for a little; what devices copy to stays, for
  // it takes long to make.
  void shrink() {
    std::lock_guard<std::mutex> guard(lock_);
    if (open_[false] >= 0 && pieces_[open_[false]].users == 1) close(open_[false]);
    std::size_t kept = 0;
    for (Piece& piece : pieces_) {
      if (!piece.data || piece.pinned || piece.users || kept++ < few) continue;
      munmap(piece.data, piece_size);
      piece.data = nullptr;
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

  // A piece without users, made if need be; `wait`, or `none` where there never will be one.
  int free_piece(bool pinned) {
    int empty = -1, other = -1;
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      if (pieces_[i].users) continue;
      if (!pieces_[i].data) empty = static_cast<int>(i);
      else if (pieces_[i].pinned == pinned) return static_cast<int>(i);
      else other = static_cast<int>(i);
    }
    if (empty < 0 && pieces_.size() < most_) {
      empty = static_cast<int>(pieces_.size());
      pieces_.emplace_back();
    }
    if (empty < 0 && other >= 0) {  // of the other kind, all of the bound taken
      release(pieces_[other]);
      empty = other;
    }
    if (empty < 0) {
      // What is open for the other kind and holds nothing yet would never be returned.
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
    return is_any_used() ? wait : none;
  }

  bool is_any_used() const {
    for (const Piece& piece : pieces_) {
      if (piece.users) return true;
    }
    return false;
  }

  void release(Piece& piece) {
    if (piece.pinned) device_.release(piece.data);
    else munmap(piece.data, piece_size);
    piece.data = nullptr;
  }

  static char* map() {
    void* made = mmap(
        nullptr, piece_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return nullptr;
    madvise(made, piece_size, MADV_HUGEPAGE);
    return static_cast<char*>(made);
  }

  DeviceCopies& device_;
  const std::size_t most_;
  std::vector<Piece> pieces_;
  int open_[2] = {-1, -1};  // the one that is being filled, of the CPU and of GPUs
  std::mutex lock_;
  std::condition_variable returned_;
};

}  // namespace inductor_rewriter
}  // namespace
