#include "common/gguf.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/gguf_format.h"
#include "common/gguf_parts.h"
#include "common/status.h"

namespace weft {
namespace {

using gguf::BytesOf;
using gguf::Integer;
using gguf::kValueTypes;
using gguf::LoadAs;
using gguf::LoadInteger;
using gguf::NameOf;
using gguf::ValueType;

// Bounds on what a header may ask for (invariant bound.all), far above any published model.
constexpr uint64_t kKeysMax = 1u << 16;
constexpr uint64_t kTensorsMax = 1u << 18;
constexpr uint64_t kKeyBytesMax = 65535;      // the format's own limit
constexpr uint64_t kTensorNameBytesMax = 64;  // the format's own limit
constexpr uint64_t kStringBytesMax = 16u << 20;
constexpr uint64_t kArrayElementsMax = 1u << 24;
constexpr uint32_t kDimsMax = 4;
constexpr uint64_t kAlignmentDefault = 32;
constexpr uint64_t kAlignmentMax = 65536;
constexpr const char* kDamaged = "; the file is truncated or damaged: copy or download it again";

// A metadata value where it lies in the map.
struct Value {
  ValueType type = ValueType::kU8;
  // Element type and count of an array; `type` and 1 otherwise.
  ValueType element = ValueType::kU8;
  uint64_t count = 1;
  // First element; a string begins with its length.
  const uint8_t* data = nullptr;
};

// The string that begins (with its length) at `data`; its bounds were checked by Open.
absl::string_view StringAt(const uint8_t* data) {
  return {reinterpret_cast<const char*>(data + 8), LoadAs<uint64_t>(data)};
}

// A name from the file as it goes into a message: short and printable.
std::string Printable(absl::string_view name) {
  return absl::StrCat("\"", absl::CHexEscape(name.substr(0, 80)), name.size() > 80 ? "…" : "",
                      "\"");
}

}  // namespace

struct GgufFile::Impl {
  explicit Impl(MappedFile mapped) : file(std::move(mapped)), bytes(file.bytes()) {}

  absl::Status Parse();
  absl::Status ParseValue(absl::string_view key, Value* value);
  absl::Status ParseTensor(GgufTensor* tensor, uint64_t* offset, uint64_t* size);
  absl::Status PlaceTensors(const std::vector<std::pair<uint64_t, uint64_t>>& ranges);
  absl::Status ReadAlignment();
  absl::StatusOr<uint64_t> Uint(absl::string_view key) const;
  // Whether this is part `part` (from 0) of `count`, as its name says.
  absl::Status CheckPart(uint64_t part, uint64_t count) const;

  absl::Status Bad(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": ", what));
  }
  absl::Status Truncated(absl::string_view what) const {
    return Bad(absl::StrCat("the file ends inside ", what, " (byte ", pos, " of ", bytes.size(),
                            ")", kDamaged));
  }
  uint64_t left() const { return bytes.size() - pos; }

  template <typename T>
  absl::Status Read(absl::string_view what, T* out) {
    if (left() < sizeof(T)) return Truncated(what);
    *out = LoadAs<T>(bytes.data() + pos);
    pos += sizeof(T);
    return absl::OkStatus();
  }
  absl::Status ReadString(absl::string_view what, uint64_t bytes_max, absl::string_view* out) {
    uint64_t length = 0;
    WEFT_RETURN_IF_ERROR(Read(what, &length));
    if (length > bytes_max) {
      return Bad(
          absl::StrCat(what, " at byte ", pos, " has ", length, " bytes, more than ", bytes_max));
    }
    if (left() < length) return Truncated(what);
    *out = {reinterpret_cast<const char*>(bytes.data() + pos), length};
    pos += length;
    return absl::OkStatus();
  }

  absl::StatusOr<Value> Find(absl::string_view key) const;
  absl::Status WrongType(absl::string_view key, const Value& value, absl::string_view want) const;

  MappedFile file;
  absl::Span<const uint8_t> bytes;
  uint64_t pos = 0;
  uint64_t alignment = kAlignmentDefault;
  absl::flat_hash_map<absl::string_view, Value> values;
  std::vector<GgufTensor> tensors;
};

