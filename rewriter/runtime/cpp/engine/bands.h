// Guard bands: memory beside a buffer that nobody may write, with a pattern. They are compared after
// launches, on the host or by a kernel of the GPU (kernel.h); the first damage of each is kept.
#pragma once

#if !defined(__CUDACC_RTC__) && !defined(__HIPCC_RTC__)
#include <cstdint>
#include <cstring>
#endif

namespace {
namespace inductor_rewriter {

constexpr int most_bands = 120;     // of one launch of the kernel
constexpr int most_damaged = 4096;  // places for damage; the first one counts bands

struct Band {
  const unsigned char* data;
  uint64_t pattern;  // the byte at an address is that of the pattern at the address modulo 8
  uint32_t bytes;
  uint16_t slot;       // its place for damage
  uint8_t before;      // 1: in front of its buffer, 0: behind it
  uint8_t item_bytes;  // of an element of the buffer
};

// `launch` is 0 where a band is whole, otherwise the launch after which it was not, plus 1. Of the
// damage that is nearest to the buffer: `distance` in bytes from its edge, and the element there.
// `count` is that of all damaged bytes.
struct Damage {
  uint64_t launch, distance, count;
  unsigned char element[8];
};

struct BandJob {
  Damage* damage;
  uint64_t launch;
  uint32_t count, unused;
  Band bands[most_bands];
};
static_assert(sizeof(BandJob) <= 4096, "what a launch takes by value");

// Memory to be filled. A new buffer has three parts: its bands, and what is in it.
struct Filled {
  unsigned char* data;
  uint64_t bytes, pattern;
};
constexpr int most_filled = 3;

struct FillJob {
  Filled parts[most_filled];
  uint32_t count, blocks;
};

#if !defined(__CUDACC_RTC__) && !defined(__HIPCC_RTC__)

inline unsigned char expected_byte(const Band& band, const unsigned char* at) {
  return static_cast<unsigned char>(band.pattern >> (reinterpret_cast<uintptr_t>(at) % 8 * 8));
}

inline bool is_whole(const Band& band) {
  const unsigned char* at = band.data;
  const unsigned char* const end = at + band.bytes;
  for (; at < end && reinterpret_cast<uintptr_t>(at) % 8; ++at) {
    if (*at != expected_byte(band, at)) return false;
  }
  uint64_t differs = 0;
  for (; at + 8 <= end; at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    differs |= word ^ band.pattern;
  }
  for (; at < end; ++at) differs |= static_cast<uint64_t>(*at ^ expected_byte(band, at));
  return !differs;
}

// Compares bands in memory of the host: how many are newly damaged.
inline int compare_bands(const Band* bands, int count, uint64_t launch, Damage* damage) {
  int found = 0;
  for (int i = 0; i < count; ++i) {
    const Band& band = bands[i];
    Damage& mine = damage[band.slot];
    if (mine.launch || is_whole(band)) continue;
    uint64_t nearest = band.bytes;
    mine.count = 0;
    for (uint32_t place = 0; place < band.bytes; ++place) {
      if (band.data[place] == expected_byte(band, band.data + place)) continue;
      const uint64_t distance = band.before ? band.bytes - 1 - place : place;
      nearest = distance < nearest ? distance : nearest;
      ++mine.count;
    }
    mine.distance = nearest;
    const uint64_t item = band.item_bytes ? band.item_bytes : 1, element = nearest / item;
    const uint64_t start = band.before ? band.bytes - (element + 1) * item : element * item;
    for (uint64_t i_byte = 0; i_byte < 8; ++i_byte) {
      mine.element[i_byte] = i_byte < item && start + i_byte < band.bytes
          ? band.data[start + i_byte] : static_cast<unsigned char>(0);
    }
    mine.launch = launch;
    ++found;
  }
  return found;
}

// Fills memory of the host as the kernel does that of a GPU.
inline void fill_memory(void* data, uint64_t bytes, uint64_t pattern) {
  unsigned char* at = static_cast<unsigned char*>(data);
  unsigned char* const end = at + bytes;
  for (; at < end && reinterpret_cast<uintptr_t>(at) % 8; ++at) {
    *at = static_cast<unsigned char>(pattern >> (reinterpret_cast<uintptr_t>(at) % 8 * 8));
  }
  for (; at + 8 <= end; at += 8) std::memcpy(at, &pattern, 8);
  for (; at < end; ++at) {
    *at = static_cast<unsigned char>(pattern >> (reinterpret_cast<uintptr_t>(at) % 8 * 8));
  }
}

#endif

}  // namespace inductor_rewriter
}  // namespace
