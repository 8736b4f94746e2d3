// CRC-32, the checksum of zip files; at the speed of memory if the processor has carry-less multiplication.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

namespace inductor_rewriter {

class Crc32 {
 public:
  // The checksum of data with the checksum `before`, followed by these bytes.
  static uint32_t add(uint32_t before, const void* from, std::size_t size) {
    const unsigned char* data = static_cast<const unsigned char*>(from);
    uint32_t value = ~before;
#if defined(__x86_64__) && defined(__GNUC__)
    static const bool folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    if (folds && size >= 64) {
      const std::size_t whole = size / 64 * 64;
      value = fold(value, data, whole);
      data += whole;
      size -= whole;
    }
#endif
    return ~tables().add(value, data, size);
  }

 private:
  struct Tables {
    uint32_t of[8][256];

    Tables() {
      for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; ++bit) value = value & 1 ? value >> 1 ^ 0xedb88320 : value >> 1;
        of[0][byte] = value;
      }
      for (int i = 1; i < 8; ++i) {
        for (int byte = 0; byte < 256; ++byte) {
          of[i][byte] = of[i - 1][byte] >> 8 ^ of[0][of[i - 1][byte] & 255];
        }
      }
    }

    uint32_t add(uint32_t value, const unsigned char* data, std::size_t size) const {
      for (; size >= 8; data += 8, size -= 8) {
        uint32_t low, high;
        std::memcpy(&low, data, 4);
        std::memcpy(&high, data + 4, 4);
        low ^= value;
        value = of[7][low & 255] ^ of[6][low >> 8 & 255] ^ of[5][low >> 16 & 255] ^
            of[4][low >> 24] ^ of[3][high & 255] ^ of[2][high >> 8 & 255] ^
            of[1][high >> 16 & 255] ^ of[0][high >> 24];
      }
      for (; size; ++data, --size) value = value >> 8 ^ of[0][(value ^ *data) & 255];
      return value;
    }
  };

  static const Tables& tables() {
    static const Tables made;
    return made;
  }

#if defined(__x86_64__) && defined(__GNUC__)
  // `whole` is a multiple of 64, and more than 0: four vectors that are moved on by 512 bits each
  // time; then they are moved to the last one, which the tables take for 16 bytes of data. The factors are those of
  // Gopal and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009), for
  // CRC-32 with the bits reversed.
  __attribute__((target("pclmul,sse4.1"))) static uint32_t fold(
      uint32_t value, const unsigned char* data, std::size_t whole) {
    const __m128i* from = reinterpret_cast<const __m128i*>(data);
    __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
    __m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
    a = _mm_xor_si128(a, _mm_cvtsi32_si128(static_cast<int>(value)));
    const __m128i far = _mm_set_epi64x(0x1c6e41596, 0x154442bd4), near = _mm_set_epi64x(0xccaa009e, 0x1751997d0);
    for (std::size_t left = whole / 64 - 1; left; --left) {
      from += 4;
      a = moved(a, far, _mm_loadu_si128(from));
      b = moved(b, far, _mm_loadu_si128(from + 1));
      c = moved(c, far, _mm_loadu_si128(from + 2));
      d = moved(d, far, _mm_loadu_si128(from + 3));
    }
    a = moved(moved(moved(a, near, b), near, c), near, d);
    unsigned char rest[16];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(rest), a);
    return tables().add(0, rest, sizeof rest);
  }

  __attribute__((target("pclmul,sse4.1"))) static __m128i moved(__m128i value, __m128i by, __m128i onto) {
    const __m128i low = _mm_clmulepi64_si128(value, by, 0x00);
    const __m128i high = _mm_clmulepi64_si128(value, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), onto);
  }
#endif
};

}  // namespace inductor_rewriter