absl::Status GgufFile::Impl::ParseValue(absl::string_view key, Value* value) {
  const std::string what = absl::StrCat("key ", Printable(key));
  uint32_t number = 0;
  WEFT_RETURN_IF_ERROR(Read(what, &number));
  if (number >= kValueTypes) {
    return Bad(absl::StrCat(what, " has the unknown value type ", number));
  }
  value->type = value->element = static_cast<ValueType>(number);
  if (value->type == ValueType::kArray) {
    WEFT_RETURN_IF_ERROR(Read(what, &number));
    if (number >= kValueTypes) {
      return Bad(absl::StrCat(what, " is an array of the unknown value type ", number));
    }
    value->element = static_cast<ValueType>(number);
    if (value->element == ValueType::kArray) {
      return Bad(absl::StrCat(what, " is an array of arrays, which is not supported"));
    }
    WEFT_RETURN_IF_ERROR(Read(what, &value->count));
    if (value->count > kArrayElementsMax) {
      return Bad(absl::StrCat(what, " is an array of ", value->count, " elements, more than ",
                              kArrayElementsMax));
    }
  }
  value->data = bytes.data() + pos;
  if (value->element == ValueType::kString) {
    absl::string_view ignored;
    for (uint64_t i = 0; i < value->count; ++i) {
      // The message is made only on error: this loop runs 100,000 times for a tokenizer.
      if (left() < 8) return Truncated(what);
      const uint64_t length = LoadAs<uint64_t>(bytes.data() + pos);
      if (length > kStringBytesMax || left() - 8 < length) {
        return ReadString(what, kStringBytesMax, &ignored);
      }
      pos += 8 + length;
    }
    return absl::OkStatus();
  }
  // No overflow: at most 2^24 elements of 8 bytes.
  const uint64_t size = value->count * BytesOf(value->element);
  if (left() < size) return Truncated(what);
  pos += size;
  return absl::OkStatus();
}

absl::Status GgufFile::Impl::ParseTensor(GgufTensor* tensor, uint64_t* offset, uint64_t* size) {
  absl::string_view name;
  WEFT_RETURN_IF_ERROR(ReadString("a tensor's name", kTensorNameBytesMax, &name));
  tensor->name = std::string(name);
  const std::string what = absl::StrCat("tensor ", Printable(name));
  uint32_t dims = 0;
  WEFT_RETURN_IF_ERROR(Read(what, &dims));
  if (dims == 0 || dims > kDimsMax) {
    return Bad(absl::StrCat(what, " has ", dims, " dimensions; expected 1 to ", kDimsMax));
  }
  uint64_t elements = 1;
  for (uint32_t i = 0; i < dims; ++i) {
    uint64_t dim = 0;
    WEFT_RETURN_IF_ERROR(Read(what, &dim));
    tensor->dims.push_back(dim);
    if (dim == 0 || __builtin_mul_overflow(elements, dim, &elements) || elements >> 56 != 0) {
      return Bad(absl::StrCat(what, " has the impossible dimensions [",
                              absl::StrJoin(tensor->dims, ", "), dims > i + 1 ? ", …" : "", "]"));
    }
  }
  uint32_t number = 0;
  WEFT_RETURN_IF_ERROR(Read(what, &number));
  const TensorFormat* const format = gguf::FindFormat(number);
  if (format == nullptr) {
    return Bad(absl::StrCat(what, " has the tensor type ", gguf::UnsupportedTypeName(number),
                            "; supported are ", gguf::FormatNames(),
                            ": convert the model to one of them"));
  }
  tensor->type = format->type;
  if (tensor->dims[0] % format->elements != 0) {
    return Bad(absl::StrCat(what, " has rows of ", tensor->dims[0], " elements; ", format->name,
                            " needs a multiple of ", format->elements));
  }
  // elements < 2^56 and a block has fewer than 256 bytes, so this does not overflow.
  *size = elements / format->elements * format->bytes;
  WEFT_RETURN_IF_ERROR(Read(what, offset));
  if (*offset % alignment != 0) {
    return Bad(absl::StrCat(what, " begins at offset ", *offset, ", not a multiple of ", alignment,
                            kDamaged));
  }
  return absl::OkStatus();
}

