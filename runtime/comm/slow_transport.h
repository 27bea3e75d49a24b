// A network that is as slow as one says, for benchmarks and tests of what runs beside communication: messages that a
// node receives take a known time, one after the other, whatever the machine does meanwhile.
#pragma once
#include <chrono>
#include <memory>

#include "runtime/comm/transport.h"

namespace dtorch {

// Of jobs inside this process that start from now on; zero: none. Not while one starts.
void set_message_time(std::chrono::nanoseconds each);
// `transport` with that time; itself when none is set.
std::unique_ptr<Transport> slowed(std::unique_ptr<Transport> transport);

}  // namespace dtorch
