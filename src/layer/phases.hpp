// The phase plan: a transposed convolution as ordinary stride-1 convolutions, one dimension at a time.
//
// Input i and tap k meet output o when o + p = i·s + k·d. Write o + p = q·s + r with 0 ≤ r < s: r is the
// phase of o. With g = gcd(s, d), a phase r has taps only if g divides r; they are k = k0 + j·(s/g), and
// tap j reads input i = q − c − j·(d/g). Every phase is a stride-1 convolution over q; in 2D and 3D the
// phases are the products of the phases of the dimensions. Phases without taps hold the bias alone and
// are not listed: a layer has at most `kernel` phases with taps, whatever its stride.
#pragma once

#include <cstdint>
#include <vector>

namespace tconv {

struct Tap {
  std::int64_t k;      // index into the kernel
  std::int64_t shift;  // reads input q − shift; never negative
  bool operator==(const Tap&) const = default;
};

struct Phase {
  std::int64_t r;         // outputs with (o + p) mod s = r
  std::vector<Tap> taps;  // by ascending k, never empty
};

/// Of positive numbers. Not std::gcd: GCC 12.2 at -O2 compiles the absolute values it takes into their negatives
/// where it is inlined (a peephole turns neg + cmovs into a cmovns of one register with itself).
std::int64_t greatest_common_divisor(std::int64_t a, std::int64_t b);

/// The phases of one dimension that have taps, by ascending r.
std::vector<Phase> phases_of(std::int64_t kernel, std::int64_t stride, std::int64_t dilation);

/// The q with output o = q·s + r − p inside [0, output), as a half-open range. May be empty.
struct Range {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t size() const { return end > begin ? end - begin : 0; }
  bool operator==(const Range&) const = default;
};
Range phase_range(std::int64_t r, std::int64_t stride, std::int64_t padding, std::int64_t output);

/// The mirror, for gradients: tap k of input i reads output o = (i + shift)·s + r − p.
struct MirrorTap {
  std::int64_t r;
  std::int64_t shift;
};
MirrorTap mirror_tap(std::int64_t k, std::int64_t stride, std::int64_t dilation);

}  // namespace tconv
