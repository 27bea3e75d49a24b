// The public interface to the check of a job before it starts.
#pragma once
#include "runtime/comm/mpi_session.h"
#include "runtime/launch/doctor.h"
