// What the checks on a GPU are made of: memory, random tensors, whole-tensor comparison in float64, time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cuda/runtime/kernel.hpp"
#include "layer/layer.hpp"

namespace tconv::cuda::check {

/// The first GPU; throws where there is none.
const DeviceProperties& gpu();

void synchronize(const std::string& doing);

class Buffer {
 public:
  explicit Buffer(std::size_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* get() const { return reinterpret_cast<void*>(address_); }
  CUdeviceptr address() const { return address_; }
  std::size_t bytes() const { return bytes_; }
  void fill(unsigned char byte) const;

  template <class T>
  std::vector<T> download(std::size_t count) const {
    std::vector<T> host(count);
    copy_to_host(host.data(), count * sizeof(T));
    return host;
  }
  template <class T>
  void upload(const std::vector<T>& host) const {
    copy_from_host(host.data(), host.size() * sizeof(T));
  }

 private:
  void copy_to_host(void* host, std::size_t bytes) const;
  void copy_from_host(const void* host, std::size_t bytes) const;

  CUdeviceptr address_ = 0;
  std::size_t bytes_;
};

std::int64_t volume(const Extents& extents);

/// How far a result is from what it should be.
struct Outcome {
  double error = 0;  // relative in norm
  double worst = 0;  // largest difference over the largest output
  double bad = 0;    // elements that are NaN or infinite, and so those never written
};

/// Kernels that fill and compare tensors.
class Tools {
 public:
  Tools();
  /// Random values between -scale and scale, the same for a logical index whatever the layout, and their exact
  /// double copies, dense and channels first, where `wide` is not null.
  void randomize(const Tensor& tensor, double* wide, unsigned seed, double scale) const;
  /// `want` is dense and channels first.
  Outcome compare(const Tensor& got, const double* want) const;
  /// Words of 4 bytes that differ.
  std::int64_t differing_words(const Buffer& a, const Buffer& b) const;

 private:
  std::shared_ptr<const Kernel> randomize_, compare_, differing_;
};

/// A layer straight from the definition, in double, on the GPU. `x`, `w` and `y` are dense and channels first; `b`
/// may be null. The sweep holds it against the oracle on the CPU.
void reference_on_gpu(const Geometry& geometry, const Shape& shape, const double* x, const double* w,
                      const double* b, double* y);

/// The median time of a run, by events.
double median_ms(const std::function<void()>& run, int repetitions);

/// Runs `work(i)` for all i below `count` on all CPU cores.
void in_parallel(int count, const std::function<void(int)>& work);

}  // namespace tconv::cuda::check
