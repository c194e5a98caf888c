// The page's files: which there are, what they weigh, and the headers that keep a browser from doing anything else.
#include "baton/serve/page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace baton::serve {
namespace {

http::Request request_of(std::string path, http::Headers headers = {}, std::string method = "GET") {
  http::Request request;
  request.method = std::move(method);
  request.path = std::move(path);
  request.headers = std::move(headers);
  return request;
}

std::string header_of(const http::Response& response, std::string_view name) {
  for (const auto& [key, value] : response.headers) {
    if (key == name) return value;
  }
  return "";
}

constexpr const char* kNames[] = {"api.js",      "app.js",   "figures.js",  "highlight.js", "icon.svg",
                                  "markdown.js", "store.js", "settings.js", "style.css",    "theme.js",
                                  "timeline.js", "view.js",  "index.html"};

TEST(Page, IsWholeAndWeighsUnder150KB) {
  size_t bytes = 0;
  for (const char* name : kNames) {
    const PageFile* file = page_file(std::string("/page/") + name);
    ASSERT_NE(file, nullptr) << name;
    EXPECT_FALSE(file->body.empty()) << name;
    EXPECT_EQ(file->etag.size(), 22U) << name;
    bytes += file->body.size();
  }
  EXPECT_LT(bytes, 150'000U);
  EXPECT_TRUE(page_file("/")->body.starts_with("<!doctype html>"));
  EXPECT_EQ(page_file("/"), page_file("/index.html"));
  EXPECT_EQ(page_file("/")->content_type, "text/html; charset=utf-8");
  EXPECT_EQ(page_file("/page/app.js")->content_type, "text/javascript; charset=utf-8");
  EXPECT_EQ(page_file("/page/style.css")->content_type, "text/css; charset=utf-8");
  EXPECT_EQ(page_file("/page/icon.svg")->content_type, "image/svg+xml");
}

// Nothing is fetched from elsewhere, and no file has markup made of text, a style or a script in an attribute: the
// policy would stop it, and this says so earlier.
TEST(Page, AsksNobodyElse) {
  for (const char* name : kNames) {
    const std::string_view body = page_file(std::string("/page/") + name)->body;
    for (const char* banned :
         {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "style=\"",
          "onclick=\"", "@import", "src=\"http", "href=\"http", "url("}) {
      EXPECT_EQ(body.find(banned), body.npos) << name << " has " << banned;
    }
  }
}

TEST(Page, NamesAreComparedAndNeverOpened) {
  for (const char* path : {"", "/page", "/page/", "/page/../page.cc", "/page/app.js/", "/page/APP.JS", "/app.js", "//",
                           "/page//app.js", "/page/app.js?x", "/page/%61pp.js", "/etc/passwd"}) {
    EXPECT_EQ(page_file(path), nullptr) << path;
    EXPECT_EQ(page_response(request_of(path)).status, 404) << path;
  }
  EXPECT_EQ(page_file(std::string_view("/page/app.js\0", 13)), nullptr);
}

TEST(Page, HeadersForbidWhatItDoesNotNeed) {
  const http::Response response = page_response(request_of("/"));
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, page_file("/")->body);
  const std::string policy = header_of(response, "Content-Security-Policy");
  for (const char* part : {"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'",
                           "img-src 'self' data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
                           "require-trusted-types-for 'script'"}) {
    EXPECT_NE(policy.find(part), policy.npos) << part;
  }
  EXPECT_EQ(policy.find("unsafe"), policy.npos);
  EXPECT_EQ(policy.find('*'), policy.npos);
  EXPECT_EQ(header_of(response, "X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(header_of(response, "Referrer-Policy"), "no-referrer");
}

TEST(Page, WhatTheBrowserHasIsNotSentAgain) {
  const std::string tag(page_file("/page/app.js")->etag);
  for (const std::string& known : {tag, "W/" + tag, "\"x\", " + tag, std::string("*")}) {
    const http::Response response = page_response(request_of("/page/app.js", {{"if-none-match", known}}));
    EXPECT_EQ(response.status, 304) << known;
    EXPECT_TRUE(response.body.empty());
    EXPECT_EQ(header_of(response, "ETag"), tag);
  }
  EXPECT_EQ(page_response(request_of("/page/app.js", {{"if-none-match", "\"x\""}})).status, 200);
  EXPECT_EQ(page_response(request_of("/page/view.js", {{"if-none-match", tag}})).status, 200);
}

TEST(Page, IsReadOnly) {
  const http::Response response = page_response(request_of("/", {}, "POST"));
  EXPECT_EQ(response.status, 405);
  EXPECT_EQ(header_of(response, "Allow"), "GET, HEAD");
  EXPECT_EQ(page_response(request_of("/", {}, "HEAD")).status, 200);
}

}  // namespace
}  // namespace baton::serve
