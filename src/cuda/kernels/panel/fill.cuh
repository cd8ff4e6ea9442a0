// How panels are filled: by the threads of loading warpgroups, which pass x through registers (tiles/x_panel.cuh), or
// by one thread that copies x: panels that were turned before, or by a tensor map x as it lies.
//
// `Schedule` says which boxes of x come one after the other, `Roles` who loads them, `Shared` where they go.
#pragma once

#include "ptx/async_copy.cuh"
#include "ptx/barrier.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/launch.cuh"
#include "ptx/tensor_copy.cuh"
#include "team.cuh"
#include "tiles/panel_walk.cuh"
#include "tiles/x_panel.cuh"

namespace tconv::device {

template <GemmConfig C, class Roles, class Shared, class Schedule>
struct PanelFill {
  static constexpr int chunks = chunks_of(C), row_bytes = x_extent(C).w * 16;
  static constexpr bool scaled = scales(C.math);
  using Loaders = typename Roles::Loaders;
  using Tables = typename Schedule::Tables;
  using Panel = XPanel<C, Loaders>;

  /// Chunks of x, one after the other and tile after tile.
  struct Chunks {
    const ForwardParams& p;
    Schedule schedule;
    typename Panel::Loader loader;
    int chunk = 0, split = 0;  // of a tile, which shares its chunks with others perhaps

