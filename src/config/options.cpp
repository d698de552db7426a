// Command line and INI file to a RunConfig, and back to text. Boost.Program_options does the command line and
// joins both; the file is read here, because the library's own reader cuts values at '#', takes no byte order
// mark, and appends a flag's list to the file's instead of replacing it.
#include <boost/program_options.hpp>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include "config/keys.h"
#include "config/run_config.h"
#include "config/values.h"
#include "core/check.h"

namespace annulus {
namespace {

namespace po = boost::program_options;

bool is_list(const Key& k) {
  RunConfig c;
  return std::holds_alternative<std::vector<std::string>*>(k.at(c));
}

po::options_description described() {
  po::options_description out;
  for (const Key& k : keys()) {
    const std::string help(k.help);
    if (is_list(k)) {
      out.add_options()(k.full().c_str(), po::value<std::vector<std::string>>(), help.c_str());
    } else {
      out.add_options()(k.full().c_str(), po::value<std::string>(), help.c_str());
    }
  }
  return out;
}

/// For a message: one line, whatever was given.
std::string shown(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
  return text;
}

[[noreturn]] void unknown(const std::string& name, const std::string& where) {
  usage_error("\"" + shown(name) + "\" " + where + " is not a known key; the nearest is " +
              nearest_key(name).full() + ", and --help lists all");
}

std::string trimmed(const std::string& text) {
  const std::size_t from = text.find_first_not_of(" \t\r");
  if (from == std::string::npos) return {};
  return text.substr(from, text.find_last_not_of(" \t\r") - from + 1);
}

/// The value of a line, without a comment that follows it after a space.
std::string without_comment(const std::string& value) {
  for (std::size_t i = 0; i < value.size(); ++i)
    if (value[i] == ';' && (i == 0 || value[i - 1] == ' ' || value[i - 1] == '\t'))
      return trimmed(value.substr(0, i));
  return value;
}

/// The known section that looks most like `name`; `name` itself when it is known.
std::string nearest_section(const std::string& name) {
  std::string best;
  int least = std::numeric_limits<int>::max();
  for (const Key& k : keys()) {
    const int distance =
        edit_distance(name.substr(0, name.find('.')), k.section) + (name == k.section ? 0 : 1);
    if (distance >= least) continue;
    least = distance;
    best = k.section;
  }
  return best;
}

std::string line_of(const std::string& file, int line) {
  return "in " + file + " line " + std::to_string(line);
}

/// Where a key's value came from, for messages.
using Origins = std::map<std::string, std::string>;

po::parsed_options read_ini(const std::string& path, const po::options_description& options,
                            Origins& origins) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream all;
  if (!in || !(all << in.rdbuf()))
    usage_error("cannot read the configuration file " + path + "; give an INI file that exists");
  std::string text = all.str();
  if (text.rfind("\xEF\xBB\xBF", 0) == 0) text.erase(0, 3);
  po::parsed_options out(&options);
  std::istringstream lines(text);
  std::string raw, section;
  for (int number = 1; std::getline(lines, raw); ++number) {
    const std::string line = trimmed(raw), where = line_of(path, number);
    if (line.empty() || line.front() == ';' || line.front() == '#') continue;
    if (line.front() == '[') {
      const std::string head = without_comment(line);
      if (head.back() != ']') usage_error(where + ": \"" + head + "\" does not end with ]; write [section]");
      section = trimmed(head.substr(1, head.size() - 2));
      if (const std::string nearest = nearest_section(section); nearest != section)
        usage_error("[" + section + "] " + where + " is not a known section; the nearest is [" + nearest +
                    "]");
      continue;
    }
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos)
      usage_error("\"" + line + "\" " + where + " has no value; write key = value");
    const std::string name = trimmed(line.substr(0, equals));
    if (section.empty())
      usage_error("\"" + name + "\" " + where + " stands before any [section]; put it into one");
    const std::string full = section + "." + name;
    const Key* key = find_key(full);
    if (key == nullptr) unknown(full, where);
    const auto [known, fresh] = origins.emplace(full, where);
    if (!fresh && !is_list(*key))
      usage_error(full + " is given twice, " + known->second + " and " + where + "; leave one of them out");
    out.options.emplace_back(full,
                             std::vector<std::string>{without_comment(trimmed(line.substr(equals + 1)))});
  }
  return out;
}

