// What `baton inspect --lora` says of adapters: their tensors, ranks, strengths, and the matrices they stand beside.
#pragma once

#include <span>
#include <string>

#include "baton/cli/command.h"
#include "baton/model/adapter.h"
#include "baton/model/model.h"

namespace baton::cli {

// `model` was loaded with the choices. A list, an object for each adapter; reads their files again.
Result<OrderedJson> adapters_json(const Model& model, std::span<const AdapterChoice> choices);
// Of that list.
std::string adapters_text(const OrderedJson& adapters);

}  // namespace baton::cli
