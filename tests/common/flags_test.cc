#include "common/flags.h"

#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

namespace weft {
namespace {

struct Options {
  int port = 1;
  std::string name = "default";
  bool strict = false;
  std::vector<std::string> shards;
};

// A configuration file that is removed with the test.
class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text) {
    char path[] = "/tmp/weft-flags-XXXXXX";
    const int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    close(fd);
    path_ = path;
    std::ofstream(path_) << text;
  }
  ~ConfigFile() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Parsed {
  Options options;
  absl::Status status;
  std::string help;
  std::map<std::string, std::string> effective;
};

Parsed Parse(std::vector<std::string> arguments) {
  Parsed out;
  Flags flags("weft-test", "Tests flags.");
  flags.Add("port", &out.options.port, "A port")->check(CLI::Range(0, 65535));
  flags.Add("name", &out.options.name, "A name");
  flags.Add("shards", &out.options.shards, "Addresses");
  flags.AddSwitch("strict", &out.options.strict, "A switch");
  arguments.insert(arguments.begin(), "weft-test");
  std::vector<char*> raw;
  for (std::string& argument : arguments) raw.push_back(argument.data());
  out.status = flags.Parse(static_cast<int>(raw.size()), raw.data(), &out.help);
  out.effective = flags.Effective();
  return out;
}

TEST_CASE("A flag beats the environment, which beats the file, which beats the default",
          "[common][flags]") {
  const ConfigFile file("port = 2\nname = \"file\"\nstrict = true\nshards = [\"a\", \"b\"]\n");
  unsetenv("WEFT_PORT");

  Parsed parsed = Parse({});
  REQUIRE(parsed.status.ok());
  CHECK(parsed.options.port == 1);
  CHECK(parsed.effective["port"] == "1 (default)");

  parsed = Parse({"--config", file.path()});
  REQUIRE(parsed.status.ok());
  CHECK(parsed.options.port == 2);
  CHECK(parsed.options.name == "file");
  CHECK(parsed.options.strict);
  CHECK(parsed.options.shards == std::vector<std::string>{"a", "b"});
  CHECK(parsed.effective["port"] == "2 (file)");

  setenv("WEFT_PORT", "3", 1);
  parsed = Parse({"--config", file.path()});
  CHECK(parsed.options.port == 3);
  CHECK(parsed.effective["port"] == "3 (environment)");

  parsed = Parse({"--config", file.path(), "--port=4"});
  CHECK(parsed.options.port == 4);
  CHECK(parsed.effective["port"] == "4 (flag)");
  unsetenv("WEFT_PORT");
}

TEST_CASE("Unknown flags, unknown keys and bad values are errors that name them",
          "[common][flags]") {
  const auto message = [](const Parsed& parsed) { return std::string(parsed.status.message()); };
  CHECK(message(Parse({"--no-such"})).find("no-such") != std::string::npos);
  CHECK(message(Parse({"--port=70000"})).find("--port") != std::string::npos);
  CHECK(message(Parse({"--port=many"})).find("--port") != std::string::npos);
  CHECK(message(Parse({"--config=/no/such/file"})).find("/no/such/file") != std::string::npos);
  const ConfigFile unknown("prot = 2\n");
  CHECK(message(Parse({"--config", unknown.path()})).find("prot") != std::string::npos);
  const ConfigFile bad("port = 70000\n");
  CHECK(message(Parse({"--config", bad.path()})).find("port") != std::string::npos);
}

TEST_CASE("A flag given twice counts the last time, a list takes all", "[common][flags]") {
  const Parsed parsed = Parse({"--port=5", "--port=6", "--shards=a", "--shards=b"});
  REQUIRE(parsed.status.ok());
  CHECK(parsed.options.port == 6);
  CHECK(parsed.options.shards == std::vector<std::string>{"a", "b"});
}

TEST_CASE("Help shows the environment variable and the default", "[common][flags]") {
  const Parsed parsed = Parse({"--help"});
  REQUIRE(parsed.status.ok());
  CHECK(parsed.help.find("WEFT_PORT") != std::string::npos);
  CHECK(parsed.help.find("--name") != std::string::npos);
  CHECK(parsed.help.find("default") != std::string::npos);
  CHECK(Parse({"--version"}).help.find("weft-test ") == 0);
}

}  // namespace
}  // namespace weft
