// The public interface to the check of a job before it starts.
#pragma once
#include "runtime/comm/launcher.h"
#include "runtime/launch/doctor.h"
