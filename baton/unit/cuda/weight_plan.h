// Where each weight of a model lies in one piece of a card's memory, and as what: found from the Program and from what
// is stored, before anything is allocated.
//
// What an op multiplies by or looks rows up in is a Matrix, as stored where a card can hold the type (pack.h); routers
// are F32, as which experts are chosen depends on small differences. The experts of an op lie at equal distances; where
// they are stored as different types, all of them are F32. Everything else is a vector: f32, one value behind the
// other. A weight that is used as both is there twice.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "baton/model/model.h"
#include "baton/unit/cuda/pack.h"
#include "baton/unit/unit.h"

namespace baton::cuda {

struct WeightPlan {
  struct Placed {
    bool is_matrix = false, is_vector = false, of_experts = false;
    Shape shape;             // of the matrix
    uint64_t matrix_at = 0;  // from the beginning of all, a multiple of kWeightAlignment
    uint64_t stride = 0;     // to the next expert's
    uint64_t vector_at = 0;
    uint64_t vector_bytes = 0;  // padding to kPadding values included
  };
  std::vector<Placed> weights;     // by WeightId
  uint64_t bytes = 0;              // of all
  std::vector<std::string> notes;  // what is not held as it is stored, for people

  Form form(WeightId id) const { return of(id).shape.matrix.form; }
  // With padding, both uses together.
  uint64_t bytes_of(WeightId id) const;
  const Placed& of(WeightId id) const { return weights[static_cast<size_t>(id)]; }
};

WeightPlan plan_weights(const Model& model);
KeptBytes kept_bytes(const Model& model);

}  // namespace baton::cuda
