// What a page of results says of its making.
#pragma once

#include "baton/bench/html.h"

namespace baton::cli {

// Once, from main.
void remember_command(int argc, char** argv);
// Version, time in UTC, and the remembered command with every absolute path cut to its last name: a page that is shown
// to others does not tell where it was made.
PageInfo page_info();

}  // namespace baton::cli
