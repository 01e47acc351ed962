#include "tests/router/doors/http_forms.h"

#include "absl/strings/str_cat.h"

namespace weft::router {
namespace {

// What a smuggler would like to be seen as a request of its own.
constexpr char kInner[] = "GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n";
constexpr char kChunks[] = "5\r\nhello\r\n0\r\n\r\n";

// A POST with `fields`, each with its CRLF, and what follows the head.
std::string Post(const std::string& fields, const std::string& rest = kInner) {
  return absl::StrCat("POST /generate HTTP/1.1\r\nhost: x\r\n", fields, "\r\n", rest);
}

std::string Get(const std::string& fields) {
  return absl::StrCat("GET /health HTTP/1.1\r\n", fields, "\r\n");
}

std::string Chunked(const std::string& body) {
  return Post("transfer-encoding: chunked\r\n", body + kInner);
}

void AddCodings(std::vector<HttpForm>* forms) {
  for (const char* coding :
       {"xchunked", "chunked, gzip", "gzip, chunked", "\"chunked\"", "identity", "chunked, chunked",
        "cow", "chunked;q=1", ",chunked", "chunked,", "", "chunk ed", "chunked\x0b", "'chunked'"}) {
    forms->push_back({coding, Post(absl::StrCat("transfer-encoding: ", coding, "\r\n"),
                                   std::string(kChunks) + kInner)});
  }
  forms->push_back({"two codings in two fields",
                    Post("transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n", kChunks)});
  forms->push_back({"chunked in two fields",
                    Post("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", kChunks)});
  forms->push_back({"coding, then length",
                    Post("transfer-encoding: chunked\r\ncontent-length: 4\r\n", kChunks)});
  forms->push_back({"length, then coding",
                    Post("content-length: 4\r\ntransfer-encoding: chunked\r\n", kChunks)});
  forms->push_back({"length, then an unknown coding",
                    Post("content-length: 5\r\ntransfer-encoding: cow\r\n", "hello")});
  forms->push_back({"a coding in HTTP/1.0",
                    "POST /generate HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" +
                        std::string(kChunks)});
}

void AddLengths(std::vector<HttpForm>* forms) {
  for (const char* length : {"+5", "5, 5", "5,5", "-5", "0x5", "5 5", "5.0", "", "5;", "\"5\"", "٥",
                             "18446744073709551621", "99999999999999999999", "5,", "1e1"}) {
    forms->push_back(
        {length, Post(absl::StrCat("content-length: ", length, "\r\n"), "hello") + kInner});
  }
  forms->push_back(
      {"unequal lengths", Post("content-length: 5\r\ncontent-length: 6\r\n", "hello!")});
  forms->push_back(
      {"equal lengths, twice", Post("content-length: 5\r\ncontent-length: 5\r\n", "hello")});
}

void AddFields(std::vector<HttpForm>* forms) {
  forms->push_back({"a folded line", Post("x-a: b\r\n content-length: 5\r\n", "hello")});
  forms->push_back({"a folded coding", Post("transfer-encoding:\r\n chunked\r\n", kChunks)});
  forms->push_back({"a fold before the first field", "GET / HTTP/1.1\r\n host: x\r\n\r\n"});
  forms->push_back({"a space before the colon", Post("content-length : 5\r\n", "hello")});
  forms->push_back({"a tab before the colon", Post("transfer-encoding\t: chunked\r\n", kChunks)});
  forms->push_back({"no colon", Get("host: x\r\nnothing\r\n")});
  forms->push_back({"an empty name", Get("host: x\r\n: y\r\n")});
  forms->push_back({"a name that is no token", Get("host: x\r\nx(y): z\r\n")});
  forms->push_back({"a zero byte in a value", Get(std::string("host: x\r\nx: a\0b\r\n", 17))});
  forms->push_back({"a zero byte in a name", Get(std::string("host: x\r\nx\0y: a\r\n", 17))});
  forms->push_back({"a CR in a value", Get("host: x\r\nx: a\rtransfer-encoding: chunked\r\n")});
  forms->push_back({"an LF in a value", Get("host: x\r\nx: a\ncontent-length: 5\r\n")});
  forms->push_back({"lines that end in LF", "GET /health HTTP/1.1\nhost: x\n\n"});
  forms->push_back({"lines that end in CR", "GET /health HTTP/1.1\rhost: x\r\r"});
  forms->push_back({"CR CR LF", "GET /health HTTP/1.1\r\r\nhost: x\r\n\r\n"});
  forms->push_back({"an LF alone ends the head", "GET /health HTTP/1.1\r\nhost: x\r\n\n"});
  forms->push_back({"a delete character", Get("host: x\r\nx: \x7f\r\n")});
  forms->push_back({"two keys", Get("host: x\r\nauthorization: a\r\nauthorization: b\r\n")});
  forms->push_back({"two types", Post("content-type: a\r\ncontent-type: b\r\n")});
}

void AddTargets(std::vector<HttpForm>* forms) {
  for (const char* host : {"a b", "a@b", "a/b", "x:99999", "x:y", "[::1", "a,b", "http://x", "x\\y",
                           "x?y", "x#y", "ä", "%zz", "x:-1", "[::1]x"}) {
    forms->push_back({host, Get(absl::StrCat("host: ", host, "\r\n"))});
  }
  forms->push_back({"no host", Get("")});
  forms->push_back({"two hosts", Get("host: x\r\nhost: x\r\n")});
  for (const char* line : {"GET /a b HTTP/1.1",
                           "GET  / HTTP/1.1",
                           "GET / HTTP/1.1 ",
                           " GET / HTTP/1.1",
                           "GET /",
                           "GET /#part HTTP/1.1",
                           "GET /%zz HTTP/1.1",
                           "GET /a\\b HTTP/1.1",
                           "GET health HTTP/1.1",
                           "GET * HTTP/1.1",
                           "GET ftp://x/ HTTP/1.1",
                           "GET http:///x HTTP/1.1",
                           "GET / http/1.1",
                           "GET / HTTP/1.1x",
                           "GET / HTTP/1,1",
                           "GET / HTTP/11",
                           "G(T / HTTP/1.1",
                           "GET http://u@x/ HTTP/1.1",
                           "GET http://x:80y/z HTTP/1.1",
                           "GET /\xc3\xa4 HTTP/1.1",
                           "GET\t/\tHTTP/1.1",
                           "\x16\x03\x01"}) {
    forms->push_back({line, absl::StrCat(line, "\r\nhost: x\r\n\r\n")});
  }
  forms->push_back({"an LF before the request", "\nGET / HTTP/1.1\r\nhost: x\r\n\r\n"});
  forms->push_back({"a CR before the request", "\rGET / HTTP/1.1\r\nhost: x\r\n\r\n"});
}

void AddChunks(std::vector<HttpForm>* forms) {
  for (const char* body : {"5\nhello\r\n0\r\n\r\n",
                           "5\rhello\r\n0\r\n\r\n",
                           "x\r\nhello\r\n",
                           "+5\r\nhello\r\n",
                           "-5\r\nhello\r\n",
                           "0x5\r\nhello\r\n",
                           " 5\r\nhello\r\n",
                           "5 \r\nhello\r\n",
                           "5;\r\nhello\r\n",
                           "5;a=\r\nhello\r\n",
                           "5;a=\"\r\nhello\r\n",
                           "5;a=\"\n\"\r\nhello\r\n",
                           "5;a\nb\r\nhello\r\n",
                           "5a;b c\r\n",
                           "5\r\nhelloo\r\n0\r\n\r\n",
                           "5\r\nhello0\r\n\r\n",
                           "5\r\nhello\n0\r\n\r\n",
                           "5\r\nhello\r\n\r\n0\r\n\r\n",
                           "\r\n5\r\nhello\r\n",
                           "fffffffffffffffffx\r\nhello\r\n",
                           "0\n\n",
                           "0\r\n\n",
                           "0\r\nx y: z\r\n\r\n",
                           "0\r\ncontent-length: 5\r\n\r\n",
                           "0\r\ntransfer-encoding: chunked\r\n\r\n",
                           "0\r\nhost: evil\r\n\r\n",
                           "0\r\n folded\r\n\r\n",
                           "0\r\nx: a\nb\r\n\r\n"}) {
    forms->push_back({body, Chunked(body)});
  }
}

}  // namespace

std::vector<HttpForm> SmugglingForms() {
  std::vector<HttpForm> forms;
  AddCodings(&forms);
  AddLengths(&forms);
  AddFields(&forms);
  AddTargets(&forms);
  AddChunks(&forms);
  return forms;
}

std::vector<HttpForm> GoodForms() {
  std::vector<HttpForm> forms = {
      {"plain", Get("host: x\r\n")},
      {"an empty host", Get("host:\r\n")},
      {"a host with a port", Get("host: a.example:8080\r\n")},
      {"an address", Get("host: 127.0.0.1:1\r\n")},
      {"an IPv6 address", Get("host: [::1]:8080\r\n")},
      {"a name that begins like an address", Get("host: 127.0.0.1.nip.io:8080\r\n")},
      {"a host with an underscore", Get("host: my_service\r\n")},
      {"blanks around a value", Get("host: \t x \t \r\n")},
      {"letters beyond ASCII in a value", Get("host: x\r\nx-name: \xc3\xa4\r\n")},
      {"a tab in a value", Get("host: x\r\nx: a\tb\r\n")},
      {"an empty value", Get("host: x\r\nx:\r\n")},
      {"empty lines before", "\r\n\r\n" + Get("host: x\r\n")},
      {"a query", "GET /health?a=1&b=%20%2F?/ HTTP/1.1\r\nhost: x\r\n\r\n"},
      {"an escaped path", "GET /%68ealth HTTP/1.1\r\nhost: x\r\n\r\n"},
      {"an absolute target", "GET http://x/health HTTP/1.1\r\nhost: y\r\n\r\n"},
      {"an absolute target with a port", "GET https://x:8443/ HTTP/1.1\r\nhost: x\r\n\r\n"},
      {"the asterisk", "OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n"},
      {"HTTP/1.0 without a host", "GET /health HTTP/1.0\r\n\r\n"},
      {"an unknown method", "BREW / HTTP/1.1\r\nhost: x\r\n\r\n"},
      {"a length with zeros", Post("content-length: 0005\r\n", "hello")},
      {"a length of none", Post("content-length: 0\r\n", "")},
      {"no length", Post("", "")},
      {"blanks around a length", Post("content-length: \t5 \r\n", "hello")},
      {"a body in a GET", "GET / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"},
      {"chunks", Post("transfer-encoding: chunked\r\n", kChunks)},
      {"chunks, in capitals",
       Post("Transfer-Encoding: CHUNKED\r\n", "A\r\n0123456789\r\n0\r\n\r\n")},
      {"a chunked body without bytes", Post("transfer-encoding: chunked\r\n", "0\r\n\r\n")},
      {"many zeros", Post("transfer-encoding: chunked\r\n", "0005\r\nhello\r\n000\r\n\r\n")},
      {"extensions", Post("transfer-encoding: chunked\r\n",
                          "5;a;b=c ; d = \"e\\\"f\" \t;g\r\nhello\r\n0;h\r\n\r\n")},
      {"trailers",
       Post("transfer-encoding: chunked\r\n", "5\r\nhello\r\n0\r\nx-sum: 1\r\nx-other:\r\n\r\n")},
      {"expect", Post("content-length: 5\r\nexpect: 100-Continue\r\n", "hello")},
      {"TE and Connection", Get("host: x\r\nte: trailers\r\nconnection: te, keep-alive\r\n")}};
  return forms;
}

}  // namespace weft::router
