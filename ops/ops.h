// All user-facing functions of operators. Includes no LibTorch.
#pragma once
#include "ops/create/functions.h"
#include "ops/math/functions.h"
#include "ops/nn/functions.h"
#include "ops/operator_list.h"
#include "ops/shape/functions.h"
