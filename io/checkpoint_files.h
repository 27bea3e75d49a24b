// What a checkpoint is on disk: names, the manifest, which directories are complete. Any thread.
//
//   step-000123/     part-<node>.h5   the boxes that the devices of a node wrote: data set <tensor>@<place in the mesh>
//                    model.h5         every tensor as one (virtual) data set: model/<name>, optimizer/<state>/<name>
//                    manifest.json    step, random state, length and XXH3-128 of every file; written last
//   .tmp-step-...    one that is being written; also .proof, by which nodes see that it is the directory that rank 0
//   made .old-step-...    one that is being replaced by another of the same step; complete until that one is
//
// Format 1 had no parts: model.h5 held everything.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/client/graph.h"

namespace dtorch::checkpoint {

inline constexpr const char* kModel = "model.h5";
inline constexpr const char* kManifest = "manifest.json";
inline constexpr const char* kProof = ".proof";
inline constexpr int64_t kFormat = 2;

std::string directory_name(int64_t step);  // step-000123
// Where one is written.
std::filesystem::path temporary_of(const std::filesystem::path& directory, int64_t step);
std::string part_name(int64_t node);  // part-0.h5
// The data set of a part file that holds the box of the device at `index` of the tensor's mesh.
std::string box_name(const std::string& tensor, int64_t index);

struct FileFacts {
  int64_t bytes = 0;
  std::string hash;
};
struct Manifest {
  int64_t format = kFormat, step = 0, optimizer_steps = 0;
  RandomState random;
  std::string config;
  std::map<std::string, FileFacts> files;
};
FileFacts facts_of(const std::filesystem::path& file);
std::string to_text(const Manifest& manifest);
// Throws (whatever is wrong) unless every file has the length and hash that the manifest says.
Manifest read_complete(const std::filesystem::path& path);

struct Complete {
  std::filesystem::path path;
  Manifest manifest;
};
// Committed directories by step, newest first.
std::vector<std::pair<int64_t, std::filesystem::path>> committed(const std::filesystem::path& directory);
// The newest complete one under `directory`, or `directory` itself when it is one. What is passed over is logged.
std::optional<Complete> newest_complete(const std::filesystem::path& directory);
// Makes `temporary`, whose files are durable, the checkpoint `target`, durably; one of that name is replaced.
void commit(const std::filesystem::path& temporary, const std::filesystem::path& target);
// After a commit: removes all but the newest ones (0: keeps them), and what killed saves have left.
void remove_older(const std::filesystem::path& directory, int64_t keep_last);

// Throws RuntimeFault unless the proof in `directory` is what rank 0 says.
void need_proof(const std::filesystem::path& directory, const std::string& proof);

// For tests: ends the process as kill -9 does when DTORCH_TEST_CHECKPOINT_STOP names this point; "chunk:3" is the third
// time that the process comes to chunk. The points, in order: opened, chunk, closed, fsync, hash of a part; model.h5,
// manifest, rename, directory of the whole.
void stop_point(const char* name);

}  // namespace dtorch::checkpoint
