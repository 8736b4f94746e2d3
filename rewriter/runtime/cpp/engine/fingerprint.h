// The fingerprint "nh128", version 1: 128 bits that tell whether two tensors have the same bytes. It depends
// on the position of each byte, and is not cryptographic.
//
// The bytes of the elements in row-major order are cut into vectors of 16 bytes, the last one filled up with
// zeros; a vector is two little-endian words (a, b). 4096 vectors are a tile. Vector p of a tile
// adds (a + K0[p]) * (b + K1[p]), as 128 bits, to the two sums of the tile, the lower half to one
// and the upper half to the other, each modulo 2^64: NH of UMAC (RFC 4418) with words of 64 bits.
// Each tile's sums go through a mixer with the number of the tile, and are added to the total, and
// this is mixed with the number of bytes. All is sums: parts may come in any order, from any number
// of threads, blocks or devices.
//
// K0[p] = A0[p % 64] ^ B0[p / 64], and K1 from A1 and B1: a thread that takes each 64th vector needs
// one word of A0 and A1.
#pragma once

#if !defined(__CUDACC_RTC__)
#include <cstdint>
#endif

#if defined(__CUDACC_RTC__)
#define INDUCTOR_REWRITER_SHARED __host__ __device__
#else
#define INDUCTOR_REWRITER_SHARED
#endif

namespace inductor_rewriter::fingerprint {

constexpr int64_t vector_bytes = 16;
constexpr int64_t tile_vectors = 4096;
constexpr int64_t tile_bytes = vector_bytes * tile_vectors;
constexpr uint64_t golden = 0x9e3779b97f4a7c15;  // 2^64 divided by the golden ratio

// The mixer of splitmix64: each bit of the result depends on all of `x`; one to one.
INDUCTOR_REWRITER_SHARED constexpr uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

// Word `place` of table 0 to 3 (A0, A1, B0, B1): splitmix64 with a seed for each table.
INDUCTOR_REWRITER_SHARED constexpr uint64_t key(int table, int place) {
  return mix(mix(static_cast<uint64_t>(table) + 1) + (static_cast<uint64_t>(place) + 1) * golden);
}

struct Pair {
  uint64_t low, high;
};

// The keys as they are read: A0 and A1 of a place beside one another, B0 and B1.
template <class Two>
struct Keys {
  Two a[64], b[64];
  INDUCTOR_REWRITER_SHARED constexpr Keys() : a(), b() {
    for (int i = 0; i < 64; ++i) {
      a[i] = {key(0, i), key(1, i)};
      b[i] = {key(2, i), key(3, i)};
    }
  }
};

// What a tile adds to the total, from the two sums of its products. One to one for each number of a tile.
INDUCTOR_REWRITER_SHARED constexpr Pair tile(Pair sums, uint64_t number) {
  uint64_t first = mix(sums.low + (number + 1) * golden);
  uint64_t second = mix(sums.high ^ first);
  return {second, mix(first + second)};
}

// The fingerprint, from the total of all tiles.
INDUCTOR_REWRITER_SHARED constexpr Pair finish(Pair total, uint64_t bytes) {
  uint64_t first = mix(total.low + bytes * golden);
  uint64_t second = mix(total.high ^ first);
  return {mix(first + second), second};
}

}  // namespace inductor_rewriter::fingerprint
