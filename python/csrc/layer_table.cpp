#include "layer_table.hpp"

#include <deque>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <string>

namespace tconv::pytorch {
namespace {

struct Table {
  std::shared_mutex mutex;
  std::deque<LayerParameters> layers;  // does not move its elements when it grows
};

Table& table() {
  static auto& instance = *new Table;  // never destroyed: threads may outlive the library's statics
  return instance;
}

}  // namespace

std::int64_t number_of(const LayerParameters& parameters) {
  const std::unique_lock lock(table().mutex);
  auto& layers = table().layers;
  for (std::size_t number = 0; number < layers.size(); ++number)
    if (layers[number] == parameters) return static_cast<std::int64_t>(number);
  layers.push_back(parameters);
  return static_cast<std::int64_t>(layers.size()) - 1;
}

const LayerParameters& layer_of(std::int64_t number) {
  const std::shared_lock lock(table().mutex);
  const auto& layers = table().layers;
  if (number < 0 || number >= static_cast<std::int64_t>(layers.size()))
    throw std::out_of_range("tconv: there is no layer number " + std::to_string(number));
  return layers[static_cast<std::size_t>(number)];
}

}  // namespace tconv::pytorch