    __device__ explicit Chunks(const ForwardParams& params) : p(params), schedule(params, Roles::team()) { seek(); }
    __device__ void seek() {
      Tile tile;
      if (schedule.seek_products(p, tile)) {
        if constexpr (C.depth_splits > 1) split = tile.split, chunk = first_chunk_of();
        if (schedule.begins_tile())
          loader.seek(p, tile);
        else
          loader.next_slice(p);
      }
    }
    /// Of the tile, or of the one behind it: constants where tiles share no chunks.
    __device__ int first_chunk_of(int further = 0) const {
      return C.depth_splits == 1 ? further * chunks : first_chunk(C, split + further);
    }
    /// Begins to load the next chunk, if there is one.
    __device__ bool load(typename Panel::Buffer& buffer) {
      if (schedule.done()) return false;
      loader.load(buffer, chunk);
      buffer.begins_tile = chunk == first_chunk_of() && schedule.begins_tile();
      if (++chunk == first_chunk_of(1)) {
        chunk = 0;
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

  /// What the steps of a type read of an x tile: layers along the depth, and of each these rows.
  struct Read {
    int first_layer = x_extent(C).d, end_layer = 0, first_row = x_extent(C).h, end_row = 0;
    __device__ void find(int type) {
      constexpr Int3 extent = x_extent(C);
      const auto take = [&](int offset) {
        const int position = C.x_phases == 1 ? offset : offset % x_phase_stride(C);
        const int layer = position / (extent.w * extent.h), row = position / extent.w % extent.h;
        first_layer = min(first_layer, layer), end_layer = max(end_layer, layer + C.box.d);
        first_row = min(first_row, row), end_row = max(end_row, row + C.box.h);
      };
      for (int entry = Tables::first_entry(type); entry < Tables::first_entry(type) + Tables::steps(type); ++entry) {
        take(Tables::low_offset(entry));
        if constexpr (C.chunk_words < 8) take(Tables::high_offset(entry));  // pairs
      }
    }
  };

  /// The panels of a tile, a shift each: all of a panel is read.
  __device__ static void copy_by_shift(const ForwardParams& p, const Shared& shared, const Tile& tile,
                                       Ring<C.panel_stages>& panel) {
    Read read;
    PanelWalk<C, Tables> walk(p, tile);
    const int end = first_chunk(C, tile.split + 1);
#pragma unroll 1
    for (int chunk = first_chunk(C, tile.split); chunk < end; walk.advance(chunk), panel.advance()) {
      const int d = C.reach.d - walk.depth_shift(), h = C.reach.h - walk.height_shift();
      read.first_layer = d, read.end_layer = d + C.box.d, read.first_row = h, read.end_row = h + C.box.h;
      ptx::barrier_wait(shared.panel_empty(panel.slot), panel.parity ^ 1);
      copy_from_all(p, tile, read, chunk,
                    ptx::shared_address(shared.panels) + panel.slot * panel_bytes(C) - (d * C.box.h + h) * row_bytes,
                    shared.panel_full(panel.slot));
    }
  }

  /// Copies a panel out of x that was turned once for all boxes: of each slice, each input of a position and each layer
  /// the rows that are read, which follow one another. `to` is where its first layer and row would be.
  __device__ static void copy_from_all(const ForwardParams& p, const Tile& tile, const Read& read, int chunk, u32 to,
                                       u32 full) {
    constexpr int slices = weight_parts(C) * panel_slices(C), phases = C.x_phases;
    constexpr int layer_rows = x_extent(C).h;
    const Int3 all = turned_extent(C, p.boxes);
    const i64 image = (i64(tile.n) * p.boxes.w.by + tile.box_w) * C.groups + tile.group;
    const i64 phase_bytes = i64(volume(all)) * 16;
    const i64 first_row = (image * chunks + chunk) * slices * phases * (i64(all.d) * all.h) +
                          (tile.origin.d - C.first_position.d) * all.h + tile.origin.h - C.first_position.h;
    const unsigned char* from = static_cast<const unsigned char*>(p.x) + (first_row + read.first_row) * row_bytes;
    const int bytes = (read.end_row - read.first_row) * row_bytes;
    ptx::barrier_arrive_expect(full, slices * phases * (read.end_layer - read.first_layer) * bytes);
    to += read.first_row * row_bytes;
#pragma unroll 1
    for (int slice = 0; slice < slices; ++slice, to += panel_slice_bytes(C))
#pragma unroll 1
      for (int phase = 0; phase < phases; ++phase, from += phase_bytes)
        for (int d = read.first_layer; d < read.end_layer; ++d)
          ptx::bulk_load(to + phase * x_phase_stride(C) * 16 + d * layer_rows * row_bytes,
                         from + i64(d) * all.h * row_bytes, bytes, full);
  }

  /// Copies panels that were turned before.
  __device__ static void copy_x(const ForwardParams& p, const Shared& shared) {
    ptx::wait_for_previous();
    Ring<C.panel_stages> panel;
    Tile tile;
    for (Schedule schedule(p, Roles::team()); schedule.seek_products(p, tile); schedule.advance()) {
      if constexpr (panels_by_shift(C)) {
        copy_by_shift(p, shared, tile, panel);
        continue;
      }
      const int first = first_chunk(C, tile.split), end = first_chunk(C, tile.split + 1);
      const unsigned char* turned = static_cast<const unsigned char*>(p.x) +
                                    ((i64(tile.box) * C.groups + tile.group) * chunks + first) * panel_bytes(C);
      Read read;
      if constexpr (C.turned_once) read.find(tile.type);
#pragma unroll 1
      for (int chunk = first; chunk < end; ++chunk, turned += panel_bytes(C), panel.advance()) {
        const u32 full = shared.panel_full(panel.slot);
        const u32 to = ptx::shared_address(shared.panels) + panel.slot * panel_bytes(C);
        ptx::barrier_wait(shared.panel_empty(panel.slot), panel.parity ^ 1);
        if constexpr (C.turned_once) {
          copy_from_all(p, tile, read, chunk, to, full);
        } else {
          ptx::barrier_arrive_expect(full, panel_bytes(C));
          ptx::bulk_load(to, turned, panel_bytes(C), full);
        }
      }
    }
  }

  /// Copies x as it lies. What is outside of the image, of the group and of the batch comes as zeros.
  __device__ static void copy_mapped_x(const MappedParams& p, const Shared& shared) {
    ptx::prefetch(p.x_map);
    ptx::wait_for_previous();
    Ring<C.panel_stages> panel;
    Tile tile;
    for (Schedule schedule(p, Roles::team()); schedule.seek_products(p, tile); schedule.advance()) {
      const int first = first_chunk(C, tile.split), end = first_chunk(C, tile.split + 1);
#pragma unroll 1
      for (int chunk = first; chunk < end; ++chunk, panel.advance()) {
        const u32 full = shared.panel_full(panel.slot);
        u32 to = ptx::shared_address(shared.panels) + panel.slot * panel_bytes(C);
        ptx::barrier_wait(shared.panel_empty(panel.slot), panel.parity ^ 1);
        ptx::barrier_arrive_expect(full, panel_bytes(C));
#pragma unroll
        for (int product = 0; product < C.position_tiles; ++product)
#pragma unroll
          for (int copy = 0; copy < mapped_copies(C); ++copy, to += mapped_copy_bytes(C)) {
            const MappedPlace at(p, tile, product, copy * mapped_positions);
            ptx::tensor_load(to, p.x_map, at.position, chunk * mapped_channels(C), tile.group, at.image, full);
          }
      }
    }
  }

 private:
  /// Where a copy of mapped x begins: the position counts all of an image.
  struct MappedPlace {
    int position, image;
    __device__ MappedPlace(const ForwardParams& p, const Tile& tile, int product, int column)
        : position((tile.origin.d * p.in.h + tile.origin.h) * p.in.w + tile.origin.w), image(tile.n) {
      if constexpr (C.panel_flat) {
        const int of_box = product * C.panel_columns + column, images = C.images > 1 ? of_box / volume(C.box) : 0;
        image += images, position += of_box - images * volume(C.box);
      } else {
        const int row = product / panels_per_row(C) * C.product_rows;
        position +=
            (row / C.box.h * p.in.h + row % C.box.h) * p.in.w + product % panels_per_row(C) * C.panel_columns + column;
      }
    }
  };

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
