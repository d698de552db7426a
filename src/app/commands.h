// The subcommands: each checks its arguments, calls a room, and says how the process is to end.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>
#include "comm/comm.h"
#include "config/run_config.h"
#include "ops/backend.h"
#include "train/engine.h"

namespace annulus {

/// What main gives every subcommand.
struct Program {
  MpiSession& session;
  Comm& world;  // host face, all ranks
  Node node;
  std::vector<std::string> arguments;  // after the subcommand
  std::atomic<std::int64_t> step{0};   // under way, for messages of the backend
};

struct Command {
  const char* name;
  const char* summary;  // one line
  const char* usage;    // the help text, without the table of keys
  bool keys;            // takes --section.key: the help lists them
  Exit (*run)(Program&);
};
const std::vector<Command>& commands();

Exit run_train(Program&);
Exit run_eval(Program&);
Exit run_tokenize(Program&);
Exit run_import(Program&);
Exit run_export(Program&);
Exit run_inspect(Program&);
Exit run_info(Program&);
Exit run_rehearse(Program&);

/// What rank 0 prints.
void say(const Program&, const std::string& line);
/// Prints the sentence of an error that this rank alone found and ends the job with its code.
[[noreturn]] void end_job(const MpiSession&, const Error&);
/// Arguments before the first flag.
std::vector<std::string> take_positionals(std::vector<std::string>& arguments);
/// Usage error unless there are `count` arguments and no flags.
void expect_arguments(const Program&, std::size_t count, const char* usage);
/// The config of the arguments, read and checked by every rank; an error that one rank alone meets (a file
/// that its host does not see) is everybody's. Environment error unless all ranks run the same program with
/// the same config. Collective.
RunConfig take_config(Program&, Purpose);
/// True, after printing the config, when --print-config was given; the flag is removed from `arguments`
/// before.
bool take_print_config(std::vector<std::string>& arguments);

/// The backend that device.kind asks for. The one place that picks.
std::unique_ptr<Backend> make_backend(Program&, const RunConfig&);

}  // namespace annulus
