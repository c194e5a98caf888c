// Handlers count; who works looks.
#include "baton/cli/interrupt.h"

#include <unistd.h>

#include <csignal>

#include "baton/base/output_file.h"
#include "baton/cli/command.h"

namespace baton::cli {
namespace {

volatile std::sig_atomic_t interrupt_count = 0, interrupt_ends = 0, interrupt_signal = SIGINT;
void (*restore_at_exit)() = nullptr;
struct sigaction previous_action, previous_terminate, previous_hangup;

extern "C" void on_interrupt(int number) {
  interrupt_count = interrupt_count + 1;
  interrupt_signal = number;
  if (interrupt_ends == 0 && interrupt_count < 3) return;
  remove_temporary_files();
  if (restore_at_exit != nullptr) restore_at_exit();
  ::_exit(interrupted_code());
}

// Unless it was ignored from the start (nohup).
void catch_signal(int number, struct sigaction* previous) {
  ::sigaction(number, nullptr, previous);
  if (previous->sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_handler = on_interrupt;  // without SA_RESTART: a waiting read returns
  ::sigaction(number, &action, nullptr);
}

}  // namespace

InterruptScope::InterruptScope(Signals signals) : signals_(signals) {
  interrupt_count = 0;
  interrupt_ends = 0;
  catch_signal(SIGINT, &previous_action);
  if (signals_ == kInterruptOnly) return;
  catch_signal(SIGTERM, &previous_terminate);
  catch_signal(SIGHUP, &previous_hangup);
}
InterruptScope::~InterruptScope() {
  interrupt_ends = 0;
  ::sigaction(SIGINT, &previous_action, nullptr);
  if (signals_ == kInterruptOnly) return;
  ::sigaction(SIGTERM, &previous_terminate, nullptr);
  ::sigaction(SIGHUP, &previous_hangup, nullptr);
}
void at_forced_exit(void (*restore)()) { restore_at_exit = restore; }
bool InterruptScope::interrupted() const { return interrupt_count > 0 || output_lost(); }
void InterruptScope::clear() { interrupt_count = 0; }
int interrupted_code() { return 128 + static_cast<int>(interrupt_signal); }
void InterruptScope::end_at_once(bool ends) {
  interrupt_ends = ends ? 1 : 0;
  if (ends && interrupt_count > 0) on_interrupt(interrupt_signal);
}

}  // namespace baton::cli
