// What is known of a request while it lasts: its trace, who asked, and what became of it, for the access log and the
// limits of its key.
#pragma once

#include <cstdint>
#include <string_view>

#include "baton/http/server.h"
#include "baton/serve/access_line.h"
#include "baton/serve/access_log.h"
#include "baton/serve/job.h"
#include "baton/serve/rate_limits.h"

namespace baton::serve {

// Of whoever has the request now.
class RequestNote final : public http::Note {
 public:
  // `log`, `limits`: null where there are none; outlive the exchange. `span`: a random number.
  RequestNote(const http::Request& request, uint64_t span, AccessLog* log, RateLimits* limits);
  void ended(const http::Ended& ended) override;

  // It is a request of this key.
  void set_key(uint32_t number, const std::string& name);
  // An answer is to be made; its prompt, where the log is to have it and the model is there. May be called again then.
  void begin(const Job& job);
  // The events of the timeline, with what they say; puts in front of the first what belongs to the trace.
  void learn(std::string_view event, Json& more);
  // Vectors were made of so many tokens.
  void count_vectors(const std::string& model, uint64_t tokens);

  const AccessLine& line() const { return line_; }

 private:
  void charge(uint64_t tokens) const;

  AccessLog* const log_;
  RateLimits* const limits_;
  AccessLine line_;
  uint32_t key_ = UINT32_MAX;
};

// Null: the exchange has none (in tests).
RequestNote* note_of(const http::Exchange& exchange);
// What the log says of one that had no handler.
AccessLine line_of(const http::Request& request);

}  // namespace baton::serve
