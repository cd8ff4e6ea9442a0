#include "xml.hpp"

#include <cctype>
#include <set>
#include <vector>

namespace tconv::cli::test {
namespace {

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == ':' || c == '.';
}

std::string check_references(const std::string& text) {
  for (std::size_t at = text.find('&'); at != std::string::npos; at = text.find('&', at + 1)) {
    bool known = false;
    for (const char* entity : {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"})
      known = known || text.compare(at, std::string(entity).size(), entity) == 0;
    if (!known) return "bare & in '" + text.substr(at, 12) + "'";
  }
  return "";
}

/// Checks the inside of a tag after its name: name="value" pairs, each name once.
std::string check_attributes(const std::string& text) {
  std::set<std::string> names;
  std::size_t at = 0;
  for (;;) {
    while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at]))) ++at;
    if (at == text.size()) return "";
    const std::size_t begin = at;
    while (at < text.size() && is_name(text[at])) ++at;
    const std::string name = text.substr(begin, at - begin);
    if (name.empty() || !names.insert(name).second) return "bad or repeated attribute in '" + text + "'";
    if (text.compare(at, 2, "=\"") != 0) return "attribute without value in '" + text + "'";
    const std::size_t end = text.find('"', at + 2);
    if (end == std::string::npos) return "open quote in '" + text + "'";
    const std::string value = text.substr(at + 2, end - at - 2);
    if (value.find('<') != std::string::npos) return "< in an attribute";
    if (const std::string complaint = check_references(value); !complaint.empty()) return complaint;
    at = end + 1;
  }
}

}  // namespace

std::string xml_complaint(const std::string& text) {
  std::vector<std::string> open;
  std::size_t at = 0, roots = 0;
  if (text.starts_with("<?xml")) at = text.find("?>") + 2;
  while (at < text.size()) {
    const std::size_t tag = text.find('<', at);
    const std::string content = text.substr(at, tag - at);
    if (content.find('>') != std::string::npos) return "bare > in '" + content + "'";
    if (open.empty() && content.find_first_not_of(" \n\r\t") != std::string::npos) return "text outside the root";
    if (const std::string complaint = check_references(content); !complaint.empty()) return complaint;
    if (tag == std::string::npos) break;
    const std::size_t end = text.find('>', tag);
    if (end == std::string::npos) return "a tag that never ends";
    std::string inside = text.substr(tag + 1, end - tag - 1);
    at = end + 1;
    if (inside.starts_with("/")) {
      if (open.empty() || open.back() != inside.substr(1)) return "</" + inside.substr(1) + "> closes nothing";
      open.pop_back();
      continue;
    }
    const bool closed = inside.ends_with("/");
    if (closed) inside.pop_back();
    std::size_t length = 0;
    while (length < inside.size() && is_name(inside[length])) ++length;
    if (length == 0) return "a tag without a name";
    if (const std::string complaint = check_attributes(inside.substr(length)); !complaint.empty())
      return complaint;
    if (open.empty() && ++roots > 1) return "more than one root";
    if (!closed) open.push_back(inside.substr(0, length));
  }
  if (!open.empty()) return "<" + open.back() + "> is never closed";
  return roots == 1 ? "" : "no root";
}

}  // namespace tconv::cli::test
