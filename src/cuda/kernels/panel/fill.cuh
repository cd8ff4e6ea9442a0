// How panels are filled: by the threads of loading warpgroups, which pass x through registers (tiles/x_panel.cuh), or
// where x was turned before, by one thread that copies it.
#pragma once

#include "panel/shared.cuh"
#include "ptx/async_copy.cuh"
#include "ptx/launch.cuh"
#include "team.cuh"
#include "tiles/x_panel.cuh"

namespace tconv::device {

template <GemmConfig C, class Tables>
struct PanelFill {
  static constexpr int chunks = chunks_of(C);
  static constexpr bool scaled = scales(C.math);
  using Roles = PanelRoles<C>;
  using Loaders = typename Roles::Loaders;
  using Shared = PanelShared<C>;
  using Panel = XPanel<C, Loaders>;
  using Schedule = TeamSchedule<C, Tables>;

  /// Chunks of x, one after the other and tile after tile.
  struct Chunks {
    const ForwardParams& p;
    Schedule schedule;
    typename Panel::Loader loader;
    int chunk = 0, first = 0, end = 0;  // of the tile

    __device__ explicit Chunks(const ForwardParams& params) : p(params), schedule(params, Roles::team()) { seek(); }
    __device__ void seek() {
      Tile tile;
      if (!schedule.seek_products(p, tile)) return;
      chunk = first = first_chunk(C, tile.split), end = first_chunk(C, tile.split + 1);
      loader.seek(p, tile);
    }
    /// Begins to load the next chunk, if there is one.
    __device__ bool load(typename Panel::Buffer& buffer) {
      if (schedule.done()) return false;
      loader.load(buffer, chunk);
      buffer.begins_tile = chunk == first;
      if (++chunk == end) {
        schedule.advance();
        seek();
      }
      return true;
    }
  };

  /// Fills panels from one buffer while the other is being loaded, where there are two.
  __device__ static void load_x(const ForwardParams& p, const Shared& shared) {
    Chunks source(p);
    ptx::wait_for_previous();
    source.loader.load_from_here();
    Ring<C.panel_stages> panel;
    u32 scale = 0;
    const auto fill = [&](const typename Panel::Buffer& buffer) {
      unsigned char* const to = shared.panels + panel.slot * panel_bytes(C);
      u32 largest = 0;
      if constexpr (scaled) largest = Panel::largest_of(buffer);
      ptx::barrier_wait(shared.panel_empty(panel.slot), panel.parity ^ 1);
      if constexpr (scaled) {
        if (lane_index() == 0)
          reinterpret_cast<u32*>(to + panel_largest_place(C))[Loaders::index() / warp_size] = largest;
        Loaders::sync();
        largest = largest_of(to);
        if constexpr (C.math == Math::halves)
          scale = scale_for(largest);
        else if (buffer.begins_tile || !has_room(scale, largest))
          scale = coarse_scale_for(largest);  // the chunks of a tile keep theirs as long as it serves
        if (Loaders::index() == 0) *reinterpret_cast<u32*>(to + panel_scale_place(C)) = scale;
      }
      Panel::fill(to, buffer, power_of_two(scale));
      ptx::async_proxy_fence();
      __syncwarp();
      release(shared.panel_full(panel.slot));
      panel.advance();
    };
    typename Panel::Buffer a;
    if constexpr (C.fill_buffers == 1) {
      while (source.load(a)) fill(a);
    } else {
      typename Panel::Buffer b;
      bool more = source.load(a);
      while (more) {
        more = source.load(b);
        fill(a);
        if (!more) break;
        more = source.load(a);
        fill(b);
      }
    }
  }

  /// Copies panels that were turned before.
  __device__ static void copy_x(const ForwardParams& p, const Shared& shared) {
    ptx::wait_for_previous();
    Ring<C.panel_stages> panel;
    Tile tile;
    for (Schedule schedule(p, Roles::team()); schedule.seek_products(p, tile); schedule.advance()) {
      const int first = first_chunk(C, tile.split), end = first_chunk(C, tile.split + 1);
      const unsigned char* turned = static_cast<const unsigned char*>(p.x) +
                                    ((i64(tile.box) * C.groups + tile.group) * chunks + first) * panel_bytes(C);
#pragma unroll 1
      for (int chunk = first; chunk < end; ++chunk, turned += panel_bytes(C), panel.advance()) {
        const u32 full = shared.panel_full(panel.slot);
        ptx::barrier_wait(shared.panel_empty(panel.slot), panel.parity ^ 1);
        ptx::barrier_arrive_expect(full, panel_bytes(C));
        ptx::bulk_load(ptx::shared_address(shared.panels) + panel.slot * panel_bytes(C), turned, panel_bytes(C), full);
      }
    }
  }

 private:
  /// The bits of the largest number of a panel.
  __device__ static u32 largest_of(const unsigned char* panel) {
    u32 largest = 0;
#pragma unroll
    for (int i = 0; i < C.loaders; ++i) {
      const uint4 of_warp = reinterpret_cast<const uint4*>(panel + panel_largest_place(C))[i];
      largest = max(largest, max(max(of_warp.x, of_warp.y), max(of_warp.z, of_warp.w)));
    }
    return largest;
  }
};

}  // namespace tconv::device
