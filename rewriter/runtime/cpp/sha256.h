// SHA-256 (FIPS 180-4): of a tensor's elements, and of names too long for a file system.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

namespace inductor_rewriter {

class Sha256 {
 public:
  void add(const char* data, std::size_t size) {
    length_ += size;
    while (size) {
      if (!held_ && size >= 64) {
        digest(data);
        data += 64;
        size -= 64;
        continue;
      }
      std::size_t some = size < 64 - held_ ? size : 64 - held_;
      std::memcpy(block_ + held_, data, some);
      held_ += some;
      data += some;
      size -= some;
      if (held_ == 64) {
        digest(block_);
        held_ = 0;
      }
    }
  }

  // In hexadecimal; nothing can be added after it.
  std::string hex() {
    char length[8], text[65];
    for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(length_ * 8 >> (56 - 8 * i));
    static const char padding[64] = {'\x80'};
    add(padding, held_ < 56 ? 56 - held_ : 120 - held_);
    add(length, 8);
    for (int i = 0; i < 8; ++i) std::snprintf(text + i * 8, 9, "%08x", unsigned(state_[i]));
    return text;
  }

 private:
  static uint32_t turn(uint32_t x, int by) { return x >> by | x << (32 - by); }

  void digest(const char* from) {
    static const uint32_t keys[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2};
    const unsigned char* at = reinterpret_cast<const unsigned char*>(from);
    uint32_t words[64], v[8];
    for (int i = 0; i < 16; ++i, at += 4) {
      words[i] = uint32_t{at[0]} << 24 | uint32_t{at[1]} << 16 | uint32_t{at[2]} << 8 | at[3];
    }
    for (int i = 16; i < 64; ++i) {
      uint32_t a = words[i - 15], b = words[i - 2];
      words[i] = words[i - 16] + words[i - 7] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) +
          (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
    std::memcpy(v, state_, sizeof v);
    // The eight variables change places each time; in eight steps they are back at their own.
    auto step = [&](int i, uint32_t a, uint32_t b, uint32_t c, uint32_t& d, uint32_t e, uint32_t f,
                    uint32_t g, uint32_t& h) {
      h += (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + (g ^ (e & (f ^ g))) + keys[i] + words[i];
      d += h;
      h += (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) | (c & (a | b)));
    };
    for (int i = 0; i < 64; i += 8) {
      step(i, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]);
      step(i + 1, v[7], v[0], v[1], v[2], v[3], v[4], v[5], v[6]);
      step(i + 2, v[6], v[7], v[0], v[1], v[2], v[3], v[4], v[5]);
      step(i + 3, v[5], v[6], v[7], v[0], v[1], v[2], v[3], v[4]);
      step(i + 4, v[4], v[5], v[6], v[7], v[0], v[1], v[2], v[3]);
      step(i + 5, v[3], v[4], v[5], v[6], v[7], v[0], v[1], v[2]);
      step(i + 6, v[2], v[3], v[4], v[5], v[6], v[7], v[0], v[1]);
      step(i + 7, v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[0]);
    }
    for (int i = 0; i < 8; ++i) state_[i] += v[i];
  }

  uint32_t state_[8] = {
      0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
      0x5be0cd19};
  uint64_t length_ = 0;  // in bytes
  char block_[64];
  std::size_t held_ = 0;
};

}  // namespace inductor_rewriter
