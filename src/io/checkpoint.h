// Checkpoints and weights files in parallel HDF5: see src/README.md, "Files".
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>
#include "comm/comm.h"
#include "core/tensor.h"

namespace annulus {

/// A rank's part of one dataset: elements [from, from + data.size()) of the full row-major array. `data` is
/// host memory and must stay until the save is finished.
struct Piece {
  std::string dataset;  // "/model/model.norm.weight", "/optimizer/m/..."
  Tensor data;          // f32 or bf16
  std::int64_t from = 0;
};

/// Every dataset of the file with its full shape and type: the same list, in the same order, on every rank.
struct DatasetSpec {
  std::string dataset;
  std::vector<std::int64_t> shape;
  DType dtype = DType::f32;
};

/// What is wanted in a file. `facts` become string attributes of /run (step, rows, fingerprints, config ...;
/// "config_json" holds the model's config.json, so that the file alone can be opened as weights). They are
/// taken from rank 0.
struct SaveRequest {
  std::string path;  // the final name; written as PATH.partial, renamed when whole
  std::vector<DatasetSpec> datasets;
  std::vector<Piece> pieces;  // this rank's; over all ranks they cover every dataset exactly once
  std::map<std::string, std::string> facts;
  std::string fail;  // debug.fail, "" for none
};

/// Creates, reserves, agrees, writes by pwrite, digests, syncs, marks, renames. Collective over `world`.
/// On any rank's failure all ranks throw the same environment error, the partial file is removed, and
/// whatever had the final name before is untouched.
void save_h5(Comm& world, const SaveRequest&);

/// The same in steps, so that the middle one can run on a thread beside the training: begin_save() has
/// created and reserved the file when it returns. Destroyed unfinished, it removes the partial file.
class Save {
 public:
  virtual ~Save() = default;
  /// Writes this rank's pieces. Makes no MPI and no HDF5 call; what goes wrong is kept for finish().
  virtual void write() noexcept = 0;
  /// After write() has returned. Collective: agrees, digests, syncs, marks, closes, renames.
  virtual void finish() = 0;
};
std::unique_ptr<Save> begin_save(Comm& world, const SaveRequest&);

/// A whole file opened for reading by all ranks. Throws an input error when it is not whole, is hostile
/// (links, external storage, filters, ...) or of an unknown version.
class H5Reader {
 public:
  virtual ~H5Reader() = default;
  virtual const std::map<std::string, std::string>& facts() const = 0;
  virtual const std::vector<DatasetSpec>& datasets() const = 0;
  virtual bool has(const std::string& dataset) const = 0;
  /// Local to a rank; converts between f32 and bf16 (nearest even).
  virtual void read(const std::string& dataset, std::int64_t from, std::int64_t count, const Tensor& to) = 0;
  /// Checks every digest, the ranks sharing the work; input error that names dataset and byte range.
  /// Collective.
  virtual void verify(Comm& world) = 0;
};
std::unique_ptr<H5Reader> open_h5(const std::string& path);

/// step-NNNNNN.h5 files of a folder, newest first; whole or not.
struct CheckpointFile {
  std::string path;
  std::int64_t step;
};
std::vector<CheckpointFile> list_checkpoints(const std::string& folder);
/// The newest file that opens and verifies, or null; says (through `say`, on rank 0) which were passed over
/// and why, unfinished saves among them.
std::unique_ptr<H5Reader> newest_checkpoint(Comm& world, const std::string& folder,
                                            const std::function<void(const std::string&)>& say,
                                            std::string* path);
/// Removes the oldest files of the folder's own name pattern until `keep` whole ones are left, counted from
/// the newest that verifies (which is never removed; when none verifies, nothing is), and unfinished saves of
/// earlier steps than that. Files that are not whole stay, for the user to look at. Rank 0 alone removes.
void prune_checkpoints(Comm& world, const std::string& folder, std::int64_t keep);

}  // namespace annulus