absl::Status GgufFile::Impl::ReadAlignment() {
  const auto found = values.find("general.alignment");
  if (found == values.end()) return absl::OkStatus();
  Integer value;
  if (!LoadInteger(found->second.type, found->second.data, &value)) {
    return WrongType("general.alignment", found->second, "an integer");
  }
  // The format says a multiple of 8; ggml itself wants a power of two.
  if (value.negative || value.bits < 8 || value.bits > kAlignmentMax ||
      (value.bits & (value.bits - 1)) != 0) {
    return Bad(absl::StrCat("general.alignment is ", value.negative ? "-" : "",
                            value.negative ? 0 - value.bits : value.bits,
                            "; expected a power of two from 8 to ", kAlignmentMax));
  }
  alignment = value.bits;
  return absl::OkStatus();
}

absl::Status GgufFile::Impl::PlaceTensors(
    const std::vector<std::pair<uint64_t, uint64_t>>& ranges) {
  const uint64_t data_begin = (pos + alignment - 1) / alignment * alignment;
  const uint64_t data_size = data_begin <= bytes.size() ? bytes.size() - data_begin : 0;
  std::vector<size_t> order(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    order[i] = i;
    const auto [offset, size] = ranges[i];
    if (offset > data_size || data_size - offset < size) {
      return Bad(absl::StrCat("tensor ", Printable(tensors[i].name), " needs bytes ", offset,
                              " to ", offset, " + ", size, " of the data, which has ", data_size,
                              " bytes", kDamaged));
    }
    tensors[i].data = bytes.subspan(data_begin + offset, size);
    tensors[i].file = &file;
  }
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return ranges[a].first < ranges[b].first; });
  for (size_t i = 1; i < order.size(); ++i) {
    const uint64_t begin = ranges[order[i]].first;
    const uint64_t end = ranges[order[i - 1]].first + ranges[order[i - 1]].second;
    if (begin < end) {
      return Bad(absl::StrCat("tensor ", Printable(tensors[order[i]].name),
                              " overlaps the one before it: expected an offset of ", end,
                              " or more, where ", Printable(tensors[order[i - 1]].name),
                              " ends, found ", begin, kDamaged));
    }
  }
  return absl::OkStatus();
}

absl::Status GgufFile::Impl::Parse() {
  uint32_t version = 0;
  if (bytes.size() < 4 || std::memcmp(bytes.data(), "GGUF", 4) != 0) {
    return Bad(
        "is no GGUF file: it does not begin with \"GGUF\"; give a .gguf file or a model directory, "
        "and if it is one, copy or download it again");
  }
  pos = 4;
  WEFT_RETURN_IF_ERROR(Read("the header", &version));
  if (version != 2 && version != 3) {
    return Bad(absl::StrCat(
        "has GGUF version ", version, "; supported are 2 and 3",
        version != 0 && (version & 0xffff) == 0 ? " (the file seems to be big-endian)" : ""));
  }
  uint64_t tensor_count = 0;
  uint64_t key_count = 0;
  WEFT_RETURN_IF_ERROR(Read("the header", &tensor_count));
  WEFT_RETURN_IF_ERROR(Read("the header", &key_count));
  if (tensor_count > kTensorsMax || key_count > kKeysMax) {
    return Bad(absl::StrCat("claims ", tensor_count, " tensors and ", key_count,
                            " keys; the limits are ", kTensorsMax, " and ", kKeysMax));
  }
  for (uint64_t i = 0; i < key_count; ++i) {
    absl::string_view key;
    WEFT_RETURN_IF_ERROR(ReadString("a metadata key", kKeyBytesMax, &key));
    Value value;
    WEFT_RETURN_IF_ERROR(ParseValue(key, &value));
    if (!values.emplace(key, value).second) {
      return Bad(absl::StrCat("key ", Printable(key), " appears twice"));
    }
  }
  WEFT_RETURN_IF_ERROR(ReadAlignment());

  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (uint64_t i = 0; i < tensor_count; ++i) {
    GgufTensor tensor;
    uint64_t offset = 0;
    uint64_t size = 0;
    WEFT_RETURN_IF_ERROR(ParseTensor(&tensor, &offset, &size));
    tensors.push_back(std::move(tensor));
    ranges.emplace_back(offset, size);
  }
  return PlaceTensors(ranges);
}

