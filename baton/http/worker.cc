// See worker.h.
#include "baton/http/worker.h"

#include <fmt/format.h>

#include <exception>

#include "baton/base/random.h"

namespace baton::http {

bool Shared::begin_exchange() {
  const std::lock_guard lock(mutex);
  if (!stopping) ++exchanges;
  return !stopping;
}

void Shared::end_exchange() {
  const std::lock_guard lock(mutex);
  if (--exchanges == 0) fewer.notify_all();
}

void Worker::run() {
  while (true) {
    try {
      io.run();
      return;
    } catch (const std::exception&) {
      continue;
    }
  }
}

bool BodyShare::grow_to(uint64_t bytes) {
  const uint64_t more = bytes - bytes_;
  bytes_ = bytes;
  return more == 0 || shared_->body_bytes.fetch_add(more) + more <= shared_->limits.bodies_bytes_max;
}

std::string Shared::new_id() {
  const uint64_t number = ids++;
  return fmt::format("{:016x}{:08x}", Random(id_seed + number).next(), number);
}

}  // namespace baton::http
