// The page at /ui as a browser is given it: types, headers that bind it, copies that are still
// good.

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "router/doors/http/router.h"
#include "router/doors/http/server.h"
#include "router/doors/ui/page_files.h"
#include "router/doors/ui/routes.h"
#include "router/observe/probe.h"
#include "tests/router/doors/doors_fixture.h"
#include "tests/router/doors/raw_client.h"

namespace weft::router {
namespace {

struct PageServer {
  PageServer() {
    AddUiRoutes(&routes);
    auto started = HttpServer::Start({}, &routes, &none, &probe);
    WEFT_CHECK_MSG(started.ok(), std::string(started.status().message()));
    server = *std::move(started);
  }
  ~PageServer() { server->Stop(); }

  RawResponse Get(const std::string& path, const std::string& headers = "") const {
    return Fetch(server->port(), GetText(path, headers));
  }

  Probe probe;
  HttpRouter routes;
  HttpRouter none;
  std::unique_ptr<HttpServer> server;
};

TEST_CASE("The page comes with its type and with headers that bind it to this server",
          "[router][ui]") {
  PageServer page;
  const RawResponse index = page.Get("/ui/");
  CHECK(index.status == 200);
  CHECK(index.headers.at("content-type") == "text/html; charset=utf-8");
  CHECK(absl::StartsWith(index.body, "<!doctype html>"));
  CHECK(index.headers.at("x-content-type-options") == "nosniff");
  CHECK(index.headers.at("referrer-policy") == "no-referrer");
  CHECK(index.headers.at("cross-origin-resource-policy") == "same-origin");
  CHECK(index.headers.at("cache-control") == "no-cache");
  const std::string& policy = index.headers.at("content-security-policy");
  for (const char* rule :
       {"default-src 'none'; ", "script-src 'self'; ", "style-src 'self'; ", "connect-src 'self'; ",
        "base-uri 'none'; ", "form-action 'none'; ", "frame-ancestors 'none'; ",
        "require-trusted-types-for 'script'; ", "trusted-types 'none'"}) {
    INFO(rule);
    CHECK(absl::StrContains(policy, rule));
  }
  CHECK_FALSE(absl::StrContains(policy, "unsafe"));
  CHECK(page.Get("/ui/index.html").body == index.body);
  CHECK(page.Get("/ui/style.css").headers.at("content-type") == "text/css; charset=utf-8");
  CHECK(page.Get("/ui/app.mjs").headers.at("content-type") == "text/javascript; charset=utf-8");
  CHECK(page.Get("/ui/icon.svg").headers.at("content-type") == "image/svg+xml");
}

TEST_CASE("Every file of the page is served as it is, and nothing else is", "[router][ui]") {
  PageServer page;
  REQUIRE(PageFiles().size() >= 10);
  for (const PageFile& file : PageFiles()) {
    INFO(file.name);
    const RawResponse response = page.Get(absl::StrCat("/ui/", file.name));
    CHECK(response.status == 200);
    CHECK(response.body == file.bytes);
    // All that a page may name is its own, by a name without a folder.
    CHECK_FALSE(absl::StrContains(file.bytes, "src=\"http"));
    CHECK_FALSE(absl::StrContains(file.bytes, "innerHTML"));
  }
  for (const char* path : {"/ui/none.mjs", "/ui/../ui/app.mjs", "/ui/%2e%2e/app.mjs", "/ui/app",
                           "/ui//app.mjs", "/ui/CMakeLists.txt", "/uix"}) {
    INFO(path);
    CHECK(page.Get(path).status == 404);
  }
}

TEST_CASE("The page's address leads to its folder, below whatever path a proxy shows it",
          "[router][ui]") {
  PageServer page;
  const RawResponse moved = page.Get("/ui");
  CHECK(moved.status == 307);
  CHECK(moved.headers.at("location") == "ui/");
}

TEST_CASE("The page is there to be read and for nothing else", "[router][ui]") {
  PageServer page;
  for (const char* path : {"/ui", "/ui/", "/ui/app.mjs"}) {
    INFO(path);
    const RawResponse refused = Fetch(page.server->port(), PostText(path, "{}"));
    CHECK(refused.status == 405);
    CHECK(refused.headers.at("allow") == "GET, HEAD");
  }
  RawClient client(page.server->port());
  client.Send("HEAD /ui/app.mjs HTTP/1.1\r\nhost: x\r\n\r\n");
  const auto head = client.Read(/*head=*/true);
  REQUIRE(head.has_value());
  const RawResponse whole = page.Get("/ui/app.mjs");
  CHECK(head->status == 200);
  CHECK(head->headers.at("content-length") == absl::StrCat(whole.body.size()));
  CHECK(head->headers.at("etag") == whole.headers.at("etag"));
}

TEST_CASE("A copy that is still good is not sent again", "[router][ui]") {
  PageServer page;
  const std::string tag = page.Get("/ui/app.mjs").headers.at("etag");
  CHECK(tag.size() == 34);
  CHECK(tag.front() == '"');
  CHECK(page.Get("/ui/style.css").headers.at("etag") != tag);
  for (const std::string& good :
       {tag, absl::StrCat("W/", tag), absl::StrCat("\"x\", ", tag), std::string("*")}) {
    INFO(good);
    RawClient client(page.server->port());
    client.Send(GetText("/ui/app.mjs", absl::StrCat("if-none-match: ", good, "\r\n")) +
                GetText("/ui/icon.svg"));
    const auto same = client.Read(/*head=*/true);
    REQUIRE(same.has_value());
    CHECK(same->status == 304);
    CHECK(same->headers.at("etag") == tag);
    CHECK(same->headers.count("content-length") == 0);
    CHECK(same->headers.at("cache-control") == "no-cache");
    // No byte of a body stands before the next answer.
    CHECK(client.Read().value_or(RawResponse()).headers.at("content-type") == "image/svg+xml");
  }
  for (const std::string& other : {std::string("\"x\""), tag.substr(1), tag.substr(0, 20)}) {
    INFO(other);
    CHECK(page.Get("/ui/app.mjs", absl::StrCat("if-none-match: ", other, "\r\n")).status == 200);
  }
  // Several lines are one list.
  CHECK(Fetch(page.server->port(),
              absl::StrCat("HEAD /ui/app.mjs HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
                           "if-none-match: \"x\"\r\nif-none-match: ",
                           tag, "\r\n\r\n"))
            .status == 304);
}

TEST_CASE("Without the page its paths are unknown", "[router][ui]") {
  DoorsFixture fixture;
  for (const char* path : {"/ui", "/ui/", "/ui/app.mjs"}) {
    INFO(path);
    CHECK(fixture.Get(path).status == 404);
  }
}

}  // namespace
}  // namespace weft::router
