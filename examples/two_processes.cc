// A state from one process to another: one prefills a prompt and seals the state into a file with a MAC under a key,
// the other, perhaps on another machine, goes on from it.
//   two_processes prefill MODEL STATE KEY "a long prompt"
//   two_processes decode MODEL STATE KEY " and a question"
#include <baton/baton.h>

#include <cstdio>
#include <cstring>

namespace {

baton::Status run(bool prefills, const char* model, const char* file, const char* key_file, const char* text) {
  BATON_TRY(const baton::StateKey key, baton::StateKey::read(key_file));
  baton::RuntimeOptions options;
  options.model = model;
  options.units = {prefills ? "ref" : "cpu"};  // another unit on each side
  BATON_TRY(const auto runtime, baton::Runtime::open(options));
  // What continues a state gets no BOS.
  const auto place = prefills ? baton::TextPlace::kStart : baton::TextPlace::kContinuation;
  BATON_TRY(auto tokens, runtime->encode(text, true, place));
  baton::CompletionRequest request{runtime->make_request(std::move(tokens)), {}};
  request.request.max_new_tokens = prefills ? 0 : 24;
  if (prefills) {
    request.request.seal_to = [&](const baton::SealSource& state) { return baton::write_seal_file(file, state, &key); };
  } else {
    baton::SealExpectation expected;
    const baton::StateShape shape = baton::state_shape(runtime->model().program, baton::DType::kF32);
    BATON_TRY(expected.identity, runtime->identity());
    expected.shape = &shape;
    expected.position_max = static_cast<uint64_t>(runtime->model().spec.context_max);
    BATON_TRY(baton::SealedFile state, baton::read_seal_file(file, expected, &key));
    const auto& made = state.view.provenance;
    std::printf("%llu tokens made by %s\n", static_cast<unsigned long long>(state.view.position),
                made.makers.front().unit.c_str());
    auto& ids = request.request.tokens;
    ids.insert(ids.begin(), state.view.tokens.begin(), state.view.tokens.end());
    request.request.start_state = state.source;
  }
  BATON_TRY(const baton::Completion answer, runtime->complete(std::move(request), {}, {}));
  if (!prefills) std::printf("%s\n", answer.text.c_str());
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return std::fprintf(stderr, "usage: two_processes prefill|decode MODEL STATE KEY TEXT\n"), 2;
  const auto done = run(std::strcmp(argv[1], "prefill") == 0, argv[2], argv[3], argv[4], argv[5]);
  if (!done) std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return done ? 0 : 1;
}