std::string bare(const std::string& option) {
  return option.substr(std::min(option.find_first_not_of('-'), option.size()));
}

po::parsed_options read_flags(const std::vector<std::string>& args, const po::options_description& options) {
  // No abbreviations, no short flags (so that -1 is a value), nothing that allows a flag to swallow two
  // tokens.
  using namespace po::command_line_style;
  try {
    return po::command_line_parser(args)
        .options(options)
        .style(allow_long | long_allow_adjacent | long_allow_next)
        .run();
  } catch (const po::unknown_option& e) {
    unknown(bare(e.get_option_name()), "on the command line");
  } catch (const po::error_with_option_name& e) {
    const std::string name = bare(e.get_option_name());
    const Key* key = find_key(name);
    usage_error("--" + name + " has no value; give " + (key != nullptr ? allowed(*key) : std::string("one")));
  }
}

}  // namespace

RunConfig parse_run_config(const std::vector<std::string>& args) {
  const po::options_description options = described();
  const po::parsed_options flags = read_flags(args, options);
  Origins from_flags, from_file;
  std::string file;
  for (const po::option& o : flags.options) {
    if (o.position_key < 0) {
      if (o.value.front().rfind("--", 0) == 0)  // the library takes a following flag for a value
        usage_error("--" + o.string_key + " has no value before " + o.value.front() + "; give " +
                    allowed(*find_key(o.string_key)));
      const auto [known, fresh] = from_flags.emplace(o.string_key, "on the command line");
      if (!fresh && !is_list(*find_key(o.string_key)))
        usage_error("--" + o.string_key + " is given twice on the command line; leave one of them out");
      continue;
    }
    const std::string& token = o.value.front();
    if (token.size() > 1 && token.front() == '-')
      unknown(bare(token), "on the command line (flags are --section.key)");
    if (!file.empty())
      usage_error("\"" + token + "\" on the command line is a second file beside " + file +
                  "; give one .ini file, and each value of a list with a flag of its own");
    file = token;
  }
  po::variables_map values;
  po::store(flags, values);
  if (!file.empty()) po::store(read_ini(file, options, from_file), values);

  RunConfig config;
  for (const Key& k : keys()) {
    const std::string full = k.full();
    if (values.count(full) == 0) continue;
    const bool flagged = from_flags.count(full) > 0;
    const auto texts = is_list(k) ? values[full].as<std::vector<std::string>>()
                                  : std::vector<std::string>{values[full].as<std::string>()};
    for (const std::string& text : texts)
      if (const std::string why = read_value(k, text, config); !why.empty())
        usage_error(full + " is \"" + shown(text) + "\" " + (flagged ? from_flags[full] : from_file[full]) +
                    ": " + why);
  }
  return config;
}

std::string print_config(const RunConfig& config) {
  std::string out;
  std::string_view section;
  for (const Key& k : keys()) {
    if (k.section != section) {
      out.append(out.empty() ? "[" : "\n[").append(k.section).append("]\n");
      section = k.section;
    }
    for (const std::string& v : written_values(k, config)) out += std::string(k.name) + " = " + v + "\n";
  }
  return out;
}

std::string config_help() {
  const RunConfig defaults;
  std::string out;
  std::string_view section;
  for (const Key& k : keys()) {
    if (k.section != section) {
      out.append(out.empty() ? "[" : "\n[").append(k.section).append("]\n");
      section = k.section;
    }
    std::string line = "  --" + k.full();
    line.resize(std::max<std::size_t>(line.size() + 1, 34), ' ');
    const auto values = written_values(k, defaults);
    out += line + std::string(k.help) + "\n" + std::string(34, ' ') + allowed(k) +
           (values.empty() ? std::string() : "; default " + values.front()) + "\n";
  }
  return out +
         "\nWhole numbers may be written 1048576, 1_048_576, 1e6, 1M (1024 x 1024) or 128K (128 x 1024).\n";
}

}  // namespace annulus
