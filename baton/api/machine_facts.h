// What a server says of the machine it is on: once at its start, and at /props.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "baton/base/hardware.h"
#include "baton/base/machine.h"

namespace baton {

struct MachineUnit {
  std::string name;
  std::string missing = {};  // why this machine has not got it; empty: it has
  bool emulated = false;     // on another device than it stands for
  bool only_prefills = false;
  std::vector<std::string> features = {};
};

struct MachineFacts {
  Machine machine;
  Hardware hardware;
  uint32_t physical_cores = 0;
  std::vector<std::string> instruction_sets;
  std::vector<MachineUnit> units;  // all that are built in
};
// Makes each unit once, which may ask drivers: some ms, at start.
MachineFacts machine_facts();

// No path and no name of the machine.
nlohmann::ordered_json machine_json(const MachineFacts& facts);
// "Intel Xeon, 2 cores (4 processors: 2 performance, 2 efficiency), L2 2 MiB x2, L3 36 MiB, 15.6 GiB memory, avx2 fma;
// units ref, cpu, ane (emulated)"
std::string machine_line(const MachineFacts& facts);

}  // namespace baton
