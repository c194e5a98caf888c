// A conversation on stdin and stdout: chat MODEL. Each line is a turn.
#include <baton/baton.h>

#include <cstdio>
#include <iostream>

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: chat MODEL\n"), 2;
  baton::RuntimeOptions options;
  options.model = argv[1];
  options.units = {"cpu"};
  auto runtime = baton::Runtime::open(options);
  if (!runtime) return std::fprintf(stderr, "%s\n", runtime.error().message.c_str()), 1;

  baton::ChatInput chat;
  for (std::string line; std::getline(std::cin, line);) {
    chat.messages.push_back({{"role", "user"}, {"content", line}});
    auto tokens = (*runtime)->encode_chat(chat);
    if (!tokens) return std::fprintf(stderr, "%s\n", tokens.error().message.c_str()), 1;
    baton::CompletionRequest request{(*runtime)->make_request(std::move(*tokens)), {}};
    request.request.max_new_tokens = 60;
    const auto show = [](std::string_view text) { std::cout << text << std::flush; };
    auto answer = (*runtime)->complete(std::move(request), show, {});
    if (!answer) return std::fprintf(stderr, "%s\n", answer.error().message.c_str()), 1;
    std::cout << "\n";
    chat.messages.push_back({{"role", "assistant"}, {"content", answer->text}});
  }
}
