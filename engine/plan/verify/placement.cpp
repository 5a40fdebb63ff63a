// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/verify/checks.h"

#include <map>

namespace rankyard::plan {

namespace {

/// Who holds which bytes of one arena, as the program goes on: begin → (end, buffer). Ranges never overlap.
using Occupants = std::map<std::int64_t, std::pair<std::int64_t, BufferId>>;

/// Cuts [begin, end) out of what is there; what was cut is handed to `displaced`.
template<typename F>
void takeRange(Occupants &occupants, std::int64_t begin, std::int64_t end, BufferId buffer, F &&displaced)
{
    auto it = occupants.upper_bound(begin);
    if (it != occupants.begin())
        --it;
    while (it != occupants.end() && it->first < end) {
        const auto [from, rest] = *it;
        const auto [to, other] = rest;
        if (to <= begin) {
            ++it;
            continue;
        }
        displaced(other);
        it = occupants.erase(it);
        if (from < begin)
            occupants[from] = {begin, other};
        if (to > end)
            occupants[end] = {to, other};
    }
    occupants[begin] = {end, buffer};
}

} // namespace

Status checkPlacement(const StepProgram &program, const Order &order)
{
    std::vector<Occupants> arenas(program.arenas.size());
    std::vector<OpId> released(program.buffers.size(), none);
    std::vector<bool> placed(program.buffers.size(), false);
    for (const Op &op : program.ops) {
        for (const BufferId id : op.releases)
            released[at(id)] = op.id;
    }
    std::string clash;
    const auto place = [&](const Buffer &buffer, OpId first) {
        placed[at(buffer.id)] = true;
        if (buffer.bytes == 0)
            return;
        takeRange(arenas[at(buffer.arena)], buffer.offset, buffer.offset + buffer.bytes, buffer.id,
                  [&](BufferId other) {
                      const OpId release = released[at(other)];
                      // Free only once the release is ordered before the first use here; later in the program is not enough.
                      if (release == none || first == none || !order.before(release, first))
                          clash = program.buffer(other).name;
                  });
    };
    for (const Buffer &buffer : program.buffers) {
        if (!buffer.persistent || buffer.parent != none)
            continue;
        place(buffer, none);
        if (!clash.empty())
            return Error::make(Code::Internal, "lies on " + clash + " and both live over all steps",
                               "buffer " + buffer.name);
    }
    for (const Op &op : program.ops) {
        for (const auto *list : {&op.reads, &op.writes}) {
            for (const BufferId id : *list) {
                const BufferId root = rootOf(program, id);
                if (!placed[at(root)])
                    place(program.buffer(root), op.id);
                if (!clash.empty())
                    return broken(op,
                                  "is the first to use " + program.buffer(root).name + ", which lies on "
                                      + clash + " while that is alive");
            }
        }
    }
    return {};
}

} // namespace rankyard::plan
