// One request for an answer, from when its body was read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "baton/http/server.h"
#include "baton/serve/model_pool.h"
#include "baton/serve/protocol.h"

namespace baton::serve {

using ExchangePtr = std::shared_ptr<http::Exchange>;

// Who asks: one of the API keys, or everybody where there are none.
struct Caller {
  uint32_t key = 0;
  uint64_t tenant = 0;  // Request::tenant: callers of several do not see each other's checkpoints, not in times either
  uint32_t weight = 1;
  uint32_t waiting_max = UINT32_MAX;
  std::string name = {};  // of the key; empty: everybody
  uint32_t running_max = UINT32_MAX;
};

struct JobPrompt {
  std::vector<int32_t> tokens;
  std::vector<int32_t> echo_ids;  // the tokens again, where an echo shows them with logprobs
  bool in_reasoning = false;      // it ended with <think>
};

struct Job {
  uint64_t number = 0;
  ExchangePtr exchange;
  const Protocol* protocol = nullptr;
  Caller caller;
  ApiRequest request;  // messages are let go of once they are tokens
  PooledModel* pooled = nullptr;
  ModelLease lease;                                  // of it; none: it is not loaded yet
  ServedModel* model = nullptr;                      // of the lease
  std::vector<JobPrompt> prompts;                    // of a chat one
  std::vector<uint64_t> keep_at;                     // of it
  std::shared_ptr<TokenConstraint> constraint = {};  // of the first choice; null: it may be anything
  AnswerHead head;
  std::unique_ptr<AnswerWriter> writer;  // of `request`
  bool begun = false;                    // the stream is
  double arrived_ms = 0, read_ms = 0;    // by the server's clock
  double load_ms = 0;                    // of waiting for the model
};

}  // namespace baton::serve
