#include "io/part_writer.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "io/checkpoint_files.h"
#include "io/file.h"

namespace dtorch::checkpoint {
namespace {

constexpr int64_t kBlockBytes = 64 << 20;

std::string error_answer(const std::string& what) {
  const std::string text = what.substr(0, (kAnswerBytes - 32) / 6);  // a byte takes up to six in JSON
  return nlohmann::json{{"error", text}}.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

}  // namespace

PartWriter::PartWriter(PartOrder order, Background& background)
    : order_(std::move(order)), background_(background), devices_left_(order_.num_devices) {
  thread_ = std::thread([this] { run(); });
}

PartWriter::~PartWriter() {
  {
    std::lock_guard lock(mutex_);
    given_up_ = devices_left_ > 0;
  }
  changed_.notify_one();
  thread_.join();
}

void PartWriter::write(const std::string& dataset, NativeTensor tensor) {
  {
    std::lock_guard lock(mutex_);
    --missing_;
    if (!tensor) return;
    jobs_.push_back({dataset, std::move(tensor)});
  }
  changed_.notify_one();
}

void PartWriter::finish_device(int64_t expected) {
  {
    std::lock_guard lock(mutex_);
    missing_ += expected;
    --devices_left_;
  }
  changed_.notify_one();
}

void PartWriter::need_somebody_waits() const {
  if (background_.is_ending()) throw RuntimeFault("the job is ending");
}

// In blocks, so that memory is one block at most.
void PartWriter::write_boxes(io::Hdf5File& file, const Job& job) const {
  const Shape shape = job.tensor.local_shape();
  const int64_t width = size_of(job.tensor.dtype());
  const bool packed = job.tensor.is_contiguous();
  file.create(job.dataset, shape, job.tensor.dtype());
  std::vector<std::byte> block;
  const std::byte* from = job.tensor.data();
  io::for_each_block(whole(shape), kBlockBytes / width, io::kChunkElements, [&](const Box& box) {
    need_somebody_waits();
    const int64_t bytes = box.num_elements() * width;
    if (packed) {
      file.write_box(job.dataset, box, from);
      from += bytes;
    } else {
      block.resize(static_cast<size_t>(bytes));
      pack_box(job.tensor, box, block.data());
      file.write_box(job.dataset, box, block.data());
    }
    stop_point("chunk");
  });
}

// False: everything is there and written.
bool PartWriter::next_job(Job& job) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !jobs_.empty() || devices_left_ == 0 || given_up_; });
  if (given_up_) throw RuntimeFault("the job ended, or another save began, before everything was there");
  if (jobs_.empty()) {
    if (missing_ != 0) throw RuntimeFault(std::to_string(missing_) + " tensors have no value: their operators failed");
    return false;
  }
  job = std::move(jobs_.front());
  jobs_.pop_front();
  return true;
}

// The answer.
std::string PartWriter::write_all() {
  const std::filesystem::path path = order_.directory / part_name(order_.node);
  need_proof(order_.directory, order_.proof);
  io::Hdf5File file(path, io::Hdf5File::Mode::kCreate);
  stop_point("opened");
  for (Job job; next_job(job); job = {}) write_boxes(file, job);
  file.close(/*sync=*/false);
  stop_point("closed");
  io::sync_path(path);
  stop_point("fsync");
  const FileFacts facts = facts_of(path);
  stop_point("hash");
  return nlohmann::json{{"bytes", facts.bytes}, {"xxh3_128", facts.hash}}.dump();
}

void PartWriter::run() {
  std::string text;
  try {
    text = write_all();
  } catch (const std::exception& error) {
    text = error_answer(error.what());
  }
  {
    // What comes after a failure isn't kept, and the answer comes when the devices' calls are over, so that a save that
    // failed holds no value.
    std::unique_lock lock(mutex_);
    while (devices_left_ > 0 && !given_up_) {
      jobs_.clear();
      changed_.wait(lock);
    }
    jobs_.clear();
  }
  text.resize(kAnswerBytes, ' ');
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  background_.answer(order_.read, {{order_.row, 0}, {1, kAnswerBytes}}, std::move(bytes));
}

}  // namespace dtorch::checkpoint
