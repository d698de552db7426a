#include "io/token_file.h"
#include <algorithm>
#include <charconv>
#include "io/h5_file.h"
#include "io/h5_save.h"

namespace annulus {
namespace {

constexpr const char* kIds = "/ids";
constexpr const char* kMask = "/mask";
constexpr const char* kDocuments = "/documents";
constexpr const char* kLargest = "largest_id";

void check_part(const TokenPart& part) {
  need(part.ids.size() == part.mask.size(), "token file: ids and mask differ in length");
  std::size_t at = 0;
  for (std::int64_t n : part.lengths) {
    need(n > 0 && static_cast<std::size_t>(n) <= part.ids.size() - at,
         "token file: document lengths do not fit the ids");
    need(part.mask[at] == 0, "token file: the first token of a document is a target");
    at += static_cast<std::size_t>(n);
  }
  need(at == part.ids.size(), "token file: document lengths do not fit the ids");
  for (std::size_t i = 0; i < part.ids.size(); ++i)
    need(part.ids[i] >= 0 && part.mask[i] <= 1, "token file: an id is negative or a mask is above 1");
}

class TokenReader : public TokenFile {
 public:
  explicit TokenReader(const std::string& path) : index_(open_h5_index(path)) {
    if (index_.kind != kTokensFile)
      input_error(path +
                  " holds weights or a checkpoint; here a token file is needed (annulus tokenize makes it)");
    ids_ = &vector(kIds, H5Kind::u32);
    mask_ = &vector(kMask, H5Kind::u8);
    const H5Dataset& documents = vector(kDocuments, H5Kind::i64);
    tokens_ = ids_->shape[0];
    if (mask_->shape[0] != tokens_)
      refuse("/mask has " + std::to_string(mask_->shape[0]) + " entries for " + std::to_string(tokens_) +
             " ids");
    documents_.resize(static_cast<std::size_t>(documents.shape[0]));
    index_.file.read(documents.offset, documents.bytes, documents_.data());
    check_documents();
    read_largest();
  }
  const std::vector<std::int64_t>& documents() const override { return documents_; }
  const std::map<std::string, std::string>& source() const override { return index_.facts; }
  std::int64_t largest_id() const override { return largest_; }
  void verify(Comm& world) override { verify_h5(world, index_); }

  void read(std::int64_t from, std::int64_t count, std::int32_t* ids, std::uint8_t* mask) override {
    need(from >= 0 && count >= 0 && from <= tokens_ - count, "tokens beyond the end of " + index_.path);
    index_.file.read(ids_->offset + from * 4, count * 4, ids);
    index_.file.read(mask_->offset + from, count, mask);
    for (std::int64_t i = 0; i < count; ++i) {
      if (ids[i] < 0 || ids[i] > largest_)
        refuse("token " + std::to_string(from + i) + " is above the largest id that the file states, " +
               std::to_string(largest_));
      if (mask[i] > 1) refuse("the mask of token " + std::to_string(from + i) + " is neither 0 nor 1");
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    input_error(index_.path + ": " + why + "; tokenize again");
  }

  const H5Dataset& vector(const char* name, H5Kind kind) const {
    const H5Dataset& d = index_.at(name);
    if (d.kind != kind || d.shape.size() != 1)
      refuse(std::string(name) + " has another type or shape than a token file's");
    return d;
  }

  void check_documents() const {
    if (documents_.empty() || documents_.front() != 0 || documents_.back() != tokens_)
      refuse("/documents does not go from 0 to the " + std::to_string(tokens_) + " tokens of the file");
    for (std::size_t i = 1; i < documents_.size(); ++i)
      if (documents_[i] <= documents_[i - 1])
        refuse("/documents does not ascend at entry " + std::to_string(i));
  }

  void read_largest() {
    const auto found = index_.facts.find(kLargest);
    if (found == index_.facts.end()) refuse("/source lacks largest_id");
    const std::string& text = found->second;
    const auto got = std::from_chars(text.data(), text.data() + text.size(), largest_);
    if (got.ec != std::errc{} || got.ptr != text.data() + text.size() || largest_ < -1 ||
        largest_ > INT32_MAX)
      refuse("its largest_id '" + text + "' is no token id");
  }

  H5Index index_;
  const H5Dataset *ids_ = nullptr, *mask_ = nullptr;
  std::int64_t tokens_ = 0, largest_ = -1;
  std::vector<std::int64_t> documents_;
};

}  // namespace

void write_token_file(Comm& world, const std::string& path, const TokenSupply& supply,
                      const std::map<std::string, std::string>& source) {
  // Tokens and documents of the ranks before this one, and of all.
  std::vector<std::int64_t> counts(static_cast<std::size_t>(2 * world.size()));
  const auto mine = static_cast<std::size_t>(2 * world.rank());
  counts[mine] = supply.tokens;
  counts[mine + 1] = static_cast<std::int64_t>(supply.starts.size());
  world.all_reduce(counts);
  std::int64_t token = 0, document = 0, tokens = 0, documents = 0;
  for (std::size_t i = 0; i < counts.size(); i += 2) {
    if (i == mine) {
      token = tokens;
      document = documents;
    }
    tokens += counts[i];
    documents += counts[i + 1];
  }
  std::vector<std::int64_t> starts = supply.starts;
  for (std::int64_t& s : starts) s += token;
  if (world.rank() == world.size() - 1) starts.push_back(tokens);

  H5Job job{.path = path, .kind = kTokensFile, .specs = {}, .parts = {}, .facts = source, .fail = ""};
  job.facts[kLargest] = std::to_string(world.max(supply.largest));
  job.specs = {{kIds, {tokens}, H5Kind::u32},
               {kMask, {tokens}, H5Kind::u8},
               {kDocuments, {documents + 1}, H5Kind::i64}};
  const auto ids = [&](std::int64_t from, std::int64_t count, void* to) {
    supply.ids(from - token, count, static_cast<std::int32_t*>(to));
  };
  const auto mask = [&](std::int64_t from, std::int64_t count, void* to) {
    supply.mask(from - token, count, static_cast<std::uint8_t*>(to));
  };
  job.parts = {{0, token, counts[mine], nullptr, ids},
               {1, token, counts[mine], nullptr, mask},
               {2, document, static_cast<std::int64_t>(starts.size()), starts.data(), {}}};
  const std::unique_ptr<Save> save = begin_h5(world, std::move(job));
  save->write();
  save->finish();
}

void write_token_file(Comm& world, const std::string& path, const TokenPart& part,
                      const std::map<std::string, std::string>& source) {
  agreed(world, "tokens of " + path, [&] { check_part(part); });
  TokenSupply supply{.tokens = static_cast<std::int64_t>(part.ids.size()), .starts = {}};
  std::int64_t at = 0;
  for (const std::int64_t n : part.lengths) {
    supply.starts.push_back(at);
    at += n;
  }
  if (!part.ids.empty()) supply.largest = *std::max_element(part.ids.begin(), part.ids.end());
  supply.ids = [&](std::int64_t from, std::int64_t count, std::int32_t* to) {
    std::copy_n(part.ids.begin() + from, count, to);
  };
  supply.mask = [&](std::int64_t from, std::int64_t count, std::uint8_t* to) {
    std::copy_n(part.mask.begin() + from, count, to);
  };
  write_token_file(world, path, supply, source);
}

std::unique_ptr<TokenFile> open_token_file(const std::string& path) {
  return std::make_unique<TokenReader>(path);
}

}  // namespace annulus
