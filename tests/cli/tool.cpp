#include "tool.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace tconv::cli::test {
namespace {

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

}  // namespace

Outcome shell(const std::string& command) {
  const Folder folder;
  const std::string out = folder / "out", err = folder / "err";
  const int status = std::system(
      ("TOOL=" + quoted(TCONV_TOOL) + "; { " + command + "; } >" + quoted(out) + " 2>" + quoted(err)).c_str());
  Outcome outcome;
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = read_bytes(out);
  outcome.err = read_bytes(err);
  return outcome;
}

Outcome tool(const std::vector<std::string>& arguments) {
  std::string command = "\"$TOOL\"";
  for (const std::string& argument : arguments) command += " " + quoted(argument);
  return shell(command);
}

Folder::Folder() {
  std::string name = (std::filesystem::temp_directory_path() / "tconv-test-XXXXXX").string();
  if (!::mkdtemp(name.data())) throw std::runtime_error("cannot make a temporary folder");
  path_ = name;
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> Folder::files() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string read_bytes(const std::string& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

std::string npy_bytes(const std::string& descr, bool fortran_order, const std::string& shape,
                      const std::string& data) {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': " + (fortran_order ? "True" : "False") +
                       ", 'shape': " + shape + ", }";
  while ((10 + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  return std::string("\x93NUMPY\x01\x00", 8) + char(header.size() & 255) + char(header.size() >> 8) + header +
         data;
}

}  // namespace tconv::cli::test
