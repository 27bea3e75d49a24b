#include "io/part_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "io/checkpoint_files.h"
#include "io/file.h"

namespace dtorch::checkpoint {
namespace {

constexpr int64_t kBlockBytes = 64 << 20;
constexpr int64_t kChunkElements = 1 << 18;  // as Hdf5File has them: whole chunks are written
// The file that says how it went has its size from the start, so that a full disk can be reported.
constexpr size_t kFactsBytes = 4096;

std::filesystem::path prepared_facts(const std::filesystem::path& path) {
  io::write_file(path, std::string(kFactsBytes, ' '));
  return path;
}

}  // namespace

PartWriter::PartWriter(const std::filesystem::path& directory, int64_t node, int64_t num_devices)
    : path_(directory / part_name(node)),
      facts_(prepared_facts(directory / part_facts_name(node))),
      file_(path_, io::Hdf5File::Mode::kCreate),
      devices_left_(num_devices) {
  stop_point("opened");
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

// In blocks, so that memory is one block at most.
void PartWriter::write_boxes(const Job& job) {
  const Shape shape = job.tensor.local_shape();
  file_.create(job.dataset, shape, job.tensor.dtype());
  if (shape.ndim() == 0) {
    file_.write_box(job.dataset, whole(shape), job.tensor.data());
    stop_point("chunk");
    return;
  }
  const int64_t row = std::max<int64_t>(shape.num_elements() / shape[0], 1),
                row_bytes = row * size_of(job.tensor.dtype());
  const int64_t chunk_rows = std::max<int64_t>(kChunkElements / row, 1);
  const int64_t rows = std::max<int64_t>(kBlockBytes / row_bytes / chunk_rows, 1) * chunk_rows;
  const bool packed = job.tensor.is_contiguous();
  std::vector<std::byte> block;
  Box box = whole(shape);
  for (int64_t first = 0; first < shape[0]; first += rows) {
    box.offset[0] = first;
    box.size[0] = std::min(rows, shape[0] - first);
    const std::byte* from = job.tensor.data() + first * row_bytes;
    if (!packed) {
      block.resize(static_cast<size_t>(box.size[0] * row_bytes));
      pack_box(job.tensor, box, block.data());
      from = block.data();
    }
    file_.write_box(job.dataset, box, from);
    stop_point("chunk");
  }
}

// What the facts file says.
std::string PartWriter::finished(int64_t missing) {
  if (missing != 0) throw RuntimeFault(std::to_string(missing) + " tensors have no value: their operators failed");
  file_.close(/*sync=*/false);
  stop_point("closed");
  io::sync_path(path_);
  stop_point("fsync");
  const FileFacts facts = facts_of(path_);
  stop_point("hash");
  return nlohmann::json{{"bytes", facts.bytes}, {"xxh3_128", facts.hash}}.dump();
}

void PartWriter::run() {
  std::string failure;
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !jobs_.empty() || devices_left_ == 0 || given_up_; });
    if (jobs_.empty() || given_up_) break;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    if (!failure.empty()) continue;
    try {
      write_boxes(job);
    } catch (const std::exception& error) {
      failure = error.what();
    }
  }
  std::string text;
  try {
    std::unique_lock lock(mutex_);
    if (given_up_) throw RuntimeFault("the job ended, or another save began, before everything was there");
    const int64_t missing = missing_;
    lock.unlock();
    if (!failure.empty()) throw RuntimeFault(failure);
    text = finished(missing);
  } catch (const std::exception& error) {
    text = nlohmann::json{{"error", std::string(error.what()).substr(0, kFactsBytes / 8)}}.dump(
        -1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
  }
  try {
    text.resize(std::max(text.size(), kFactsBytes), ' ');
    io::overwrite_file(facts_, text);
  } catch (const std::exception&) {
    // The directory has been given up by rank 0, or there is no way left to tell it.
  }
}

}  // namespace dtorch::checkpoint
