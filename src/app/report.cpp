#include <algorithm>
#include <ctime>
#include <filesystem>
#include "app/commands.h"
#include "train/report/page.h"
#include "train/run_folder.h"

namespace annulus {
namespace {

constexpr const char* kUsage = "annulus report RUN... [-o FILE.html]";

/// Takes `-o FILE` out of the arguments; "" when it is not there.
std::string take_output(std::vector<std::string>& arguments) {
  const auto at = std::find(arguments.begin(), arguments.end(), "-o");
  if (at == arguments.end()) return "";
  if (at + 1 == arguments.end()) usage_error(std::string("-o needs a file; usage: ") + kUsage);
  const std::string file = *(at + 1);
  arguments.erase(at, at + 2);
  return file;
}

std::string now() {
  const std::time_t t = std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&t, &utc);
  char text[64];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &utc);
  return text;
}

}  // namespace

Exit run_report(Program& program) {
  std::vector<std::string>& folders = program.arguments;
  std::string out = take_output(folders);
  for (const std::string& a : folders)
    if (a.rfind('-', 0) == 0) usage_error("the flag " + a + " is not known here; usage: " + kUsage);
  if (folders.empty()) usage_error(std::string("report needs the folder of a run; usage: ") + kUsage);
  if (folders.size() > kReportRuns)
    usage_error(std::to_string(folders.size()) + " runs were given and a page shows at most " +
                std::to_string(kReportRuns) + "; usage: " + kUsage);
  if (folders.size() > 1 && out.empty())
    usage_error(
        std::string("a page of several runs belongs to none of their folders: give -o FILE; usage: ") +
        kUsage);
  if (out.empty()) out = folders[0] + "/report.html";
  agreed(program.world, "writing the report", [&] {
    if (program.world.rank() != 0) return;
    std::vector<History> runs;
    for (const std::string& folder : folders)
      runs.push_back(read_history(folder, report_points(folders.size())));
    write_whole(out, report_page(runs, now()));
  });
  say(program, "wrote " + out);
  return Exit::ok;
}

}  // namespace annulus
