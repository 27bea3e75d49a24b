// One node's part of a checkpoint while it is written: a queue and the io thread that makes all its HDF5 calls.
#pragma once
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

#include "io/hdf5_file.h"
#include "ops/def/background.h"
#include "ops/def/native_tensor.h"

namespace dtorch::checkpoint {

// What a node says of its part when it has ended: bytes of a JSON text, padded with blanks to this length, in its row
// of what the save's read asks for.
inline constexpr int64_t kAnswerBytes = 4096;

struct PartOrder {
  std::filesystem::path directory;
  std::string proof;  // what rank 0 wrote there
  int64_t node = 0, num_devices = 0;
  uint64_t read = 0;  // that wants the answer
  int64_t row = 0;    // of the answer
};

class PartWriter {
 public:
  // `background` outlives it.
  PartWriter(PartOrder order, Background& background);
  // Waits until all is written when every device has finished and somebody still waits for it; otherwise the part
  // becomes a failed one.
  ~PartWriter();
  PartWriter(const PartWriter&) = delete;
  PartWriter& operator=(const PartWriter&) = delete;

  // Any thread; don't block. An undefined tensor: this device has nothing to write of it, which counts too.
  void write(const std::string& dataset, NativeTensor tensor);
  // Of one device, which has called write `expected` times unless something failed before. After the last device, and
  // when everything is written, the answer goes out, once.
  void finish_device(int64_t expected);

 private:
  struct Job {
    std::string dataset;
    NativeTensor tensor;
  };
  void run();
  std::string write_all();
  bool next_job(Job& job);
  void write_boxes(io::Hdf5File& file, const Job& job) const;
  void need_somebody_waits() const;

  const PartOrder order_;
  Background& background_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // under mutex_, and what follows
  int64_t missing_ = 0;   // writes expected and not made
  int64_t devices_left_;  // that haven't finished
  bool given_up_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace dtorch::checkpoint