absl::StatusOr<Value> GgufFile::Impl::Find(absl::string_view key) const {
  const auto found = values.find(key);
  if (found == values.end()) {
    return absl::NotFoundError(absl::StrCat(file.path(), ": has no key ", Printable(key)));
  }
  return found->second;
}

absl::Status GgufFile::Impl::WrongType(absl::string_view key, const Value& value,
                                       absl::string_view want) const {
  const std::string found = value.type == ValueType::kArray
                                ? absl::StrCat("an array of ", NameOf(value.element))
                                : NameOf(value.type);
  return Bad(absl::StrCat("key ", Printable(key), ": expected ", want, ", found ", found));
}

absl::StatusOr<uint64_t> GgufFile::Impl::Uint(absl::string_view key) const {
  WEFT_ASSIGN_OR_RETURN(const Value value, Find(key));
  Integer integer;
  if (!LoadInteger(value.type, value.data, &integer)) {
    return WrongType(key, value, "an integer");
  }
  if (integer.negative) {
    return Bad(absl::StrCat("key ", Printable(key), ": expected an integer of 0 or more, found ",
                            static_cast<int64_t>(integer.bits)));
  }
  return integer.bits;
}

// Parts say which they are and of how many (gguf-split's keys); names alone could mix up models.
absl::Status GgufFile::Impl::CheckPart(uint64_t part, uint64_t count) const {
  uint64_t found_part = part;
  uint64_t found_count = count == 1 ? 0 : count;
  if (values.contains("split.no")) {
    WEFT_ASSIGN_OR_RETURN(found_part, Uint("split.no"));
  }
  if (values.contains("split.count")) {
    WEFT_ASSIGN_OR_RETURN(found_count, Uint("split.count"));
  }
  if (count == 1 && found_count <= 1) return absl::OkStatus();
  if (found_count == count && found_part == part) return absl::OkStatus();
  // Numbers in files count from 0, those in names from 1.
  return Bad(absl::StrCat("has split.no ", found_part, " and split.count ", found_count,
                          ", and by its name it is part ", part + 1, " of ", count,
                          ": give all parts the names they were made with, "
                          "NAME-00001-of-0000N.gguf"));
}

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> paths, GgufPartPaths(path));
  std::vector<std::unique_ptr<Impl>> parts;
  for (const std::string& part : paths) {
    absl::StatusOr<MappedFile> file = MappedFile::Open(part);
    if (paths.size() > 1 && absl::IsNotFound(file.status())) {
      return absl::NotFoundError(absl::StrCat(part, ": is missing, part ", parts.size() + 1, " of ",
                                              paths.size(),
                                              " of the model: copy or download it too"));
    }
    WEFT_RETURN_IF_ERROR(file.status());
    parts.push_back(std::make_unique<Impl>(*std::move(file)));
    WEFT_RETURN_IF_ERROR(parts.back()->Parse());
    WEFT_RETURN_IF_ERROR(parts.back()->CheckPart(parts.size() - 1, paths.size()));
  }
  std::unique_ptr<GgufFile> out(new GgufFile(std::move(parts)));
  WEFT_RETURN_IF_ERROR(out->Join());
  return out;
}

GgufFile::GgufFile(std::vector<std::unique_ptr<Impl>> parts) : parts_(std::move(parts)) {}
GgufFile::~GgufFile() = default;

absl::Status GgufFile::Join() {
  for (const auto& part : parts_) {
    for (GgufTensor& tensor : part->tensors) tensors_.push_back(std::move(tensor));
  }
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensor_index_.emplace(tensors_[i].name, i).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          tensors_[i].file->path(), ": tensor ", Printable(tensors_[i].name), " appears twice"));
    }
  }
  if (parts_.size() == 1 || !Has("split.tensors.count")) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const uint64_t count, GetUint("split.tensors.count"));
  if (count == tensors_.size()) return absl::OkStatus();
  return metadata().Bad(absl::StrCat("key \"split.tensors.count\": the model has ", count,
                                     " tensors, and its parts have ", tensors_.size(), kDamaged));
}

