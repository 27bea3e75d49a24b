// One node's part of a checkpoint while it is written: a queue and the io thread that makes all its HDF5 calls.
#pragma once
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

#include "io/hdf5_file.h"
#include "ops/def/native_tensor.h"

namespace dtorch::checkpoint {

class PartWriter {
 public:
  // Makes the files; throws RuntimeFault.
  PartWriter(const std::filesystem::path& directory, int64_t node, int64_t num_devices);
  // Waits until all is written when every device has finished; otherwise the part becomes a failed one.
  ~PartWriter();
  PartWriter(const PartWriter&) = delete;
  PartWriter& operator=(const PartWriter&) = delete;

  // Any thread; don't block. An undefined tensor: this device has nothing to write of it, which counts too.
  void write(const std::string& dataset, NativeTensor tensor);
  // Of one device, which has called write `expected` times unless something failed before.
  void finish_device(int64_t expected);

 private:
  struct Job {
    std::string dataset;
    NativeTensor tensor;
  };
  void run();
  void write_boxes(const Job& job);
  std::string finished(int64_t missing);

  const std::filesystem::path path_, facts_;
  io::Hdf5File file_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // under mutex_, and what follows
  int64_t missing_ = 0;   // writes expected and not made
  int64_t devices_left_;  // that haven't finished
  bool given_up_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace dtorch::checkpoint
