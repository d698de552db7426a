// Where a text may be taken apart so that the tokens of its parts are those of the whole.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>
#include "data/tokenizer/tokenizer_file.h"

namespace annulus {

/// Says it of the places before lines, from the expressions alone. A place between \n and a character c is
/// one when
///   no step but the last can match c: its matches lie on one side, and what it leaves holds both,
///   in the last, whatever can match \n has nothing behind it that can match c: no match holds both,
///   the last does match \n where c follows: so it has an edge there,
///   and nothing looks back, or ahead by more than one character.
/// Then a part before the place has the whole's tokens when c is put behind it and c's are taken away again,
/// and the part from c on has them as it is. Expressions that are not understood allow no place.
class LineCuts {
 public:
  LineCuts(const std::vector<SplitStep>&, const std::string& where);
  ~LineCuts();
  LineCuts(LineCuts&&) noexcept;

  /// No place at all.
  bool none() const { return steps_.empty(); }
  /// Whether every place between \n and this character is one.
  bool before(std::uint32_t character);

  struct Step;

 private:
  std::vector<std::unique_ptr<Step>> steps_;
  std::unordered_map<std::uint32_t, bool> known_;
};

}  // namespace annulus