const std::string& GgufFile::path() const { return metadata().file.path(); }
const GgufFile::Impl& GgufFile::metadata() const { return *parts_.front(); }
bool GgufFile::Has(absl::string_view key) const { return metadata().values.contains(key); }

absl::StatusOr<uint64_t> GgufFile::GetUint(absl::string_view key) const {
  return metadata().Uint(key);
}

absl::StatusOr<double> GgufFile::GetFloat(absl::string_view key) const {
  WEFT_ASSIGN_OR_RETURN(const Value value, metadata().Find(key));
  if (value.type == ValueType::kF32) return LoadAs<float>(value.data);
  if (value.type == ValueType::kF64) return LoadAs<double>(value.data);
  return metadata().WrongType(key, value, "a float");
}

absl::StatusOr<bool> GgufFile::GetBool(absl::string_view key) const {
  WEFT_ASSIGN_OR_RETURN(const Value value, metadata().Find(key));
  if (value.type != ValueType::kBool) return metadata().WrongType(key, value, "a bool");
  return *value.data != 0;
}

absl::StatusOr<absl::string_view> GgufFile::GetString(absl::string_view key) const {
  WEFT_ASSIGN_OR_RETURN(const Value value, metadata().Find(key));
  if (value.type != ValueType::kString) return metadata().WrongType(key, value, "a string");
  return StringAt(value.data);
}

absl::StatusOr<std::vector<absl::string_view>> GgufFile::GetStrings(absl::string_view key) const {
  WEFT_ASSIGN_OR_RETURN(const Value value, metadata().Find(key));
  if (value.type != ValueType::kArray || value.element != ValueType::kString) {
    return metadata().WrongType(key, value, "an array of strings");
  }
  std::vector<absl::string_view> out;
  out.reserve(value.count);
  const uint8_t* next = value.data;
  for (uint64_t i = 0; i < value.count; ++i) {
    out.push_back(StringAt(next));
    next += 8 + out.back().size();
  }
  return out;
}

absl::StatusOr<std::vector<int64_t>> GgufFile::GetInts(absl::string_view key) const {
  WEFT_ASSIGN_OR_RETURN(const Value value, metadata().Find(key));
  if (value.type != ValueType::kArray)
    return metadata().WrongType(key, value, "an array of integers");
  std::vector<int64_t> out;
  out.reserve(value.count);
  for (uint64_t i = 0; i < value.count; ++i) {
    Integer integer;
    if (!LoadInteger(value.element, value.data + i * BytesOf(value.element), &integer)) {
      return metadata().WrongType(key, value, "an array of integers");
    }
    if (!integer.negative && integer.bits > std::numeric_limits<int64_t>::max()) {
      return metadata().Bad(absl::StrCat("key ", Printable(key), ": element ", i, " is too large"));
    }
    out.push_back(static_cast<int64_t>(integer.bits));
  }
  return out;
}

absl::StatusOr<std::vector<float>> GgufFile::GetFloats(absl::string_view key) const {
  WEFT_ASSIGN_OR_RETURN(const Value value, metadata().Find(key));
  const bool wide = value.element == ValueType::kF64;
  if (value.type != ValueType::kArray || (!wide && value.element != ValueType::kF32)) {
    return metadata().WrongType(key, value, "an array of floats");
  }
  std::vector<float> out;
  out.reserve(value.count);
  for (uint64_t i = 0; i < value.count; ++i) {
    out.push_back(wide ? static_cast<float>(LoadAs<double>(value.data + i * 8))
                       : LoadAs<float>(value.data + i * 4));
  }
  return out;
}

absl::Span<const GgufTensor> GgufFile::tensors() const { return tensors_; }

const GgufTensor* GgufFile::FindTensor(absl::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

void GgufFile::DropPages() const {
  for (const auto& part : parts_) part->file.Drop(part->bytes);
}

}  // namespace weft
