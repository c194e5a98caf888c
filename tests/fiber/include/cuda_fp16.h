// Stands before CUDA's page of this name: tests/fiber/language.h has what kernels use of it.
#pragma once

#include "tests/fiber/language.h"
