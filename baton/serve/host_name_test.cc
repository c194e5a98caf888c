// Names that a page of another site cannot take, and those that it can.
#include "baton/serve/host_name.h"

#include <gtest/gtest.h>

#include <vector>

namespace baton::serve {
namespace {

TEST(HostName, AddressesAndLocalhostAreOwn) {
  const std::vector<std::string> allowed = {"Box.example", "mac.local"};
  for (const char* own :
       {"127.0.0.1", "127.0.0.1:8080", "10.1.2.3:1", "[::1]", "[::1]:8080", "[::ffff:10.0.0.1]", "localhost",
        "LocalHost:80", "localhost.", "a.localhost:8080", "box.example:8080", "MAC.LOCAL", "box.example."})
    EXPECT_TRUE(is_own_host(own, allowed)) << own;
  for (const char* other : {"evil.com", "evil.com:8080", "localhost.evil.com", "notlocalhost", "127.0.0.1.evil.com",
                            "1.2.3.4.nip.io:80", "xbox.example", "box.example.evil.com", "", ":8080",
                            "evil.com:127.0.0.1", ".", "[evil.com]", "[ab.cd]", "[]", "["})
    EXPECT_FALSE(is_own_host(other, allowed)) << other;
  EXPECT_FALSE(is_own_host("box.example", {}));
}

}  // namespace
}  // namespace baton::serve
