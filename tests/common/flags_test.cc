#include "common/flags.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <utility>

#include "common/near_name.h"
#include "tests/common/temp_dir.h"

namespace weft {
namespace {

constexpr FlagSources kAllSources = {.environment = true, .file = true};

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

Parsed Parse(std::vector<std::string> arguments, FlagSources sources = kAllSources) {
  Parsed out;
  Flags flags("weft-test", "Tests flags.", sources);
  flags.AddNumber("port", &out.options.port, 0, 65535, "A port");
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

TEST_CASE("A program reads the environment and a file only where its row of the table says so",
          "[common][flags]") {
  CHECK(SourcesOf("weft serve").environment);
  CHECK(SourcesOf("weft serve").file);
  CHECK(SourcesOf("weft inspect").environment);
  for (const char* program : {"weft inspect", "weft chat", "weft key new", "weft bench load"}) {
    INFO(program);
    CHECK_FALSE(SourcesOf(program).file);
  }
  for (const char* program : {"weft chat", "weft key new", "weft bench load"}) {
    INFO(program);
    CHECK_FALSE(SourcesOf(program).environment);
  }
  const ConfigFile server("served-model-name = \"x\"\n");
  setenv("WEFT_CONFIG", server.path().c_str(), 1);
  setenv("WEFT_PORT", "3", 1);
  const Parsed alone = Parse({}, {});
  CHECK(alone.status.ok());
  CHECK(alone.options.port == 1);
  CHECK(Parse({"--help"}, {}).help.find("WEFT_") == std::string::npos);
  const Parsed without_file = Parse({}, {.environment = true, .file = false});
  CHECK(without_file.status.ok());
  CHECK(without_file.options.port == 3);
  CHECK(Parse({"--config=x"}, {}).status.message() == "unknown flag --config (see --help)");
  unsetenv("WEFT_CONFIG");
  unsetenv("WEFT_PORT");
}

TEST_CASE("A refusal names the file or the variable that a value came from", "[common][flags]") {
  const ConfigFile file("port = 70000\n");
  const std::string in_file(Parse({"--config", file.path()}).status.message());
  CHECK(in_file.find("--port: ") == 0);
  CHECK(in_file.find(", as " + file.path() + " says") != std::string::npos);
  setenv("WEFT_PORT", "70000", 1);
  const std::string in_variable(Parse({}).status.message());
  CHECK(in_variable.find("--port: ") == 0);
  CHECK(in_variable.find(", as WEFT_PORT says") != std::string::npos);
  const std::string on_line(Parse({"--port=70001"}).status.message());
  CHECK(on_line.find("WEFT_PORT") == std::string::npos);
  unsetenv("WEFT_PORT");
}

TEST_CASE("An unknown flag or key is told its nearest known one", "[common][flags]") {
  CHECK(Parse({"--prt", "1"}).status.message() ==
        "unknown flag --prt; the nearest known one is --port (see --help)");
  CHECK(Parse({"--prt=1"}).status.message() ==
        "unknown flag --prt; the nearest known one is --port (see --help)");
  CHECK(Parse({"--quite-another"}).status.message() == "unknown flag --quite-another (see --help)");
  CHECK(Parse({"stray"}).status.message() == "unexpected argument stray (see --help)");
  const ConfigFile file("prt = 2\n");
  CHECK(Parse({"--config", file.path()}).status.message() ==
        file.path() + ": unknown key prt; the nearest known one is port (see --help)");
}

TEST_CASE("A mistyped flag is told its nearest known one in every form", "[common][flags]") {
  const auto says = [](std::vector<std::string> arguments, const std::string& what) {
    const Parsed parsed = Parse(std::move(arguments));
    INFO(parsed.status);
    CHECK(parsed.status.message() == what + " (see --help)");
  };
  const std::string port = "unknown flag --prot; the nearest known one is --port";
  says({"--prot=1"}, port);
  says({"--prot", "1"}, port);
  says({"--name=x", "--prot", "1", "--strict"}, port);
  says({"--no-strict"}, "unknown flag --no-strict; the nearest known one is --strict=false");
  says({"--no-stirct"}, "unknown flag --no-stirct; the nearest known one is --strict=false");
  says({"--no-strict=true"}, "unknown flag --no-strict; the nearest known one is --strict=false");
  // What takes a value cannot be switched off.
  says({"--no-port"}, "unknown flag --no-port");
  says({"-port=1"}, "unexpected argument -port=1; the nearest flag is --port");
  says({"-prot", "1"}, "unexpected argument -prot; the nearest flag is --port");
}

TEST_CASE("An empty value is one, and takes nothing of what follows", "[common][flags]") {
  const Parsed parsed = Parse({"--name=", "--port=7"});
  CHECK(parsed.status.ok());
  CHECK(parsed.options.name.empty());
  CHECK(parsed.options.port == 7);
  CHECK_FALSE(Parse({"--port="}).status.ok());
}

TEST_CASE("A flag without its value says how to write it", "[common][flags]") {
  CHECK(Parse({"--name"}).status.message() ==
        "--name: its value is missing; write --name=VALUE (see --help)");
  CHECK(Parse({"--port", "--strict", "--name=x"}).status.message() ==
        "--port: its value is missing; write --port=VALUE (see --help)");
  bool truth = true;
  Flags flags("weft-test", "Tests flags.", kAllSources);
  flags.Add("truth", &truth, "True or false");
  char program[] = "weft-test";
  char argument[] = "--truth";
  char* argv[] = {program, argument};
  std::string help;
  CHECK(flags.Parse(2, argv, &help).message() ==
        "--truth: its value is missing; write --truth=true or --truth=false (see --help)");
}

TEST_CASE("A variable that nobody reads is found, with the nearest known one", "[common][flags]") {
  int number = 0;
  Flags flags("weft-test", "Tests flags.", kAllSources);
  flags.Add("model-port", &number, "Of this program");
  flags.For("other", {"hidden"});
  flags.Add("hidden", &number, "Decided here");
  const char* const environment[] = {"PATH=/bin",
                                     "WEFT_MODEL_PORT=1",
                                     "WEFT_HIDDEN=1",
                                     "WEFT_CONFIG=x",
                                     "WEFT_API_KEY=weft-x",
                                     "WEFT_DEMO_MODEL=x",
                                     "WEFT_SERVICE_HOST=10.0.0.1",
                                     "WEFT_PORT_8080_TCP=tcp://10.0.0.1:8080",
                                     "WEFT_ELSEWHERE=1",
                                     "WEFT_MODEL_PROT=1",
                                     "WEFT_API_KYE=x",
                                     "WEFT_QUITE_ANOTHER=",
                                     nullptr};
  const auto unknown = flags.UnknownVariables(environment, {"WEFT_ELSEWHERE"});
  REQUIRE(unknown.size() == 3);
  CHECK(unknown[0].Line() ==
        "the environment variable WEFT_MODEL_PROT is none of weft's and changes nothing; the "
        "nearest known one is WEFT_MODEL_PORT");
  CHECK(unknown[1].near == "WEFT_API_KEY");
  CHECK(unknown[2].Line() ==
        "the environment variable WEFT_QUITE_ANOTHER is none of weft's and changes nothing");
}

TEST_CASE("A near name differs in at most a third of its letters", "[common][flags]") {
  const std::vector<std::string> names = {"grpc-port", "http-port", "host"};
  CHECK(NearName("htp-port", names) == "http-port");
  CHECK(NearName("hots", names) == "host");
  CHECK(NearName("htos", names).empty());
  CHECK(NearName("hosts", names) == "host");
  CHECK(NearName("", names).empty());
  CHECK(NearName(std::string(100'000, 'x'), names).empty());
}

TEST_CASE("A pipe as a configuration file is refused and not waited for", "[common][flags]") {
  const test::TempDir dir;
  const std::string pipe = dir.path() + "/pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const Parsed parsed = Parse({"--config", pipe});
  CHECK(parsed.status.message() == "--config: " + pipe + ": is not a regular file");
}

TEST_CASE("A number out of range is refused with the range, also from environment and file",
          "[common][flags]") {
  struct Numbers {
    uint16_t port = 80;
    int32_t offset = -1;
    double seconds = 1;
  };
  const auto message = [](std::vector<std::string> arguments) {
    Numbers numbers;
    Flags flags("weft-test", "Tests flags.", kAllSources);
    flags.AddNumber("port-number", &numbers.port, 0, 65535, "A port");
    flags.AddNumber("offset", &numbers.offset, -1, 7, "An offset");
    flags.AddNumber("seconds", &numbers.seconds, 0.5, 10, "A time, s");
    arguments.insert(arguments.begin(), "weft-test");
    std::vector<char*> raw;
    for (std::string& argument : arguments) raw.push_back(argument.data());
    std::string help;
    const absl::Status status = flags.Parse(static_cast<int>(raw.size()), raw.data(), &help);
    return help + std::string(status.message());
  };
  CHECK(message({"--port-number=65535", "--offset=-1", "--seconds=0.5"}).empty());
  for (const char* wrong : {"--port-number=65536", "--port-number=-1", "--port-number=1.5",
                            "--port-number=99999999999999999999", "--port-number=many",
                            "--offset=8", "--offset=-2", "--seconds=0.4", "--seconds=inf"}) {
    INFO(wrong);
    const std::string text = wrong;
    const size_t equals = text.find('=');
    CHECK(message({wrong}).find(text.substr(0, equals) + ": " + text.substr(equals + 1) +
                                " is not in ") == 0);
  }
  CHECK(message({"--help"}).find("A port; 0 .. 65535") != std::string::npos);
  setenv("WEFT_OFFSET", "9", 1);
  CHECK(message({}).find("--offset: 9 is not in -1 .. 7") == 0);
  unsetenv("WEFT_OFFSET");
  const ConfigFile file("offset = 10\n");
  CHECK(message({"--config", file.path()}).find("10 is not in -1 .. 7") != std::string::npos);
}

TEST_CASE("Flags of other processes are declared once, withheld or handed on as they were given",
          "[common][flags]") {
  int own = 0;
  int first = 0;
  int second = 0;
  int hidden = 0;
  std::vector<std::string> names;
  Flags flags("weft-test", "Tests flags.", kAllSources);
  flags.Add("own", &own, "Of this program");
  flags.For("one", {"hidden"});
  flags.Add("both", &first, "Of both");
  flags.Add("hidden", &hidden, "Decided here");
  flags.Add("names", &names, "A list");
  flags.For("two", {"hidden"});
  flags.Add("both", &second, "Of both");
  flags.Add("hidden", &hidden, "Decided here");
  std::vector<std::string> arguments = {"weft-test", "--own=1", "--both=2", "--names=a",
                                        "--names=b"};
  std::vector<char*> raw;
  for (std::string& argument : arguments) raw.push_back(argument.data());
  std::string help;
  REQUIRE(flags.Parse(static_cast<int>(raw.size()), raw.data(), &help).ok());
  CHECK(first == 2);
  CHECK(second == 0);
  const auto one = flags.Given("one");
  REQUIRE(one.size() == 2);
  CHECK(one[0].name == "both");
  CHECK(one[0].origin == "flag");
  CHECK(one[1].values == std::vector<std::string>{"a", "b"});
  REQUIRE(flags.Given("two").size() == 1);
  CHECK(flags.Origin("both") == "flag");
  CHECK(flags.Given("three").empty());
  CHECK(flags.environment_names().count("WEFT_HIDDEN") == 1);
}

TEST_CASE("What a launcher hands on keeps the origin that the launcher saw", "[common][flags]") {
  const Parsed parsed =
      Parse({"--port=4", "--name=x", "--flag-origins=port:environment,name:weft serve"});
  REQUIRE(parsed.status.ok());
  auto effective = parsed.effective;
  CHECK(effective["port"] == "4 (environment)");
  CHECK(effective["name"] == "x (weft serve)");
  CHECK(effective["strict"] == "false (default)");
  CHECK(effective["config"] == " (default)");
  CHECK(effective.count("flag-origins") == 0);
  auto with_file = Parse({"--flag-config=/no/file.toml", "--flag-origins=config:flag"});
  REQUIRE(with_file.status.ok());
  CHECK(with_file.effective["config"] == "/no/file.toml (flag)");
  CHECK(with_file.effective.count("flag-config") == 0);
}

TEST_CASE("A flag given twice counts the last time, a list takes all", "[common][flags]") {
  const Parsed parsed = Parse({"--port=5", "--port=6", "--shards=a", "--shards=b"});
  REQUIRE(parsed.status.ok());
  CHECK(parsed.options.port == 6);
  CHECK(parsed.effective.at("port") == "6 (flag)");
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
