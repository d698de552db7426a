// Reading JSON that nobody vouches for: size, depth and repeated keys are checked, and every value that is
// taken is asked for its type and range.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace annulus {

/// The text as JSON; input errors name `where`, line and byte.
nlohmann::ordered_json read_json(const std::string& text, const std::string& where);

/// One object of a JSON file. A key that is null counts as absent.
class JsonObject {
 public:
  JsonObject(const nlohmann::ordered_json& object, std::string where);
  bool has(const std::string& key) const;
  const nlohmann::ordered_json& raw(const std::string& key) const;  // must be there
  /// Each fails (input) when the key is absent, of another type, or out of range.
  std::int64_t whole(const std::string& key, std::int64_t least, std::int64_t most) const;
  double number(const std::string& key, double low, double high) const;
  bool truth(const std::string& key) const;
  std::string text(const std::string& key) const;
  JsonObject object(const std::string& key) const;
  /// The same with a default for an absent key.
  std::int64_t whole_or(const std::string& key, std::int64_t otherwise, std::int64_t least,
                        std::int64_t most) const {
    return has(key) ? whole(key, least, most) : otherwise;
  }
  double number_or(const std::string& key, double otherwise, double low, double high) const {
    return has(key) ? number(key, low, high) : otherwise;
  }
  bool truth_or(const std::string& key, bool otherwise) const { return has(key) ? truth(key) : otherwise; }
  std::string text_or(const std::string& key, const std::string& otherwise) const {
    return has(key) ? text(key) : otherwise;
  }
  const std::string& where() const { return where_; }
  const nlohmann::ordered_json& all() const { return *object_; }

 private:
  const nlohmann::ordered_json* object_;
  std::string where_;
};

}  // namespace annulus
