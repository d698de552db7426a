// The token file: all documents of a data set as one vector of ids, in HDF5.
//   /ids (N) u32   /mask (N) u8, 1 = the token is a target   /documents (M + 1) i64, offsets into both
// and string attributes on /source (files, sizes, tokenizer, counts; "largest_id" is added here).
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>
#include "comm/comm.h"

namespace annulus {

/// A rank's consecutive documents. Rank order is document order.
struct TokenPart {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> mask;     // first tokens of documents are 0
  std::vector<std::int64_t> lengths;  // of the documents
};

/// A rank's consecutive tokens that are not in memory. Rank order is token order; a document may go on in the
/// next rank's.
struct TokenSupply {
  std::int64_t tokens = 0;
  std::vector<std::int64_t> starts;  // of the documents that begin here, counted from this rank's first token
  std::int64_t largest = -1;         // id
  /// Tokens [from, from + count) of this rank's; called with blocks of a few MB.
  std::function<void(std::int64_t from, std::int64_t count, std::int32_t* to)> ids;
  std::function<void(std::int64_t from, std::int64_t count, std::uint8_t* to)> mask;
};

/// Collective. PATH.partial, then renamed.
void write_token_file(Comm& world, const std::string& path, const TokenPart&,
                      const std::map<std::string, std::string>& source);
void write_token_file(Comm& world, const std::string& path, const TokenSupply&,
                      const std::map<std::string, std::string>& source);

class TokenFile {
 public:
  virtual ~TokenFile() = default;
  virtual const std::vector<std::int64_t>& documents() const = 0;  // M + 1 offsets
  virtual const std::map<std::string, std::string>& source() const = 0;
  virtual std::int64_t largest_id() const = 0;  // -1 when there are no tokens
  /// Checks every digest, the ranks sharing the work; input error that names dataset and byte range.
  /// Collective.
  virtual void verify(Comm& world) = 0;
  /// Local to a rank. No id that it gives is above largest_id(), no mask above 1; an input error otherwise.
  virtual void read(std::int64_t from, std::int64_t count, std::int32_t* ids, std::uint8_t* mask) = 0;
};
std::unique_ptr<TokenFile> open_token_file(const std::string& path);

}  // namespace annulus
