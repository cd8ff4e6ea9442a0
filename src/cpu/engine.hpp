// The CPU engine: layers on the processor's vector units.
#pragma once

#include <memory>
#include <string>

#include "engine/engine.hpp"

namespace tconv::cpu {

std::unique_ptr<EnginePlan> make_plan(const Layer& layer);

/// The instruction set chosen at run time, for people: "AVX-512".
std::string instruction_set();

}  // namespace tconv::cpu
