// Pickles and checkpoints of torch, byte for byte as a test wants them: well-formed ones, and with
// anything in the place of anything. The opcodes are those of Python's pickletools.

#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft::test {

template <typename T>
std::string Bytes(T number) {
  return std::string(reinterpret_cast<const char*>(&number), sizeof(number));
}

class PickleBuilder {
 public:
  PickleBuilder() : bytes_("\x80\x02", 2) {}

  PickleBuilder& Raw(absl::string_view bytes) {
    bytes_.append(bytes.data(), bytes.size());
    return *this;
  }
  PickleBuilder& Mark() { return Raw("("); }
  PickleBuilder& None() { return Raw("N"); }
  PickleBuilder& False() { return Raw("\x89"); }
  PickleBuilder& Text(absl::string_view text) {
    return Raw("X").Raw(Bytes(static_cast<uint32_t>(text.size()))).Raw(text);
  }
  PickleBuilder& Int(int64_t number) { return Raw("\x8a\x08").Raw(Bytes(number)); }
  PickleBuilder& Global(absl::string_view module, absl::string_view name) {
    return Raw("c").Raw(module).Raw("\n").Raw(name).Raw("\n");
  }
  PickleBuilder& Ints(const std::vector<int64_t>& numbers) {
    Mark();
    for (const int64_t number : numbers) Int(number);
    return Raw("t");
  }
  PickleBuilder& Dict() { return Raw("}"); }
  PickleBuilder& OrderedDict() { return Global("collections", "OrderedDict").Raw(")R"); }
  PickleBuilder& Storage(absl::string_view type, absl::string_view key, int64_t elements) {
    Mark().Text("storage").Global("torch", type).Text(key).Text("cpu").Int(elements);
    return Raw("tQ");
  }

  struct View {
    std::string type = "FloatStorage";
    std::string key = "0";
    int64_t elements = 0;
    int64_t offset = 0;
    std::vector<int64_t> shape = {};
    std::vector<int64_t> strides = {};
  };
  PickleBuilder& Tensor(const View& view) {
    Global("torch._utils", "_rebuild_tensor_v2").Mark();
    Storage(view.type, view.key, view.elements).Int(view.offset);
    return Ints(view.shape).Ints(view.strides).False().OrderedDict().Raw("tR");
  }

  // The pickle, ended.
  std::string Build() const { return bytes_ + "."; }

 private:
  std::string bytes_;
};

// Zip files with entries stored as they are. Every field of an entry can be made to lie.
class ZipBuilder {
 public:
  struct Lies {
    int64_t bytes_more = 0;
    int64_t header_later = 0;
    uint16_t method = 0;
    uint16_t flags = 0;
    bool zip64 = false;
    std::string local_name = {};
  };

  ZipBuilder& Add(const std::string& name, absl::string_view data) { return Add(name, data, {}); }
  ZipBuilder& Add(const std::string& name, absl::string_view data, const Lies& lies) {
    const uint64_t at = bytes_.size();
    const std::string local = lies.local_name.empty() ? name : lies.local_name;
    bytes_ += "PK\x03\x04" + Fixed(lies, data.size()) + Bytes(static_cast<uint16_t>(local.size())) +
              Bytes(uint16_t{0}) + local;
    bytes_.append(data.data(), data.size());
    const auto size = static_cast<uint64_t>(static_cast<int64_t>(data.size()) + lies.bytes_more);
    const auto header = static_cast<uint64_t>(static_cast<int64_t>(at) + lies.header_later);
    std::string extra;
    if (lies.zip64) {
      extra = Bytes(uint16_t{1}) + Bytes(uint16_t{24}) + Bytes(size) + Bytes(size) + Bytes(header);
    }
    directory_ += std::string("PK\x01\x02") + Bytes(uint16_t{0}) +
                  Fixed(lies, lies.zip64 ? 0xffffffff : size) +
                  Bytes(static_cast<uint16_t>(name.size())) +
                  Bytes(static_cast<uint16_t>(extra.size())) + std::string(10, '\0') +
                  Bytes(static_cast<uint32_t>(lies.zip64 ? 0xffffffff : header)) + name + extra;
    ++entries_;
    return *this;
  }

  std::string Build(bool zip64 = false) const {
    std::string out = bytes_ + directory_;
    const uint64_t count = entries_;
    const uint64_t size = directory_.size();
    const uint64_t at = bytes_.size();
    if (zip64) {
      const uint64_t end64_at = out.size();
      out += "PK\x06\x06" + Bytes(uint64_t{44}) + std::string(12, '\0') + Bytes(count) +
             Bytes(count) + Bytes(size) + Bytes(at);
      out += "PK\x06\x07" + Bytes(uint32_t{0}) + Bytes(end64_at) + Bytes(uint32_t{1});
    }
    const auto short_count = static_cast<uint16_t>(zip64 ? 0xffff : count);
    return out + "PK\x05\x06" + Bytes(uint32_t{0}) + Bytes(short_count) + Bytes(short_count) +
           Bytes(static_cast<uint32_t>(zip64 ? 0xffffffff : size)) +
           Bytes(static_cast<uint32_t>(zip64 ? 0xffffffff : at)) + Bytes(uint16_t{0});
  }

 private:
  // Version, flags, method, time, checksum and sizes.
  static std::string Fixed(const Lies& lies, uint64_t size) {
    return Bytes(uint16_t{20}) + Bytes(lies.flags) + Bytes(lies.method) + std::string(8, '\0') +
           Bytes(static_cast<uint32_t>(size)) + Bytes(static_cast<uint32_t>(size));
  }

  std::string bytes_;
  std::string directory_;
  uint64_t entries_ = 0;
};

// A checkpoint as torch writes it: `pickle`, and storages "0", "1" and so on.
inline std::string TorchZip(const std::string& pickle, const std::vector<std::string>& storages) {
  ZipBuilder zip;
  zip.Add("archive/data.pkl", pickle).Add("archive/byteorder", "little");
  for (size_t i = 0; i < storages.size(); ++i) {
    zip.Add("archive/data/" + std::to_string(i), storages[i]);
  }
  return zip.Add("archive/version", "3\n").Build();
}

}  // namespace weft::test
