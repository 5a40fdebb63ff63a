// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/shard.h"

#include <algorithm>

namespace rankyard::plan {

namespace {

/// A run of elements that are neighbours on the rank and in the model.
struct Run {
    std::int64_t local = 0;
    std::int64_t global = 0;
    std::int64_t count = 0;
    bool first = true; ///< of the ranks that have it as copies
};

std::int64_t product(std::vector<std::int64_t>::const_iterator begin,
                     std::vector<std::int64_t>::const_iterator end)
{
    std::int64_t result = 1;
    for (; begin != end; ++begin)
        result *= *begin;
    return result;
}

std::vector<Run> runsOf(const Tensor &tensor, std::int64_t tensorRank)
{
    if (tensor.axis == none)
        return {{0, 0, tensor.numel, true}};
    const auto axis = static_cast<std::ptrdiff_t>(tensor.axis);
    const std::int64_t outer = product(tensor.shape.begin(), tensor.shape.begin() + axis);
    const std::int64_t inner = product(tensor.shape.begin() + axis + 1, tensor.shape.end());
    const std::int64_t localRows = tensor.shape[static_cast<std::size_t>(axis)];
    const std::int64_t globalRows = tensor.global[static_cast<std::size_t>(axis)];
    std::vector<Run> runs;
    for (std::int64_t block = 0; block < outer; ++block) {
        std::int64_t local = block * localRows, global = block * globalRows;
        for (const Section &section : tensor.sections) {
            const std::int64_t first = tensorRank / section.copies * section.local;
            const std::int64_t rows = std::clamp<std::int64_t>(section.global - first, 0, section.local);
            if (rows > 0)
                runs.push_back({local * inner, (global + first) * inner, rows * inner,
                                tensorRank % section.copies == 0});
            local += section.local;
            global += section.global;
        }
    }
    return runs;
}

} // namespace

namespace {

/// Elements [begin, end) of a bucket. `owner`: this rank owns them as far as the bucket's group goes.
std::vector<ShardRange> rangesIn(const StepProgram &program, const RankGrid &grid, int rank,
                                 std::int32_t index, std::int64_t begin, std::int64_t end, bool owner)
{
    const Bucket &bucket = program.buckets[static_cast<std::size_t>(index)];
    const Group *group =
        bucket.group == none ? nullptr : &program.groups[static_cast<std::size_t>(bucket.group)];
    const int tensorRank = grid.coordinate(rank, "tp");
    const bool overTensorRanks =
        group && std::find(group->axes.begin(), group->axes.end(), "tp") != group->axes.end();
    std::vector<ShardRange> ranges;
    for (const TensorId id : bucket.tensors) {
        const Tensor &tensor = program.tensors[static_cast<std::size_t>(id)];
        const bool owned =
            tensor.counted && owner && (tensor.axis != none || tensorRank == 0 || overTensorRanks);
        for (const Run &run : runsOf(tensor, tensorRank)) {
            const std::int64_t first = std::max(tensor.offset + run.local, begin);
            const std::int64_t last = std::min(tensor.offset + run.local + run.count, end);
            const std::int64_t shift = run.global - tensor.offset - run.local;
            if (first < last)
                ranges.push_back({id, index, first + shift, last + shift, first - begin, owned && run.first});
        }
    }
    return ranges;
}

} // namespace

std::vector<ShardRange> shardOf(const StepProgram &program, const RankGrid &grid, int rank,
                                std::int32_t index)
{
    const Bucket &bucket = program.buckets[static_cast<std::size_t>(index)];
    const int place =
        bucket.group == none ? 0 : grid.indexIn(rank, program.groups[static_cast<std::size_t>(bucket.group)]);
    const std::int64_t length = bucket.padded / bucket.slices;
    const std::int64_t begin = bucket.slices > 1 ? place * length : 0;
    const bool firstBlock = bucket.replicas == none
        || grid.indexIn(rank, program.groups[static_cast<std::size_t>(bucket.replicas)]) == 0;
    return rangesIn(program, grid, rank, index, begin, begin + length,
                    (bucket.slices > 1 || place == 0) && firstBlock);
}

std::vector<ShardRange> wholeOf(const StepProgram &program, const RankGrid &grid, int rank,
                                std::int32_t index)
{
    const Bucket &bucket = program.buckets[static_cast<std::size_t>(index)];
    return rangesIn(program, grid, rank, index, 0, bucket.padded, true);
}

std::vector<ShardRange> shardOf(const StepProgram &program, const RankGrid &grid, int rank)
{
    std::vector<ShardRange> all;
    for (std::size_t bucket = 0; bucket < program.buckets.size(); ++bucket) {
        const auto ranges = shardOf(program, grid, rank, static_cast<std::int32_t>(bucket));
        all.insert(all.end(), ranges.begin(), ranges.end());
    }
    return all;
}

} // namespace rankyard::plan
