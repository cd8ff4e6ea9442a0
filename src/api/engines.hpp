// Which engine serves which device: the one place where engines are known by name. A new engine adds a
// case to make_engine_plan() and a line to describe_engines().
#pragma once

#include <memory>

#include "engine/engine.hpp"

namespace tconv {

/// Plans a valid layer on a device; throws Unsupported where no engine can serve it.
std::unique_ptr<EnginePlan> make_engine_plan(const Layer& layer, const Device& device);

/// Adds the devices engines were found for, and a line for each engine that is not usable.
void describe_engines(SystemInfo& info);

}  // namespace tconv
