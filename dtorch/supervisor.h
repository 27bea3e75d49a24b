// The public interface to starting jobs again that were lost.
#pragma once
#include "runtime/launch/child_wait.h"
#include "runtime/launch/leftovers.h"
#include "runtime/launch/result_file.h"
#include "runtime/launch/supervisor.h"
