// Ctrl-C, and requests to end.
#pragma once

namespace baton::cli {

// What a shell reports for the signal that asked to end: kInterrupted for SIGINT, 143 for SIGTERM, 129 for SIGHUP.
int interrupted_code();

// Counts Ctrl-C while in scope. The first asks the current work to stop (a double press asks no more than that), the
// third ends the program with kInterrupted. With kTerminateToo a request to end (SIGTERM, SIGHUP) is taken as a Ctrl-C,
// for work that leaves files behind. Outside of any scope, and while `end_at_once`, the first one ends the program.
// Temporary files are removed either way.
class InterruptScope {
 public:
  enum Signals { kInterruptOnly, kTerminateToo };
  explicit InterruptScope(Signals signals = kInterruptOnly);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  bool interrupted() const;  // or nobody reads what is printed
  void clear();
  // For stretches that cannot be asked to stop and leave nothing to keep: loading, reading and encoding a prompt.
  void end_at_once(bool ends);

 private:
  const Signals signals_;
};

// Called before a third Ctrl-C ends the program: what puts a terminal back, safe in a signal handler. Null: nothing.
void at_forced_exit(void (*restore)());

}  // namespace baton::cli
