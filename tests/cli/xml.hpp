// A check that a text is well-formed XML, as far as a document without namespaces and CDATA needs one.
#pragma once

#include <string>

namespace tconv::cli::test {

/// Empty if the text is well-formed, else what is wrong with it.
std::string xml_complaint(const std::string& text);

}  // namespace tconv::cli::test
