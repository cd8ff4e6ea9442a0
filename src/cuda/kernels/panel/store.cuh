// Which epilogue stores the sums of the panel kernel: runs of outputs, or channels last, channels.
#pragma once

#include "epilogue/panel_channel_store.cuh"
#include "epilogue/panel_store.cuh"
#include "panel/roles.cuh"
#include "team.cuh"

namespace tconv::device {

template <GemmConfig C, class Tables>
using PanelEpilogue = typename Select<C.channel_rows, PanelChannelStore<C, Tables, typename PanelRoles<C>::Member>,
                                      PanelStore<C, Tables>>::Type;

}  // namespace tconv::device
