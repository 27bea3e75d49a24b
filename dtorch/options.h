// The public interface to the options that every DTorch program has: their table, for a program's own --help and "did
// you mean".
#pragma once
#include "runtime/base/options_table.h"
