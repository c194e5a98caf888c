// baton as a library: the headers whose names and meanings are kept (docs/library.md). What these include comes with an
// installation, but is not promised.
#pragma once

#include "baton/api/conversation.h"  // turns that begin where the one before ended
#include "baton/api/idle_prefill.h"  // what is certain of the next turn, prefilled before it comes
#include "baton/api/runtime.h"       // a model ready to answer: text in, text out
#include "baton/api/units.h"         // the units that are built in
#include "baton/bridge/bridge.h"     // states between units and into bytes
#include "baton/state/seal_file.h"   // sealed states in files, with and without a key
#include "baton/unit/unit.h"         // the contract of a compute unit: for units of your own
#include "baton/version.h"           // BATON_VERSION_MAJOR and so on
