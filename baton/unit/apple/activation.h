// sigmoid, tanh, silu and gelu of the emulated engine: exact, or off by the worst errors that were measured of its
// tables.
#pragma once

#include "baton/unit/apple/mil_graph.h"

namespace baton::apple {

// `x` is not NaN; infinities give the limits. Perturbed: a piecewise linear error between 33 knots over the tables'
// range, as large as the worst error published for that table (0.0034, 0.0017, 0.003), its sign changing from piece to
// piece.
float table_sigmoid(float x, bool perturbed);
float table_tanh(float x, bool perturbed);
float table_silu(float x, bool perturbed);
float gelu(float x, GeluMode mode);

}  // namespace baton::apple
