// The terminal: colour where it is wanted, and a progress bar that never reaches a file or a pipe.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace tconv::cli {

bool is_terminal(std::FILE* stream);

/// True on a terminal, unless NO_COLOR is set or the terminal is dumb.
bool wants_colour(std::FILE* stream);

/// True where the locale's character set is UTF-8.
bool wants_unicode();

/// Columns of the terminal behind `stream`, or 100 where there is none.
int terminal_width(std::FILE* stream);

/// Columns the text takes: escape sequences take none, a multi-byte character one.
int display_width(std::string_view text);

/// `text` padded with spaces to `width` columns: to the right, or to the left where `align` is '>'.
std::string pad(std::string_view text, int width, char align = '<');

/// A line on stderr that shows how far a job is. Silent where stderr is not a terminal.
class Progress {
 public:
  explicit Progress(int steps) : steps_(steps), shown_(is_terminal(stderr)) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Says what step is beginning.
  void step(std::string_view what);
  void clear();

 private:
  int steps_;
  int begun_ = 0;
  bool shown_;
};

}  // namespace tconv::cli
