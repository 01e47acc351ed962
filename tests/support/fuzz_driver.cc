// Runs a fuzz target without libFuzzer: each seed file as it is, then mutants of them from a fixed,
// printed random seed. Usage: <target> [--runs N] [--seed S] FILE_OR_FOLDER...
// The preset fuzz links libFuzzer in its place.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "tests/common/temp_dir.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// For the targets that have something to set up.
extern "C" __attribute__((weak)) int LLVMFuzzerInitialize(int* argc, char*** argv);

namespace {

// The input under way, which a run that ends the process leaves behind.
const std::string* g_input = nullptr;

void WriteInput(int signal) {
  const int file = open("fuzz-fault", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  constexpr char kSaid[] = "fuzz: the input is in ./fuzz-fault\n";
  if (file >= 0 && write(file, g_input->data(), g_input->size()) >= 0) {
    (void)!write(STDERR_FILENO, kSaid, sizeof(kSaid) - 1);
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void RunOne(const std::string& bytes) {
  g_input = &bytes;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

// One to four changes, most of them in the first part of the file, where headers are.
std::string Mutate(std::string bytes, const std::string& other, std::mt19937_64& random) {
  static constexpr uint64_t kOdd[] = {
      0, 1, 31, 255, 0x7fffffff, 0xffffffff, ~uint64_t{0}, uint64_t{1} << 63, uint64_t{1} << 40};
  for (uint64_t changes = 1 + random() % 4; changes > 0 && !bytes.empty(); --changes) {
    const size_t head = random() % 8 != 0 ? std::min<size_t>(bytes.size(), 16384) : bytes.size();
    const size_t at = random() % head;
    switch (random() % 7) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ 1 << random() % 8);
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.erase(at, random() % 64);
        break;
      case 4:
        bytes.insert(at, bytes.substr(random() % head, random() % 64));
        break;
      case 5: {
        // A length, count or offset of an unlikely size.
        const uint64_t value = kOdd[random() % std::size(kOdd)];
        const size_t width = std::min<size_t>(random() % 2 != 0 ? 4 : 8, bytes.size() - at);
        std::memcpy(bytes.data() + at, &value, width);
        break;
      }
      case 6: {
        if (other.empty()) break;
        const size_t from = random() % other.size();
        const std::string piece = other.substr(from, random() % 64);
        bytes.replace(at, std::min(piece.size(), bytes.size() - at), piece);
        break;
      }
    }
  }
  return bytes;
}

// A file's bytes, or those of all files in a folder, by name.
void ReadSeeds(const std::string& path, std::vector<std::string>* corpus) {
  if (!std::filesystem::is_directory(path)) {
    corpus->push_back(weft::test::ReadFile(path));
    return;
  }
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) corpus->push_back(weft::test::ReadFile(file));
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t runs = 2000;
  uint64_t seed = 1;
  std::vector<std::string> corpus;
  int ignored_argc = 1;
  char** ignored_argv = argv;
  if (LLVMFuzzerInitialize != nullptr) LLVMFuzzerInitialize(&ignored_argc, &ignored_argv);
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if ((arg == "--runs" || arg == "--seed") && i + 1 < argc) {
      (arg == "--runs" ? runs : seed) = std::strtoull(argv[++i], nullptr, 10);
    } else {
      ReadSeeds(arg, &corpus);
    }
  }
  if (corpus.empty()) {
    std::cerr << "usage: " << argv[0] << " [--runs N] [--seed S] FILE_OR_FOLDER...\n";
    return 2;
  }
  std::cout << "fuzz: " << corpus.size() << " files, " << runs << " mutants, seed " << seed
            << std::endl;
  for (const int fatal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) std::signal(fatal, &WriteInput);
  for (const std::string& bytes : corpus) RunOne(bytes);
  std::mt19937_64 random(seed);
  for (uint64_t run = 0; run < runs; ++run) {
    RunOne(Mutate(corpus[random() % corpus.size()], corpus[random() % corpus.size()], random));
  }
  return 0;
}
