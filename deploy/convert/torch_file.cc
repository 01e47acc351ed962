#include "deploy/convert/torch_file.h"

#include <cstring>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/utf8.h"
#include "deploy/convert/little_endian.h"
#include "deploy/convert/zip_archive.h"

namespace weft::convert {
namespace {

constexpr size_t kPickleBytesMax = 64u << 20;
// The readers of safetensors take as many.
constexpr size_t kTensorsMax = 1u << 18;
constexpr size_t kNameBytesMax = 1024;
// What files before torch 1.6 begin with: a pickle of a number nobody else writes, and one of the
// format's version, 1001.
constexpr uint8_t kLegacyStart[] = {0x80, 2,    0x8a, 10,  0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a,
                                    0xa8, 0x50, 0x19, '.', 0x80, 2,    'M',  0xe9, 3,    '.'};

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status CheckName(absl::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax) {
    return Bad("has a name of ", name.size(), " bytes; expected 1 to ", kNameBytesMax);
  }
  if (name == "__metadata__") return Bad("has the name that safetensors keep for other things");
  for (absl::string_view rest = name; !rest.empty();) {
    const size_t bytes = Utf8CharacterBytes(rest);
    if (bytes == 0) return Bad("has a name that is not UTF-8");
    rest.remove_prefix(bytes);
  }
  return absl::OkStatus();
}

// OK when `bytes` are what a storage of this type and count has.
absl::Status CheckStorage(const PickledStorage& storage, uint64_t bytes) {
  uint64_t expected = 0;
  if (!__builtin_mul_overflow(storage.elements, storage.type->bytes, &expected) &&
      expected == bytes) {
    return absl::OkStatus();
  }
  return Bad("storage ", absl::CHexEscape(storage.key), ": has ", bytes, " bytes; ",
             storage.elements, " elements of ", storage.type->safetensors_name, " need ",
             storage.type->bytes, " each; the file is truncated or damaged");
}

// The folder in the archive that everything lies in, with a slash: torch names it after the file.
absl::StatusOr<std::string> FolderOf(const ZipArchive& archive) {
  constexpr absl::string_view kPickle = "/data.pkl";
  const ZipEntry* found = nullptr;
  for (const ZipEntry& entry : archive.entries()) {
    if (!absl::EndsWith(entry.name, kPickle)) continue;
    if (found != nullptr) return Bad("has more than one data.pkl");
    found = &entry;
  }
  if (found == nullptr) return Bad("is a zip file without data.pkl: no checkpoint of torch.save");
  return std::string(found->name.substr(0, found->name.size() - kPickle.size() + 1));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TorchFile>> TorchFile::Open(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  std::unique_ptr<TorchFile> file(new TorchFile(std::move(mapped)));
  WEFT_RETURN_IF_ERROR(Annotate(file->Parse(), path));
  return file;
}

absl::Status TorchFile::Parse() {
  const absl::Span<const uint8_t> bytes = file_.bytes();
  if (ZipArchive::Looks(bytes)) return ParseArchive();
  if (bytes.size() >= sizeof(kLegacyStart) &&
      std::memcmp(bytes.data(), kLegacyStart, sizeof(kLegacyStart)) == 0) {
    return ParseLegacy();
  }
  return Bad(
      "is no checkpoint of torch.save: it begins neither as a zip file nor as those before torch "
      "1.6; where git left a pointer in its place, fetch the file itself (git lfs pull)");
}

absl::Status TorchFile::ParseArchive() {
  WEFT_ASSIGN_OR_RETURN(const ZipArchive archive, ZipArchive::Parse(file_.bytes()));
  WEFT_ASSIGN_OR_RETURN(const std::string folder, FolderOf(archive));
  const ZipEntry* const order = archive.Find(folder + "byteorder");
  if (order != nullptr && AsText(order->data) != "little") {
    return Bad("byteorder is \"", absl::CHexEscape(AsText(order->data).substr(0, 16)),
               "\"; expected \"little\": save it again on a machine with that order");
  }
  const ZipEntry& pickle_entry = *archive.Find(folder + "data.pkl");
  if (pickle_entry.data.size() > kPickleBytesMax) {
    return Bad("data.pkl has ", pickle_entry.data.size(), " bytes; at most ", kPickleBytesMax,
               " are read");
  }
  Unpickler pickle(pickle_entry.data);
  const absl::StatusOr<PickleValue> top = pickle.Load();
  WEFT_RETURN_IF_ERROR(Annotate(top.status(), "data.pkl"));
  std::vector<absl::Span<const uint8_t>> storages;
  for (const PickledStorage& storage : pickle.storages()) {
    const ZipEntry* const entry = archive.Find(absl::StrCat(folder, "data/", storage.key));
    if (entry == nullptr) {
      return Bad("storage ", absl::CHexEscape(storage.key), ": is not in the archive");
    }
    WEFT_RETURN_IF_ERROR(CheckStorage(storage, entry->data.size()));
    storages.push_back(entry->data);
  }
  return Take(pickle, *top, storages);
}

// After the start: a pickle of the writer's machine, one of the checkpoint, one of the list of
// storages, and then each storage as a count of elements and its bytes.
absl::Status TorchFile::ParseLegacy() {
  const absl::Span<const uint8_t> bytes = file_.bytes();
  Unpickler pickle(bytes, sizeof(kLegacyStart));
  const absl::StatusOr<PickleValue> machine = pickle.Load();
  WEFT_RETURN_IF_ERROR(machine.status());
  if (machine->kind != PickleKind::kDict) return Bad("does not say what machine wrote it");
  for (const auto& [key, value] : pickle.PairsOf(*machine)) {
    if (key.text == "little_endian" && value.number == 0) {
      return Bad("was written by a big-endian machine: save it again on another one");
    }
  }
  const absl::StatusOr<PickleValue> top = pickle.Load();
  WEFT_RETURN_IF_ERROR(top.status());
  const absl::StatusOr<PickleValue> keys = pickle.Load();
  WEFT_RETURN_IF_ERROR(keys.status());
  if (keys->kind != PickleKind::kList) return Bad("has no list of storages");
  absl::flat_hash_map<absl::string_view, size_t> by_key;
  for (size_t i = 0; i < pickle.storages().size(); ++i) by_key[pickle.storages()[i].key] = i;
  std::vector<absl::Span<const uint8_t>> storages(pickle.storages().size());
  ByteCursor cursor(bytes, pickle.at());
  for (const PickleValue& key : pickle.ItemsOf(*keys)) {
    const auto known = by_key.find(key.text);
    const auto elements = cursor.Number<uint64_t>();
    if (known == by_key.end() || !elements.has_value()) {
      return Bad("storage ", absl::CHexEscape(key.text), ": is listed but not there");
    }
    const PickledStorage& storage = pickle.storages()[known->second];
    uint64_t size = 0;
    if (*elements != storage.elements ||
        __builtin_mul_overflow(*elements, storage.type->bytes, &size) || size > cursor.left()) {
      return Bad("storage ", absl::CHexEscape(key.text), ": has ", *elements,
                 " elements; expected ", storage.elements, ", and the file has ", cursor.left(),
                 " bytes left; it is truncated or damaged");
    }
    storages[known->second] = *cursor.Bytes(size);
    // Each is read once: a list that names one again would move all that follow.
    by_key.erase(known);
  }
  for (const auto& [key, index] : by_key) {
    WEFT_RETURN_IF_ERROR(CheckStorage(pickle.storages()[index], 0));
  }
  return Take(pickle, *top, storages);
}

absl::Status TorchFile::Take(const Unpickler& pickle, const PickleValue& top,
                             const std::vector<absl::Span<const uint8_t>>& storages) {
  if (top.kind != PickleKind::kDict) {
    return Bad("holds ", NameOf(top.kind), " instead of a dictionary of tensors");
  }
  const Unpickler::Pairs& pairs = pickle.PairsOf(top);
  if (pairs.size() > kTensorsMax) return Bad("has more than ", kTensorsMax, " tensors");
  absl::flat_hash_set<absl::string_view> names;
  for (const auto& [key, value] : pairs) {
    if (key.kind != PickleKind::kString) return Bad("has ", NameOf(key.kind), " for a name");
    const std::string shown = absl::StrCat("tensor ", absl::CHexEscape(key.text.substr(0, 200)));
    WEFT_RETURN_IF_ERROR(Annotate(CheckName(key.text), shown));
    if (!names.insert(key.text).second) return Bad(shown, " appears twice");
    if (value.kind != PickleKind::kTensor) {
      return Bad(shown, ": is ", NameOf(value.kind),
                 "; only tensors are converted: save the model's state_dict() alone");
    }
    const PickledTensor& from = pickle.TensorOf(value);
    const PickledStorage& storage = pickle.storages()[from.storage];
    TorchTensor tensor = {std::string(key.text), storage.type, {}, storages[from.storage]};
    tensor.view = {storage.type->bytes, from.offset, from.shape, from.strides};
    WEFT_RETURN_IF_ERROR(Annotate(tensor.view.Check(storage.elements), shown));
    tensors_.push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

}  // namespace weft::convert
