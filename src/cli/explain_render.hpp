// The facts about a layer as text for a terminal and as a picture.
#pragma once

#include <optional>
#include <string>

#include "cli/ceilings.hpp"
#include "cli/explain_facts.hpp"

namespace tconv::cli {

struct TextStyle {
  bool unicode = true;
  bool colour = false;
  int width = 100;
};

/// The ceilings of this machine are absent where they were not measured.
std::string explain_as_text(const LayerFacts& facts, const std::optional<Ceilings>& machine,
                            const TextStyle& style);

/// A self-contained SVG document.
std::string explain_as_svg(const LayerFacts& facts);

}  // namespace tconv::cli
