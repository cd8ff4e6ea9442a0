// Problems from a plain text list, one a line:
//   name dims batch in out groups  input… kernel… stride… padding… output_padding… dilation…
#pragma once

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tconv/tconv.hpp"

namespace tconv::test {

struct Problem {
  std::string name;
  Layer layer;
  std::int64_t batch = 1;
  Extents input{1, 1, 1};
};

inline std::vector<Problem> read_problems(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::vector<Problem> problems;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream in(line);
    Problem p;
    Layer& l = p.layer;
    in >> p.name >> l.dims >> p.batch >> l.in_channels >> l.out_channels >> l.groups;
    for (Extents* e : {&p.input, &l.kernel, &l.stride, &l.padding, &l.output_padding, &l.dilation})
      for (int d = 0; d < l.dims; ++d) in >> (*e)[std::size_t(d)];
    if (!in) throw std::runtime_error("bad line in " + path + ": " + line);
    problems.push_back(p);
  }
  return problems;
}

}  // namespace tconv::test
