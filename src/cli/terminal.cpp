#include "cli/terminal.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace tconv::cli {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

bool is_terminal(std::FILE* stream) {
  return isatty(fileno(stream)) == 1;
}

bool wants_colour(std::FILE* stream) {
  return is_terminal(stream) && environment("NO_COLOR").empty() && environment("TERM") != "dumb";
}

bool wants_unicode() {
  // The order in which the C library looks; asking it would need setlocale(), which changes number formats.
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value(environment(name));
    if (value.empty()) continue;
    std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) { return std::tolower(c); });
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

int terminal_width(std::FILE* stream) {
  winsize size{};
  if (is_terminal(stream) && ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 100;
}

int display_width(std::string_view text) {
  int width = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      while (i < text.size() && text[i] != 'm') ++i;
    } else if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) {
      ++width;
    }
  }
  return width;
}

std::string pad(std::string_view text, int width, char align) {
  const std::string space(std::size_t(std::max(0, width - display_width(text))), ' ');
  return align == '>' ? space + std::string(text) : std::string(text) + space;
}

void Progress::step(std::string_view what) {
  ++begun_;
  if (!shown_) return;
  constexpr int bar_width = 24;
  const int filled = std::clamp((begun_ - 1) * bar_width / std::max(steps_, 1), 0, bar_width);
  const std::string bar =
      std::string(std::size_t(filled), '#') + std::string(std::size_t(bar_width - filled), '.');
  std::string line = fmt::format("[{}] {}/{} {}", bar, std::min(begun_, steps_), steps_, what);
  const std::size_t room = std::size_t(std::max(terminal_width(stderr) - 1, 20));
  if (line.size() > room) line.resize(room);
  fmt::print(stderr, "\r\x1b[K{}", line);
  std::fflush(stderr);
}

void Progress::clear() {
  if (shown_ && begun_ > 0) fmt::print(stderr, "\r\x1b[K");
}

}  // namespace tconv::cli
