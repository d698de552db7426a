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
Exit run_report(Program&);
Exit run_info(Program&);
Exit run_rehearse(Program&);
Exit run_plan(Program&);

/// Whether a folder is a run's and no Hugging Face folder; and what inspect says of it (inspect_run.cpp).
bool is_run_folder(const std::string& path);
void print_run(Program&, const std::string& folder);

/// What rank 0 prints.
void say(const Program&, const std::string& line);
/// Prints the sentence of an error that this rank alone found and ends the job with its code.
[[noreturn]] void end_job(const MpiSession&, const Error&);
/// Takes the arguments that are neither a flag nor, after a flag without "=", its value; they may stand
/// anywhere.
std::vector<std::string> take_positionals(std::vector<std::string>& arguments);
/// Usage error unless there are `count` arguments and no flags.
void expect_arguments(const Program&, std::size_t count, const char* usage);
/// Each takes `--name VALUE` (or `--name`) out of the arguments; `missing` when it is not there.
std::int64_t take_number(std::vector<std::string>& arguments, const std::string& name, std::int64_t missing,
                         std::int64_t least);
double take_real(std::vector<std::string>& arguments, const std::string& name);  // above 0; 0 when missing
std::string take_text(std::vector<std::string>& arguments, const std::string& name,
                      const std::string& missing);
bool take_flag(std::vector<std::string>& arguments, const std::string& name);
/// --layers N of plan and rehearse: the first N layers of the model alone; 0: all of them.
std::int64_t take_layers(std::vector<std::string>& arguments);
void keep_layers(ModelConfig&, std::int64_t layers);
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
