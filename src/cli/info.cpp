// tconv info: the version, and which engines and devices were found.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/flags.hpp"
#include "tconv/tconv.hpp"

namespace tconv::cli {
namespace {

std::string device_name(const Device& device) {
  return device.kind == DeviceKind::cpu ? "cpu" : fmt::format("cuda:{}", device.index);
}

int print_text(const SystemInfo& info) {
  fmt::print("tconv {}\n\nDevices\n", info.version);
  for (const DeviceInfo& device : info.devices)
    fmt::print("  {:<8} {}\n           {}\n", device_name(device.device), device.name, device.details);
  if (info.devices.empty()) fmt::print("  none\n");
  if (!info.missing.empty()) {
    fmt::print("\nNot usable\n");
    for (const std::string& line : info.missing) fmt::print("  {}\n", line);
  }
  return exit_ok;
}

int print_json(const SystemInfo& info) {
  nlohmann::ordered_json root{{"version", info.version}, {"devices", nlohmann::json::array()}};
  for (const DeviceInfo& device : info.devices)
    root["devices"].push_back({{"device", device_name(device.device)},
                               {"engine", device.engine},
                               {"name", device.name},
                               {"details", device.details}});
  root["missing"] = info.missing;
  fmt::print("{}\n", root.dump(2));
  return exit_ok;
}

}  // namespace

Command add_info(CommandLine& line) {
  Flags add = line.add("info", "List the engines and devices found");
  auto json = std::make_shared<bool>(false);
  add.toggle("--json", *json, "Print JSON");
  add.footer(R"(
Lists every device an engine of tconv can use on this machine, and a line for each engine that is not
usable, saying why.)");
  return {"info", [json] { return *json ? print_json(system_info()) : print_text(system_info()); }};
}

}  // namespace tconv::cli
