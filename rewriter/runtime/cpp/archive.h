// Writes one tensor as torch.save does: a zip of a pickle and a storage, which torch.load reads
// with weights_only=True and with mmap=True.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "dump.h"
#include "host.h"
#include "saved.h"

namespace {
namespace inductor_rewriter {

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O2")
#endif

// The checksum of zip files, eight bytes at a time.
class Crc32 {
 public:
  Crc32() {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      uint32_t value = byte;
      for (int bit = 0; bit < 8; ++bit) value = value & 1 ? value >> 1 ^ 0xedb88320 : value >> 1;
      table_[0][byte] = value;
    }
    for (uint32_t byte = 0; byte < 256; ++byte) {
      for (int i = 1; i < 8; ++i) {
        uint32_t before = table_[i - 1][byte];
        table_[i][byte] = before >> 8 ^ table_[0][before & 255];
      }
    }
  }

  uint32_t operator()(const char* data, std::size_t size) const {
    uint32_t value = ~uint32_t{0};
    for (; size >= 8; data += 8, size -= 8) {
      uint32_t low, high;
      std::memcpy(&low, data, 4);
      std::memcpy(&high, data + 4, 4);
      low ^= value;
      value = table_[7][low & 255] ^ table_[6][low >> 8 & 255] ^ table_[5][low >> 16 & 255] ^
          table_[4][low >> 24] ^ table_[3][high & 255] ^ table_[2][high >> 8 & 255] ^
          table_[1][high >> 16 & 255] ^ table_[0][high >> 24];
    }
    for (; size; ++data, --size) {
      value = value >> 8 ^ table_[0][(value ^ static_cast<unsigned char>(*data)) & 255];
    }
    return ~value;
  }

 private:
  uint32_t table_[8][256];
};

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

inline uint32_t checksum(const char* data, uint64_t size) {
  static const Crc32 crc32;
  return crc32(data, size);
}

// Files in a zip, not compressed; the contents start at multiples of 64 bytes, as torch has them.
class Zip {
 public:
  explicit Zip(const std::string& path) : file_(path) {}

  // Where its content stands in the file.
  uint64_t add(
      const std::string& name, const char* data, uint64_t size, const uint32_t* known = nullptr) {
    const bool large = size >= limit, far = offset_ >= limit;
    std::string sizes = large ? number(size, 8) + number(size, 8) : "";
    std::string facts = number(0, 2) + number(0, 2) + number(0, 2) + number(0x21, 2);  // 1980
    facts += number(known ? *known : checksum(data, size), 4);
    facts += large ? number(limit, 4) + number(limit, 4) : number(size, 4) + number(size, 4);
    facts += number(name.size(), 2);
    // Local header, padded by an extra field that readers skip.
    std::string extra = large ? number(1, 2) + number(16, 2) + sizes : "";
    uint64_t start = offset_ + 30 + name.size() + extra.size() + 4;
    uint64_t padding = (64 - start % 64) % 64;
    extra += "FB" + number(padding, 2) + std::string(padding, 'Z');
    std::string version = number(large || far ? 45 : 20, 2);
    std::string header = "PK\x03\x04" + version + facts + number(extra.size(), 2) + name + extra;
    // Its entry in the directory at the end.
    std::string wide = sizes + (far ? number(offset_, 8) : "");
    if (!wide.empty()) wide = number(1, 2) + number(wide.size(), 2) + wide;
    directory_ += "PK\x01\x02" + version + version + facts + number(wide.size(), 2);
    directory_ += number(0, 2) + number(0, 2) + number(0, 2) + number(0, 4);
    directory_ += number(far ? limit : offset_, 4) + name + wide;
    file_.write(header);
    file_.write(data, size);
    offset_ += header.size() + size;
    ++count_;
    return offset_ - size;
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
    file_.write(directory_ + end + number(0, 2));
    file_.close();
  }

 private:
  static constexpr uint64_t limit = 0xffffffff;

  static std::string number(uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i);
    return text;
  }

  WholeFile file_;
  std::string directory_;
  uint64_t offset_ = 0, count_ = 0;
};

inline std::string pickle_number(int64_t value) {
  std::string text = value >= 0 && value < 256 ? "K" : "\x8a\x08";
  for (int i = 0; i < (text[0] == 'K' ? 1 : 8); ++i) text += static_cast<char>(value >> 8 * i);
  return text;
}

inline std::string pickle_tuple(const std::vector<int64_t>& numbers) {
  std::string text = "(";
  for (int64_t number : numbers) text += pickle_number(number);
  return text + "t";
}

// What torch.save pickles: `_rebuild_tensor_v2` of a typed storage, or for dtypes that have no
// such class `_rebuild_tensor_v3` of bytes and the dtype.
inline std::string pickle_tensor(
    int32_t dtype, int64_t numel, const std::vector<int64_t>& shape,
    const std::vector<int64_t>& stride) {
  auto text = [](const char* value) {
    std::size_t size = std::strlen(value);
    return std::string("X") + static_cast<char>(size) + std::string(3, '\0') + value;
  };
  auto global = [](const std::string& module, const std::string& name) {
    return "c" + module + "\n" + name + "\n";
  };
  const Dtype& about = dtype_info(dtype);
  const bool typed = dtype <= dtypes::bfloat16 && dtype != dtypes::complex32;
  std::string result = "\x80\x02";
  result += global("torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  result += "((" + text("storage");
  result += typed ? global("torch", std::string(about.type) + "Storage")
                  : global("torch.storage", "UntypedStorage");
  result += text("0") + text("cpu") + pickle_number(typed ? numel : numel * about.size);
  result += "tQ" + pickle_number(0) + pickle_tuple(shape) + pickle_tuple(stride);
  result += "\x89" + global("collections", "OrderedDict") + ")R";
  if (!typed) result += global("torch", about.name);
  return result + "tR.";
}

// Save what `fetch(item, true)` has brought to the host. The checksum, which the file needs anyway,
// tells whether one may hold it already.
inline void save_tensor(const std::string& path, const Item& item, Saved& saved) {
  const Dtype& about = dtype_info(item.tensor.dtype);
  if (about.name[0] == 'q') throw std::runtime_error("quantized tensors have no plain elements");
  const Host& host = item.host;
  int64_t numel = item.tensor.numel;
  std::string pickle = pickle_tensor(item.tensor.dtype, numel, host.shape, host.stride);
  const uint64_t size = static_cast<uint64_t>(numel) * about.size;
  const uint32_t sum = checksum(host.data, size);
  const std::string key = pickle + std::to_string(sum);
  if (saved.link(key, host.data, size, path)) return;
  const uint16_t one = 1;
  std::string order = *reinterpret_cast<const char*>(&one) ? "little" : "big";
  Zip zip(path);
  zip.add("archive/data.pkl", pickle.data(), pickle.size());
  zip.add("archive/byteorder", order.data(), order.size());
  const uint64_t offset = zip.add("archive/data/0", host.data, size, &sum);
  zip.add("archive/version", "3\n", 2);
  zip.close();
  saved.add(key, path, offset);
}

}  // namespace inductor_rewriter
}  // namespace
